// The state that all parts of the page share: the connection, the panes, and their feeds.

import { Feeds } from "./feed";
import type { Approval, PaneInfo, Wait } from "./types";
import { Connection, type Link, type Pending, type Socket } from "./wire";

type Topic = "panes" | "waits" | "approvals" | "link" | "pending" | "may" | "theme";

/** A message for the person. */
export interface Note {
    text: string;
    kind: "info" | "error";
    actions?: { label: string; press(): void }[];
    /** Milliseconds until the message disappears; absent: it stays. */
    ms?: number;
}

export class App {
    readonly panes = new Map<string, PaneInfo>();
    waits: Wait[] = [];
    approvals: Approval[] = [];
    may: string[] = [];
    /** The folder of the daemon's own tmux sockets. */
    sockets = "";
    version = "";
    link: Link = "closed";
    retryAt = 0;
    /** When this connection began: lists that arrive soon after may be incomplete. */
    readyAt = 0;
    pending: readonly Pending[] = [];
    readonly connection: Connection;
    readonly feeds: Feeds;
    note: (note: Note) => void = () => undefined;
    /** Called when the daemon no longer accepts this browser's login. */
    barred: () => void = () => undefined;
    private listeners = new Map<Topic, Set<() => void>>();

    constructor() {
        // Frames that were drawn while the page was visible are acknowledged before it is hidden.
        document.addEventListener("visibilitychange", () => document.hidden && this.connection.giveCredits());
        const scheme = location.protocol === "https:" ? "wss:" : "ws:";
        this.connection = new Connection(
            {
                open: () =>
                    new WebSocket(`${scheme}//${location.host}/v1/page/ws`, "muxtap-page-1") as unknown as Socket,
                after: (ms, then) => {
                    const timer = setTimeout(then, ms);
                    return () => clearTimeout(timer);
                },
                now: Date.now,
                // A hidden page draws no frames, but must still report an agent's question.
                frame: (then) => (document.hidden ? setTimeout(then, 1000) : requestAnimationFrame(then)),
                recall: () => sessionStorage.getItem("muxtap-client") || null,
                remember: (client) => sessionStorage.setItem("muxtap-client", client),
                random: Math.random,
                seen: () => !document.hidden,
                barred: () => fetch("/v1/status", { credentials: "same-origin" }).then((answer) => answer.status === 401),
            },
            {
                link: (state, retryMs) => {
                    this.link = state;
                    this.retryAt = Date.now() + retryMs;
                    this.tell("link");
                },
                panes: (whole, set, gone) => this.takePanes(whole, set, gone),
                waits: (waits) => {
                    this.waits = waits;
                    this.tell("waits");
                },
                approvals: (approvals) => {
                    this.approvals = approvals;
                    this.tell("approvals");
                },
                pending: (pending) => {
                    this.pending = pending;
                    this.tell("pending");
                },
                unknown: (lost) => this.lost(lost),
                refused: (pending, error) =>
                    this.note({ kind: "error", text: `Not typed into ${this.name(pending.key)}: ${error.message}`, ms: 8000 }),
                error: (error) => this.note({ kind: "error", text: error.message, ms: 8000 }),
                barred: () => this.barred(),
                ready: ({ may, version, sockets }) => {
                    this.may = may;
                    this.version = version;
                    this.sockets = sockets;
                    this.readyAt = Date.now();
                    // The server may be another one since then.
                    this.asked.clear();
                    this.tell("may");
                },
            },
        );
        this.feeds = new Feeds(this.connection);
    }

    /** Calls back after each change of a topic; returns a function that stops it. */
    on(topic: Topic, then: () => void): () => void {
        const all = this.listeners.get(topic) ?? new Set();
        this.listeners.set(topic, all);
        all.add(then);
        return () => all.delete(then);
    }

    tell(topic: Topic): void {
        for (const then of [...(this.listeners.get(topic) ?? [])]) {
            then();
        }
    }

    get mayType(): boolean {
        return this.may.includes("input");
    }

    /** Returns a pane's name as tmux writes it. */
    name(key: string): string {
        const pane = this.panes.get(key);
        return pane === undefined ? "a closed pane" : paneName(pane);
    }

    /**
     * Returns whether a pane's title is one word that other panes have too, such as the host's
     * name, tmux's default.
     */
    isCommonTitle(pane: PaneInfo): boolean {
        return /^[\w.-]+$/.test(pane.title) && (this.titles.get(pane.title) ?? 0) > 1;
    }

    /** The number of panes with each title, counted once for each list. */
    private titles = new Map<string, number>();

    /** Returns the panes whose agents ask a question. */
    asking(): PaneInfo[] {
        return [...this.panes.values()].filter(isAsking);
    }

    /** Returns the version of a pane's tmux, if known. */
    tmuxVersion(key: string): string | undefined {
        return this.versions.get(this.panes.get(key)?.socket ?? "");
    }

    private versions = new Map<string, string>();
    private asked = new Set<string>();

    private async askVersions(): Promise<void> {
        const status = await http<{ servers?: { socket: string; version?: string }[] }>("GET", "/v1/status").catch(() => null);
        for (const { socket, version } of status?.servers ?? []) {
            if (version !== undefined) {
                this.versions.set(socket, version);
            }
        }
    }

    private takePanes(whole: boolean, set: PaneInfo[], gone: string[]): void {
        if (whole) {
            this.panes.clear();
        }
        for (const pane of set) {
            this.panes.set(pane.key, pane);
        }
        for (const key of gone) {
            this.panes.delete(key);
        }
        this.titles.clear();
        for (const { title } of this.panes.values()) {
            this.titles.set(title, (this.titles.get(title) ?? 0) + 1);
        }
        const news = set.filter((pane) => !this.asked.has(pane.socket));
        if (news.length > 0) {
            for (const pane of news) {
                this.asked.add(pane.socket);
            }
            void this.askVersions();
        }
        if (whole && set.length === 0) {
            // A server is followed from the first request that targets it; without a name, that is
            // the default one.
            http("GET", "/v1/panes").catch(() => undefined);
        }
        this.tell("panes");
    }

    /**
     * Keys belong to the daemon that issued them: another daemon has other keys for the same panes.
     */
    private lost(lost: readonly Pending[]): void {
        const were = new Map(lost.map((one) => [one.key, this.panes.get(one.key)]));
        const words = lost.map((one) => describe(one)).join(" ");
        this.note({
            kind: "error",
            text: `muxtap restarted before it acknowledged: ${words} (${this.name(lost[0]?.key ?? "")}). Check the pane before you type this again.`,
            actions: [
                {
                    label: "Type again",
                    press: () => {
                        for (const one of lost) {
                            const key = samePane(this.panes, one.key, were.get(one.key));
                            if (key === null) {
                                this.note({ kind: "error", text: `Not typed again: ${were.get(one.key)?.id ?? "the pane"} no longer exists.`, ms: 8000 });
                                return;
                            }
                            this.connection.type(key, one.typed);
                        }
                    },
                },
            ],
        });
    }
}

/** Returns the current key of the pane that once had this key, or null if the pane is gone. */
export function samePane(panes: ReadonlyMap<string, PaneInfo>, key: string, was: PaneInfo | undefined): string | null {
    if (panes.has(key)) {
        return key;
    }
    for (const pane of panes.values()) {
        // A restarted tmux counts from %0 again: the session shows whether it may be the same pane.
        if (pane.id === was?.id && pane.socket === was.socket && pane.session === was.session) {
            return pane.key;
        }
    }
    return null;
}

export function isAsking(pane: PaneInfo): boolean {
    return pane.agent?.state === "permission" || pane.agent?.state === "question";
}

export function paneName(pane: PaneInfo): string {
    return `${pane.session}:${pane.window}.${pane.pane}`;
}

/** Returns the tmux server's name with its host; empty for the daemon's own default server. */
export function serverName(socket: string, sockets: string): string {
    if (!socket.startsWith("/")) {
        return socket;
    }
    const name = socket.split("/").pop() ?? socket;
    if (name !== "default") {
        return name;
    }
    return socket === `${sockets}/default` ? "" : socket;
}

export function describe(pending: Pending): string {
    const typed = pending.typed;
    if ("keys" in typed) {
        return typed.keys.join(" ");
    }
    if ("text" in typed) {
        return JSON.stringify(typed.text);
    }
    return "paste" in typed ? `a paste of ${typed.paste.length} characters` : "a mouse event";
}

/** Sends an HTTP request to the daemon, with the cookie. */
export async function http<T>(method: string, path: string, body?: unknown): Promise<T> {
    const answer = await fetch(path, {
        method,
        ...(body === undefined ? {} : { body: JSON.stringify(body), headers: { "content-type": "application/json" } }),
        credentials: "same-origin",
    });
    const text = await answer.text();
    let value: unknown;
    try {
        value = text === "" ? {} : JSON.parse(text);
    } catch {
        value = { code: "INTERNAL_ERROR", message: `${answer.status} ${answer.statusText}` };
    }
    if (!answer.ok) {
        throw Object.assign(new Error(messageOf(value)), { status: answer.status, error: value });
    }
    return value as T;
}

export function messageOf(error: unknown): string {
    if (typeof error === "object" && error !== null && "message" in error) {
        return String(error.message);
    }
    return String(error);
}
