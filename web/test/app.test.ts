import assert from "node:assert/strict";
import { test } from "node:test";
import { samePane } from "../src/app";
import { pasteable } from "../src/keys";
import type { PaneInfo } from "../src/types";

const pane = (key: string, id: string, socket: string, session = "work") => ({ key, id, socket, session }) as PaneInfo;

test("a pane is found again by its id and its server, when another daemon has named it anew", () => {
    const now = new Map([pane("n1", "%1", "/a"), pane("n2", "%1", "/b"), pane("n3", "%2", "/b")].map((one) => [one.key, one]));
    assert.equal(samePane(now, "o9", pane("o9", "%1", "/b")), "n2");
    assert.equal(samePane(now, "n3", pane("n3", "%2", "/b")), "n3");
    assert.equal(samePane(now, "o9", pane("o9", "%7", "/b")), null);
    assert.equal(samePane(now, "o9", undefined), null);
    assert.equal(samePane(now, "o9", pane("o9", "%1", "/b", "play")), null);
});

test("what is pasted ends no brackets: control characters but tab and newline are replaced", () => {
    assert.equal(pasteable("a\tb\r\nc\rd\u001b[201~e\u009b\u007f日"), "a\tb\nc\nd\ufffd[201~e\ufffd\ufffd日");
});
