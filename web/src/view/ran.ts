// The commands of a pane, beside the rows at which they were typed: how each ended, after how long,
// and its output for the clipboard.

import { type App, count, http, lineCount, messageOf } from "../app";
import { button, clean, copyText, h } from "../dom";
import type { Feed } from "../feed";
import type { Line } from "../screen";
import type { Ran } from "../types";

/** Milliseconds between two requests for the commands. */
const PACE = 250;
/** The longest such time after errors, each of which doubles it. */
const PACE_LONGEST = 30_000;

export class Commands {
    readonly element = h("div", { cls: "marks" });
    private list: Ran[] = [];
    private known = -1;
    /** The view whose commands the list has; -1: the next request is for all. */
    private listed = -1;
    private numbering = -1;
    private timer: ReturnType<typeof setTimeout> | undefined;
    private asked = 0;
    private pace = PACE;
    private removed = false;
    private origin = 0;
    private rowPixels = 0;
    private columns = 0;
    /** The lines that the marks were placed beside. */
    private beside: (Line | undefined)[] = [];

    /**
     * `changed`: called when the list has changed. `line`: returns a line by its number, if it is
     * known.
     */
    constructor(
        private app: App,
        private key: string,
        private feed: Feed,
        private changed: () => void,
        private line: (number: number) => Line | undefined,
    ) {}

    remove(): void {
        this.removed = true;
        clearTimeout(this.timer);
    }

    /**
     * Places the marks; `origin` is the number of the first line that can be scrolled to, `columns`
     * the number of those that are visible.
     */
    place(origin: number, rowPixels: number, columns: number): void {
        const { screen } = this.feed;
        this.element.hidden = screen.modes.alternate || screen.stale;
        if (this.numbering !== screen.numbering) {
            [this.numbering, this.known, this.list, this.listed] = [screen.numbering, -1, [], -1];
            this.element.replaceChildren();
        }
        if (this.known !== screen.commands && this.timer === undefined && !this.removed) {
            this.timer = setTimeout(() => void this.ask(), Math.max(0, this.asked + this.pace - Date.now()));
        }
        if (this.origin !== origin || this.rowPixels !== rowPixels) {
            [this.origin, this.rowPixels] = [origin, rowPixels];
            this.move();
        }
        this.yield(columns);
    }

    /** Hides the results that would cover the text of their rows. */
    private yield(columns: number): void {
        const all = this.columns !== columns;
        this.columns = columns;
        this.list.forEach((one, index) => {
            const line = this.line(one.at);
            const button = this.element.children[index]?.firstElementChild;
            if (button && (all || !(index in this.beside) || this.beside[index] !== line)) {
                this.beside[index] = line;
                const width = (line?.runs ?? []).reduce((sum, run) => sum + (typeof run === "string" ? run.length : run[1]), 0);
                button.classList.toggle("over", line === undefined || width + (button.textContent ?? "").length + 2 > columns);
            }
        });
    }

    /** Returns the commands whose lines still exist, the earliest first. */
    get shown(): Ran[] {
        const { screen } = this.feed;
        return screen.modes.alternate ? [] : this.list.filter((one) => one.at >= screen.first);
    }

    /** Copies the output of a command. */
    async copy(one: Ran | undefined): Promise<void> {
        const pane = this.app.panes.get(this.key);
        if (one === undefined || pane === undefined) {
            return;
        }
        const name = clean(one.line ?? `command ${one.number}`, 60);
        let isCut = false;
        const output = this.output(() => (isCut = true), `/v1/panes/${encodeURIComponent(pane.id)}/output?socket=${encodeURIComponent(pane.socket)}&command=${one.number}`);
        const silent = `${name} printed nothing.`;
        // An error leaves the clipboard as it is.
        const text = output.then((text) => {
            if (text.trim() === "") {
                throw new Error(isCut ? `The output of ${name} is no longer kept.` : silent);
            }
            return text;
        });
        if (await copyText(text)) {
            this.app.note({ kind: "info", text: `Copied ${count(lineCount((await text).trimEnd()), "line")}: output of ${name}${isCut ? "; some of it is no longer kept" : ""}`, ms: 3000, tag: "copy" });
            return;
        }
        const why = await text.then(() => "the browser denies access to the clipboard", messageOf);
        const isSilent = why === silent;
        this.app.note({ kind: isSilent ? "info" : "error", text: isSilent ? why : `Output of ${name} not copied: ${why}`, ms: 6000, tag: "copy" });
    }

    /** Reads all output of a command, in parts. */
    private async output(cut: () => void, path: string): Promise<string> {
        let text = "";
        for (let since = ""; ; ) {
            const part = await http<{ text?: string; cursor: string; more?: boolean; gap?: unknown }>("GET", `${path}${since}`);
            if (part.gap !== undefined) {
                cut();
            }
            text += part.text ?? "";
            if (part.more !== true) {
                return text;
            }
            since = `&since=${encodeURIComponent(part.cursor)}`;
        }
    }

    private async ask(): Promise<void> {
        const { screen, view } = this.feed;
        const [known, numbering] = [screen.commands, screen.numbering];
        const changed = this.listed === view && this.known >= 0;
        this.asked = Date.now();
        try {
            const { commands, gone } = await this.app.connection.commands(view, changed);
            this.pace = PACE;
            if (numbering === screen.numbering) {
                const replaced = new Set([...(gone ?? []), ...commands.map((one) => one.number)]);
                const kept = changed ? this.list.filter((one) => !replaced.has(one.number)) : [];
                [this.list, this.known, this.listed] = [[...kept, ...commands].sort((one, other) => one.at - other.at || one.number - other.number), known, view];
                this.draw();
                this.changed();
            }
        } catch (error) {
            // A response that was lost may have had changes.
            this.listed = -1;
            if ((error as { code?: string }).code === "UNAVAILABLE") {
                // The next connection sends the whole screen, which asks again.
                this.known = known;
            } else {
                this.pace = Math.min(this.pace * 2, PACE_LONGEST);
            }
        }
        this.timer = undefined;
        // Commands may have changed since the request.
        this.place(this.origin, this.rowPixels, this.columns);
    }

    private draw(): void {
        this.element.replaceChildren(
            ...this.list.map((one) => {
                const took = one.duration_ms === null ? "" : time(one.duration_ms);
                const failed = one.signal !== null || (one.status ?? 0) !== 0;
                const state = one.end === null ? "runs" : failed ? "failed" : one.status === null ? "" : "done";
                const end = one.end === null ? "running" : failed ? `✗ ${one.signal ?? one.status}` : state === "" ? "ended" : "✓";
                const title = clean(`${one.line ?? "command"}: ${end === "✓" ? "succeeded" : end}${took === "" ? "" : ` after ${took}`}. Copy its output.`, 300);
                // The keys of the keyboard are the program's: commands are reached by the toolbar.
                return h("div", { cls: `mark ${state}` }, {}, button(`${end}${failed && took !== "" ? " · " : " "}${took}`.trim(), () => void this.copy(one), { title, tabindex: "-1" }));
            }),
        );
        this.beside = [];
        this.move();
    }

    private move(): void {
        const [first] = this.list;
        if (first !== undefined) {
            // Line numbers can be larger than an element's position may be.
            this.element.style.top = `${(first.at - this.origin) * this.rowPixels}px`;
            [...this.element.children].forEach((mark, index) => {
                const at = this.list[index]?.at ?? first.at;
                (mark as HTMLElement).style.top = `${(at - first.at) * this.rowPixels}px`;
                (mark as HTMLElement).hidden = at < this.origin;
            });
        }
    }
}

/** Returns a duration in words. */
export function time(ms: number): string {
    const seconds = ms / 1000;
    return ms < 1000 ? `${ms} ms` : seconds < 60 ? `${seconds.toFixed(seconds < 10 ? 1 : 0)} s` : seconds < 3600 ? `${Math.floor(seconds / 60)} min ${Math.round(seconds % 60)} s` : `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min`;
}
