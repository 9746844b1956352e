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
