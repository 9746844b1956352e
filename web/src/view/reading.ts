// The reading view: what a pane printed, its lines joined and as wide as the page. For phones, and for long lines.

import { h } from "../dom";
import { writeRuns } from "../draw";
import type { Feed } from "../feed";
import { type Line, joined, lineOf } from "../screen";
import type { Connection } from "../wire";

/** Lines of history that are read at once. */
const PART = 300;

export class Reading {
    readonly element: HTMLElement;
    private readonly past = h("div", { cls: "reading-past" });
    private readonly now = h("div", { cls: "reading-now" });
    private lines: Line[] = [];
    private from = -1;
    private to = -1;
    private epoch = -1;
    private asking = false;
    private frame = 0;

    constructor(
        private feed: Feed,
        private connection: Connection,
    ) {
        this.element = h("div", { cls: "reading", tabindex: 0, role: "document", "aria-label": "What the pane shows, as text" }, { scroll: () => this.more() }, this.past, this.now);
        this.size = 14;
    }

    private fontSize = 14;

    get size(): number {
        return this.fontSize;
    }

    set size(size: number) {
        this.fontSize = size;
        this.element.style.fontSize = `${size}px`;
    }

    remove(): void {
        cancelAnimationFrame(this.frame);
        this.element.remove();
    }

    draw(): void {
        const screen = this.feed.screen;
        const atEnd = this.element.scrollTop + this.element.clientHeight >= this.element.scrollHeight - 40;
        if (this.epoch !== screen.epoch) {
            this.epoch = screen.epoch;
            this.lines = [];
            this.from = screen.top;
            this.to = screen.top;
            this.past.replaceChildren();
        }
        const lines = [...screen.lines];
        while (lines.length > 0 && lines[lines.length - 1]?.runs.length === 0) {
            lines.pop();
        }
        this.now.replaceChildren(...paragraphs(lines));
        if (screen.top > this.to) {
            this.ask(this.to, screen.top);
        } else if (this.from === screen.top) {
            this.more();
        }
        if (atEnd) {
            this.element.scrollTop = this.element.scrollHeight;
        }
    }

    /** Reads further back when its beginning is near. */
    private more(): void {
        const screen = this.feed.screen;
        if (this.element.scrollTop < 600 && this.from > screen.first && !screen.modes.alternate) {
            this.ask(Math.max(screen.first, this.from - PART), this.from);
        }
    }

    private ask(from: number, to: number): void {
        if (this.asking || from >= to) {
            return;
        }
        this.asking = true;
        const { screen } = this.feed;
        const epoch = this.epoch;
        this.connection.history(this.feed.view, from, Math.min(1000, to - from)).then(
            (answer) => {
                this.asking = false;
                if (epoch !== this.epoch) {
                    return;
                }
                const lines = answer.lines.map((row) => lineOf(row, screen.columns));
                if (to === this.from) {
                    this.lines = [...lines, ...this.lines];
                    this.from = answer.from;
                } else {
                    this.lines.push(...lines);
                    this.to = answer.next;
                }
                const below = this.element.scrollHeight - this.element.scrollTop;
                this.past.replaceChildren(...paragraphs(this.lines));
                this.element.scrollTop = this.element.scrollHeight - below;
                this.frame = requestAnimationFrame(() => this.draw());
            },
            () => {
                this.asking = false;
            },
        );
    }
}

function paragraphs(lines: Line[]): HTMLElement[] {
    return joined(lines).map((runs) => {
        const element = document.createElement("p");
        writeRuns(element, runs, true, false);
        return element;
    });
}
