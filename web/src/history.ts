// Lines above the screen: requested in chunks as they are scrolled to, and dropped when they are
// far away.

import { rowElement } from "./draw";
import { type Line, lineOf } from "./screen";
import type { Feed } from "./feed";
import type { Connection } from "./wire";

/** Lines in a chunk; below, the number of chunks that are kept. */
export const CHUNK = 200;
const KEPT = 60;
/** Lines that can be scrolled to: a browser's element has at most some 17 million pixels. */
export const REACH = 500_000;

/** Milliseconds between two requests while the newest lines are visible. */
const PACE = 250;

interface Chunk {
    from: number;
    lines: Line[];
    /**
     * The start of the request, and the screen's top then: missing lines exist only if one of these
     * has changed.
     */
    asked: number;
    top: number;
    element: HTMLElement | null;
    /** The displayed element of an older response, until this one is drawn. */
    older: HTMLElement | null;
}

export class History {
    readonly element = document.createElement("div");
    private chunks = new Map<number, Chunk>();
    private asked = new Set<number>();
    /**
     * Drawn lines with void numbers, at these distances above the screen: shown until all visible
     * lines have come again.
     */
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
     * Shows the lines in this range as far as they are known, and requests the others. An empty
     * range removes all.
     *
     * `pass`: the lines scroll past, and only they are requested, a few times a second.
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
            // A chunk that is known already is requested whole: a part of it would replace the
            // rest.
            const part = pass && chunk?.asked !== Number.POSITIVE_INFINITY;
            const begin = part ? Math.max(first, number * CHUNK) : number * CHUNK;
            const end = Math.min(top, (number + 1) * CHUNK);
            // If memory ends before the screen that tmux shows, the same request has the same
            // response.
            const short = (have: Chunk) => have.from + have.lines.length < end && have.top !== top;
            if (chunk === undefined || chunk.asked > begin || short(chunk)) {
                this.ask(number, begin, part ? end : (number + 1) * CHUNK, pass);
            }
            missing ||= chunk === undefined;
        }
        this.top = top;
        // Lines that scroll past are not waited for: in a flood they might never be complete.
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

    /** Returns a known line by its number. */
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

    /**
     * Marks all lines to be requested again when they are visible; until the response they stay
     * unchanged.
     */
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
