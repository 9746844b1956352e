// The lines of history that a reading view holds: a bounded piece, which moves to where it is read.

import type { Line } from "./screen";

export class KeptLines {
    lines: Line[] = [];
    /** The number of the first line that is held, and of the one behind the last. */
    from = 0;
    to = 0;
    /** Newer lines were let go: what follows is read again when it is scrolled to. */
    behind = false;

    constructor(private most: number) {}

    begin(at: number): void {
        this.lines = [];
        this.from = at;
        this.to = at;
        this.behind = false;
    }

    /** Takes lines before the first one. */
    older(lines: Line[], from: number): void {
        this.lines = [...lines, ...this.lines];
        this.from = from;
    }

    /** Takes lines behind the last one. */
    newer(lines: Line[], next: number): void {
        this.lines = this.lines.concat(lines);
        this.to = next;
    }

    /** Takes lines in the place of those that have their numbers; not where dropped ones have left holes. */
    again(lines: Line[], from: number): void {
        if (this.lines.length === this.to - this.from) {
            this.lines.splice(from - this.from, lines.length, ...lines);
        }
    }

    /** Lets go of the newest lines beyond the bound. */
    letNewest(): void {
        const over = this.lines.length - this.most;
        if (over > 0) {
            this.lines.length = this.most;
            this.to = Math.min(this.to - over, this.from + this.most);
            this.behind = true;
        }
    }

    /** Lets go of the oldest lines beyond the bound. */
    letOldest(): void {
        const over = this.lines.length - this.most;
        if (over > 0) {
            this.lines.splice(0, over);
            // Lines that tmux dropped meanwhile have left holes; the numbers of those that are held end at `to`.
            this.from = Math.max(this.from + over, this.to - this.most);
        }
    }
}
