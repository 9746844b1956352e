// An agent session: the agent's messages and actions, its questions as buttons, and prompts.
//
// Events come as a stream that continues after a break.

import { type App, baseName, http, messageOf } from "../app";
import { button, clean, h, revealed, visibleLine } from "../dom";
import { diffLines, markdown } from "../markdown";
import { againAfter, Streams } from "../streams";
import { questionText } from "../view/agents";
import type { Shown } from "./content";

interface Question {
    id: string;
    title?: string;
    kind?: string;
    asked_by?: string;
    detail?: string;
    options?: { id: string; name: string; kind?: string }[];
    url?: string;
    form?: Field[];
}

/** A field of a form that an agent asks a person to fill in. */
interface Field {
    name: string;
    kind: string;
    title?: string;
    required: boolean;
    default?: unknown;
    choices?: { id: string; name: string }[];
}

interface Entry {
    cursor: string;
    gap?: unknown;
    event: Record<string, unknown> & { type: string };
}

/** A message that comes in parts. */
interface Open {
    kind: string;
    /** The agent's id of the message: another id begins another message. */
    id: string | undefined;
    element: HTMLElement;
    text: string;
    /** Characters that are drawn as Markdown. */
    drawn: number;
    /** Milliseconds until it is drawn again, while more comes. */
    pace: number;
    timer?: ReturnType<typeof setTimeout> | undefined;
    /** The rest of a long message. */
    rest?: HTMLElement;
}

/** Maximum number of elements; older ones are removed. */
const MOST = 1000;
/** The number of messages with an id that can continue. */
const MESSAGES = 64;
/** Characters of a message that are drawn as Markdown; what follows is plain text. */
const LARGE = 256 * 1024;
/**
 * Milliseconds between two drawings of a message that comes in parts, and how many times as long as
 * the last one took they are apart.
 */
const PACE = 30;
const REST = 10;
/** Milliseconds between two requests for the session's state, and for the events before it. */
const ASK_AGAIN = 1000;
const SETTLED = 300;
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
    private open: Open | null = null;
    private name: string;
    private readonly interrupt: HTMLButtonElement;
    /** Whether the newest message is visible; it stays so if a question needs room below. */
    private atEnd = true;
    /** Where the log was scrolled to last. */
    private top = 0;
    private readonly sizes = new ResizeObserver(() => this.toEnd());
    private tools = new Map<string, HTMLElement>();
    /** The last messages with an id. */
    private messages = new Map<string, Open>();
    /** The agent's plan, which is shown once. */
    private plan: HTMLElement | null = null;
    private usage = "";
    private running = 0;

    constructor(
        private app: App,
        session: string,
    ) {
        this.base = `/v1/agent-sessions/${encodeURIComponent(session)}`;
        this.name = session;
        void http<{ provider: string; cwd: string }>("GET", this.base).then(({ provider, cwd }) => {
            this.name = [provider, baseName(cwd)].filter((word) => word !== "").join(" · ");
            this.element.dispatchEvent(new Event("title", { bubbles: true }));
        }, () => undefined);
        this.log.addEventListener("scroll", () => {
            // The event comes later than the scroll. Text that came meanwhile is below; only a person moves up.
            const { scrollTop, clientHeight, scrollHeight } = this.log;
            const isNear = scrollTop + clientHeight >= scrollHeight - 40;
            this.atEnd = isNear || (this.atEnd && scrollTop >= this.top);
            this.top = scrollTop;
        });
        this.sizes.observe(this.log);
        this.interrupt = button("Stop", () => void this.ask("POST", "/interrupt"), { title: "Interrupt the running prompt", hidden: true });
        const field = h("textarea", { rows: 1, "aria-label": "Prompt", placeholder: "Prompt for the agent; Enter sends, Shift+Enter inserts a line break" });
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
        const tools = h("div", { cls: "row-of" }, {}, this.state, this.interrupt, button("Send", send, { cls: "primary" }));
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
        void this.settle();
    }

    /** Whether events are missing, so that what runs and what is asked is not known from them. */
    private unsure = false;
    private settling = false;
    /** The number of events about prompts and questions. */
    private turns = 0;

    /** After missing events, requests what runs and what is asked until no event interferes. */
    private async settle(): Promise<void> {
        if (this.settling) {
            return;
        }
        this.settling = true;
        const pause = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));
        while (this.unsure && !this.over && this.source !== null) {
            const { turns } = this;
            try {
                const now = await http<{ running?: number; queued: number; questions: Question[] }>("GET", this.base);
                // Events of the time before the response may still arrive.
                await pause(SETTLED);
                if (turns === this.turns && this.source !== null) {
                    this.unsure = false;
                    this.running = now.queued + (now.running === undefined || now.running === null ? 0 : 1);
                    this.asks.replaceChildren();
                    for (const question of now.questions) {
                        this.question(question);
                    }
                    this.say("");
                    break;
                }
            } catch {
                // The next request may succeed.
            }
            await pause(ASK_AGAIN);
        }
        this.settling = false;
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
        return this.name;
    }

    focus(): void {
        this.element.querySelector("textarea")?.focus();
    }

    remove(): void {
        document.removeEventListener("visibilitychange", this.seen);
        this.shown = false;
        STREAMS.leave(this);
        this.sizes.disconnect();
        this.element.remove();
    }

    private say(text: string): void {
        this.interrupt.hidden = this.running === 0;
        this.state.textContent = text || [this.running > 0 ? "working…" : "", this.usage].filter((part) => part !== "").join(" · ");
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

    /** Keeps the newest message visible, unless the person has scrolled up. */
    private toEnd(): void {
        if (this.atEnd) {
            this.log.scrollTop = this.log.scrollHeight;
        }
    }

    private add(cls: string, ...children: (Node | string | null)[]): HTMLElement {
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
        this.toEnd();
        return element;
    }

    /** Appends text that comes in parts to one message. */
    private stream(kind: string, id: string | undefined, text: string): void {
        if (this.open?.kind !== kind || this.open.id !== id) {
            // A message with an id continues also behind a tool.
            const earlier = id === undefined ? undefined : this.messages.get(`${kind} ${id}`);
            this.open = earlier?.element.isConnected === true ? earlier : { kind, id, element: this.add(`said ${kind}`), text: "", drawn: 0, pace: PACE };
            if (id !== undefined) {
                this.messages.set(`${kind} ${id}`, this.open);
                const [oldest] = this.messages.keys();
                if (this.messages.size > MESSAGES && oldest !== undefined) {
                    this.messages.delete(oldest);
                }
            }
        }
        const { open } = this;
        if (kind === "user") {
            open.element.append(revealed(text));
        } else if (open.rest !== undefined) {
            open.rest.append(revealed(text));
        } else if (open.text.length + text.length > LARGE) {
            this.draw(open);
            open.rest = h("div", { cls: "raw" }, {}, revealed(text));
            open.element.append(open.rest);
        } else {
            const isFirst = open.text === "";
            open.text += text;
            if (isFirst) {
                this.draw(open);
            } else {
                // Many parts are drawn together, and a message that takes long less often.
                open.timer ??= setTimeout(() => this.draw(open), open.pace);
            }
        }
        this.toEnd();
    }

    /** Draws a message's Markdown, if it has changed. */
    private draw(open: Open): void {
        clearTimeout(open.timer);
        open.timer = undefined;
        if (open.drawn === open.text.length) {
            return;
        }
        const begun = performance.now();
        open.drawn = open.text.length;
        try {
            markdown(open.element, open.text);
        } catch {
            // A message is never missing, whatever is in it.
            open.element.replaceChildren(h("div", { cls: "raw" }, {}, revealed(open.text)));
        }
        this.toEnd();
        open.pace = Math.max(PACE, REST * (performance.now() - begun));
    }

    private take(entry: Entry): void {
        const { event } = entry;
        this.since = entry.cursor;
        const text = typeof event.text === "string" ? event.text : "";
        if (entry.gap !== undefined) {
            this.open = null;
            this.add("fact", "Earlier events are no longer available.");
            this.asks.replaceChildren();
            this.running = 0;
            this.unsure = true;
            void this.settle();
        }
        if (["prompt", "question", "answered", "outcome", "exited"].includes(event.type)) {
            this.turns += 1;
        }
        if (["message", "thought", "user"].includes(event.type)) {
            this.stream(event.type, typeof event.message_id === "string" ? event.message_id : undefined, text);
            return;
        }
        if (!["update", "mode", "options", "usage", "title"].includes(event.type)) {
            this.open = null;
        }
        switch (event.type) {
            case "prompt":
                this.running += 1;
                this.add("said user", revealed(text));
                break;
            case "tool":
                this.tool(event, text);
                break;
            case "plan":
                this.planned(event.entries as { content: string; status: string }[]);
                break;
            case "usage": {
                const { used, size, cost } = event.usage as { used: number; size: number; cost?: { amount: number; currency: string } };
                const paid = cost === undefined ? "" : ` · ${cost.amount.toFixed(2)} ${cost.currency}`;
                this.usage = clean(`${size > 0 ? Math.round((100 * used) / size) : 0} % of the context${paid}`, 80);
                break;
            }
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

    /** Shows the agent's plan; a new one replaces the earlier one, and moves to the end. */
    private planned(entries: { content: string; status: string }[]): void {
        this.plan?.remove();
        const mark = (status: string) => (status === "completed" ? "✓" : status === "in_progress" ? "▸" : "·");
        this.plan = this.add("fact", ...entries.map((entry) => h("div", {}, {}, clean(`${mark(entry.status)} ${entry.content}`, 400))));
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
            diffLines(body, revealed(text.replaceAll("\r\n", "\n").slice(0, 20_000)));
        }
    }

    private question(question: Question): void {
        const path = `/questions/${encodeURIComponent(question.id)}`;
        const options = question.options ?? [];
        const form = question.form ?? [];
        const fields = form.map((field) => input(field));
        const answer = (id: string) => {
            // Only an accepted form has values; the others have their defaults.
            const given = fields.map((field, at) => [form[at]?.name ?? "", field.value()] as const).filter(([, value]) => value !== undefined);
            const content = id === "accept" && form.length > 0 ? { content: Object.fromEntries(given) } : {};
            void this.ask("POST", path, { option: id, ...content });
        };
        const buttons = options.length > 0 ? options.map((one) => button(visibleLine(one.name, 300), () => answer(one.id))) : [button("Allow", () => void this.ask("POST", path, { allow: true })), button("Deny", () => void this.ask("POST", path, { allow: false }))];
        for (const one of buttons) {
            one.disabled = !this.app.mayType;
        }
        this.asks.append(h("div", { cls: "question", "data-id": question.id, role: "alert" }, {}, ...questionText(question.asked_by, question.detail, question.title), ...fields.map((field) => field.element), h("div", { cls: "options" }, {}, ...buttons)));
    }
}

/** Returns an input for a field of a form, and its value: undefined if it is left out. */
function input(field: Field): { element: HTMLElement; value: () => unknown } {
    const label = clean(`${field.title ?? field.name}${field.required ? " *" : ""}`, 200);
    const choices = field.choices ?? [];
    if (field.kind === "boolean") {
        const box = h("input", { type: "checkbox" });
        box.checked = field.default === true;
        return { element: h("label", { cls: "row-of" }, {}, box, label), value: () => box.checked };
    }
    if (choices.length > 0) {
        const isMany = field.kind === "array";
        const chosen = isMany && Array.isArray(field.default) ? field.default : [field.default];
        const list = h("select", { multiple: isMany }, {}, ...(isMany ? [] : [h("option", { value: "" }, {}, "")]), ...choices.map((one) => h("option", { value: one.id, selected: chosen.includes(one.id) }, {}, visibleLine(one.name, 200))));
        const picked = () => [...list.selectedOptions].map((one) => one.value).filter((value) => value !== "");
        return { element: h("label", { cls: "row-of" }, {}, label, list), value: () => (picked().length === 0 ? undefined : isMany ? picked() : picked()[0]) };
    }
    const text = h("input", { type: "text" });
    text.value = field.default === undefined ? "" : String(field.default);
    return { element: h("label", { cls: "row-of" }, {}, label, text), value: () => (text.value === "" ? undefined : text.value) };
}
