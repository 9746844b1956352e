// Markdown as elements: what agents write, and nothing that could become markup. Text is always a
// text node.

import { button, copyText, fill, h, revealed, safeUrl } from "./dom";

/** Levels of lists and quotations; deeper ones are text. */
const DEPTH = 8;
/** Characters of a line with emphasis and links; longer ones are text. */
const LONG = 5000;
/** Lines of a message that are shown at its beginning, and at its end. */
const FIRST_LINES = 4000;
const LAST_LINES = 1000;
/** A host in a text that seems to be an address. */
const HOST = /(?:[\p{L}\p{N}_-]+\.)+[\p{L}\p{N}-]+/u;
const INLINE = /(?<!`)(`{1,2})(?!`)(.+?)(?<!`)\1(?!`)|\*\*(.+?)\*\*|(?<![*\w])\*([^*\s][^*]*?)\*(?!\w)|\[([^\]]+)\]\(([^()\s]+)\)|(https?:\/\/[^\s<>"'`)\]]+[^\s<>"'`)\].,;:!?])/g;

/**
 * Returns where a link leads, if its label seems to be another address; null otherwise.
 */
export function otherTarget(label: string, target: string): string | null {
    const url = new URL(target);
    const to = url.host === "" ? url.pathname : url.host;
    const [seems] = HOST.exec(label) ?? [];
    return seems === undefined || seems.toLowerCase() === url.hostname || (url.host === "" && label.includes(to)) ? null : to;
}

/** Returns a link that says where it leads. */
function link(label: string, url: string): (Node | string)[] {
    const other = otherTarget(label, url);
    return [h("a", { href: url, target: "_blank", rel: "noopener noreferrer", title: url }, {}, label), other === null ? "" : ` (${other})`];
}

/** Returns the parts of a line: code, emphasis and links. */
function inline(text: string): (Node | string)[] {
    const parts: (Node | string)[] = [];
    if (text.length > LONG) {
        return [text];
    }
    let at = 0;
    for (const match of text.matchAll(INLINE)) {
        const [all, , code, strong, emphasis, label, target, bare] = match;
        const url = safeUrl(target ?? bare ?? "");
        parts.push(text.slice(at, match.index));
        at = match.index + all.length;
        if (code !== undefined) {
            parts.push(h("code", {}, {}, code));
        } else if (strong !== undefined) {
            parts.push(h("strong", {}, {}, inline(strong)));
        } else if (emphasis !== undefined) {
            parts.push(h("em", {}, {}, inline(emphasis)));
        } else if (url === null) {
            // The target is shown, but not followed: a file's path, for example.
            parts.push(label === undefined ? all : `${label} (${target})`);
        } else {
            parts.push(...link(label ?? all, url));
        }
    }
    parts.push(text.slice(at));
    return parts;
}

/** Returns a block of code, with a button that copies it. */
function codeBlock(code: string, language: string): HTMLElement {
    const body = h("pre", { tabindex: 0, "aria-label": `Code ${language}`.trim() });
    diffLines(body, code);
    const copy = button("Copy", () => void copyText(code).then((done) => (copy.textContent = done ? "Copied" : "Refused")), { cls: "copy" });
    return h("div", { cls: "code-block" }, {}, body, copy);
}

const FENCE = /^(\s*)(```+|~~~+)\s*([\w+-]*)/;
const ITEM = /^(\s*)(?:[-*+]|(\d+)[.)])\s+(.*)/;
const isTable = (line: string | undefined) => line?.trim().startsWith("|") === true;

/** Shows Markdown in an element. */
export function markdown(element: HTMLElement, text: string): void {
    const lines = revealed(text.replaceAll("\r\n", "\n")).split("\n");
    const more = lines.length - FIRST_LINES - LAST_LINES;
    if (more <= 0) {
        fill(element, blocksOf(lines, 0));
    } else {
        fill(element, blocksOf(lines.slice(0, FIRST_LINES), 0), h("p", { cls: "fact" }, {}, `${more} lines are not shown.`), blocksOf(lines.slice(-LAST_LINES), 0));
    }
}

function blocksOf(lines: string[], depth: number): HTMLElement[] {
    const blocks: HTMLElement[] = [];
    for (let at = 0; at < lines.length; ) {
        const line = lines[at] ?? "";
        const take = (is: (line: string) => boolean) => {
            const from = at;
            while (at < lines.length && is(lines[at] ?? "")) {
                at += 1;
            }
            return lines.slice(from, at);
        };
        const [, indent = "", fence, language = ""] = FENCE.exec(line) ?? [];
        const [, heading] = /^#{1,6}\s+(.*)/.exec(line) ?? [];
        if (line.trim() === "") {
            at += 1;
        } else if (fence !== undefined) {
            at += 1;
            const code = take((one) => !one.trimStart().startsWith(fence));
            at += 1;
            // Code in a list is indented as a whole.
            blocks.push(codeBlock(code.map((one) => (one.startsWith(indent) ? one.slice(indent.length) : one)).join("\n"), language));
        } else if (heading !== undefined) {
            at += 1;
            blocks.push(h("p", { cls: "heading" }, {}, inline(heading)));
        } else if (line.startsWith(">") && depth < DEPTH) {
            blocks.push(h("blockquote", {}, {}, blocksOf(take((one) => one.startsWith(">")).map((one) => one.replace(/^> ?/, "")), depth + 1)));
        } else if (ITEM.test(line)) {
            blocks.push(list(take((one) => (ITEM.test(one) || /^\s+\S/.test(one)) && !FENCE.test(one)), depth));
        } else if (/^\s*([-*_])(\s*\1){2,}\s*$/.test(line)) {
            at += 1;
            blocks.push(h("hr"));
        } else if (isTable(line)) {
            const rows = take(isTable).filter((one) => !/^[\s|:-]+$/.test(one));
            const cells = (row: string, cell: "th" | "td") => row.trim().replace(/^\||\|$/g, "").split("|").map((one) => h(cell, {}, {}, inline(one.trim())));
            blocks.push(h("table", {}, {}, rows.map((row, index) => h("tr", {}, {}, cells(row, index === 0 ? "th" : "td")))));
        } else {
            const paragraph = take((one) => one === line || (one.trim() !== "" && !FENCE.test(one) && !/^(#{1,6}\s|>)/.test(one) && !ITEM.test(one)));
            blocks.push(h("p", {}, {}, paragraph.map((one, index) => [index > 0 ? h("br") : "", inline(one)])));
        }
    }
    return blocks;
}

/** Returns a list; lines that are indented more than their item are in lists of their own. */
function list(lines: string[], level: number): HTMLElement {
    const [, indent = "", number] = ITEM.exec(lines[0] ?? "") ?? [];
    const items: { text: string; inner: string[] }[] = [];
    for (const line of lines) {
        const [, depth = "", , text = ""] = ITEM.exec(line) ?? [];
        const last = items.at(-1);
        if (ITEM.test(line) && (depth.length <= indent.length || last === undefined || level >= DEPTH)) {
            items.push({ text, inner: [] });
        } else if (ITEM.test(line) || (last?.inner.length ?? 0) > 0) {
            last?.inner.push(line);
        } else if (last !== undefined) {
            last.text += ` ${line.trim()}`;
        }
    }
    return h(number === undefined ? "ul" : "ol", number === undefined ? {} : { start: number }, {}, items.map(({ text, inner }) => h("li", {}, {}, inline(text), inner.length > 0 ? list(inner, level + 1) : null)));
}

/** Shows text; the lines of a diff are marked by their first character. */
export function diffLines(parent: HTMLElement, text: string): void {
    const isDiff = /^(@@|---|\+\+\+|diff )/m.test(text);
    if (!isDiff) {
        parent.textContent = text;
        return;
    }
    fill(parent, text.split("\n").map((line) => h("span", { cls: line.startsWith("+") ? "added" : line.startsWith("-") ? "removed" : "same" }, {}, `${line}\n`)));
}
