import assert from "node:assert/strict";
import { againAfter, test } from "node:test";
import { againAfter, type Stream, Streams } from "../src/streams";

test("no more streams are open than may be, the last ones wanted; a place that becomes free is taken", () => {
    const open = new Set<string>();
    const make = (name: string): Stream => ({
        start: () => {
            assert.ok(!open.has(name));
            open.add(name);
            assert.ok(open.size <= 2);
        },
        stop: () => assert.ok(open.delete(name)),
    });
    const [a, b, c] = [make("a"), make("b"), make("c")];
    const streams = new Streams(2);
    streams.want(a);
    streams.want(b);
    streams.want(b);
    assert.deepEqual([...open], ["a", "b"]);
    streams.want(c);
    assert.deepEqual([...open], ["b", "c"]);
    streams.leave(c);
    assert.deepEqual([...open].sort(), ["a", "b"]);
    streams.leave(a);
    streams.leave(a);
    streams.leave(b);
    assert.equal(open.size, 0);
});

test("a stream that is refused is asked for again, later each time", () => {
    assert.deepEqual([1, 2, 3, 6, 99].map(againAfter), [1000, 2000, 4000, 30_000, 30_000]);
});
