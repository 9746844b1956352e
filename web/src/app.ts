// The state that all parts of the page share: the connection, the panes, and their feeds.

import { clean } from "./dom";
import { Feeds } from "./feed";
import type { Approval, PaneInfo, Wait } from "./types";
import { Connection, KEPT_FOR, type Link, type Pending, type Socket } from "./wire";

type Topic = "panes" | "waits" | "approvals" | "link" | "pending" | "may" | "theme";

/** A message for the person. */
export interface Note {
    text: string;
    kind: "info" | "error";
    actions?: { label: string; press(): void }[];
    /** Milliseconds until the message disappears; absent: it stays. */
    ms?: number;
    /** A later message with the same tag takes the place of this one. */
    tag?: string;
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
    /** Shows a message; returns a function that withdraws it. */
    note: (note: Note) => () => void = () => () => undefined;
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
                refused: (pending, error) => this.refused([pending], error.message),
                error: (error) => this.note({ kind: "error", text: error.message, ms: 8000 }),
                barred: () => this.barred(),
                ready: ({ may, version, sockets }) => {
                    this.may = may;
                    this.version = version;
                    this.sockets = sockets;
                    this.readyAt = Date.now();
                    // Input of a time before may still wait for its panes.
                    this.were = new Map([...(this.connection.waiting.length > 0 ? this.were : []), ...this.panes]);
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

    /** Returns a pane's name, in words for a message. */
    name(key: string): string {
        const pane = this.panes.get(key);
        return pane === undefined ? "a closed pane" : fullName(pane);
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
        this.rehome();
        this.tell("panes");
    }

    /** The panes before this connection. */
    private were: ReadonlyMap<string, PaneInfo> = new Map();
    private rehoming: ReturnType<typeof setTimeout> | undefined;

    /**
     * Gives keys that wait for an earlier daemon's panes to the same panes of this one. The first
     * lists may lack some.
     */
    private rehome(): void {
        const isLast = Date.now() - this.readyAt >= LIST_TIME;
        const lost = this.connection.rehome((key) => samePane(this.panes, key, this.were.get(key)), isLast);
        clearTimeout(this.rehoming);
        if (lost === null) {
            this.rehoming = setTimeout(() => this.rehome(), LIST_TIME);
        } else if (lost.length > 0) {
            for (const [key, list] of byPane(lost)) {
                const isLate = samePane(this.panes, key, this.were.get(key)) !== null;
                this.refused(list, isLate ? `muxtap came back after more than ${KEPT_FOR / 1000} s` : "the pane no longer exists");
            }
        }
    }

    /** The input in the messages about refused input, while they are shown, by pane. */
    private refusals = new Map<string, { list: readonly Pending[]; at: number }>();

    /** Shows that input was not typed: one message for each pane, however many keys there are. */
    private refused(pending: readonly Pending[], why: string, were = this.were): void {
        const now = Date.now();
        for (const [key, list] of byPane(pending)) {
            const before = this.refusals.get(key);
            const all = [...(before !== undefined && now - before.at < 8000 ? before.list : []), ...list];
            this.refusals.set(key, { list: all, at: now });
            const pane = this.panes.get(key) ?? were.get(key);
            const into = pane === undefined ? "a closed pane" : fullName(pane);
            this.note({ kind: "error", text: `${amount(all)} ${isOne(all) ? "was" : "were"} not typed into ${into}: ${why}`, ms: 8000, tag: `refused ${key}` });
        }
    }

    /**
     * Keys belong to the daemon that issued them: another daemon has other keys for the same panes.
     */
    private lost(lost: readonly Pending[]): void {
        const were = new Map(lost.flatMap((one) => this.panes.get(one.key) ?? []).map((pane) => [pane.key, pane]));
        const words = [...byPane(lost)].map(([key, list]) => `${clean(list.map(describe).join(" "), 150)} (${this.name(key)})`).join("; ");
        this.note({
            kind: "error",
            text: `muxtap restarted before it acknowledged: ${words}. Check the pane before you type this again.`,
            actions: [
                {
                    label: "Type again",
                    press: () => {
                        const gone = lost.filter((one) => {
                            const key = samePane(this.panes, one.key, were.get(one.key));
                            return key === null || !this.connection.type(key, one.typed);
                        });
                        this.refused(gone, "the pane no longer exists, or too much input is pending", were);
                    },
                },
            ],
        });
    }
}

/** Milliseconds after which a new connection's list contains every server's panes. */
export const LIST_TIME = 3000;

/**
 * Returns the current key of the pane that once had this key, or null if the pane is gone.
 *
 * A restarted tmux counts its ids from 0 again: only the same process is the same pane.
 */
export function samePane(panes: ReadonlyMap<string, PaneInfo>, key: string, was: PaneInfo | undefined): string | null {
    if (panes.has(key)) {
        return key;
    }
    const facts = ["id", "socket", "pid", "session_id", "window_id"] as const;
    for (const pane of panes.values()) {
        if (was?.pid && facts.every((fact) => pane[fact] === was[fact])) {
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

/** Returns what a person calls a pane: its window's name, or its agent's if tmux named the window. */
export function paneLabel(pane: PaneInfo): string {
    const { window_name: name, command, agent } = pane;
    return agent && (name === "" || name === command) ? agent.name : name || command;
}

/** Returns what a person calls a pane, with its address in tmux. */
export function fullName(pane: PaneInfo): string {
    return `${paneLabel(pane)} (${paneName(pane)})`;
}

/** Returns the last part of a path. */
export function baseName(path: string): string {
    return path.split("/").filter((part) => part !== "").pop() ?? path;
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

/** Returns input in words. */
export function describe(pending: Pending): string {
    const typed = pending.typed;
    if ("keys" in typed) {
        return typed.keys.join(" ");
    }
    if ("text" in typed) {
        return JSON.stringify(typed.text);
    }
    return "paste" in typed ? pasteWords(typed.paste) : "a mouse event";
}

function pasteWords(paste: string): string {
    const lines = lineCount(paste);
    return `a paste of ${lines > 1 ? `${lines} lines` : count([...paste].length, "character")}`;
}

/** Returns the number of lines of a text; a line end at its end begins no other line. */
export function lineCount(text: string): number {
    return text.replace(/\n$/, "").split("\n").length;
}

/** Returns how many of something, in words. */
export function count(number: number, what: string): string {
    return `${number} ${what}${number === 1 ? "" : "s"}`;
}

/** Returns how much input this is: a paste is not a key. */
export function amount(list: readonly Pending[]): string {
    let keys = 0;
    let events = 0;
    const pastes: string[] = [];
    for (const { typed } of list) {
        if ("keys" in typed) {
            keys += typed.keys.length;
        } else if ("text" in typed) {
            keys += [...typed.text].length;
        } else if ("paste" in typed) {
            pastes.push(typed.paste);
        } else {
            events += 1;
        }
    }
    const [paste = ""] = pastes;
    const parts = [
        keys > 0 ? count(keys, "key") : "",
        pastes.length > 1 ? `${pastes.length} pastes of ${count(pastes.reduce((sum, one) => sum + lineCount(one), 0), "line")}` : pastes.length > 0 ? pasteWords(paste) : "",
        events > 0 ? count(events, "mouse event") : "",
    ];
    return parts.filter((part) => part !== "").join(" and ");
}

/** Returns whether `amount` of this input is a singular. */
function isOne(list: readonly Pending[]): boolean {
    return /^(1 |a )(?!.* and )/.test(amount(list));
}

/** Returns input by pane. */
function byPane(list: readonly Pending[]): Map<string, Pending[]> {
    const all = new Map<string, Pending[]>();
    for (const one of list) {
        all.set(one.key, [...(all.get(one.key) ?? []), one]);
    }
    return all;
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
