// A pane of the workspace: its bar, and the content of its kind.

import { type App, baseName, paneLabel } from "../app";
import { button, clean, fill, h, safeUrl } from "../dom";
import type { PaneInfo } from "../types";
import { discards } from "../view/ask";
import { PaneView } from "../view/pane";
import { Chat } from "./chat";
import { EditorPane } from "./editor";
import type { Pane } from "./model";
import { Picker } from "./picker";
import { terminal } from "./terminal";

export interface ContentOn {
    act(command: string, args: object): unknown;
    wait(key: string, text: string): void;
    /** Called when a content has another heading. */
    named(): void;
    deviceId: string;
}

/** The content of a pane, as its frame uses it. */
export interface Shown {
    element: HTMLElement;
    title(): string;
    focus?(): void;
    /** Called when the content becomes visible or hidden; it begins hidden. */
    visible?(shown: boolean): void;
    /** Returns whether closing it would lose unsaved text. */
    unsaved?(): boolean;
    remove(): void;
}

export class Content {
    readonly element: HTMLElement;
    private readonly name = h("span", { cls: "name" });
    private readonly address = h("input", { type: "url", "aria-label": "Address", spellcheck: "false", hidden: true });
    private readonly body = h("div", { cls: "content" });
    private shown: Shown | null = null;
    private signature = "";
    private pane: Pane;

    constructor(
        private app: App,
        pane: Pane,
        private on: ContentOn,
    ) {
        this.pane = pane;
        const target = `pane:${pane.id}`;
        const tool = (label: string, title: string, press: () => void) => button(label, press, { title, "aria-label": title });
        const split = (direction: string) => () => this.on.act("split-pane", { target, direction });
        const bar = h(
            "header",
            {},
            {},
            this.name,
            this.address,
            tool("◫", "Split: add a pane beside this one", split("horizontal")),
            tool("⊟", "Split: add a pane below this one", split("vertical")),
            tool("×", "Close this pane; a terminal keeps running", () => {
                void this.mayClose().then((may) => may && this.on.act("kill-pane", { target }));
            }),
        );
        this.element = h("article", { cls: "place" }, {}, bar, this.body);
        this.element.addEventListener("focusin", () => this.activate());
        // The content has another heading.
        this.element.addEventListener("title", () => {
            this.head();
            this.on.named();
        });
        bar.addEventListener("click", (event) => {
            if (event.target === bar || event.target === this.name) {
                this.activate();
                this.shown?.focus?.();
            }
        });
        this.address.addEventListener("keydown", (event) => {
            event.stopPropagation();
            if (event.key === "Enter") {
                const url = this.address.value.includes("://") ? this.address.value : `http://${this.address.value}`;
                this.on.act("navigate", { target, url });
            }
        });
    }

    private active = false;
    private several = false;
    private workspaceSeen = true;

    /** `marked`: the pane is the active one of several. */
    show(pane: Pane, visible: boolean, active: boolean, marked: boolean): void {
        this.pane = pane;
        this.element.hidden = !visible;
        this.active = active;
        this.several = true;
        this.element.classList.toggle("active", marked);
        this.refresh();
    }

    /** Sets whether the workspace is on the screen at all. */
    set seen(seen: boolean) {
        this.workspaceSeen = seen;
        this.sight();
    }

    private sight(): void {
        this.shown?.visible?.(this.workspaceSeen && !this.element.hidden);
    }

    /** Shows the pane's current content: a terminal may have come or gone. */
    refresh(): void {
        const signature = this.describe();
        if (signature !== this.signature && !this.element.hidden) {
            this.signature = signature;
            this.shown?.remove();
            this.shown = this.make();
            fill(this.body, this.shown.element);
        }
        this.sight();
        this.head();
    }

    /** What the pane shows, in words; also before it was ever visible. */
    get heading(): string {
        return clean(this.shown?.title() || this.named || this.pane.kind, 100);
    }

    /** The name of a content that was not made yet. */
    private get named(): string {
        const { kind, url, file, contentRef, status } = this.pane;
        const terminal = this.terminal;
        return kind === "terminal" && terminal !== undefined
            ? terminalTitle(terminal)
            : kind === "picker" && status !== "pending"
              ? "New pane"
              : (url ?? (file !== undefined ? baseName(file) : contentRef !== undefined && "sessionRef" in contentRef ? contentRef.sessionRef : ""));
    }

    private head(): void {
        this.name.textContent = this.address.hidden ? this.heading : "";
        this.element.setAttribute("aria-label", clean(`${this.pane.kind} ${this.shown?.title() ?? ""}`, 120));
    }

    remove(): void {
        this.shown?.remove();
        this.element.remove();
    }

    /**
     * Focuses the content; a web page would keep the keys, and its pane focuses the bar instead.
     */
    focus(): void {
        if (this.shown?.focus === undefined) {
            this.element.querySelector<HTMLElement>("header button")?.focus();
        } else {
            this.shown.focus();
        }
    }

    /** The visible terminal, for the page's commands. */
    view: { pane: PaneView; key: string } | null = null;

    /** The file with unsaved text, if any. */
    get unsavedFile(): string | null {
        return this.shown?.unsaved?.() === true ? (this.pane.file ?? "") : null;
    }

    /** Asks first if something would be lost. */
    async mayClose(): Promise<boolean> {
        return this.shown?.unsaved?.() !== true || (await discards(this.pane.file ?? "This pane"));
    }

    private activate(): void {
        if (this.several && !this.active && !this.element.hidden) {
            this.active = true;
            this.on.act("select-pane", { target: `pane:${this.pane.id}` });
        }
    }

    /** The terminal's pane. */
    private get terminal(): PaneInfo | undefined {
        const ref = this.pane.contentRef;
        return ref !== undefined && "terminalId" in ref ? terminal(ref.terminalId, this.app.panes.values(), this.app.sockets) : undefined;
    }

    private describe(): string {
        const { kind, url, file, contentRef, status } = this.pane;
        return JSON.stringify([kind, status, url, file, contentRef, kind === "terminal" ? this.terminal?.key : null]);
    }

    private make(): Shown {
        const { pane } = this;
        this.view = null;
        this.address.hidden = pane.kind !== "browser";
        if (pane.status === "pending") {
            return plain("Starting…", "pending");
        }
        const target = `pane:${pane.id}`;
        switch (pane.kind) {
            case "terminal": {
                const terminal = this.terminal;
                if (terminal === undefined) {
                    const ref = pane.contentRef as { terminalId: string };
                    return plain(`Terminal not found: ${ref.terminalId}`, ref.terminalId);
                }
                const view = new PaneView(this.app, terminal.key, { embedded: true, wait: (text) => this.on.wait(terminal.key, text) });
                this.view = { pane: view, key: terminal.key };
                return { element: view.element, title: () => terminalTitle(this.terminal ?? terminal), focus: () => view.focus(), remove: () => view.remove() };
            }
            case "browser":
                return this.browser(pane.url ?? "");
            case "editor":
                return new EditorPane(this.app, pane.file ?? "");
            case "claude-chat":
                return new Chat(this.app, (pane.contentRef as { sessionRef: string }).sessionRef);
            default:
                return new Picker(this.app, { act: (command, args) => this.on.act(command, { target, ...args }), pane: target, deviceId: this.on.deviceId });
        }
    }

    private browser(url: string): Shown {
        this.address.value = url;
        const safe = safeUrl(url);
        if (safe === null || !/^https?:/.test(safe)) {
            return plain("Unsupported address: expected http:// or https://.", "web page");
        }
        if (new URL(safe).origin === location.origin) {
            return plain("muxtap cannot show its own page in a pane.", "web page");
        }
        const frame = h("iframe", {
            src: safe,
            title: clean(`Web page ${safe}`, 200),
            sandbox: "allow-scripts allow-same-origin allow-forms allow-popups allow-popups-to-escape-sandbox allow-modals allow-downloads",
            referrerpolicy: "no-referrer",
            allow: "",
        });
        return { element: frame, title: () => "", remove: () => frame.remove() };
    }
}

/** Returns a terminal's heading: its name, what runs in it, and its folder. */
function terminalTitle({ cwd, ...pane }: PaneInfo): string {
    const label = paneLabel({ cwd, ...pane });
    return [label, pane.command === label || pane.agent ? "" : pane.command, baseName(cwd)].filter((word) => word !== "").join(" · ");
}

export function plain(text: string, title: string): Shown {
    const element = h("p", { cls: "plain" }, {}, clean(text, 300));
    return { element, title: () => title, remove: () => element.remove() };
}
