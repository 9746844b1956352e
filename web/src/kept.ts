// The history lines in a reading view: a bounded range, which moves to where it is read.

import type { Line } from "./screen";

export class KeptLines {
    lines: Line[] = [];
    /** The number of the first line, and of the one after the last. */
    from = 0;
    to = 0;
    /** Whether newer lines were dropped: they are requested again when they are scrolled to. */
    behind = false;

    constructor(private most: number) {}

    begin(at: number): void {
        this.lines = [];
        this.from = at;
        this.to = at;
        this.behind = false;
    }

    /** Adds lines before the first one. */
    older(lines: Line[], from: number): void {
        this.lines = [...lines, ...this.lines];
        this.from = from;
    }

    /** Adds lines after the last one. */
    newer(lines: Line[], next: number): void {
        this.lines = this.lines.concat(lines);
        this.to = next;
    }

    /** Replaces the lines with these numbers, unless dropped lines have left gaps. */
    again(lines: Line[], from: number): void {
        if (this.lines.length === this.to - this.from) {
            this.lines.splice(from - this.from, lines.length, ...lines);
        }
    }

    /** Drops the newest lines beyond the limit. */
    letNewest(): void {
        const over = this.lines.length - this.most;
        if (over > 0) {
            this.lines.length = this.most;
            this.to = Math.min(this.to - over, this.from + this.most);
            this.behind = true;
        }
    }

    /** Drops the oldest lines beyond the limit. */
    letOldest(): void {
        const over = this.lines.length - this.most;
        if (over > 0) {
            this.lines.splice(0, over);
            // Lines that tmux dropped meanwhile have left gaps; the numbers of the remaining ones
            // end at `to`.
            this.from = Math.max(this.from + over, this.to - this.most);
        }
    }
}
