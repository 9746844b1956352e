// Creates elements. Text is always text: no part of the page parses markup.

type Child = Node | string | null | undefined | false;
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
    element.append(...children.filter((child): child is Node | string => child !== null && child !== undefined && child !== false));
    return element;
}

/** Creates a button. */
export function button(
    label: string,
    press: (event: MouseEvent) => void,
    attributes: Record<string, string | boolean | undefined> = {},
): HTMLButtonElement {
    return h("button", { type: "button", ...attributes }, { click: press }, label);
}

/** Replaces an element's content. */
export function fill(element: Element, ...children: Child[]): void {
    element.replaceChildren(
        ...children.filter((child): child is Node | string => child !== null && child !== undefined && child !== false),
    );
}

/**
 * Replaces characters that do not belong in a title or a label: control characters and direction
 * marks.
 */
export function clean(text: string, most = 200): string {
    const kept = text.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g, " ");
    return kept.length > most ? `${kept.slice(0, most - 1)}…` : kept;
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
