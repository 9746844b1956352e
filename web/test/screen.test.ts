import assert from "node:assert/strict";
import { test } from "node:test";
import { Screen, joined, lineOf, textOf } from "../src/screen";
import type { Row, ScreenMessage } from "../src/types";

const message = (fields: Partial<ScreenMessage>): ScreenMessage => ({ type: "screen", view: 1, cursor: "c", at: [0, 0], ...fields });
const texts = (screen: Screen) => screen.lines.map(textOf);
const rows = (...all: string[]): Record<string, Row> => Object.fromEntries(all.map((text, row) => [row, [text]]));

test("a whole message voids everything before, and names only rows that are not empty", () => {
    const screen = new Screen();
    screen.apply(message({ whole: true, columns: 10, rows: 3, lines: rows("a", "b", "c"), history: 7, first: 2 }));
    screen.apply(message({ whole: true, columns: 10, rows: 2, lines: { "1": ["z"] } }));
    assert.deepEqual(texts(screen), ["", "z"]);
    assert.equal(screen.epoch, 2);
    assert.equal(screen.top, 9);
});

test("rows move up first, then lines are put; members that are absent stay", () => {
    const screen = new Screen();
    screen.apply(message({ whole: true, columns: 10, rows: 3, lines: rows("a", "b", "c"), title: "t" }));
    screen.apply(message({ up: 2, lines: { "1": ["d"] }, at: [3, 1] }));
    assert.deepEqual(texts(screen), ["c", "d", ""]);
    assert.deepEqual([screen.scrolled, screen.title, screen.at], [2, "t", [3, 1]]);
    screen.apply(message({ up: 99 }));
    assert.deepEqual(texts(screen), ["", "", ""]);
});

test("rows beyond the screen are left out", () => {
    const screen = new Screen();
    screen.apply(message({ whole: true, columns: 10, rows: 1, lines: { "5": ["x"] } }));
    assert.deepEqual(texts(screen), [""]);
});

test("a plus at the end says that the line goes on; a run that is a plus does not", () => {
    assert.deepEqual(lineOf(["ab", "+"]), { runs: ["ab"], wrapped: true });
    assert.deepEqual(lineOf(["ab", ["+", 1, ""]]), { runs: ["ab", ["+", 1, ""]], wrapped: false });
    assert.deepEqual(lineOf(["ab", ["日", 2, ""], "+"], 6).runs, ["ab", ["日", 2, ""], "  "]);
    const lines = [["one ", "+"], ["two"], ["three"]].map((row) => lineOf(row));
    assert.deepEqual(joined(lines), [["one ", "two"], ["three"]]);
});
