// Creates elements. Text is always text: no part of the page parses markup.

type Child = Node | string | null | undefined | false | readonly Child[];
type Handlers = { [K in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[K]) => void };

/** Creates an element: attributes (absent if `false` or undefined), listeners, children. */
export function h<K extends keyof HTMLElementTagNameMap>(
    tag: K,
    attributes: Record<string, string | boolean | number | undefined> = {},
    on: Handlers = {},
    ...children: Child[]
): HTMLElementTagNameMap[K] {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
        if (value !== undefined && value !== false) {
            element.setAttribute(name === "cls" ? "class" : name, value === true ? "" : String(value));
        }
    }
    for (const [name, handler] of Object.entries(on)) {
        element.addEventListener(name, handler as EventListener);
    }
    add(element, children);
    return element;
}

/** Appends children one by one: a call takes only so many arguments. */
function add(element: Element, children: readonly Child[]): void {
    for (const child of children) {
        if (Array.isArray(child)) {
            add(element, child as readonly Child[]);
        } else if (child !== null && child !== undefined && child !== false) {
            element.append(child as Node | string);
        }
    }
}

/** Creates a button. */
export function button(
    label: string,
    press: (event: MouseEvent) => void,
    attributes: Record<string, string | boolean | undefined> = {},
): HTMLButtonElement {
    return h("button", { type: "button", ...attributes }, { click: press }, label);
}

/** Returns what is read aloud for a button with a short label: it contains what is shown. */
export function spoken(label: string, title: string): string {
    return /^\w/.test(label) && !title.split(/\W+/).includes(label) ? `${label}: ${title}` : title;
}

/** Replaces an element's content. */
export function fill(element: Element, ...children: Child[]): void {
    element.replaceChildren();
    add(element, children);
}

/**
 * Replaces characters that do not belong in a title or a label: control characters and direction
 * marks.
 */
export function clean(text: string, most = 200): string {
    const kept = text.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g, " ");
    return kept.length > most ? `${kept.slice(0, most - 1)}…` : kept;
}

/** Characters without a visible form, and those that change the order of others. */
const HIDDEN = /(?![\n\t\u200d])\p{C}|(?<![\p{Extended_Pictographic}\ufe0f])\u200d|[\u00ad\u034f\u115f\u1160\u17b4\u17b5\u180b-\u180f\u2028\u2029\u2800\u3164\ufe00-\ufe0d\uffa0\u{e0100}-\u{e01ef}]/gu;

/** Blanks that could move what follows them out of sight, or to the beginning of another row. */
const BLANKS = /[\p{Zs}\t]{9,}/gu;

/** Writes characters without a visible form as numbers. */
export function revealed(text: string): string {
    return text.replace(HIDDEN, (one) => `\\u{${(one.codePointAt(0) ?? 0).toString(16)}}`);
}

/**
 * Returns the text of a question to a person: characters without a visible form are written as
 * numbers, many blanks as their number, and a text that is too long lacks its middle, and says how
 * much.
 */
export function visible(text: string, most = 4096): string {
    const shown = revealed(text).replace(BLANKS, (blanks) => `[${blanks.length} blanks]`);
    if (shown.length <= most) {
        return shown;
    }
    const tail = Math.floor(most / 3);
    return `${shown.slice(0, most - tail)} [${shown.length - most} of ${shown.length} characters are not shown] ${shown.slice(-tail)}`;
}

/** Returns `visible` text as one line. */
export function visibleLine(text: string, most?: number): string {
    return visible(text.replace(/[\n\t]/g, " "), most);
}

/**
 * Returns an element with a question's text, row by row: a row that is wrapped never continues at
 * the left edge, where another one would begin.
 */
export function rows(tag: "p" | "pre", text: string): HTMLElement {
    const all = text.split("\n");
    return h(tag, { cls: "lined" }, {}, all.map((row, index) => h("span", {}, {}, index + 1 < all.length ? `${row}\n` : row)));
}

/** Returns a URL that is safe to open, or null. */
export function safeUrl(text: string): string | null {
    if (!/^(https?:\/\/|mailto:)/i.test(text) || text.length > 8192) {
        return null;
    }
    try {
        const url = new URL(text);
        return ["http:", "https:", "mailto:"].includes(url.protocol) ? url.href : null;
    } catch {
        return null;
    }
}

/** Copies text; false if the browser refuses, as it does on a page without HTTPS. */
export async function copyText(text: string | Promise<string>): Promise<boolean> {
    // The clipboard is asked within the press, and gets a text that comes later.
    const blob = Promise.resolve(text).then((words) => new Blob([words], { type: "text/plain" }));
    blob.catch(() => undefined);
    try {
        await navigator.clipboard.write([new ClipboardItem({ "text/plain": blob })]);
        return true;
    } catch {
        return false;
    }
}

/** The element of an item in a list. */
export interface Kept<T> {
    element: HTMLElement;
    update(item: T): void;
}

/**
 * Keeps a list's elements by their items' ids.
 *
 * An item that stays is changed in place, to lose neither a press on it nor the focus.
 */
export class Keyed<T> {
    private there = new Map<string, Kept<T>>();

    constructor(
        private parent: Element,
        private make: (item: T, id: string) => Kept<T>,
    ) {}

    /** Shows these items, in this order. */
    show(items: [id: string, item: T][]): void {
        const ids = new Set(items.map(([id]) => id));
        for (const [id, kept] of this.there) {
            if (!ids.has(id)) {
                this.there.delete(id);
                kept.element.remove();
            }
        }
        const all = items.map(([id, item]) => {
            const kept = this.there.get(id) ?? this.make(item, id);
            this.there.set(id, kept);
            kept.update(item);
            return kept.element;
        });
        order(this.parent, all);
    }
}

/**
 * Puts elements into this order, moving as few as possible, and never one that has the focus or is
 * pressed.
 */
export function order(parent: Element, all: Element[]): void {
    const fixed = all.find((one) => one.parentNode === parent && one.matches(":focus-within, :active"));
    const at = fixed === undefined ? -1 : all.indexOf(fixed);
    // Before the fixed one: each before its successor; after it: each after its predecessor.
    for (let index = at - 1; index >= 0; index -= 1) {
        const next = all[index + 1] ?? null;
        if (all[index]?.nextElementSibling !== next || all[index]?.parentNode !== parent) {
            parent.insertBefore(all[index] as Element, next);
        }
    }
    for (let index = at + 1; index < all.length; index += 1) {
        const before = index === 0 ? null : (all[index - 1] as Element);
        const place = before === null ? parent.firstElementChild : before.nextElementSibling;
        if (place !== all[index]) {
            parent.insertBefore(all[index] as Element, place);
        }
    }
}

/** Writes a text if it differs: a node that is written again loses its selection. */
export function write(element: Element, text: string): void {
    if (element.textContent !== text) {
        element.textContent = text;
    }
}
