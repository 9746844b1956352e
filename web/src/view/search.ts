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

    constructor(
        private feed: Feed,
        private connection: Connection,
        private on: { go(line: number): void; close(): void },
    ) {
        this.field = h("input", { type: "search", "aria-label": "Search the output", placeholder: "Search the output", spellcheck: "false" });
        const form = h("form", {}, { submit: (event) => this.search(event) }, this.field, this.status, button("×", () => on.close(), { "aria-label": "Close the search" }));
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
        }
    }

    private async search(event: Event): Promise<void> {
        event.preventDefault();
        this.run += 1;
        const run = this.run;
        const wanted = this.field.value.toLowerCase();
        fill(this.hits);
        if (wanted === "") {
            return;
        }
        const screen = this.feed.screen;
        let found = 0;
        const check = (line: number, text: string) => {
            if (found < MOST_HITS && text.toLowerCase().includes(wanted)) {
                found += 1;
                this.hits.append(h("li", {}, {}, button(text.trim().slice(0, 300), () => this.on.go(line), { title: `line ${line}` })));
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
                this.status.textContent = `${found} found, ${screen.top - before} lines searched…`;
                const from = Math.max(end, before - PART);
                const answer = await this.connection.history(this.feed.view, from, before - from);
                for (let index = answer.lines.length - 1; index >= 0; index -= 1) {
                    check(answer.from + index, textOf(lineOf(answer.lines[index] ?? [])));
                }
                before = from;
            }
            if (run === this.run) {
                this.status.textContent = found >= MOST_HITS ? `the last ${found} matches` : `${found} found`;
            }
        } catch {
            this.status.textContent = `${found} found; connection lost`;
        }
    }
}
