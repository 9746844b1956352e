// Search in a pane's output, newest first.

import { button, fill, h } from "../dom";
import type { Feed } from "../feed";
import { lineOf, textOf } from "../screen";
import type { Connection } from "../wire";

/**
 * Lines that are requested at once; below, that are searched in all, and the maximum number of
 * hits.
 */
const PART = 1000;
const MOST_LINES = 100_000;
const MOST_HITS = 200;

export class Finder {
    readonly element: HTMLElement;
    private readonly field: HTMLInputElement;
    private readonly hits = h("ol", { cls: "hits" });
    private readonly status = h("span", { role: "status" });
    private run = 0;
    private wanted = "";
    /** The hit that is shown, from the newest; its total is unknown while the search runs. */
    private at = -1;
    private words = "";

    constructor(
        private feed: Feed,
        private connection: Connection,
        private on: { go(line: number): void; close(): void },
    ) {
        this.field = h("input", { type: "search", "aria-label": "Search the output", placeholder: "Search the output", spellcheck: "false" });
        const form = h("form", {}, { submit: (event) => this.search(event) }, this.field, this.status, button("↑", () => this.step(1), { "aria-label": "Earlier match", title: "Earlier match (Enter)" }), button("↓", () => this.step(-1), { "aria-label": "Later match", title: "Later match (Shift+Enter)" }), button("×", () => on.close(), { "aria-label": "Close the search" }));
        this.element = h("div", { cls: "finder" }, { keydown: (event) => this.key(event) }, form, this.hits);
    }

    focus(): void {
        this.field.focus();
        this.field.select();
    }

    private key(event: KeyboardEvent): void {
        event.stopPropagation();
        if (event.key === "Escape") {
            this.on.close();
        } else if (event.key === "Enter" && event.target === this.field && event.shiftKey) {
            event.preventDefault();
            this.step(-1);
        }
    }

    /** Shows the next hit: an earlier line, or with -1 a later one. */
    private step(by: number): void {
        const all = [...this.hits.querySelectorAll("button")];
        const at = (this.at + by + all.length) % all.length;
        all[at]?.click();
        all[at]?.scrollIntoView({ block: "nearest" });
    }

    private say(words = this.words): void {
        this.words = words;
        this.status.textContent = this.at < 0 ? words : `${this.at + 1} of ${words}`;
    }

    private async search(event: Event): Promise<void> {
        event.preventDefault();
        const wanted = this.field.value.toLowerCase();
        if (wanted === this.wanted && this.hits.childElementCount > 0) {
            this.step(1);
            return;
        }
        this.run += 1;
        const run = this.run;
        this.wanted = wanted;
        this.at = -1;
        this.say("");
        fill(this.hits);
        if (wanted === "") {
            return;
        }
        const screen = this.feed.screen;
        let found = 0;
        const check = (line: number, text: string) => {
            if (found < MOST_HITS && text.toLowerCase().includes(wanted)) {
                const index = found;
                found += 1;
                const hit = button(text.trim().slice(0, 300), () => {
                    this.hits.querySelector("[aria-current]")?.removeAttribute("aria-current");
                    hit.setAttribute("aria-current", "true");
                    this.at = index;
                    this.say();
                    this.on.go(line);
                });
                this.hits.append(h("li", {}, {}, hit));
                if (index === 0) {
                    // The newest match is shown at once.
                    hit.click();
                }
            }
        };
        for (let row = screen.lines.length - 1; row >= 0; row -= 1) {
            const line = screen.lines[row];
            if (line !== undefined) {
                check(screen.top + row, textOf(line));
            }
        }
        let before = screen.top;
        const end = Math.max(screen.first, before - MOST_LINES);
        try {
            while (before > end && found < MOST_HITS && run === this.run) {
                this.say(`${found}, ${screen.top - before} lines searched…`);
                const from = Math.max(end, before - PART);
                const answer = await this.connection.history(this.feed.view, from, before - from);
                for (let index = answer.lines.length - 1; index >= 0; index -= 1) {
                    check(answer.from + index, textOf(lineOf(answer.lines[index] ?? [])));
                }
                before = from;
            }
            if (run === this.run) {
                this.say(found === 0 ? "not found" : found >= MOST_HITS ? `the last ${found}` : `${found}`);
            }
        } catch {
            this.say(`${found}; connection lost`);
        }
    }
}
