import assert from "node:assert/strict";
import { test } from "node:test";
import { fitting, MOST_TYPED } from "../src/fit";

test("half a pair is a character that can be sent; whole pairs stay", () => {
    assert.deepEqual(fitting({ text: "a\ud83db\udc4b" }), [{ text: "a\ufffdb\ufffd" }]);
    assert.deepEqual(fitting({ paste: "\ud83d\udc4b \udc4b" }), [{ paste: "\ud83d\udc4b \ufffd" }]);
    assert.deepEqual(fitting({ keys: ["M-\ud83d", "C-c"] }), [{ keys: ["M-\ufffd", "C-c"] }]);
});

test("a text beyond a message is several, in order, cut between characters", () => {
    const text = "\u{1f44b}a\u001b".repeat(300_000);
    const parts = fitting({ text }) ?? [];
    assert.ok(parts.length > 1);
    assert.equal(parts.map((part) => ("text" in part ? part.text : "")).join(""), text);
    for (const part of parts) {
        assert.ok(Buffer.byteLength(JSON.stringify(part)) <= MOST_TYPED);
        assert.equal(fitting(part)?.length, 1);
    }
    const odd = "\u{1f44b}".repeat(7);
    assert.equal(fitting({ text: odd }, 30)?.map((part) => ("text" in part ? part.text : "")).join(""), odd);
});

test("a paste beyond a message is refused, and what cannot be cut", () => {
    // A control character is six bytes of JSON.
    assert.equal(fitting({ paste: "\u001b".repeat(190_000) }), null);
    assert.equal(fitting({ text: "abc" }, 5), null);
    const keys = new Array<string>(200_000).fill("BSpace");
    assert.equal(fitting({ keys })?.flatMap((part) => ("keys" in part ? part.keys : [])).length, keys.length);
});
