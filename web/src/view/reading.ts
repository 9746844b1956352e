// The reading view: a pane's output, its lines joined and as wide as the page. For phones, and for
// long lines.

import { h } from "../dom";
import { writeRuns } from "../draw";
import type { Feed } from "../feed";
import { KeptLines } from "../kept";
import { type Line, joined, lineOf } from "../screen";
import type { Connection } from "../wire";

/** Lines of history that are requested at once; below, that are kept. */
const PART = 300;
const MOST = 5000;
/** Distance in pixels from an end of the kept lines at which more are requested. */
const NEAR = 600;

export class Reading {
    readonly element: HTMLElement;
    private readonly past = h("div", { cls: "reading-past" });
    private readonly now = h("div", { cls: "reading-now" });
    private readonly kept = new KeptLines(MOST);
    private epoch = -1;
    private numbering = -1;
    /** Kept lines from this number on are requested again: they may look different. */
    private doubtful = Number.POSITIVE_INFINITY;
    private asking = false;
    private frame = 0;

    constructor(
        private feed: Feed,
        private connection: Connection,
    ) {
        this.element = h("div", { cls: "reading", tabindex: 0, role: "document", "aria-label": "The pane's output as text" }, { scroll: () => this.more() }, this.past, this.now);
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
        const { screen } = this.feed;
        const { kept, element } = this;
        const atEnd = element.scrollTop + element.clientHeight >= element.scrollHeight - 40;
        // A flood that replaces all kept lines is skipped.
        if (this.numbering !== screen.numbering || (atEnd && !kept.behind && screen.top - kept.to > MOST)) {
            kept.begin(screen.top);
            this.past.replaceChildren();
            this.doubtful = Number.POSITIVE_INFINITY;
        } else if (this.epoch !== screen.epoch) {
            this.doubtful = kept.from < kept.to ? kept.from : Number.POSITIVE_INFINITY;
        }
        [this.epoch, this.numbering] = [screen.epoch, screen.numbering];
        const lines = [...screen.lines];
        while (lines.length > 0 && lines[lines.length - 1]?.runs.length === 0) {
            lines.pop();
        }
        this.now.replaceChildren(...paragraphs(lines));
        // Lines between the kept ones and the screen are missing: without a gap, the screen would
        // seem to follow directly.
        kept.behind &&= kept.to < screen.top;
        this.now.hidden = kept.behind;
        if (screen.top > kept.to && !kept.behind) {
            this.ask(kept.to, screen.top, false);
        } else {
            this.more();
            this.askAgain();
        }
        if (atEnd && !kept.behind) {
            element.scrollTop = element.scrollHeight;
        }
    }

    private get below(): number {
        return this.element.scrollHeight - this.element.scrollTop;
    }

    /** Requests more lines near the beginning, or near the end of the kept ones. */
    private more(): void {
        const { screen } = this.feed;
        const { kept, element } = this;
        if (screen.modes.alternate || element.clientHeight === 0) {
            return;
        }
        if (kept.behind && this.below - element.clientHeight < NEAR) {
            this.ask(kept.to, Math.min(screen.top, kept.to + PART), false);
        } else if (element.scrollTop < NEAR && kept.from > screen.first) {
            this.ask(Math.max(screen.first, kept.from - PART), kept.from, true);
        }
    }

    private ask(from: number, to: number, older: boolean): void {
        if (this.asking || from >= to) {
            return;
        }
        this.asking = true;
        const { screen } = this.feed;
        const { epoch, kept, element } = this;
        const [start, end] = [kept.from, kept.to];
        this.connection.history(this.feed.view, from, Math.min(1000, to - from)).then(
            (answer) => {
                this.asking = false;
                if (epoch !== this.epoch || start !== kept.from || end !== kept.to) {
                    return;
                }
                const lines = answer.lines.map((row) => lineOf(row, screen.columns));
                const { below } = this;
                const { scrollTop } = element;
                // First the new lines are added and the reader's position restored; then the far
                // end is dropped in the same way.
                if (older) {
                    kept.older(lines, answer.from);
                    this.write();
                    element.scrollTop = element.scrollHeight - below;
                } else {
                    kept.newer(lines, answer.next);
                    this.write();
                    element.scrollTop = scrollTop;
                }
                if (kept.lines.length > MOST) {
                    this.letGo(older || (!kept.behind && below - element.clientHeight >= NEAR));
                }
                if (!older && below - element.clientHeight < 40 && !kept.behind) {
                    element.scrollTop = element.scrollHeight;
                }
                if (lines.length > 0) {
                    this.frame = requestAnimationFrame(() => this.draw());
                }
            },
            () => {
                this.asking = false;
            },
        );
    }

    private askAgain(): void {
        const { epoch, kept } = this;
        const [start, end] = [kept.from, kept.to];
        const from = Math.max(this.doubtful, start);
        if (this.asking || from >= end || this.element.clientHeight === 0) {
            return;
        }
        this.asking = true;
        const to = Math.min(end, from + PART);
        const { screen } = this.feed;
        this.connection.history(this.feed.view, from, to - from).then(
            (answer) => {
                this.asking = false;
                if (epoch === this.epoch && start === kept.from && end === kept.to) {
                    const { below } = this;
                    kept.again(answer.lines.map((row) => lineOf(row, screen.columns)), answer.from);
                    this.write();
                    this.element.scrollTop = this.element.scrollHeight - below;
                    this.doubtful = to < end ? to : Number.POSITIVE_INFINITY;
                }
                this.frame = requestAnimationFrame(() => this.draw());
            },
            () => {
                this.asking = false;
            },
        );
    }

    private letGo(newest: boolean): void {
        const { below } = this;
        const { scrollTop } = this.element;
        if (newest) {
            this.kept.letNewest();
        } else {
            this.kept.letOldest();
        }
        this.write();
        this.element.scrollTop = newest ? scrollTop : this.element.scrollHeight - below;
    }

    private write(): void {
        this.past.replaceChildren(...paragraphs(this.kept.lines));
    }
}

function paragraphs(lines: Line[]): HTMLElement[] {
    return joined(lines).map((runs) => {
        const element = document.createElement("p");
        writeRuns(element, runs, true, false);
        return element;
    });
}
