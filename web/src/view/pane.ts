// A pane in front: its screen and history, with typing, selection and search.

import { amount, type App, baseName, messageOf, paneLabel, paneName } from "../app";
import { button, clean, fill, h, spoken } from "../dom";
import { Drawing } from "../draw";
import type { Feed } from "../feed";
import { History, REACH } from "../history";
import { base64, typable } from "../keys";
import { cellRatio, fittingSize, rowHeight } from "../metrics";
import type { Line } from "../screen";
import type { Typed } from "../types";
import { Input } from "./input";
import { listen } from "./mouse";
import type { Command } from "./palette";
import { Commands } from "./ran";
import { Reading } from "./reading";
import { Finder } from "./search";
import { selectedText } from "./selection";

export interface PaneOptions {
    /** In a workspace: without a bar of its own. */
    embedded?: boolean;
    close?(): void;
    wait?(text: string): void;
}

/**
 * The number of lines by which the part above the screen grows at once while its end is followed.
 */
const STEP = 256;

/** The smallest size of text at which a pane is shown whole unasked. */
const LEAST = 7;

const SIZES = [7, 8, 9, 10, 11, 12, 13, 14, 16, 18, 20, 24, 28, 32];

export class PaneView {
    readonly element: HTMLElement;
    readonly input: Input;
    private readonly scroller: HTMLElement;
    private readonly paper = h("div", { cls: "paper" });
    private readonly drawing = new Drawing(true);
    private readonly history: History;
    private readonly heading = h("h1", {});
    private readonly commandsShown: Commands;
    /** A band over the line that was jumped to, and that line. */
    private readonly band = h("div", { cls: "band", hidden: true });
    private banded = -1;
    private readonly says = h("div", { cls: "says", role: "status", hidden: true });
    private readonly down: HTMLButtonElement;
    private readonly pendingMark = h("span", { cls: "pending", role: "status", hidden: true });
    private readonly fitMark = h("div", { cls: "fitted", role: "status", hidden: true }, {}, "The pane has this page's size ", button("Undo", () => this.unfitPane()));
    private readonly feed: Feed;
    private readonly ends: (() => void)[] = [];
    /** "auto": the whole pane if it is legible then. "fit": the whole pane in any case. */
    private size: number | "fit" | "auto" = "auto";
    private fontSize = 13;
    private rowPixels = 16;
    /**
     * The scroller's size, measured when it changes: reading it within a frame causes a second
     * layout.
     */
    private room = { width: 0, height: 0 };
    private placed = "";
    private following = true;
    private lastFirst = 0;
    private lastAbove = 0;
    private lastNumbering = 0;
    /**
     * The number of oldest lines that cannot be scrolled to yet: while the end is followed, new
     * lines must not move everything.
     */
    private beyond = 0;
    private reading: Reading | null = null;
    private finder: Finder | null = null;
    private buttons: Record<string, HTMLButtonElement> = {};
    private readonly observer: ResizeObserver;

    constructor(
        private app: App,
        readonly key: string,
        private options: PaneOptions,
    ) {
        const used = app.feeds.use(key, () => this.draw());
        this.feed = used.feed;
        this.history = new History(this.feed, app.connection, () => this.place());
        this.commandsShown = new Commands(app, key, this.feed, () => this.info(), (number) => this.lineAt(number));
        this.input = new Input(app, {
            name: () => app.name(key),
            type: (typed) => this.type(typed),
            bracketed: () => this.feed.screen.modes.paste,
            copy: () => this.copy(),
        });
        this.paper.append(this.band, this.history.element, this.drawing.element, this.commandsShown.element, this.input.field);
        this.scroller = h("div", { cls: "scroller", role: "region", tabindex: "-1" }, { scroll: () => this.scrolled() }, this.paper);
        this.down = button("↓ Jump to the screen", () => this.follow(), { cls: "down", hidden: true });
        this.element = h(
            "article",
            { cls: options.embedded === true ? "pane embedded" : "pane" },
            {},
            options.embedded === true ? null : this.header(),
            h("div", { cls: "pane-body" }, {}, this.scroller, this.down, this.says, this.pendingMark, this.fitMark),
            this.input.bar,
        );
        this.observer = new ResizeObserver(() => {
            this.measure();
            this.layout();
        });
        this.observer.observe(this.scroller);
        this.ends.push(
            used.end,
            app.on("panes", () => this.info()),
            app.on("pending", () => this.showPending()),
            app.on("link", () => this.showPending()),
            app.on("may", () => this.info()),
            app.on("may", () => this.sayFit()),
        );
        this.scroller.addEventListener("click", (event) => this.clicked(event));
        // A selection with the mouse takes the focus from the field, which handles pastes itself.
        this.scroller.addEventListener("paste", (event) => event.target !== this.input.field && this.input.pasted(event));
        this.input.field.addEventListener("focus", () => this.element.classList.add("focused"));
        this.input.field.addEventListener("blur", () => this.element.classList.remove("focused"));
        this.element.addEventListener("copy", (event) => this.copied(event));
        this.element.addEventListener("keydown", (event) => this.jumpKey(event), true);
        this.element.addEventListener("keydown", (event) => this.outsideKey(event));
        this.pinch();
        listen(this.scroller, {
            screen: () => this.feed.screen,
            cell: (x, y, nearest) => this.cell(x, y, nearest),
            report: (bytes) => this.type({ bytes: base64(bytes) }),
            keys: (keys) => this.type({ keys }),
            // A mouse event during a broken connection is not sent later.
            may: () => app.mayType && this.following && app.link === "open",
        }, this.ends);
        this.info();
    }

    remove(): void {
        this.unfitPane();
        for (const end of this.ends) {
            end();
        }
        this.reading?.remove();
        this.input.remove();
        this.commandsShown.remove();
        this.history.remove();
        this.observer.disconnect();
        this.element.remove();
    }

    focus(): void {
        if (this.reading === null) {
            this.input.focus();
        }
    }

    /** Types into the pane, and follows the screen from then on. */
    type(typed: Typed): void {
        if (!this.app.mayType) {
            this.app.note({ kind: "info", text: "This page is read-only: its link was created with --read-only.", ms: 5000 });
            return;
        }
        const what = "keys" in typed ? { keys: typable(typed.keys, this.app.tmuxVersion(this.key)) } : typed;
        if (!this.app.connection.type(this.key, what)) {
            this.app.note({ kind: "error", text: "Not typed: too much input is pending, or this input exceeds 1 MiB.", ms: 5000 });
        }
        if (!("bytes" in typed)) {
            this.follow();
        }
    }

    toggleReading(): void {
        if (this.reading !== null) {
            this.reading.remove();
            this.reading = null;
            this.scroller.hidden = false;
            // The screen was not drawn while the reading view was open.
            this.measure();
            this.draw();
            this.focus();
        } else {
            this.reading = new Reading(this.feed, this.app.connection);
            this.scroller.hidden = true;
            this.scroller.after(this.reading.element);
            this.reading.element.addEventListener("keydown", (event) => this.readingKey(event));
            this.reading.draw();
        }
        this.buttons.reading?.setAttribute("aria-pressed", String(this.reading !== null));
        this.buttons.fit?.setAttribute("aria-pressed", String(this.reading === null && this.size === "fit"));
    }

    find(): void {
        this.finder ??= new Finder(this.feed, this.app.connection, {
            go: (line) => this.goTo(line),
            close: () => {
                this.finder?.element.remove();
                this.finder = null;
                this.focus();
            },
        });
        this.element.querySelector(".pane-body")?.before(this.finder.element);
        this.finder.focus();
    }

    /** Scrolls to the previous command, or to the next one and behind the last one to the screen. */
    jump(by: -1 | 1): void {
        if (this.reading !== null) {
            this.toggleReading();
        }
        const { shown } = this.commandsShown;
        const here = this.banded >= 0 ? this.banded : Number.POSITIVE_INFINITY;
        const to = by < 0 ? shown.findLast((one) => one.at < here) : shown.find((one) => one.at > here);
        if (to !== undefined) {
            this.goTo(to.at);
        } else if (by > 0) {
            this.follow();
        }
    }

    /** Returns the command that was jumped to, or the last one. */
    private get command() {
        const { shown } = this.commandsShown;
        return shown.find((one) => one.at === this.banded) ?? shown.at(-1);
    }

    resizeText(step: number): void {
        const now = this.reading !== null ? this.reading.size : this.fontSize;
        const at = SIZES.findIndex((size) => size >= now);
        const size = SIZES[Math.max(0, Math.min(SIZES.length - 1, at + step))] ?? 13;
        if (this.reading !== null) {
            this.reading.size = size;
        } else {
            this.size = size;
            this.layout();
        }
    }

    fit(): void {
        this.size = "fit";
        this.layout();
    }

    /** Returns the palette's commands for this pane. */
    commands(): Command[] {
        const may = this.app.may.includes("create");
        return [
            { name: "This pane: search the output", run: () => this.find() },
            { name: "This pane: reading view", run: () => this.toggleReading() },
            { name: "This pane: larger text", run: () => this.resizeText(1) },
            { name: "This pane: smaller text", run: () => this.resizeText(-1) },
            { name: "This pane: scale the text to show the whole pane", run: () => this.fit() },
            { name: "This pane: set a wait…", run: () => this.options.wait?.("") },
            ...(this.commandsShown.shown.length === 0
                ? []
                : [
                      { name: "This pane: previous command", hint: "Ctrl+Shift+↑", run: () => this.jump(-1) },
                      { name: "This pane: next command", hint: "Ctrl+Shift+↓", run: () => this.jump(1) },
                      { name: "This pane: copy a command's output", hint: this.command?.line ?? "", run: () => void this.commandsShown.copy(this.command) },
                  ]),
            ...(!may || this.options.embedded === true
                ? []
                : [this.fitted === null ? { name: "This pane: fit the pane to this page, for all clients", run: () => this.fitPane() } : { name: "This pane: restore the pane's own size", run: () => this.unfitPane() }]),
        ];
    }

    // --- the pane's size, which all its clients share

    private fitted: { columns: number; rows: number } | null = null;

    /** Gives the pane this page's size until the person leaves the pane. */
    fitPane(): void {
        if (this.reading !== null) {
            this.toggleReading();
        }
        const size = typeof this.size === "number" ? this.size : 13;
        this.fitted = {
            columns: Math.max(10, Math.floor((this.scroller.clientWidth - 12) / (size * cellRatio()))),
            rows: Math.max(4, Math.floor((this.scroller.clientHeight - 4) / rowHeight(size))),
        };
        this.sayFit();
    }

    /** Sends the size now, and again on each new connection. */
    private sayFit(): void {
        const { fitted } = this;
        if (fitted === null || this.app.link !== "open") {
            return;
        }
        this.showFit();
        this.app.connection.fit(this.key, fitted.columns, fitted.rows).catch((error) => {
            if (this.fitted === fitted && (error as { code?: string }).code !== "UNAVAILABLE") {
                this.fitted = null;
                this.showFit();
                this.app.note({ kind: "error", text: `Pane not resized: ${messageOf(error)}`, ms: 8000 });
            }
        });
    }

    unfitPane(): void {
        if (this.fitted !== null) {
            this.fitted = null;
            this.app.connection.unfit(this.key);
            this.showFit();
        }
    }

    private showFit(): void {
        this.fitMark.hidden = this.fitted === null;
        this.buttons.take?.setAttribute("aria-pressed", String(this.fitted !== null));
    }

    // --- what is shown

    private header(): HTMLElement {
        const make = (name: string, label: string, title: string, press: () => void, toggles = false) => {
            const pressed = (event: MouseEvent) => {
                press();
                // After a click on one of these, keys are the program's again.
                if (event.detail > 0 && ["earlier", "later", "copy"].includes(name)) {
                    this.focus();
                }
            };
            const made = button(label, pressed, { title, "aria-label": spoken(label, title), ...(toggles ? { "aria-pressed": "false" } : {}) });
            this.buttons[name] = made;
            return made;
        };
        return h(
            "header",
            { cls: "pane-bar" },
            {},
            make("back", "‹", "Back to the wall", () => this.options.close?.()),
            this.heading,
            h(
                "div",
                { cls: "tools", role: "toolbar", "aria-label": "This pane" },
                {},
                make("earlier", "↑", "Previous command (Ctrl+Shift+Up)", () => this.jump(-1)),
                make("later", "↓", "Next command (Ctrl+Shift+Down)", () => this.jump(1)),
                make("copy", "Copy", "Copy the output of the command that was jumped to, or of the last one", () => void this.commandsShown.copy(this.command)),
                make("smaller", "A−", "Smaller text", () => this.resizeText(-1)),
                make("larger", "A+", "Larger text", () => this.resizeText(1)),
                make("fit", "Fit", "Scale the text to show the whole pane", () => this.fit()),
                make("take", "Take size", "Fit the pane to this page, for all clients, until you leave the pane", () => (this.fitted === null ? this.fitPane() : this.unfitPane()), true),
                make("reading", "Read", "Reading view: lines as wide as the page", () => this.toggleReading(), true),
                make("find", "Find", "Search the output", () => this.find()),
                make("wait", "Wait…", "Notify me when it prints something", () => this.options.wait?.(selectedText(this.element))),
            ),
        );
    }

    private info(): void {
        const pane = this.app.panes.get(this.key);
        if (pane !== undefined) {
            const label = paneLabel(pane);
            const title = this.app.isCommonTitle(pane) ? "" : this.feed.screen.title || pane.title;
            const what = [pane.command, title].filter((word, index, all) => word !== "" && word !== label && all.indexOf(word) === index).join(" — ");
            fill(
                this.heading,
                h("span", { cls: "label" }, {}, clean(label, 60)),
                h("span", { cls: "what" }, {}, clean(what, 120)),
                h("span", { cls: "name" }, {}, clean(paneName(pane), 60)),
                h("span", { cls: "where", title: clean(pane.cwd, 400) }, {}, clean(baseName(pane.cwd), 60)),
            );
            this.scroller.setAttribute("aria-label", clean(`Screen of ${paneName(pane)}`));
            this.input.field.setAttribute("aria-label", clean(`Type into ${paneName(pane)}; Control-Shift-Space opens the commands`));
        }
        const { shown } = this.commandsShown;
        for (const name of ["earlier", "later", "copy"]) {
            const one = this.buttons[name];
            if (one !== undefined) {
                one.hidden = shown.length === 0;
            }
        }
        if (this.buttons.take !== undefined) {
            this.buttons.take.hidden = !this.app.may.includes("create");
        }
        this.input.field.readOnly = !this.app.mayType;
        this.element.classList.toggle("looks", !this.app.mayType);
    }

    private draw(): void {
        const screen = this.feed.screen;
        const words =
            this.feed.error !== ""
                ? this.feed.error
                : this.feed.exit !== undefined
                  ? endWords(this.feed.exit)
                  : screen.stale
                    ? "These rows currently come from tmux itself."
                    : "";
        this.says.textContent = words;
        this.says.hidden = words === "";
        if (!screen.known) {
            return;
        }
        if (this.reading !== null) {
            this.reading.draw();
            return;
        }
        this.drawing.draw(screen);
        this.layout();
    }

    private measure(): void {
        this.room = { width: this.scroller.clientWidth, height: this.scroller.clientHeight };
        this.placed = "";
    }

    /** Chooses the font's size, then places everything. */
    private layout(): void {
        const screen = this.feed.screen;
        if (!screen.known || this.scroller.hidden || this.room.width === 0) {
            return;
        }
        const [width, height] = [this.room.width - 12, this.room.height - 4];
        const ratio = cellRatio();
        // A search beside the screen does not change the size of its text.
        this.fontSize = typeof this.size === "number" ? this.size : this.finder === null ? fittingSize(screen.columns, screen.rows, width, height, ratio, this.size === "fit" ? 2 : LEAST) : this.fontSize;
        // Scroll bars that come and go would change the size that fits.
        this.scroller.style.overflowX = screen.columns * this.fontSize * ratio <= width ? "hidden" : "auto";
        this.rowPixels = rowHeight(this.fontSize);
        this.scroller.style.fontSize = `${this.fontSize}px`;
        this.scroller.style.setProperty("--row", `${this.rowPixels}px`);
        this.buttons.fit?.setAttribute("aria-pressed", String(this.size === "fit"));
        this.place();
    }

    /** The number of lines above the screen that exist. */
    private get past(): number {
        const screen = this.feed.screen;
        return screen.modes.alternate ? 0 : Math.min(screen.history, REACH);
    }

    /** The number of lines above the screen that can be scrolled to. */
    private get above(): number {
        return Math.max(0, this.past - this.beyond);
    }

    private place(): void {
        this.placeAll();
        this.commandsShown.place(this.lastFirst, this.rowPixels, Math.min(this.feed.screen.columns, Math.floor(this.room.width / (this.fontSize * cellRatio()))));
        this.band.hidden = this.banded < 0;
        this.band.style.top = `${(this.banded - this.lastFirst) * this.rowPixels}px`;
    }

    private lineAt(number: number): Line | undefined {
        const { screen } = this.feed;
        return number >= screen.top ? screen.lines[number - screen.top] : this.history.line(number);
    }

    private placeAll(): void {
        const screen = this.feed.screen;
        if (this.following) {
            this.beyond = this.past < 2 * STEP ? 0 : this.past % STEP;
        }
        const top = this.above * this.rowPixels;
        const origin = screen.top - this.above;
        this.paper.style.height = `${top + screen.rows * this.rowPixels}px`;
        this.paper.style.width = `${screen.columns * this.fontSize * cellRatio()}px`;
        this.drawing.element.style.top = `${top}px`;
        const [column, row] = screen.at;
        this.input.field.style.transform = `translate(${Math.min(column, screen.columns - 1) * this.fontSize * cellRatio()}px, ${top + row * this.rowPixels}px)`;
        // If the lines were renumbered, the visible ones keep their distance from the screen.
        const behind = screen.numbering === this.lastNumbering ? origin - this.lastFirst : this.lastAbove - this.above;
        [this.lastFirst, this.lastAbove, this.lastNumbering] = [origin, this.above, screen.numbering];
        if (this.following) {
            this.showPast(origin);
            // Last, and only if it moves: it causes a layout.
            const placed = `${this.paper.style.height} ${this.rowPixels}`;
            if (this.placed !== placed) {
                this.placed = placed;
                this.scroller.scrollTop = this.scroller.scrollHeight;
            }
            return;
        }
        this.placed = "";
        if (behind !== 0) {
            this.scroller.scrollTop -= behind * this.rowPixels;
        }
        this.showPast(origin);
    }

    private showPast(origin: number): void {
        const { screen } = this.feed;
        const count = Math.ceil(this.room.height / this.rowPixels);
        if (this.scroller.hidden || count === 0) {
            return;
        }
        let [from, to] = [screen.top, screen.top];
        if (this.following) {
            // Only the visible lines: in a flood more would be requested with each frame.
            from -= Math.max(0, Math.min(this.above, count - screen.rows + 1));
        } else {
            const first = origin + Math.floor(this.scroller.scrollTop / this.rowPixels);
            if (this.above > 0 && first < screen.top) {
                [from, to] = [first - count, Math.min(first + 2 * count, screen.top)];
            }
        }
        this.history.show(from, to, origin, this.rowPixels, this.following);
    }

    private scrolled(): void {
        const scroller = this.scroller;
        this.following = scroller.scrollTop + scroller.clientHeight >= scroller.scrollHeight - this.rowPixels;
        this.down.hidden = this.following;
        if (!this.following) {
            this.placed = "";
            this.reachAll();
        }
        // A screen that is not drawn yet has other numbers: its frame shows the lines above it.
        if (this.lastNumbering === this.feed.screen.numbering && this.lastFirst === this.feed.screen.top - this.above) {
            this.showPast(this.lastFirst);
        }
    }

    /** Makes the oldest lines available to scrolling once they are near. */
    private reachAll(): void {
        const { scrollTop } = this.scroller;
        if (this.beyond > 0 && scrollTop < 2 * this.room.height) {
            this.beyond = 0;
            this.place();
            // A person who scrolled to the very beginning stays there.
            if (scrollTop === 0) {
                this.scroller.scrollTop = 0;
            }
        }
    }

    private follow(): void {
        if (this.banded >= 0) {
            this.banded = -1;
            this.band.hidden = true;
        }
        if (!this.following) {
            this.following = true;
            this.placed = "";
            this.down.hidden = true;
            this.place();
        }
    }

    private goTo(line: number): void {
        if (this.reading !== null) {
            this.toggleReading();
        }
        this.following = false;
        this.beyond = 0;
        this.banded = line;
        this.place();
        const origin = this.lastFirst;
        const target = Math.max(0, (line - origin) * this.rowPixels - this.scroller.clientHeight / 3);
        this.scroller.scrollTop = target;
        this.scrolled();
    }

    private showPending(): void {
        const mine = this.app.pending.filter((one) => one.key === this.key);
        const open = this.app.link === "open";
        this.pendingMark.hidden = mine.length === 0 || open;
        if (!open && mine.length > 0) {
            fill(
                this.pendingMark,
                `${amount(mine)} pending until the connection is back `,
                button("Discard", () => this.app.connection.discardUnsent(this.key)),
            );
        }
        // Acknowledgments come within a moment after a key: only longer delays are shown.
        this.element.classList.toggle("unsure", mine.length > 0);
    }

    // --- the pointer

    private cell(x: number, y: number, nearest: boolean): [number, number] | null {
        const box = this.drawing.element.getBoundingClientRect();
        const screen = this.feed.screen;
        const column = Math.floor(((x - box.left) / box.width) * screen.columns);
        const row = Math.floor((y - box.top) / this.rowPixels);
        if (nearest) {
            return [Math.max(0, Math.min(screen.columns - 1, column)), Math.max(0, Math.min(screen.rows - 1, row))];
        }
        const within = column >= 0 && column < screen.columns && row >= 0 && row < screen.rows;
        return within ? [column, row] : null;
    }

    private clicked(event: MouseEvent): void {
        const link = (event.target as HTMLElement).closest("a");
        if (link !== null) {
            // A program that requested the mouse gets the click; with Control the link does.
            if (this.feed.screen.modes.mouse !== 0 && !event.ctrlKey && !event.metaKey) {
                event.preventDefault();
            }
            return;
        }
        if (getSelection()?.isCollapsed !== false) {
            this.focus();
        }
    }

    private copy(): boolean {
        const text = selectedText(this.element);
        if (text === "") {
            return false;
        }
        // A page without HTTPS has no clipboard of its own.
        if (navigator.clipboard === undefined) {
            copyByEvent(text);
        } else {
            navigator.clipboard.writeText(text).catch(() => copyByEvent(text));
        }
        getSelection()?.removeAllRanges();
        this.focus();
        return true;
    }

    private copied(event: ClipboardEvent): void {
        const text = selectedText(this.element);
        if (text !== "" && event.clipboardData !== null) {
            event.preventDefault();
            event.clipboardData.setData("text/plain", text);
            this.focus();
        }
    }

    /** Takes the keys that jump between commands, in a pane that has some. */
    private jumpKey(event: KeyboardEvent): void {
        const by = { ArrowUp: -1, ArrowDown: 1 }[event.key] as -1 | 1 | undefined;
        if (by !== undefined && event.ctrlKey && event.shiftKey && !event.altKey && !event.metaKey && this.commandsShown.shown.length > 0) {
            event.preventDefault();
            event.stopPropagation();
            this.jump(by);
        }
    }

    /** Forwards a key that was pressed during a selection to the field. */
    private outsideKey(event: KeyboardEvent): void {
        const on = event.target as HTMLElement;
        // Modifiers alone keep the selection, as do the browser's own keys, except a Mac's paste.
        const alone = ["Shift", "Control", "Alt", "AltGraph", "Meta", "CapsLock"].includes(event.key) || (event.metaKey && event.key !== "v");
        if (!this.scroller.contains(on) || on === this.input.field || alone) {
            return;
        }
        // The field gets the focus before text is typed or pasted into it; the page must not take
        // the key for a shortcut.
        event.stopPropagation();
        this.input.keydown(event);
        this.focus();
    }

    /** Explains that the reading view takes no input, and offers the screen. */
    private readingKey(event: KeyboardEvent): void {
        if (event.key !== " " && (event.key.length === 1 || event.key === "Enter" || event.key === "Backspace") && !event.ctrlKey && !event.metaKey && !event.altKey && this.app.mayType) {
            event.stopPropagation();
            this.app.note({ kind: "info", text: "The reading view takes no input.", ms: 5000, actions: [{ label: "Return to the screen", press: () => this.reading !== null && this.toggleReading() }] });
        }
    }

    /** Changes the size of the text with two fingers. */
    private pinch(): void {
        let start: { distance: number; size: number } | null = null;
        const distance = (touches: TouchList) => {
            const [one, other] = [touches[0], touches[1]];
            return one && other ? Math.hypot(one.clientX - other.clientX, one.clientY - other.clientY) : 0;
        };
        this.scroller.addEventListener(
            "touchstart",
            (event) => {
                start = event.touches.length === 2 ? { distance: distance(event.touches), size: this.fontSize } : null;
            },
            { passive: true },
        );
        this.scroller.addEventListener(
            "touchmove",
            (event) => {
                if (start !== null && event.touches.length === 2 && start.distance > 0) {
                    event.preventDefault();
                    const size = (start.size * distance(event.touches)) / start.distance;
                    this.size = Math.max(6, Math.min(40, Math.round(size * 2) / 2));
                    this.layout();
                }
            },
            { passive: false },
        );
    }
}

/** Copies text by the browser's own command. */
function copyByEvent(text: string): void {
    const copied = (event: ClipboardEvent) => {
        event.preventDefault();
        event.stopImmediatePropagation();
        event.clipboardData?.setData("text/plain", text);
    };
    addEventListener("copy", copied, true);
    document.execCommand("copy");
    removeEventListener("copy", copied, true);
}

function endWords(exit: Feed["exit"]): string {
    if (exit?.status !== null && exit?.status !== undefined) {
        return `Exited with status ${exit.status}.`;
    }
    if (exit?.signal !== null && exit?.signal !== undefined) {
        return `Killed by signal ${exit.signal}.`;
    }
    return "Ended; this is the last screen.";
}
