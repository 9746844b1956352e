// The page as a device: presence, requests of others, and what it publishes. docs/devices.md has the messages.

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
    /** The state is read anew at each take-over: another window may have changed it. */
    read(): string | null;
    write(state: string): void;
    allowed(): string[];
    allow(device: string): void;
    /** Files with text that is not saved, by their panes' ids. */
    unsaved(): Map<string, string>;
}

/** What another device asks for, for the person to decide. */
export interface Request {
    id: string;
    caller: string;
    label: string;
    command: string;
    args: Record<string, unknown>;
    /** `always`: this device from now on. */
    decide(answer: "once" | "always" | "no"): void;
}

export interface DeviceEvents {
    changed(): void;
    state(state: "connecting" | "online" | "offline" | "replaced"): void;
    ask(request: Request): void;
    /** A request is over, however. */
    asked(id: string): void;
}

const HEARTBEAT_MS = 5000;
const ASK_MS = 30_000;
/** Milliseconds before a new try, at first and at most. */
const RETRY_MS = 500;
const LAST_RETRY_MS = 30_000;
/** Of so many heartbeats one is a question: the relay's pings are not seen by a page. */
const QUESTION = 3;

export class Device {
    workspace: Workspace;
    state: "connecting" | "online" | "offline" | "replaced" = "offline";
    private socket: DeviceSocket | null = null;
    private cancels: (() => void)[] = [];
    private release: (() => void) | null = null;
    private open = new Map<string, () => void>();
    private reservedBy = new Map<string, string>();
    private retry = RETRY_MS;
    private heard = true;
    private beats = 0;
    /** The revision since which panes were only chosen, not changed. */
    private steady = 0;

    constructor(
        readonly id: string,
        private label: string,
        private around: DeviceAround,
        private events: DeviceEvents,
    ) {
        this.workspace = this.read();
    }

    /** Takes this device's place, from another window too. */
    connect(): void {
        this.drop();
        this.workspace = this.read();
        this.steady = this.workspace.revision;
        this.become("connecting");
        const socket = this.around.open();
        this.socket = socket;
        this.heard = true;
        this.beats = 0;
        // A network that is gone says nothing of it.
        this.cancels.push(this.around.after(ASK_MS, () => this.state === "connecting" && this.lost()));
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
        this.events.changed();
    }

    private lost(): void {
        this.drop();
        this.become("offline");
        this.cancels.push(this.around.after(this.retry, () => this.connect()));
        this.retry = Math.min(this.retry * 2, LAST_RETRY_MS);
    }

    /** The page's own connection is a new one: this one may have died with the other, unheard. */
    renew(): void {
        if (this.state === "replaced") {
            return;
        }
        if (this.state !== "online" || this.open.size === 0) {
            this.connect();
        } else {
            // Somebody waits for the person's answer: the connection is asked before it is given up.
            this.question();
        }
    }

    disconnect(): void {
        this.drop();
        this.become("offline");
    }

    /** Makes a change of the person's own. Throws a `WorkspaceError`. */
    act(command: string, args: object): ReturnType<Workspace["apply"]> {
        if (this.state === "replaced") {
            throw new WorkspaceError("CONFLICT", "another window of this browser has the workspace");
        }
        const key = `page-${this.around.now()}-${Math.random().toString(36).slice(2)}`;
        const applied = this.workspace.apply(command, args, this.id, this.around.now(), this.workspace.revision, key);
        this.settled(command);
        this.changed();
        return applied;
    }

    private settled(command: string): void {
        if (command !== "select-pane" && command !== "select-tab") {
            this.steady = this.workspace.revision;
        }
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

    /** A pane that was reserved and never filled is released. */
    private watchReserved(): void {
        this.release?.();
        this.release = null;
        const pending = this.workspace.layout.panes.filter((pane) => pane.status === "pending");
        if (pending.length > 0) {
            const at = Math.min(...pending.map((pane) => pane.updatedAt)) + ASK_MS;
            this.release = this.around.after(Math.max(0, at - this.around.now()) + 1, () => {
                if (this.state !== "replaced" && this.workspace.releaseOverdue(this.around.now()) > 0) {
                    this.changed();
                }
            });
        }
    }

    private beat(): void {
        this.cancels.push(
            this.around.after(HEARTBEAT_MS, () => {
                if (!this.heard) {
                    this.lost();
                    return;
                }
                this.beats += 1;
                if (this.beats % QUESTION === 0) {
                    this.question();
                } else {
                    this.say({ type: "heartbeat" });
                }
                this.beat();
            }),
        );
    }

    /** Asks the relay for any answer, which the next heartbeat looks for: a request that names no device is refused by it alone. */
    private question(): void {
        this.heard = false;
        this.say({ type: "layout.rpc.request", requestId: "alive" });
    }

    private receive(message: Record<string, unknown>): void {
        this.heard = true;
        switch (message.type) {
            case "welcome":
                this.retry = RETRY_MS;
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
        const carryOut = () => this.carryOut(requestId, caller, command, message);
        const lost = this.lostBy(command, message.args);
        if (lost !== null) {
            this.refuse(requestId, lost);
            return;
        }
        const expected = message.expectedRevision;
        const seen = this.workspace.revision;
        // What ends a change that was allowed is not asked for again.
        const ends = command === "finalize" || command === "release";
        const reserved = String((message.args as { pane?: unknown } | undefined)?.pane ?? "");
        const own = ends && this.reservedBy.get(reserved) === caller;
        if (caller === this.id || own || this.around.allowed().includes(caller)) {
            carryOut();
            return;
        }
        this.say({ type: "layout.rpc.waiting", requestId });
        const no = (why: string) =>
            this.answer(requestId, { ok: false, error: { code: "UNAUTHORIZED", message: `the person of ${this.id} ${why}` } });
        const cancel = this.around.after(ASK_MS - 1000, () => {
            if (this.finish(requestId)) {
                no("did not answer");
            }
        });
        this.open.set(requestId, cancel);
        this.events.ask({
            id: requestId,
            caller,
            label: String(message.callerLabel ?? caller),
            command,
            args: (message.args ?? {}) as Record<string, unknown>,
            decide: (answer) => {
                if (!this.finish(requestId)) {
                    return;
                }
                if (answer === "no") {
                    no("does not allow it");
                    return;
                }
                if (answer === "always") {
                    this.around.allow(caller);
                }
                // The person has looked at other panes meanwhile, as one does before an answer: that is no conflict.
                if (expected === seen && this.steady <= seen) {
                    message.expectedRevision = this.workspace.revision;
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

    private carryOut(requestId: string, caller: string, command: string, message: Record<string, unknown>): void {
        const number = typeof message.expectedRevision === "number" ? message.expectedRevision : undefined;
        const key = typeof message.idempotencyKey === "string" ? message.idempotencyKey : undefined;
        try {
            const lost = this.lostBy(command, message.args);
            if (lost !== null) {
                throw lost;
            }
            const before = this.workspace.revision;
            const { appliedRevision, ...result } = this.workspace.apply(command, message.args, caller, this.around.now(), number, key);
            this.answer(requestId, { ok: true, result, appliedRevision });
            if (command === "reserve" && result.pane !== undefined) {
                this.reservedBy.set(`pane:${result.pane.id}`, caller);
            }
            if (this.workspace.revision !== before) {
                this.settled(command);
                this.changed();
            }
        } catch (error) {
            this.refuse(requestId, error);
        }
    }

    /** The error for a change that would throw away text that nobody has saved; null: it would not. */
    private lostBy(command: string, args: unknown): WorkspaceError | null {
        const unsaved = this.around.unsaved();
        if (unsaved.size === 0) {
            return null;
        }
        const after = Workspace.read(this.workspace.write(), this.id);
        try {
            after?.apply(command, args, "", this.around.now(), this.workspace.revision, "unsaved");
        } catch {
            // It fails by itself, and says why.
            return null;
        }
        for (const [id, file] of unsaved) {
            const pane = after?.layout.panes.find((one) => one.id === id);
            if (pane?.kind !== "editor" || pane.file !== file) {
                return new WorkspaceError("CONFLICT", `${file} has text that is not saved: its person saves or closes it first`);
            }
        }
        return null;
    }

    private refuse(requestId: string, error: unknown): void {
        const said = error instanceof WorkspaceError ? error : new WorkspaceError("INTERNAL_ERROR", String(error));
        this.answer(requestId, {
            ok: false,
            error: { code: said.code, message: said.message, ...(said.details === undefined ? {} : { details: said.details }) },
        });
    }

    private answer(requestId: string, result: object): void {
        this.say({ type: "layout.rpc.result", requestId, ...result });
    }
}
