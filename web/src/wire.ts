// The connection of docs/page.md: hello, credits, numbered input, and reconnecting.

import { fitting } from "./fit";
import type {
    ApiError,
    Approval,
    HistoryMessage,
    PaneInfo,
    Ran,
    ScreenMessage,
    ServerMessage,
    Typed,
    Wait,
    Welcome,
} from "./types";

/** The part of a WebSocket that is used. */
export interface Socket {
    readyState: number;
    send(text: string): void;
    close(): void;
    onopen: ((event: never) => void) | null;
    onmessage: ((event: { data: unknown }) => void) | null;
    onclose: ((event: { code: number; reason: string }) => void) | null;
}

/** The environment of the connection. */
export interface Surroundings {
    open(): Socket;
    /** Calls back after this many milliseconds; returns a function that cancels it. */
    after(ms: number, then: () => void): () => void;
    /** Milliseconds on a clock that also runs while the page is frozen. */
    now(): number;
    /** Calls back in the next frame. */
    frame(then: () => void): void;
    recall(): string | null;
    remember(client: string): void;
    random(): number;
    /** Whether the page is visible: a hidden page does not probe its connection. */
    seen(): boolean;
    /** Whether the daemon responds, and rejects this browser's login. */
    barred(): Promise<boolean>;
}

/** Callbacks of a view of a pane. */
export interface ViewEvents {
    screen(message: ScreenMessage): void;
    ended?(exit: { status?: number | null; signal?: number | string | null } | null): void;
    failed?(error: ApiError): void;
}

export type Link = "connecting" | "open" | "waiting" | "closed";

/** Input that is not acknowledged. */
export interface Pending {
    seq: number;
    key: string;
    typed: Typed;
    /** Whether the input was ever sent on a connection. */
    sent: boolean;
    /** When it was typed, in milliseconds. */
    at: number;
}

export interface ConnectionEvents {
    link(state: Link, retryMs: number): void;
    panes(whole: boolean, set: PaneInfo[], gone: string[]): void;
    waits(waits: Wait[]): void;
    approvals(approvals: Approval[]): void;
    /** Called when the unacknowledged input has changed. */
    pending(pending: readonly Pending[]): void;
    /** Called when another daemon took this input: whether it arrived is unknown. */
    unknown(lost: readonly Pending[]): void;
    refused(pending: Pending, error: ApiError): void;
    error(error: ApiError): void;
    /** Called when the daemon rejects this browser's login: no retries until `connect`. */
    barred(): void;
    /** Called when a connection is ready, with the page's rights. */
    ready(welcome: Welcome): void;
}

/** Milliseconds before the first retry; below, the maximum. */
const FIRST_RETRY = 250;
const LAST_RETRY = 8000;
/**
 * Milliseconds for a connection to send `welcome`; below, for a response before the connection is
 * considered dead.
 */
const WELCOME_TIME = 10_000;
const DOUBT_TIME = 4000;
/**
 * Milliseconds for an `ack` while other messages arrive; below, of silence before the connection is
 * probed.
 */
const ACK_TIME = 10_000;
const SILENCE = 20_000;
/**
 * A timer that fires more than this late was delayed: the page was frozen or the machine suspended.
 */
const LATE = 1000;
/** Maximum number of input messages that wait for a connection; further input is refused. */
const MOST_PENDING = 1000;
/**
 * Milliseconds for which input waits for a daemon that restarts: afterwards, its pane's program may
 * expect something else.
 */
export const KEPT_FOR = 60_000;
/** The code with which a daemon closes that another one has replaced (RFC 6455, IANA). */
const RESTART = 1012;
const OPEN = 1;

export class Connection {
    may: string[] = [];
    fps = 60;
    version = "";
    state: Link = "closed";
    private socket: Socket | null = null;
    /**
     * Whether `hello` was sent: read-only requests follow it immediately, and are answered after
     * one round trip.
     */
    private greeted = false;
    private welcomed = false;
    private retry = FIRST_RETRY;
    private cancelRetry: (() => void) | null = null;
    private cancelDoubt: (() => void) | null = null;
    private cancelUnacked: (() => void) | null = null;
    private cancelSilence: (() => void) | null = null;
    /** Panes whose window has this page's size; below, those whose own size must be restored. */
    private fits = new Set<string>();
    private unfits = new Set<string>();
    private views = new Map<number, { key: string; events: ViewEvents }>();
    private nextView = 1;
    private nextId = 1;
    private calls = new Map<number, (message: ServerMessage | ApiError) => void>();
    private pending: Pending[] = [];
    private seq = 0;
    private drawn = new Set<number>();
    private listDrawn = false;
    private frameAsked = false;
    private client: string | null;

    constructor(
        private around: Surroundings,
        private events: ConnectionEvents,
    ) {
        this.client = around.recall();
    }

    // --- the connection

    /** Connects now, without waiting for a retry. */
    connect(): void {
        this.cancelRetry?.();
        this.cancelRetry = null;
        this.drop();
        this.say("connecting", 0);
        const socket = this.around.open();
        this.socket = socket;
        this.doubt(WELCOME_TIME);
        socket.onopen = () => {
            this.greeted = true;
            this.send(this.client === null ? { type: "hello" } : { type: "hello", client: this.client });
            this.send({ type: "list" });
            for (const [view, { key }] of this.views) {
                this.send({ type: "show", view, key });
            }
        };
        socket.onmessage = (event) => this.receive(String(event.data));
        socket.onclose = ({ code }) => {
            // Another daemon has the port already, and what this page needs.
            if (code === RESTART && this.welcomed) {
                this.connect();
            } else {
                this.lost();
            }
        };
    }

    /** Probes the connection, or connects at once without one. One that begins is left alone. */
    probe(): void {
        if (this.state === "closed") {
            return;
        }
        if (this.socket === null) {
            this.connect();
        } else if (!this.welcomed) {
            // A connection that begins has a time limit of its own.
        } else if (this.cancelDoubt === null) {
            // The daemon rejects this at once, from memory, for every page: no view has this
            // number.
            this.send({ type: "history", id: 0, view: 0, from: 0, count: 0 });
            this.doubt(DOUBT_TIME);
        }
    }

    /** Requests the list of open waits again. */
    askWaits(): void {
        this.send({ type: "waits" });
    }

    /** Ends the connection until `connect` is called. */
    close(): void {
        this.cancelRetry?.();
        this.cancelRetry = null;
        this.drop();
        this.say("closed", 0);
    }

    private say(state: Link, retryMs: number): void {
        this.state = state;
        this.events.link(state, retryMs);
    }

    private drop(): void {
        for (const timer of ["cancelDoubt", "cancelUnacked", "cancelSilence"] as const) {
            this[timer]?.();
            this[timer] = null;
        }
        const socket = this.socket;
        this.socket = null;
        this.greeted = false;
        this.welcomed = false;
        this.forgetCalls();
        if (socket !== null) {
            socket.onopen = null;
            socket.onmessage = null;
            socket.onclose = null;
            socket.close();
        }
    }

    private lost(): void {
        this.drop();
        const wait = this.retry * (0.75 + this.around.random() / 2);
        this.retry = Math.min(this.retry * 2, LAST_RETRY);
        this.say("waiting", wait);
        this.cancelRetry = this.around.after(wait, () => this.connect());
        void this.askBarred();
    }

    /** A browser does not report why a connection was refused: a request finds out. */
    private async askBarred(): Promise<void> {
        const barred = await this.around.barred().catch(() => false);
        if (barred && !this.welcomed && this.state !== "closed") {
            this.close();
            this.events.barred();
        }
    }

    /** Considers the connection dead if nothing arrives for this long. */
    private doubt(ms: number): void {
        this.cancelDoubt?.();
        this.cancelDoubt = this.deadline(ms, () => this.doubt(ms));
    }

    /**
     * Considers the connection dead after this long.
     *
     * A frozen page's timers fire before it receives the messages that waited: a delayed timer
     * grants the time once more.
     */
    private deadline(ms: number, again: () => void): () => void {
        const due = this.around.now() + ms + LATE;
        return this.around.after(ms, () => (this.around.now() > due ? again() : this.lost()));
    }

    private send(message: object): void {
        if (this.greeted && this.socket?.readyState === OPEN) {
            this.socket.send(JSON.stringify(message));
        }
    }

    /** Probes a silent connection: a page that only watches sends nothing whose loss would show. */
    private listen(): void {
        this.cancelSilence?.();
        this.cancelSilence = this.around.after(SILENCE, () => {
            if (this.around.seen()) {
                this.probe();
            }
            this.listen();
        });
    }

    /**
     * Watches for acknowledgments: other messages may arrive on a connection that takes no input.
     */
    private awaitAck(): void {
        this.cancelUnacked?.();
        this.cancelUnacked = this.pending.some((one) => one.sent) ? this.deadline(ACK_TIME, () => this.awaitAck()) : null;
    }

    private receive(text: string): void {
        this.cancelDoubt?.();
        this.cancelDoubt = null;
        this.listen();
        const message = JSON.parse(text) as ServerMessage;
        switch (message.type) {
            case "welcome":
                this.welcome(message);
                break;
            case "screen":
                this.views.get(message.view)?.events.screen(message);
                break;
            case "ended":
                this.views.get(message.view)?.events.ended?.(message.exit);
                break;
            case "panes":
                try {
                    this.events.panes(message.whole === true, message.set ?? [], message.gone ?? []);
                } finally {
                    this.drawnList();
                }
                break;
            case "ack":
                this.acknowledge(message.seq);
                break;
            case "nack":
                this.refuse(message.seq, message.error);
                break;
            case "history":
            case "result":
                this.calls.get(message.id)?.(message);
                this.calls.delete(message.id);
                break;
            case "waits":
                this.events.waits(message.waits);
                break;
            case "approvals":
                this.events.approvals(message.approvals);
                break;
            case "error":
                this.failed(message.error, message.view, message.id);
                break;
        }
    }

    private welcome(welcome: Welcome): void {
        const { client, input, may, fps, version } = welcome;
        const known = client === this.client;
        this.client = client;
        this.around.remember(client);
        this.may = may;
        this.fps = fps;
        this.version = version;
        this.retry = FIRST_RETRY;
        this.welcomed = true;
        this.say("open", 0);
        // Both need full rights.
        if (may.includes("input")) {
            this.send({ type: "waits" });
            this.send({ type: "approvals" });
        }
        this.resume(known, input);
        for (const key of this.unfits) {
            this.unfit(key);
        }
        this.events.ready(welcome);
    }

    private failed(error: ApiError, view?: number, id?: number): void {
        if (error.code === "REPLACED") {
            // Another page uses this client's name, as a duplicated tab does: this one takes a new
            // name.
            this.client = null;
            this.lost();
            return;
        }
        if (id !== undefined) {
            this.calls.get(id)?.(error);
            this.calls.delete(id);
        } else if (view !== undefined) {
            this.views.get(view)?.events.failed?.(error);
        } else {
            this.events.error(error);
        }
    }

    // --- views

    /** Shows a pane; returns the view's number. */
    show(key: string, events: ViewEvents): number {
        const view = this.nextView;
        this.nextView += 1;
        this.views.set(view, { key, events });
        this.send({ type: "show", view, key });
        return view;
    }

    hide(view: number): void {
        if (this.views.delete(view)) {
            this.drawn.delete(view);
            this.send({ type: "hide", view });
        }
    }

    /** Notes that a view's message is drawn in this frame. `giveCredits` returns its credit. */
    drew(view: number): void {
        this.drawn.add(view);
    }

    private drawnList(): void {
        this.listDrawn = true;
        if (!this.frameAsked) {
            this.frameAsked = true;
            this.around.frame(() => {
                this.frameAsked = false;
                this.giveCredits();
            });
        }
    }

    /**
     * Reports what was drawn. Called in the frame that draws: another frame for it would cost as
     * much.
     */
    giveCredits(): void {
        const views = [...this.drawn].filter((view) => this.views.has(view));
        this.drawn.clear();
        const list = this.listDrawn;
        this.listDrawn = false;
        if (views.length > 0 || list) {
            this.send(list ? { type: "drawn", views, list } : { type: "drawn", views });
        }
    }

    // --- requests

    history(view: number, from: number, count: number): Promise<HistoryMessage> {
        return this.ask({ type: "history", view, from, count }) as Promise<HistoryMessage>;
    }

    /**
     * Returns the commands of a view's pane, with the numbers of their lines. `changed`: only those that have
     * changed since the last response for the view, and the numbers of those that are gone.
     */
    commands(view: number, changed: boolean): Promise<{ commands: Ran[]; gone?: number[] }> {
        return this.ask({ type: "commands", view, changed }).then((message) =>
            message.type === "result" ? (message.result as { commands: Ran[]; gone?: number[] }) : { commands: [] },
        );
    }

    /**
     * Calls an MCP tool; resolves with its result, or rejects with its error.
     *
     * The call is not repeated after a break: it may change something.
     */
    call(tool: string, args: object): Promise<unknown> {
        return this.ask({ type: "call", tool, arguments: args }).then((message) =>
            message.type === "result" ? message.result : undefined,
        );
    }

    private ask(question: object): Promise<ServerMessage> {
        const id = this.nextId;
        this.nextId += 1;
        return new Promise((resolve, reject) => {
            if (!this.welcomed) {
                reject({ code: "UNAVAILABLE", message: "not connected" } satisfies ApiError);
                return;
            }
            const done = (answer: ServerMessage | ApiError) => {
                if ("code" in answer) {
                    reject(answer);
                } else if ("error" in answer && answer.error !== undefined) {
                    reject(answer.error);
                } else {
                    resolve(answer);
                }
            };
            this.calls.set(id, done);
            this.send({ ...question, id });
        });
    }

    /** Gives a pane's window this size, until `unfit`. Must be repeated after a break. */
    fit(key: string, columns: number, rows: number): Promise<unknown> {
        this.fits.add(key);
        this.unfits.delete(key);
        return this.ask({ type: "fit", key, columns, rows });
    }

    /** Restores the window's size, now or when the connection is back. */
    unfit(key: string): void {
        if (!this.fits.has(key)) {
            return;
        }
        this.unfits.add(key);
        this.ask({ type: "unfit", key }).then(
            () => this.unfitted(key),
            // The next connection repeats a request that a break interrupted; an error ends it.
            (error: ApiError) => error.code !== "UNAVAILABLE" && this.unfitted(key),
        );
    }

    private unfitted(key: string): void {
        // The pane may have been fitted again meanwhile.
        if (this.unfits.delete(key)) {
            this.fits.delete(key);
        }
    }

    /** Rejects the pending calls after a break: whether they were carried out is unknown. */
    private forgetCalls(): void {
        for (const done of this.calls.values()) {
            done({ code: "UNAVAILABLE", message: "connection lost before the response arrived; check the result before you retry" });
        }
        this.calls.clear();
    }

    // --- input

    /**
     * Types input into a pane, now or when the connection is back.
     *
     * `false`: too much input waits already, or the input exceeds a message and cannot be split.
     */
    type(key: string, typed: Typed): boolean {
        const parts = fitting(typed);
        if (parts === null || this.pending.length >= MOST_PENDING || !(this.may.includes("input") || this.may.length === 0)) {
            return false;
        }
        for (const part of parts) {
            this.seq += 1;
            const pending: Pending = { seq: this.seq, key, typed: part, sent: false, at: this.around.now() };
            this.pending.push(pending);
            this.transmit(pending);
        }
        this.events.pending(this.pending);
        return true;
    }

    get waiting(): readonly Pending[] {
        return this.pending;
    }

    /** Discards the input for a pane that was never sent. */
    discardUnsent(key: string): void {
        this.pending = this.pending.filter((one) => one.sent || one.key !== key);
        this.seq = this.pending.findLast((one) => one.sent)?.seq ?? this.seqApplied;
        for (const pending of this.pending.filter((one) => !one.sent)) {
            this.seq += 1;
            pending.seq = this.seq;
        }
        this.events.pending(this.pending);
    }

    /**
     * Whether the unsent input names panes of an earlier daemon: it waits for `rehome`, and all later
     * input behind it.
     */
    private homeless = false;

    /**
     * Gives waiting input the current keys of its panes, and sends it.
     *
     * `null`: some panes are not found yet; with `isLast`, their input is removed and returned. So is
     * all input for a pane if the first of it has waited too long.
     */
    rehome(find: (key: string) => string | null, isLast: boolean): Pending[] | null {
        if (!this.homeless) {
            return [];
        }
        const found = this.pending.map((one) => ({ one, key: find(one.key) }));
        if (!isLast && found.some(({ key }) => key === null)) {
            return null;
        }
        const now = this.around.now();
        const late = new Set(this.pending.filter((one) => now - one.at > KEPT_FOR).map((one) => one.key));
        const lost = this.pending.filter((one, index) => late.has(one.key) || found[index]?.key === null);
        this.homeless = false;
        this.pending = found.flatMap(({ one, key }) => (key === null || late.has(one.key) ? [] : [{ ...one, key }]));
        this.renumber(this.seqApplied);
        this.events.pending(this.pending);
        for (const pending of this.pending) {
            this.transmit(pending);
        }
        return lost;
    }

    private seqApplied = 0;
    private taken: Pending[] = [];

    private transmit(pending: Pending): void {
        if (this.welcomed && !this.homeless && this.socket?.readyState === OPEN) {
            pending.sent = true;
            this.send({ type: "input", seq: pending.seq, key: pending.key, ...pending.typed });
            if (this.cancelDoubt === null) {
                this.doubt(DOUBT_TIME);
            }
            if (this.cancelUnacked === null) {
                this.awaitAck();
            }
        }
    }

    private acknowledge(seq: number): void {
        this.seqApplied = Math.max(this.seqApplied, seq);
        const before = this.pending.length;
        this.pending = this.pending.filter((one) => one.seq !== seq);
        if (this.pending.length !== before) {
            this.events.pending(this.pending);
        }
        if (this.pending.some((one) => one.sent)) {
            this.doubt(DOUBT_TIME);
        }
        this.awaitAck();
    }

    private refuse(seq: number, error: ApiError): void {
        const refused = this.pending.find((one) => one.seq === seq) ?? this.taken.find((one) => one.seq === seq);
        this.taken = this.taken.filter((one) => one !== refused);
        this.acknowledge(seq);
        if (refused !== undefined) {
            this.events.refused(refused, error);
        }
    }

    /**
     * Resumes after a break: counted input is done; the rest is sent again, or is unknown if the
     * daemon is another one.
     */
    private resume(known: boolean, input: number): void {
        if (known) {
            // A number that was taken may still be refused; its `nack` follows.
            this.taken = [...this.taken, ...this.pending.filter((one) => one.seq <= input)].slice(-64);
            this.pending = this.pending.filter((one) => one.seq > input);
            this.seqApplied = input;
            this.renumber(input);
        } else {
            this.forget(input);
        }
        this.events.pending(this.pending);
        for (const pending of this.pending) {
            this.transmit(pending);
        }
    }

    /** Renumbers the waiting input after this number: refused input has left gaps. */
    private renumber(after: number): void {
        const sent = this.pending.filter((one) => one.sent);
        const contiguous = sent.every((one, index) => one.seq === after + 1 + index);
        this.seq = after;
        for (const pending of this.pending) {
            this.seq += 1;
            if (!contiguous || !pending.sent) {
                pending.seq = this.seq;
            }
        }
    }

    /** Reports the sent input as unknown, and keeps the unsent. */
    private forget(after = 0): void {
        const lost = this.pending.filter((one) => one.sent);
        this.taken = [];
        this.pending = this.pending.filter((one) => !one.sent);
        this.homeless = this.pending.length > 0;
        this.seqApplied = after;
        this.seq = after;
        for (const pending of this.pending) {
            this.seq += 1;
            pending.seq = this.seq;
        }
        if (lost.length > 0) {
            this.events.unknown(lost);
        }
    }
}
