import assert from "node:assert/strict";
import { test } from "node:test";
import { rows } from "../src/dom";
import { markdown } from "../src/markdown";

/** As much of an element as Markdown needs. */
class Fake {
    children: (Fake | string)[] = [];
    attributes: Record<string, string> = {};
    constructor(readonly tag: string) {}
    setAttribute(name: string, value: string): void {
        this.attributes[name] = value;
    }
    addEventListener(): void {}
    append(...children: (Fake | string)[]): void {
        this.children.push(...children);
    }
    replaceChildren(): void {
        this.children = [];
    }
    set textContent(text: string) {
        this.children = [text];
    }
    get textContent(): string {
        return this.children.map((one) => (typeof one === "string" ? one : one.textContent)).join("");
    }
}

function drawn(text: string): Fake {
    Object.assign(globalThis, { document: { createElement: (tag: string) => new Fake(tag) } });
    const element = new Fake("div");
    markdown(element as unknown as HTMLElement, text);
    return element;
}

test("a message of very many lines is shown, and says how many are not", () => {
    const all = drawn(`${"a\n".repeat(40_000)}\nEnd.`);
    const words = all.children.map((one) => (one as Fake).textContent);
    assert.equal(words[0], "a".repeat(4000));
    assert.equal(words[1], "35002 lines are not shown.");
    assert.equal(words.at(-1), "End.");
    for (const line of ["- a\n", "> a\n", "|a|b|\n", "a\n\n", "```\n"]) {
        assert.match(drawn(line.repeat(100_000)).textContent, /lines are not shown/, line);
    }
    assert.match(drawn("|".repeat(200_000)).textContent, /^$/, "a table's row of 200,000 cells");
});

test("characters that hide or turn an agent's text are written out, and a link's other target, too", () => {
    assert.equal(drawn("a\u202eb\u200b\r\nc").textContent, "a\\u{202e}b\\u{200b}c");
    assert.equal(drawn("[https://good.example](https://evil.example/x)").textContent, "https://good.example (evil.example)");
    assert.equal(drawn("[the book](https://good.example/x)").textContent, "the book");
});

test("each row of a question is an element of its own", () => {
    drawn("");
    const element = rows("pre", "command: x\n\nin: /home") as unknown as Fake;
    assert.deepEqual(element.children.map((one) => (one as Fake).textContent), ["command: x\n", "\n", "in: /home"]);
});
