// An agent session: the agent's messages and actions, its questions as buttons, and prompts.
//
// Events come as a stream that continues after a break.

import { type App, http, messageOf } from "../app";
import { button, clean, fill, h } from "../dom";
import { againAfter, Streams } from "../streams";
import type { Shown } from "./content";

interface Question {
    id: string;
    title?: string;
    kind?: string;
    options?: { id: string; name: string; kind?: string }[];
}

interface Entry {
    cursor: string;
    gap?: unknown;
    event: Record<string, unknown> & { type: string };
}

/** Maximum number of elements; older ones are removed. */
const MOST = 1000;
/**
 * Conversations that are read at once: a browser has six connections to a host, for all of its
 * windows.
 */
const STREAMS = new Streams<Chat>(3);

export class Chat implements Shown {
    readonly element: HTMLElement;
    private readonly log = h("div", { cls: "chat-log", role: "log", "aria-label": "Conversation", tabindex: 0 });
    private readonly asks = h("div", { cls: "chat-asks" });
    private readonly state = h("span", { cls: "chat-state", role: "status" });
    private source: EventSource | null = null;
    private since = "start";
    private over = false;
    private readonly base: string;
    private open: { kind: string; element: HTMLElement } | null = null;
    private tools = new Map<string, HTMLElement>();
    private running = 0;

    constructor(
        private app: App,
        private session: string,
    ) {
        this.base = `/v1/agent-sessions/${encodeURIComponent(session)}`;
        const field = h("textarea", { rows: 2, "aria-label": "Prompt", placeholder: "Prompt for the agent; Enter sends, Shift+Enter inserts a line break" });
        const send = () => {
            if (field.value.trim() !== "") {
                void this.ask("POST", "/prompts", { text: field.value }).then((done) => {
                    if (done) {
                        field.value = "";
                    }
                });
            }
        };
        field.addEventListener("keydown", (event) => {
            event.stopPropagation();
            if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
                event.preventDefault();
                send();
            }
        });
        const tools = h("div", { cls: "row-of" }, {}, this.state, button("Stop", () => void this.ask("POST", "/interrupt"), { title: "Interrupt the running prompt" }), button("Send", send, { cls: "primary" }));
        this.element = h("div", { cls: "chat" }, {}, this.log, this.asks, h("div", { cls: "chat-form" }, {}, field, tools));
        // Of more conversations than can be read at once, the last used ones are read.
        this.element.addEventListener("focusin", () => !this.over && STREAMS.want(this));
        document.addEventListener("visibilitychange", this.seen);
    }

    private shown = false;
    private readonly seen = (): void => {
        if (this.shown && !document.hidden && !this.over) {
            STREAMS.want(this);
        } else {
            STREAMS.leave(this);
        }
    };

    /** A hidden conversation holds no connection, and continues when it is visible again. */
    visible(shown: boolean): void {
        if (this.shown !== shown) {
            this.shown = shown;
            this.seen();
        }
    }

    start(): void {
        const source = new EventSource(`${this.base}/stream?since=${encodeURIComponent(this.since)}`);
        this.source = source;
        source.onmessage = (event) => {
            if (event.data !== "") {
                this.take(JSON.parse(event.data) as Entry);
            }
        };
        source.onerror = () => {
            this.say("disconnected; retrying");
            // A browser retries after a break, but not after a response that is not a stream: a
            // proxy's 502, a starting daemon.
            if (source.readyState === EventSource.CLOSED) {
                this.tries += 1;
                this.retry = setTimeout(() => this.start(), againAfter(this.tries));
            }
        };
        source.onopen = () => {
            this.tries = 0;
            this.say("");
        };
    }

    private tries = 0;
    private retry: ReturnType<typeof setTimeout> | undefined;

    stop(): void {
        clearTimeout(this.retry);
        this.tries = 0;
        this.source?.close();
        this.source = null;
        this.say("paused: click to continue");
    }

    title(): string {
        return this.session;
    }

    focus(): void {
        this.element.querySelector("textarea")?.focus();
    }

    remove(): void {
        document.removeEventListener("visibilitychange", this.seen);
        this.shown = false;
        STREAMS.leave(this);
        this.element.remove();
    }

    private say(text: string): void {
        this.state.textContent = text || (this.running > 0 ? "working…" : "");
    }

    private async ask(method: string, path: string, body?: object): Promise<boolean> {
        try {
            await http(method, `${this.base}${path}`, body ?? {});
            return true;
        } catch (error) {
            this.app.note({ kind: "error", text: messageOf(error), ms: 8000 });
            return false;
        }
    }

    private add(cls: string, ...children: (Node | string | null)[]): HTMLElement {
        const atEnd = this.log.scrollTop + this.log.clientHeight >= this.log.scrollHeight - 40;
        const element = h("div", { cls }, {}, ...children);
        this.log.append(element);
        while (this.log.children.length > MOST) {
            const gone = this.log.firstElementChild as HTMLElement;
            gone.remove();
            const { tool } = gone.dataset;
            if (tool !== undefined && this.tools.get(tool) === gone) {
                this.tools.delete(tool);
            }
        }
        if (atEnd) {
            this.log.scrollTop = this.log.scrollHeight;
        }
        return element;
    }

    /** Appends text that comes in parts to one paragraph. */
    private stream(kind: string, text: string): void {
        const atEnd = this.log.scrollTop + this.log.clientHeight >= this.log.scrollHeight - 40;
        if (this.open?.kind === kind) {
            this.open.element.append(text);
        } else {
            this.open = { kind, element: this.add(`said ${kind}`, text) };
        }
        if (atEnd) {
            this.log.scrollTop = this.log.scrollHeight;
        }
    }

    private take(entry: Entry): void {
        const { event } = entry;
        this.since = entry.cursor;
        const text = typeof event.text === "string" ? event.text : "";
        if (entry.gap !== undefined) {
            this.add("fact", "Earlier events are no longer available.");
        }
        if (["message", "thought", "user"].includes(event.type)) {
            this.stream(event.type, text);
            return;
        }
        if (event.type !== "update" && event.type !== "mode") {
            this.open = null;
        }
        switch (event.type) {
            case "prompt":
                this.running += 1;
                this.add("said user", text);
                break;
            case "tool":
                this.tool(event, text);
                break;
            case "question":
                this.question(event.question as Question);
                break;
            case "answered":
                this.asks.querySelector(`[data-id="${CSS.escape(String(event.question))}"]`)?.remove();
                this.add("fact", clean(`${event.allowed === true ? "Allowed" : "Denied"}${event.option ? ` (${String(event.option)})` : ""}, by ${String(event.by)}`));
                break;
            case "outcome":
                this.running = Math.max(0, this.running - 1);
                if (event.outcome !== "end_turn") {
                    this.add("fact", clean(`${String(event.outcome)}${event.error ? `: ${String(event.error)}` : ""}`, 400));
                }
                break;
            case "fault":
                this.add("fact", clean(String(event.message), 400));
                break;
            case "exited":
                this.running = 0;
                this.over = true;
                STREAMS.leave(this);
                this.add("fact", "The agent has ended.");
                break;
        }
        this.say("");
    }

    private tool(event: Entry["event"], text: string): void {
        const id = String(event.id);
        let element = this.tools.get(id);
        if (element === undefined) {
            element = this.add("tool", h("span", { cls: "tool-title" }), h("span", { cls: "tool-status" }), h("pre", { hidden: true }));
            element.dataset.tool = id;
            this.tools.set(id, element);
        }
        const [title, status, body] = [...element.children] as HTMLElement[];
        if (typeof event.title === "string" && title !== undefined) {
            title.textContent = clean(event.title, 200);
        }
        if (typeof event.status === "string" && status !== undefined) {
            status.textContent = event.status.replace("_", " ");
            element.dataset.status = event.status;
        }
        if (text !== "" && body !== undefined) {
            body.hidden = false;
            diffLines(body, text.slice(0, 20_000));
        }
    }

    private question(question: Question): void {
        const path = `/questions/${encodeURIComponent(question.id)}`;
        const options = question.options ?? [];
        const buttons = options.length > 0 ? options.map((one) => button(clean(one.name, 120), () => void this.ask("POST", path, { option: one.id }))) : [button("Allow", () => void this.ask("POST", path, { allow: true })), button("Deny", () => void this.ask("POST", path, { allow: false }))];
        for (const one of buttons) {
            one.disabled = !this.app.mayType;
        }
        this.asks.append(h("div", { cls: "question", "data-id": question.id, role: "alert" }, {}, h("p", {}, {}, clean(question.title ?? "Allow this action?", 600)), h("div", { cls: "options" }, {}, ...buttons)));
    }
}

/** Marks the lines of a diff by their first character. */
function diffLines(parent: HTMLElement, text: string): void {
    const isDiff = /^(@@|---|\+\+\+|diff )/m.test(text);
    if (!isDiff) {
        parent.textContent = text;
        return;
    }
    fill(parent, ...text.split("\n").map((line) => h("span", { cls: line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "same" }, {}, `${line}\n`)));
}
