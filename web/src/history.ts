// Lines above the screen: asked for in chunks as they are scrolled to, and forgotten when they are far away.

import { rowElement } from "./draw";
import { type Line, lineOf } from "./screen";
import type { Feed } from "./feed";
import type { Connection } from "./wire";

/** Lines of a chunk, and chunks that are kept. */
export const CHUNK = 200;
const KEPT = 60;
/** Lines that can be scrolled to: a browser's element has no more than some 17 million pixels. */
export const REACH = 500_000;

/** Milliseconds between two questions while the newest lines are looked at. */
const PACE = 250;

interface Chunk {
    from: number;
    lines: Line[];
    /** From where it was asked for, and the screen's top then: what is missing is there only when these are others. */
    asked: number;
    top: number;
    element: HTMLElement | null;
    /** What the page shows of an older answer, until this one is drawn. */
    older: HTMLElement | null;
}

export class History {
    readonly element = document.createElement("div");
    private chunks = new Map<number, Chunk>();
    private asked = new Set<number>();
    /** Drawn lines whose numbers are void, so many rows above the screen: they stay until all visible lines have come again. */
    private void: { element: HTMLElement; above: number }[] = [];
    private epoch = -1;
    private numbering = -1;
    private top = 0;
    private askedAt = Number.NEGATIVE_INFINITY;
    private timer: ReturnType<typeof setTimeout> | undefined;

    constructor(
        private feed: Feed,
        private connection: Connection,
        private came: () => void,
    ) {
        this.element.className = "past";
    }

    /**
     * Shows the lines from this number to that one, as far as they are there, and asks for the rest. `pass`: they pass by,
     * so nothing but them is asked for, a few times a second. An empty range takes away what is shown.
     */
    show(from: number, to: number, origin: number, rowPixels: number, pass = false): void {
        const screen = this.feed.screen;
        if (this.numbering !== screen.numbering) {
            this.forget();
        } else if (this.epoch !== screen.epoch) {
            this.doubt();
        }
        [this.epoch, this.numbering] = [screen.epoch, screen.numbering];
        const top = screen.top;
        const first = Math.max(screen.first, from);
        const last = Math.min(top, to);
        const seen = new Set<number>();
        let missing = false;
        for (let number = Math.floor(first / CHUNK); first < last && number * CHUNK < last; number += 1) {
            seen.add(number);
            const chunk = this.chunks.get(number);
            // Of what is there already no part is asked for by itself: the rest would go.
            const part = pass && chunk?.asked !== Number.POSITIVE_INFINITY;
            const begin = part ? Math.max(first, number * CHUNK) : number * CHUNK;
            const end = Math.min(top, (number + 1) * CHUNK);
            // Where memory ends before the screen that tmux shows, the same question has the same answer.
            const short = (have: Chunk) => have.from + have.lines.length < end && have.top !== top;
            if (chunk === undefined || chunk.asked > begin || short(chunk)) {
                this.ask(number, begin, part ? end : (number + 1) * CHUNK, pass);
            }
            missing ||= chunk === undefined;
        }
        this.top = top;
        // What passes by is not waited for: in a flood it might never be whole.
        const kept = missing && !pass;
        for (const { element, above } of kept ? this.void : this.void.splice(0)) {
            if (kept) {
                element.style.top = `${(top - above - origin) * rowPixels}px`;
            } else {
                element.remove();
            }
        }
        for (const number of this.void.length === 0 ? seen : []) {
            const chunk = this.chunks.get(number);
            if (chunk !== undefined) {
                chunk.element ??= this.draw(chunk);
                chunk.older?.remove();
                chunk.older = null;
                chunk.element.style.top = `${(chunk.from - origin) * rowPixels}px`;
                if (chunk.element.parentNode === null) {
                    this.element.append(chunk.element);
                }
            }
        }
        for (const [number, chunk] of this.chunks) {
            if (!seen.has(number)) {
                chunk.element?.remove();
                chunk.older?.remove();
                chunk.element = chunk.older = null;
            }
        }
        this.trim(seen);
    }

    /** A line that is there, by its number. */
    line(number: number): Line | undefined {
        const chunk = this.chunks.get(Math.floor(number / CHUNK));
        return chunk?.lines[number - chunk.from];
    }

    remove(): void {
        clearTimeout(this.timer);
    }

    private forget(): void {
        for (const { element, older, from } of this.chunks.values()) {
            const drawn = element ?? older;
            if (drawn !== null) {
                this.void.push({ element: drawn, above: this.top - from });
            }
        }
        this.chunks.clear();
        this.asked.clear();
    }

    /** Has each line asked for again when it is looked at: until then, and until the answer, it stays as it is. */
    private doubt(): void {
        for (const chunk of this.chunks.values()) {
            chunk.asked = Number.POSITIVE_INFINITY;
        }
        this.asked.clear();
    }

    private ask(number: number, from: number, to: number, pass: boolean): void {
        if (this.asked.has(number)) {
            return;
        }
        const now = performance.now();
        if (pass && now - this.askedAt < PACE) {
            this.timer ??= setTimeout(() => {
                this.timer = undefined;
                this.came();
            }, PACE);
            return;
        }
        this.askedAt = now;
        this.asked.add(number);
        const { epoch } = this;
        const { top: then } = this.feed.screen;
        this.connection.history(this.feed.view, from, to - from).then(
            (answer) => {
                if (epoch !== this.epoch) {
                    return;
                }
                this.asked.delete(number);
                const top = this.feed.screen.top;
                const lines = answer.lines.map((row) => lineOf(row, this.feed.screen.columns)).slice(0, Math.max(0, top - answer.from));
                const before = this.chunks.get(number);
                const end = (number + 1) * CHUNK;
                const kept = lines.slice(0, end - answer.from);
                const older = before?.element ?? before?.older ?? null;
                this.chunks.set(number, { from: answer.from, lines: kept, asked: from, top: then, element: null, older });
                this.came();
            },
            () => epoch === this.epoch && this.asked.delete(number),
        );
    }

    private draw(chunk: Chunk): HTMLElement {
        const element = document.createElement("div");
        element.className = "chunk";
        element.append(...chunk.lines.map((line) => rowElement(line, true)));
        return element;
    }

    private trim(seen: Set<number>): void {
        for (const number of this.chunks.keys()) {
            if (this.chunks.size <= KEPT) {
                return;
            }
            if (!seen.has(number)) {
                this.chunks.delete(number);
            }
        }
    }
}
