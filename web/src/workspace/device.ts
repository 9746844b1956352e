// The page as a device: presence, other devices' requests, and publishing. docs/devices.md
// specifies the messages.

import { Workspace } from "./model";
import { WorkspaceError } from "./selector";

export interface DeviceSocket {
    readyState: number;
    send(text: string): void;
    close(): void;
    onopen: ((event: never) => void) | null;
    onmessage: ((event: { data: unknown }) => void) | null;
    onclose: ((event: never) => void) | null;
}

export interface DeviceAround {
    open(): DeviceSocket;
    after(ms: number, then: () => void): () => void;
    now(): number;
    /** Whether the page is visible. */
    seen(): boolean;
    /** Reads the state at each take-over: another window may have changed it. */
    read(): string | null;
    write(state: string): void;
    allowed(): string[];
    allow(device: string): void;
    /** The editors' files with unsaved text, by their pane. */
    unsaved(): ReadonlyMap<string, string>;
}

/** Another device's request, for the person to decide. */
export interface Request {
    id: string;
    caller: string;
    /** What the device calls itself. */
    label: string;
    /** The caller, as the daemon knows it. */
    program: string;
    command: string;
    args: Record<string, unknown>;
    /** Files whose unsaved text it would lose: while there are any, it is refused. */
    loses: string[];
    /** `always`: allow this device from now on. */
    decide(answer: "once" | "always" | "no"): void;
}

export interface DeviceEvents {
    changed(): void;
    state(state: "connecting" | "online" | "offline" | "replaced"): void;
    ask(request: Request): void;
    /** Called when a request is over, whatever the result. */
    asked(id: string): void;
}

const HEARTBEAT_MS = 5000;
/**
 * Heartbeats in a row without a response. They are counted, since a hidden page's timers are late.
 */
const UNANSWERED = 3;
/** Milliseconds for the response to a probe of the connection; below, for a welcome. */
const CHECK_MS = 2000;
const WELCOME_MS = 10_000;
const ASK_MS = 30_000;
const RETRY_MS = 1000;
const MOST_RETRY_MS = 30_000;
/** Selectors whose meaning depends on other changes. */
const RELATIVE = /^(tab-index|tab-name|pane-index):/;
/** Commands that only move the focus. */
const FOCUS = new Set(["select-pane", "select-tab"]);

/** How long an allowed change may take until it is complete. */
const BOUND_MS = 60_000;

function boundKey(args: unknown): string {
    const { pane, target, contentRef } = (args ?? {}) as Record<string, unknown>;
    return JSON.stringify([pane ?? target, contentRef]);
}

export class Device {
    workspace: Workspace;
    state: "connecting" | "online" | "offline" | "replaced" = "offline";
    private socket: DeviceSocket | null = null;
    private cancels: (() => void)[] = [];
    private release: (() => void) | null = null;
    private open = new Map<string, () => void>();
    private reservedBy = new Map<string, string>();
    /** The device that bound a pane to a content, for a while. */
    private boundBy = new Map<string, string>();
    private tries = 0;
    private unanswered = 0;
    private beats = 0;
    private checked: (() => void) | null = null;
    /** The revision since which only the focus has moved. */
    private steady = 0;

    constructor(
        readonly id: string,
        private label: string,
        private around: DeviceAround,
        private events: DeviceEvents,
    ) {
        this.workspace = this.read();
    }

    /**
     * Takes this device's place, even from another window.
     *
     * If that would lose unsaved text, because another window has closed its pane, it needs `lose`.
     */
    connect(lose = false): void {
        this.drop();
        if (!lose && this.losesByTaking().length > 0) {
            this.become("replaced");
            return;
        }
        this.workspace = this.read();
        this.steady = this.workspace.revision;
        this.become("connecting");
        const socket = this.around.open();
        this.socket = socket;
        socket.onopen = () => {
            this.say({
                type: "hello",
                deviceId: this.id,
                deviceLabel: this.label,
                deviceType: "browser",
                workspaceRevision: this.workspace.revision,
                remoteControl: "ask",
                capabilities: { layoutOwnershipV1: true, layoutRpcV1: true, devicePresenceV1: true },
            });
        };
        socket.onmessage = (event) => this.receive(JSON.parse(String(event.data)) as Record<string, unknown>);
        socket.onclose = () => this.lost();
        this.cancels.push(this.around.after(WELCOME_MS, () => this.state === "connecting" && this.lost()));
        this.events.changed();
    }

    /** Returns the files whose text would be lost if this window took over the stored workspace. */
    losesByTaking(): string[] {
        return this.lostBetween(this.read());
    }

    /**
     * Checks this connection when the page's own one is new: both may have been lost without
     * notice.
     */
    check(): void {
        if (this.state === "offline") {
            this.tries = 0;
            this.connect();
        } else if (this.state === "online" && this.checked === null) {
            this.probe();
            this.checked = this.around.after(CHECK_MS, () => {
                this.checked = null;
                this.connect();
            });
            this.cancels.push(() => this.checked?.());
        }
    }

    private lost(): void {
        this.drop();
        this.become("offline");
        const ms = Math.min(MOST_RETRY_MS, RETRY_MS * 2 ** this.tries);
        this.tries += 1;
        this.cancels.push(this.around.after(ms, () => this.connect()));
    }

    disconnect(): void {
        this.drop();
        this.become("offline");
    }

    /** Makes a change of the person's own. Throws a `WorkspaceError`. */
    act(command: string, args: object): ReturnType<Workspace["apply"]> {
        if (this.state === "replaced") {
            throw new WorkspaceError("CONFLICT", "the workspace is in use in another window of this browser");
        }
        const before = this.workspace.revision;
        const key = `page-${this.around.now()}-${Math.random().toString(36).slice(2)}`;
        const applied = this.workspace.apply(command, args, this.id, this.around.now(), before, key);
        if (!FOCUS.has(command)) {
            this.steady = this.workspace.revision;
        }
        this.changed();
        return applied;
    }

    private read(): Workspace {
        const kept = this.around.read();
        return (kept === null ? null : Workspace.read(kept, this.id)) ?? Workspace.empty(this.id);
    }

    private become(state: Device["state"]): void {
        this.state = state;
        this.events.state(state);
    }

    private drop(): void {
        for (const cancel of this.cancels.splice(0)) {
            cancel();
        }
        this.checked = null;
        this.unanswered = 0;
        for (const id of [...this.open.keys()]) {
            this.finish(id);
        }
        const socket = this.socket;
        this.socket = null;
        if (socket !== null) {
            socket.onopen = null;
            socket.onmessage = null;
            socket.onclose = null;
            socket.close();
        }
    }

    private say(message: object): void {
        if (this.socket?.readyState === 1) {
            this.socket.send(JSON.stringify(message));
        }
    }

    private changed(): void {
        this.around.write(this.workspace.write());
        this.publish();
        this.watchReserved();
        this.events.changed();
    }

    private publish(): void {
        if (this.state === "online") {
            this.say({ type: "layout.snapshot.updated", ...this.workspace.snapshot(this.around.now()) });
        }
    }

    /** Releases a pane that was reserved and never filled. */
    private watchReserved(): void {
        this.release?.();
        this.release = null;
        const pending = this.workspace.layout.panes.filter((pane) => pane.status === "pending");
        if (pending.length > 0) {
            const at = Math.min(...pending.map((pane) => pane.updatedAt)) + ASK_MS;
            this.release = this.around.after(Math.max(0, at - this.around.now()) + 1, () => {
                if (this.state !== "replaced" && this.workspace.releaseOverdue(this.around.now()) > 0) {
                    this.steady = this.workspace.revision;
                    this.changed();
                }
            });
        }
    }

    /**
     * Probes the connection while the page is hidden.
     *
     * The browser itself answers the relay's pings, which prove the page's presence; a visible
     * page's own connection probes for both (`check`).
     */
    private beat(): void {
        this.cancels.push(
            this.around.after(HEARTBEAT_MS, () => {
                if (this.around.seen()) {
                    this.unanswered = 0;
                } else if (this.unanswered >= UNANSWERED) {
                    this.lost();
                    return;
                } else {
                    this.unanswered += 1;
                    this.probe();
                }
                this.beat();
            }),
        );
    }

    /**
     * Sends a request that the relay rejects at once, and that reaches no other device.
     *
     * The relay does not respond to a heartbeat, and a page does not see the relay's pings.
     */
    private probe(): void {
        this.beats += 1;
        this.say({ type: "layout.rpc.request", requestId: `beat-${this.beats}` });
    }

    private receive(message: Record<string, unknown>): void {
        this.unanswered = 0;
        this.checked?.();
        this.checked = null;
        switch (message.type) {
            case "welcome":
                this.tries = 0;
                this.become("online");
                this.publish();
                this.watchReserved();
                this.beat();
                break;
            case "replaced":
                this.drop();
                this.become("replaced");
                break;
            case "layout.rpc.request":
                this.requested(message);
                break;
        }
    }

    private requested(message: Record<string, unknown>): void {
        const requestId = String(message.requestId);
        const caller = String(message.callerDeviceId ?? "");
        const command = String(message.command ?? "");
        this.say({ type: "layout.rpc.ack", requestId });
        if (command === "get-workspace") {
            this.answer(requestId, { ok: true, result: this.workspace.snapshot(this.around.now()) });
            return;
        }
        const came = this.workspace.revision;
        const carryOut = () => this.carryOut(requestId, caller, command, message, came);
        // The step that ends an allowed change needs no further permission.
        const ends = command === "finalize" || command === "release";
        const reserved = String((message.args as { pane?: unknown } | undefined)?.pane ?? "");
        // A respawn binds its pane once more, to the new terminal.
        const bound = command === "bind" ? boundKey(message.args) : "";
        const again = bound !== "" && this.boundBy.get(bound) === caller;
        if (again) {
            this.boundBy.delete(bound);
        }
        const own = again || (ends && this.reservedBy.get(reserved) === caller);
        if (caller === this.id || own || this.around.allowed().includes(caller)) {
            carryOut();
            return;
        }
        if (message.expectedRevision !== came || !this.isPossible(command, message.args, caller)) {
            // The person is not asked about an impossible request: it is refused, or a repeated key
            // gets its response.
            carryOut();
            return;
        }
        this.say({ type: "layout.rpc.waiting", requestId });
        const no = (why: string) =>
            this.answer(requestId, { ok: false, error: { code: "UNAUTHORIZED", message: `the user of ${this.id} ${why}` } });
        const cancel = this.around.after(ASK_MS - 1000, () => {
            if (this.finish(requestId)) {
                no("did not respond");
            }
        });
        this.open.set(requestId, cancel);
        this.events.ask({
            id: requestId,
            caller,
            label: String(message.callerLabel ?? caller),
            program: String(message.callerProgram ?? "an unknown program"),
            command,
            args: (message.args ?? {}) as Record<string, unknown>,
            loses: this.loses(command, message.args, caller),
            decide: (answer) => {
                if (!this.finish(requestId)) {
                    return;
                }
                if (answer === "no") {
                    no("denied the request");
                    return;
                }
                if (answer === "always") {
                    this.around.allow(caller);
                }
                carryOut();
            },
        });
    }

    private finish(id: string): boolean {
        const cancel = this.open.get(id);
        cancel?.();
        this.open.delete(id);
        if (cancel !== undefined) {
            this.events.asked(id);
        }
        return cancel !== undefined;
    }

    /**
     * Returns the unsaved files of editors that another state lacks, or shows other content in
     * place of.
     */
    private lostBetween(then: Workspace): string[] {
        const lost: string[] = [];
        for (const [id, file] of this.around.unsaved()) {
            const pane = then.layout.panes.find((one) => one.id === id);
            if (pane?.kind !== "editor" || pane.file !== file || pane.status !== "ready") {
                lost.push(file);
            }
        }
        return lost;
    }

    /** Returns whether the workspace allows a change, as far as known before the person is asked. */
    private isPossible(command: string, args: unknown, caller: string): boolean {
        const trial = Workspace.read(this.workspace.write(), this.id);
        try {
            trial?.apply(command, args, caller, this.around.now(), trial.revision, "trial");
            return true;
        } catch {
            return false;
        }
    }

    /** Returns the unsaved files that a change would close. */
    private loses(command: string, args: unknown, caller: string): string[] {
        const trial = this.around.unsaved().size === 0 ? null : Workspace.read(this.workspace.write(), this.id);
        if (trial === null) {
            return [];
        }
        try {
            trial.apply(command, args, caller, this.around.now(), trial.revision, "trial");
            return this.lostBetween(trial);
        } catch {
            // The change is refused anyway, by its own error.
            return [];
        }
    }

    /**
     * Returns the revision at which a request is carried out.
     *
     * A request for the revision current at its arrival is not refused because the person has
     * clicked into another pane before allowing it, or changed something that it does not name.
     */
    private expected(message: Record<string, unknown>, came: number): number | undefined {
        const said = typeof message.expectedRevision === "number" ? message.expectedRevision : undefined;
        const relative = Object.values((message.args ?? {}) as object).some((value) => typeof value === "string" && RELATIVE.test(value));
        return said === came && (!relative || this.steady <= came) ? this.workspace.revision : said;
    }

    private carryOut(requestId: string, caller: string, command: string, message: Record<string, unknown>, came: number): void {
        const key = typeof message.idempotencyKey === "string" ? message.idempotencyKey : undefined;
        try {
            const before = this.workspace.revision;
            const number = this.expected(message, came);
            const files = number === before && !this.workspace.answered(caller, key, this.around.now()) ? this.loses(command, message.args, caller) : [];
            if (files.length > 0) {
                throw new WorkspaceError("CONFLICT", `unsaved changes in ${this.id}: ${files.join(", ")}`, { files });
            }
            const { appliedRevision, ...result } = this.workspace.apply(command, message.args, caller, this.around.now(), number, key);
            this.answer(requestId, { ok: true, result, appliedRevision });
            if (command === "reserve" && result.pane !== undefined) {
                this.reservedBy.set(`pane:${result.pane.id}`, caller);
            }
            if (command === "bind" && this.workspace.revision !== before && caller !== this.id) {
                const bound = boundKey(message.args);
                this.boundBy.set(bound, caller);
                this.around.after(BOUND_MS, () => this.boundBy.delete(bound));
            }
            if (this.workspace.revision !== before) {
                if (!FOCUS.has(command)) {
                    this.steady = this.workspace.revision;
                }
                this.changed();
            }
        } catch (error) {
            const said = error instanceof WorkspaceError ? error : new WorkspaceError("INTERNAL_ERROR", String(error));
            this.answer(requestId, {
                ok: false,
                error: { code: said.code, message: said.message, ...(said.details === undefined ? {} : { details: said.details }) },
            });
        }
    }

    private answer(requestId: string, result: object): void {
        this.say({ type: "layout.rpc.result", requestId, ...result });
    }
}
