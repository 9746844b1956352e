// Rows as DOM: one element for each row, one `span` for each styled run, text by `textContent`
// alone.

import { declarations } from "./colour";
import { safeUrl } from "./dom";
import type { Line, Screen } from "./screen";
import type { Run } from "./types";

/** Maximum number of CSS classes for styles, made on demand; further runs have inline styles. */
const MOST_CLASSES = 4000;
const classes = new Map<string, string>();
let sheet: CSSStyleSheet | null = null;

function dress(element: HTMLElement, style: string): void {
    if (style === "") {
        return;
    }
    const known = classes.get(style);
    if (known !== undefined) {
        element.className = known;
        return;
    }
    const css = declarations(style);
    if (classes.size >= MOST_CLASSES) {
        element.style.cssText = css;
        return;
    }
    if (sheet === null) {
        sheet = new CSSStyleSheet();
        document.adoptedStyleSheets = [...document.adoptedStyleSheets, sheet];
    }
    const name = `s${classes.size}`;
    sheet.insertRule(`.${name}{${css}}`, sheet.cssRules.length);
    const all = style.split(" ").includes("k") ? `${name} blink` : name;
    classes.set(style, all);
    element.className = all;
}

const LINK = /\bhttps?:\/\/[^\s<>"'`\\^{}|]+[^\s<>"'`\\^{}|.,;:!?)\]]/g;

function link(text: string, address: string): Node {
    const url = safeUrl(address);
    if (url === null) {
        return document.createTextNode(text);
    }
    const element = document.createElement("a");
    element.href = url;
    element.target = "_blank";
    element.rel = "noopener noreferrer";
    element.tabIndex = -1;
    element.title = url;
    element.textContent = text;
    return element;
}

/** Appends text to an element, with URLs as links if `links` is set. */
function write(parent: Node, text: string, links: boolean): void {
    let at = 0;
    if (links && text.includes("://")) {
        for (const match of text.matchAll(LINK)) {
            if (match.index > at) {
                parent.appendChild(document.createTextNode(text.slice(at, match.index)));
            }
            parent.appendChild(link(match[0], match[0]));
            at = match.index + match[0].length;
        }
    }
    if (at < text.length) {
        parent.appendChild(document.createTextNode(at === 0 ? text : text.slice(at)));
    }
}

const isAscii = (text: string) => /^[\x20-\x7e]*$/.test(text);

/** Writes runs into an element. `exact`: each non-ASCII run takes exactly its columns. */
export function writeRuns(parent: HTMLElement, runs: readonly Run[], links: boolean, exact = true): void {
    for (const run of runs) {
        if (typeof run === "string") {
            write(parent, run, links);
            continue;
        }
        const [text, columns, style, url] = run;
        const span = document.createElement("span");
        dress(span, style);
        if (exact && !isAscii(text)) {
            span.classList.add("w");
            span.style.width = `${columns}ch`;
        }
        if (links && url !== undefined) {
            span.appendChild(link(text, url));
        } else {
            write(span, text, links);
        }
        parent.appendChild(span);
    }
}

export function rowElement(line: Line, links: boolean): HTMLElement {
    const element = document.createElement("div");
    element.className = line.wrapped ? "row on" : "row";
    writeRuns(element, line.runs, links);
    return element;
}

/** The rows of a screen and its cursor. Several drawings may show one screen. */
export class Drawing {
    readonly element = document.createElement("div");
    private readonly rowsElement = document.createElement("div");
    private readonly cursor = document.createElement("div");
    private drawn: Line[] = [];
    private epoch = -1;
    private scrolled = 0;

    constructor(private links: boolean) {
        this.element.className = "screen";
        this.rowsElement.className = "rows";
        this.cursor.className = "cursor";
        this.cursor.setAttribute("aria-hidden", "true");
        this.element.append(this.rowsElement, this.cursor);
    }

    /** Updates the elements to the screen; unchanged rows stay untouched. */
    draw(screen: Screen): void {
        const rows = this.rowsElement;
        if (this.epoch === screen.epoch) {
            const up = Math.min(screen.scrolled - this.scrolled, this.drawn.length);
            // If most rows are new anyway, as in a flood, they are written in place.
            if (up * 2 < this.drawn.length) {
                for (let row = 0; row < up && rows.firstElementChild !== null; row += 1) {
                    rows.append(rows.firstElementChild);
                }
                this.drawn.push(...this.drawn.splice(0, up));
            }
        }
        this.epoch = screen.epoch;
        this.scrolled = screen.scrolled;
        while (this.drawn.length > screen.lines.length) {
            rows.lastElementChild?.remove();
            this.drawn.pop();
        }
        let element = rows.firstElementChild;
        for (let row = 0; row < screen.lines.length; row += 1) {
            const line = screen.lines[row];
            if (line === undefined) {
                continue;
            }
            if (element === null) {
                rows.appendChild(rowElement(line, this.links));
            } else if (this.drawn[row] !== line) {
                element.className = line.wrapped ? "row on" : "row";
                element.textContent = "";
                writeRuns(element as HTMLElement, line.runs, this.links);
            }
            this.drawn[row] = line;
            element = element?.nextElementSibling ?? null;
        }
        this.place(screen);
    }

    private place(screen: Screen): void {
        const [column, row] = screen.at;
        const cursor = this.cursor;
        cursor.hidden = !screen.modes.cursor;
        // DECSCUSR: 3 and 4 are an underline, 5 and 6 a bar.
        const shape = screen.modes.shape;
        cursor.className = shape >= 5 ? "cursor bar" : shape >= 3 ? "cursor under" : "cursor";
        cursor.style.transform = `translate(${Math.min(column, screen.columns - 1)}ch, calc(${row} * var(--row)))`;
        this.element.style.width = `${screen.columns}ch`;
        this.element.style.height = `calc(${screen.rows} * var(--row))`;
    }
}
