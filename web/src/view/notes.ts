// Messages that appear for a while, one at a time.

import type { Note } from "../app";
import { button, clean, h } from "../dom";

/** Messages that wait behind the visible one; more only if they last. */
const MOST = 5;

interface Shown extends Note {
    element: HTMLElement;
    timer?: ReturnType<typeof setTimeout> | undefined;
    /** When it was last shown. */
    since: number;
}

const isImportant = (note: Note) => note.kind === "error" || (note.actions ?? []).length > 0;

/** Returns the visible one of these messages: the newest, but information covers no other one. */
export function frontOf<N extends Note>(all: readonly N[]): N | undefined {
    return all.findLast(isImportant) ?? all.at(-1);
}

/** Returns those of these messages that are too many: the oldest that would end by themselves. */
export function tooMany<N extends Note>(all: readonly N[]): N[] {
    return all.filter((one) => one.ms !== undefined && one !== frontOf(all)).slice(0, Math.max(0, all.length - MOST - 1));
}

export class Notes {
    readonly element = h("div", { cls: "notes", role: "status", "aria-live": "polite" });
    /** The messages, the newest last. */
    private all: Shown[] = [];
    private front: Shown | undefined;

    /** Shows a message; returns a function that withdraws it. */
    show(note: Note): () => void {
        const shown: Shown = { ...note, since: 0, element: h("div", { cls: `note ${note.kind}` }, {}, h("span", {}, {}, clean(note.text, 600))) };
        const close = () => this.close(shown);
        for (const { label, press } of note.actions ?? []) {
            shown.element.append(
                button(label, () => {
                    close();
                    press();
                }),
            );
        }
        shown.element.append(button("×", close, { "aria-label": "Dismiss", cls: "close" }));
        const again = (one: Shown) => one.text === note.text || (note.tag !== undefined && one.tag === note.tag);
        this.all = [...this.all.filter((one) => !again(one)), shown];
        const many = tooMany(this.all);
        this.all = this.all.filter((one) => !many.includes(one));
        this.draw();
        return close;
    }

    private close(shown: Shown): void {
        this.all = this.all.filter((one) => one !== shown);
        this.draw();
    }

    /** Shows the message in front, whose time runs only now. */
    private draw(): void {
        const [before, now] = [this.front, frontOf(this.all)];
        if (before === now) {
            return;
        }
        this.front = now;
        if (before?.ms !== undefined) {
            clearTimeout(before.timer);
            before.ms = Math.max(1000, before.ms - (Date.now() - before.since));
        }
        if (now?.ms !== undefined) {
            now.since = Date.now();
            now.timer = setTimeout(() => this.close(now), now.ms);
        }
        this.element.replaceChildren(...(now === undefined ? [] : [now.element]));
    }
}
