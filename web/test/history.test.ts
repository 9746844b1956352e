import assert from "node:assert/strict";
import { test } from "node:test";
import type { Feed } from "../src/feed";
import { Screen } from "../src/screen";
import type { Connection } from "../src/wire";

// The little of a document that chunks need.
class Element {
    style: Record<string, string> = {};
    children: Element[] = [];
    parentNode: Element | null = null;
    append(...children: Element[]): void {
        for (const child of children) {
            child.parentNode = this;
            this.children.push(child);
        }
    }
    remove(): void {
        const siblings = this.parentNode?.children ?? [];
        siblings.splice(siblings.indexOf(this), 1);
        this.parentNode = null;
    }
}
const element = () => new Element();
Object.assign(globalThis, { document: { createElement: element } });
const { History } = await import("../src/history");

function world(lines: number) {
    const asked: [number, number][] = [];
    const screen = new Screen();
    const connection = {
        history: async (_: number, from: number, count: number) => {
            asked.push([from, count]);
            return { from, lines: new Array(Math.max(0, Math.min(count, lines - from))).fill([]), first: 0, next: lines };
        },
    };
    let again = (): void => undefined;
    const history = new History({ screen, view: 1 } as unknown as Feed, connection as unknown as Connection, () => again());
    const settle = async () => {
        for (let turn = 0; turn < 20; turn += 1) {
            await Promise.resolve();
        }
    };
    return { asked, screen, history, settle, came: (then: () => void) => { again = then; } };
}

test("where memory ends before the screen's history the same question is not asked again and again", async () => {
    const { asked, screen, history, settle, came } = world(50);
    screen.history = 120;
    const show = () => history.show(0, 120, 0, 16);
    came(show);
    show();
    await settle();
    assert.deepEqual(asked, [[0, 200]]);
    // More has come since: it may be there now.
    screen.history = 130;
    show();
    await settle();
    assert.equal(asked.length, 2);
});

test("lines that pass by are asked for as far as they are seen, and a few times a second", async () => {
    const { asked, screen, history, settle } = world(1_000_000);
    for (let frame = 0; frame < 10; frame += 1) {
        screen.history = 1000 + frame * 24;
        history.show(screen.history - 5, screen.history, 0, 16, true);
        await settle();
    }
    assert.deepEqual(asked, [[995, 5]]);
    history.remove();
});

test("lines whose numbers are void stay above the screen until the new ones have come", async () => {
    const { screen, history, settle, came } = world(300);
    const shown = () => (history.element as unknown as Element).children;
    screen.history = 300;
    const show = () => history.show(screen.top - 120, screen.top, 0, 10);
    came(show);
    show();
    await settle();
    const before = [...shown()];
    assert.equal(before.length, 2);
    assert.deepEqual(before.map((one) => one.style.top), ["0px", "2000px"]);
    // The screen was read anew, with fewer lines above it.
    screen.epoch += 1;
    screen.numbering += 1;
    screen.history = 290;
    show();
    assert.deepEqual(shown(), before);
    assert.deepEqual(before.map((one) => one.style.top), ["-100px", "1900px"]);
    await settle();
    assert.deepEqual(shown().map((one) => [one.style.top, before.includes(one)]), [["0px", false], ["2000px", false]]);
    // Another program's screen has nothing above it.
    screen.epoch += 1;
    screen.numbering += 1;
    history.show(screen.top, screen.top, 0, 10);
    assert.deepEqual(shown(), []);
});

test("refreshed lines keep their place and are asked for again", async () => {
    const { asked, screen, history, settle, came } = world(300);
    const shown = () => (history.element as unknown as Element).children;
    screen.history = 300;
    const show = () => history.show(100, 220, 0, 10);
    came(show);
    show();
    await settle();
    const before = [...shown()];
    asked.length = 0;
    screen.epoch += 1;
    screen.history = 600;
    show();
    assert.deepEqual(shown(), before);
    assert.deepEqual(before.map((one) => one.style.top), ["0px", "2000px"]);
    await settle();
    assert.deepEqual(asked, [[0, 200], [200, 200]]);
    assert.deepEqual(shown().map((one) => [one.style.top, before.includes(one)]), [["0px", false], ["2000px", false]]);
});
