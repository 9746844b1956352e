import assert from "node:assert/strict";
import { test } from "node:test";
import type { Feed } from "../src/feed";
import { Screen } from "../src/screen";
import type { Connection } from "../src/wire";

// The little of a document that chunks need.
const element = () => ({ style: {}, append: () => undefined, remove: () => undefined, replaceChildren: () => undefined, parentNode: null });
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
