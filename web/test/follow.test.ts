import assert from "node:assert/strict";
import { test } from "node:test";
import { Followed, type WaitAnswer } from "../src/follow";

function world() {
    const asked: { id: string; answer: (answer: WaitAnswer | null) => void; fail: () => void }[] = [];
    const lists = { count: 0 };
    const ended: [string, string | null][] = [];
    const followed = new Followed<string>(
        (id) => new Promise((answer, fail) => asked.push({ id, answer, fail: () => fail(new Error("no link")) })),
        (of, answer) => ended.push([of, answer?.outcome ?? null]),
        () => {
            lists.count += 1;
        },
    );
    return { lists, asked, ended, followed };
}
const settled = () => new Promise((resolve) => setImmediate(resolve));

test("a wait is asked for once, when it is open no more", async () => {
    const { asked, ended, followed } = world();
    followed.add("a", "one", ["a"]);
    followed.look(["a", "b"]);
    assert.equal(asked.length, 0);
    followed.look(["b"]);
    followed.look([]);
    assert.deepEqual(asked.map((one) => one.id), ["a"]);
    asked[0]?.answer({ id: "a", outcome: "matched" });
    await settled();
    assert.deepEqual(ended, [["one", "matched"]]);
    followed.look([]);
    assert.equal(asked.length, 1);
});

test("one that the list does not have yet goes on; after a break it is asked for again", async () => {
    const { lists, asked, ended, followed } = world();
    followed.add("a", "one", []);
    asked[0]?.answer({ id: "a", outcome: "pending" });
    await settled();
    assert.equal(lists.count, 1);
    followed.look(["a"]);
    followed.look([]);
    asked[1]?.fail();
    await settled();
    assert.deepEqual(ended, []);
    followed.look([]);
    asked[2]?.answer(null);
    await settled();
    assert.deepEqual(ended, [["one", null]]);
});

test("a wait that ends while the question of before is under way is asked for again", async () => {
    const { asked, ended, followed } = world();
    followed.add("a", "one", []);
    followed.look(["a"]);
    followed.look([]);
    assert.equal(asked.length, 2);
    asked[0]?.answer({ id: "a", outcome: "pending" });
    asked[1]?.answer({ id: "a", outcome: "timeout" });
    await settled();
    assert.deepEqual(ended, [["one", "timeout"]]);
});
