// The input for a pane: keyboard, input methods, paste, and a bar of keys for touch.

import { type App, count, lineCount } from "../app";
import { button, h, spoken } from "../dom";
import { keyName, pasteable, typedText } from "../keys";
import { composedChange } from "../compose";
import { fitting } from "../fit";
import type { Typed } from "../types";

const MAC = /Mac|iPhone|iPad/.test(navigator.platform);
/** Maximum length of a paste, in characters; a message has at most 1 MiB. */
const MOST_PASTE = 200_000;

export interface Keyboard {
    /** Returns the pane's name. */
    name(): string;
    type(typed: Typed): void;
    /** Returns whether the program requested bracketed pastes. */
    bracketed(): boolean;
    /** Copies the selection; `false` if it is empty. */
    copy(): boolean;
}

/** The last offer to paste several lines. */
let offer: { of: Input; withdraw(): void } | null = null;

export class Input {
    /** The hidden field that has the focus while the person types into a pane. */
    readonly field: HTMLTextAreaElement;
    readonly bar: HTMLElement;
    private control = false;
    private alt = false;
    private sticky: { control: HTMLButtonElement; alt: HTMLButtonElement };
    private composing = false;
    private composed = "";
    private live = false;

    constructor(
        private app: App,
        private keyboard: Keyboard,
    ) {
        this.field = h("textarea", {
            cls: "keys",
            autocapitalize: "off",
            autocomplete: "off",
            autocorrect: "off",
            spellcheck: "false",
            rows: 1,
        });
        const field = this.field;
        // An offer to paste is for the pane that was in use: another one in use withdraws it.
        field.addEventListener("focus", () => offer !== null && offer.of !== this && offer.withdraw());
        field.addEventListener("keydown", (event) => this.keydown(event));
        field.addEventListener("beforeinput", (event) => this.before(event));
        field.addEventListener("input", () => this.settle());
        field.addEventListener("compositionstart", () => this.compose(true));
        field.addEventListener("compositionupdate", (event) => this.composes(event.data));
        field.addEventListener("compositionend", (event) => this.compositionEnds(event.data));
        field.addEventListener("paste", (event) => this.pasted(event));
        const key = (label: string, name: string, title: string) => this.key(label, title, () => this.press(name));
        const control = this.key("Ctrl", "Hold Control for the next key", () => this.stick("control"));
        const alt = this.key("Alt", "Hold Alt for the next key", () => this.stick("alt"));
        this.sticky = { control, alt };
        this.bar = h(
            "div",
            { cls: "keybar", role: "toolbar", "aria-label": "Keys" },
            {},
            key("Esc", "Escape", "Escape"),
            key("Tab", "Tab", "Tab"),
            control,
            alt,
            key("←", "Left", "Left"),
            key("↓", "Down", "Down"),
            key("↑", "Up", "Up"),
            key("→", "Right", "Right"),
            key("⏎", "Enter", "Enter"),
            this.key("^C", "Control-C", () => this.keyboard.type({ keys: ["C-c"] })),
            this.key("/", "Slash", () => this.text("/")),
            this.key("-", "Hyphen", () => this.text("-")),
            this.key("|", "Pipe", () => this.text("|")),
            this.key("~", "Tilde", () => this.text("~")),
            key("Home", "Home", "Home"),
            key("End", "End", "End"),
            key("PgUp", "PPage", "Page up"),
            key("PgDn", "NPage", "Page down"),
            this.key("Paste", "Paste from the clipboard", () => this.pasteClipboard()),
        );
    }

    focus(): void {
        this.field.focus({ preventScroll: true });
    }

    /** Types text as a person would. */
    text(text: string): void {
        this.keyboard.type(typedText(text, this.control, this.alt));
        this.unstick();
    }

    pasted(event: ClipboardEvent): void {
        event.preventDefault();
        this.paste(event.clipboardData?.getData("text/plain") ?? "");
    }

    paste(text: string): void {
        const clean = pasteable(text);
        if (clean === "") {
            return;
        }
        if (clean.length > MOST_PASTE) {
            this.app.note({ kind: "error", text: `Paste too long: ${clean.length} characters; the limit is ${MOST_PASTE}.`, ms: 6000 });
            return;
        }
        if (fitting({ paste: clean }) === null) {
            this.app.note({ kind: "error", text: "Paste too large: it exceeds the limit of 1 MiB once its control characters are escaped.", ms: 8000 });
            return;
        }
        const lines = lineCount(clean);
        if (clean.includes("\n") && !this.keyboard.bracketed()) {
            const withdraw = this.app.note({
                kind: "info",
                text: `Paste ${count(lines, "line")} into ${this.keyboard.name()}? Without bracketed paste, its program may run each line.`,
                actions: [
                    {
                        label: "Paste",
                        press: () => {
                            this.keyboard.type({ paste: clean });
                            this.focus();
                        },
                    },
                ],
                tag: "paste",
            });
            offer = { of: this, withdraw };
            return;
        }
        this.keyboard.type({ paste: clean });
    }

    /** Withdraws what is offered for this pane. */
    remove(): void {
        if (offer?.of === this) {
            offer.withdraw();
        }
    }

    async pasteClipboard(): Promise<void> {
        try {
            this.paste(await navigator.clipboard.readText());
        } catch {
            this.app.note({ kind: "error", text: "Clipboard access denied; use the browser's own paste.", ms: 6000 });
        }
        this.focus();
    }

    private key(label: string, title: string, press: () => void): HTMLButtonElement {
        const made = button(label, press, { title, "aria-label": spoken(label, title), tabindex: "-1" });
        // The field keeps the focus, and a phone its keyboard.
        made.addEventListener("pointerdown", (event) => event.preventDefault());
        return made;
    }

    private press(name: string): void {
        this.keyboard.type({ keys: [`${this.control ? "C-" : ""}${this.alt ? "M-" : ""}${name}`] });
        this.unstick();
    }

    private stick(which: "control" | "alt"): void {
        this[which] = !this[which];
        this.mark();
    }

    private unstick(): void {
        this.control = false;
        this.alt = false;
        this.mark();
    }

    private mark(): void {
        this.sticky.control.setAttribute("aria-pressed", String(this.control));
        this.sticky.alt.setAttribute("aria-pressed", String(this.alt));
    }

    keydown(event: KeyboardEvent): void {
        // Safari ends a composition before the key that ended it: 229 is a key of an input method.
        if (event.isComposing || this.composing || event.keyCode === 229) {
            return;
        }
        const copy = event.ctrlKey && !event.altKey && event.key.toLowerCase() === "c";
        // With Shift it is never an interrupt, even without a selection.
        if (copy && (this.keyboard.copy() || event.shiftKey)) {
            event.preventDefault();
            return;
        }
        // The browser pastes: its event has the clipboard's content.
        if (event.ctrlKey && event.shiftKey && event.key.toLowerCase() === "v") {
            return;
        }
        const name = keyName(event, MAC);
        if (name === null) {
            return;
        }
        event.preventDefault();
        this.press(name);
    }

    private before(event: InputEvent): void {
        if (event.isComposing || this.composing) {
            return;
        }
        const keys: Record<string, string> = {
            insertLineBreak: "Enter",
            insertParagraph: "Enter",
            deleteContentBackward: "BSpace",
            deleteWordBackward: "M-BSpace",
            deleteContentForward: "DC",
        };
        const name = keys[event.inputType];
        if (name !== undefined) {
            event.preventDefault();
            this.press(name);
        } else if (event.inputType.startsWith("insert") && event.data !== null && event.data !== "") {
            event.preventDefault();
            this.text(event.data);
        }
    }

    // An on-screen keyboard composes each word: its text so far is typed at once, and corrected
    // when it changes. Text that an input method composes (Chinese, Japanese, Korean) is shown
    // beside the cursor, and typed when it is chosen.

    private compose(begins: boolean): void {
        this.composing = begins;
        this.composed = "";
        this.live = matchMedia("(pointer: coarse)").matches;
        this.field.classList.toggle("composing", begins && !this.live);
    }

    private composes(data: string): void {
        if (!this.live) {
            this.field.style.width = `${Math.max(2, [...data].length * 2 + 1)}ch`;
            return;
        }
        const change = composedChange(this.composed, data);
        if (change === null) {
            this.live = false;
            this.field.classList.add("composing");
            return;
        }
        this.composed = data;
        this.mend(change);
    }

    private mend(change: { back: number; text: string }): void {
        if (change.back > 0) {
            this.keyboard.type({ keys: new Array<string>(change.back).fill("BSpace") });
        }
        if (change.text !== "") {
            this.text(change.text);
        }
    }

    private compositionEnds(data: string): void {
        if (this.composed !== "" || this.live) {
            const change = composedChange(this.composed, data, true);
            if (change !== null) {
                this.mend(change);
            }
        } else if (data !== "") {
            this.text(data);
        }
        this.compose(false);
        this.settle();
    }

    /** Fills the field: an on-screen keyboard sends no key for a deletion in an empty one. */
    private settle(): void {
        if (!this.composing) {
            this.field.value = "  ";
            this.field.setSelectionRange(1, 1);
            this.field.style.width = "";
        }
    }
}
