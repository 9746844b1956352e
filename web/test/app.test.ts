import assert from "node:assert/strict";
import { test } from "node:test";
import { amount, baseName, describe, lineCount, paneLabel, samePane } from "../src/app";
import { otherTarget } from "../src/markdown";
import { above } from "../src/view/agents";
import { frontOf, tooMany } from "../src/view/notes";
import { pasteable } from "../src/keys";
import { time } from "../src/view/ran";
import type { Line } from "../src/screen";
import type { PaneInfo, Typed } from "../src/types";
import type { Pending } from "../src/wire";

const pane = (key: string, id: string, socket: string, pid = 7, window_id = "@1", session_id = "$0") => ({ key, id, socket, pid, window_id, session_id, session: "work" }) as PaneInfo;

test("a pane is found again by its id and its server, when another daemon has named it anew", () => {
    const now = new Map([pane("n1", "%1", "/a"), pane("n2", "%1", "/b"), pane("n3", "%2", "/b")].map((one) => [one.key, one]));
    assert.equal(samePane(now, "o9", pane("o9", "%1", "/b")), "n2");
    assert.equal(samePane(now, "n3", pane("n3", "%2", "/b")), "n3");
    assert.equal(samePane(now, "o9", pane("o9", "%7", "/b")), null);
    assert.equal(samePane(now, "o9", undefined), null);
});

test("the pane of a restarted tmux is another one, though its ids and its session's name are the same", () => {
    const now = new Map([["n1", pane("n1", "%0", "/a", 4711)]]);
    assert.equal(samePane(now, "o1", pane("o1", "%0", "/a", 4711)), "n1");
    assert.equal(samePane(now, "o1", pane("o1", "%0", "/a", 300)), null);
    assert.equal(samePane(now, "o1", pane("o1", "%0", "/a", 4711, "@2")), null);
    assert.equal(samePane(now, "o1", pane("o1", "%0", "/a", 4711, "@1", "$1")), null);
    // Without a process nothing shows that a pane is the same.
    for (const pid of [0, undefined]) {
        const some = { ...pane("o1", "%0", "/a"), pid } as PaneInfo;
        assert.equal(samePane(new Map([["n1", { ...some, key: "n1" }]]), "o1", some), null);
    }
});

test("what waits is counted in keys, and a paste is not one", () => {
    const list = (...typed: Typed[]) => typed.map((one, seq): Pending => ({ seq, key: "k", typed: one, sent: false, at: 0 }));
    assert.equal(amount(list({ text: "a" })), "1 key");
    assert.equal(amount(list({ text: "a\u{1f600}" }, { keys: ["C-c", "Up"] })), "4 keys");
    const paste = { paste: "x\n".repeat(301) };
    assert.equal(amount(list(paste)), "a paste of 301 lines");
    assert.equal(amount(list({ text: "ls" }, paste, { paste: "y" })), "2 keys and 2 pastes of 302 lines");
    assert.equal(amount(list({ paste: "y" }, { bytes: "" })), "a paste of 1 character and 1 mouse event");
    assert.deepEqual(list({ keys: ["C-c"] }, { text: "ls" }, paste).map(describe), ["C-c", '"ls"', "a paste of 301 lines"]);
    assert.deepEqual(["", "a", "a\n", "a\nb", "a\n\n"].map(lineCount), [1, 1, 1, 2, 2]);
});

test("a link whose label seems to be another address says where it leads", () => {
    for (const [label, target, other] of [
        ["the book", "https://evil.example/", null],
        ["https://good.example/login", "https://evil.example/login", "evil.example"],
        ["good.example", "https://evil.example:8443/", "evil.example:8443"],
        ["Good.Example/a", "https://good.example/b", null],
        ["https://good.example@evil.example/", "https://good.example@evil.example/", "evil.example"],
        ["127.0.0.1:80", "https://evil.example/", "evil.example"],
        ["\u0430pple.com", "https://\u0430pple.com/", "xn--pple-43d.com"],
        ["me@good.example", "mailto:me@good.example", null],
        ["me@good.example", "mailto:me@evil.example", "me@evil.example"],
    ] as const) {
        assert.equal(otherTarget(label, target), other, `${label} to ${target}`);
    }
});

test("information covers no error and no offer, and only messages that end by themselves are dropped", () => {
    const note = (text: string, kind: "info" | "error", ms?: number, actions?: []) => ({ text, kind, ...(ms === undefined ? {} : { ms }), ...(actions === undefined ? {} : { actions }) });
    const lasting = note("restarted", "error");
    const infos = Array.from({ length: 9 }, (_, index) => note(`info ${index}`, "info", 3000));
    assert.equal(frontOf([lasting, ...infos]), lasting);
    assert.equal(frontOf(infos), infos.at(-1));
    const offer = { ...note("paste?", "info"), actions: [{ label: "Paste", press: () => undefined }] };
    assert.equal(frontOf([lasting, offer, ...infos]), offer);
    assert.deepEqual(tooMany([lasting, offer, ...infos]), infos.slice(0, 5));
    assert.deepEqual(tooMany(Array.from({ length: 9 }, () => lasting)), []);
    assert.equal(frontOf([]), undefined);
});

test("what is pasted ends no brackets: control characters but tab and newline are replaced", () => {
    assert.equal(pasteable("a\tb\r\nc\rd\u001b[201~e\u009b\u007f日"), "a\tb\nc\nd\ufffd[201~e\ufffd\ufffd日");
});

test("a pane is called by its window's name, or by its agent's if tmux named the window", () => {
    const called = (window_name: string, command: string, agent?: string) => ({ window_name, command, agent: agent === undefined ? null : { name: agent } }) as unknown as PaneInfo;
    assert.equal(paneLabel(called("build", "bash")), "build");
    assert.equal(paneLabel(called("node", "node", "Claude Code")), "Claude Code");
    assert.equal(paneLabel(called("review", "node", "Claude Code")), "review");
    assert.equal(paneLabel(called("", "vim")), "vim");
    assert.deepEqual(["/home/ann/src/", "/", ""].map(baseName), ["src", "/", ""]);
});

test("a duration is in the largest units that matter", () => {
    assert.deepEqual([0, 999, 1500, 42_400, 61_000, 3_661_000].map(time), ["0 ms", "999 ms", "1.5 s", "42 s", "1 min 1 s", "1 h 1 min"]);
});

test("a question is not shown again among the agent's last lines", () => {
    const lines = ["● I will remove it.", "", "╭──────╮", "│ rm -rf build  │", "│ Do you want to proceed? │", "│ ❯ 1. Yes │", "╰──────╯", "Esc to cancel"].map((text) => ({ runs: [text] }) as unknown as Line);
    const shown = (question: string) => above(lines, question).map((line) => line.runs[0]);
    assert.deepEqual(shown("rm -rf build\nDo you want to proceed?"), ["● I will remove it."]);
    assert.equal(shown("Something else?").length, lines.length);
    assert.equal(shown("").length, lines.length);
});
