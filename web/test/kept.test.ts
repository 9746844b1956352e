import assert from "node:assert/strict";
import { test } from "node:test";
import { KeptLines } from "../src/kept";
import type { Line } from "../src/screen";

const lines = (from: number, to: number): Line[] => Array.from({ length: to - from }, (_, index) => ({ runs: [String(from + index)], wrapped: false }));
const held = (kept: KeptLines) => kept.lines.map((line) => Number(line.runs[0]));
const numbers = (from: number, to: number) => Array.from({ length: to - from }, (_, index) => from + index);

test("a reading view holds no more than its bound, whichever way it goes", () => {
    const kept = new KeptLines(10);
    kept.begin(100);
    kept.newer(lines(100, 115), 115);
    kept.letOldest();
    assert.deepEqual([held(kept), kept.from, kept.to, kept.behind], [numbers(105, 115), 105, 115, false]);
    kept.older(lines(99, 105), 99);
    kept.letNewest();
    assert.deepEqual([held(kept), kept.from, kept.to, kept.behind], [numbers(99, 109), 99, 109, true]);
    kept.newer(lines(109, 112), 112);
    kept.letOldest();
    assert.deepEqual([held(kept), kept.from, kept.to], [numbers(102, 112), 102, 112]);
});
