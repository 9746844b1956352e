import assert from "node:assert/strict";
import { test } from "node:test";
import { samePane } from "../src/app";
import type { PaneInfo } from "../src/types";

const pane = (key: string, id: string, socket: string) => ({ key, id, socket }) as PaneInfo;

test("a pane is found again by its id and its server, when another daemon has named it anew", () => {
    const now = new Map([pane("n1", "%1", "/a"), pane("n2", "%1", "/b"), pane("n3", "%2", "/b")].map((one) => [one.key, one]));
    assert.equal(samePane(now, "o9", pane("o9", "%1", "/b")), "n2");
    assert.equal(samePane(now, "n3", pane("n3", "%2", "/b")), "n3");
    assert.equal(samePane(now, "o9", pane("o9", "%7", "/b")), null);
    assert.equal(samePane(now, "o9", undefined), null);
});
