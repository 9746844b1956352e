// Makes elements. Text is always text: nothing here, or anywhere in the page, reads markup.

type Child = Node | string | null | undefined | false;
type Handlers = { [K in keyof HTMLElementEventMap]?: (event: HTMLElementEventMap[K]) => void };

/** Makes an element: attributes (absent where `false` or undefined), listeners, children. */
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

/** Makes a button. */
export function button(
    label: string,
    press: (event: MouseEvent) => void,
    attributes: Record<string, string | boolean | undefined> = {},
): HTMLButtonElement {
    return h("button", { type: "button", ...attributes }, { click: press }, label);
}

/** Replaces what an element holds. */
export function fill(element: Element, ...children: Child[]): void {
    element.replaceChildren(
        ...children.filter((child): child is Node | string => child !== null && child !== undefined && child !== false),
    );
}

/** Leaves out what has no place in a title or a label: control characters and marks that change the direction. */
export function clean(text: string, most = 200): string {
    const kept = text.replace(/[\u0000-\u001f\u007f-\u009f\u200e\u200f\u202a-\u202e\u2066-\u2069\ufeff]/g, " ");
    return kept.length > most ? `${kept.slice(0, most - 1)}…` : kept;
}

/** Returns an address that may be opened, or null. */
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

/** What stands for an item of a list. */
export interface Kept<T> {
    element: HTMLElement;
    update(item: T): void;
}

/**
 * Keeps a list's elements by their items' ids: what stays is changed where it stands, so that a press on it is not lost,
 * nor the focus.
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

/** Puts elements into this order, and moves as few as may be: one that has the focus, or is pressed, is not. */
export function order(parent: Element, all: Element[]): void {
    const fixed = all.find((one) => one.parentNode === parent && one.matches(":focus-within, :active"));
    const at = fixed === undefined ? -1 : all.indexOf(fixed);
    // Before the one that stays: each before what follows it; behind it: each behind what precedes it.
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

/** Writes text where it is another one: a node that is written anew loses what is selected in it. */
export function write(element: Element, text: string): void {
    if (element.textContent !== text) {
        element.textContent = text;
    }
}
