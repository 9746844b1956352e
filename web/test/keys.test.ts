import assert from "node:assert/strict";
import { test } from "node:test";
import { composedChange } from "../src/compose";
import { Button, isChord, keyName, mouseReport, typable, typedText } from "../src/keys";
import { NO_MODES } from "../src/types";

const press = (key: string, modifiers = "", more = {}) => ({
    key,
    ctrlKey: modifiers.includes("C"),
    altKey: modifiers.includes("A"),
    shiftKey: modifiers.includes("S"),
    metaKey: modifiers.includes("M"),
    ...more,
});

test("keys have tmux's names", () => {
    const cases: [string, string, string | null][] = [
        ["Enter", "", "Enter"],
        ["Tab", "S", "BTab"],
        ["Backspace", "", "BSpace"],
        ["Delete", "C", "C-DC"],
        ["PageUp", "", "PPage"],
        ["ArrowLeft", "CS", "C-S-Left"],
        ["F12", "A", "M-F12"],
        ["F13", "", null],
        ["c", "C", "C-c"],
        ["C", "CS", "C-c"],
        [" ", "C", "C-Space"],
        ["x", "A", "M-x"],
        ["X", "AS", "M-X"],
        ["a", "", null],
        ["é", "", null],
        ["c", "M", null],
        ["Dead", "", null],
        ["Shift", "S", null],
    ];
    for (const [key, modifiers, name] of cases) {
        assert.equal(keyName(press(key, modifiers)), name, `${modifiers} ${key}`);
    }
});

test("AltGr and a Mac's Option make characters", () => {
    const graph = press("@", "CA", { getModifierState: (name: string) => name === "AltGraph" });
    assert.equal(keyName(graph), null);
    assert.equal(keyName(press("ß", "A"), true), null);
    assert.equal(keyName(press("ArrowLeft", "A"), true), "M-Left");
});

test("nothing is taken from an input method", () => {
    assert.equal(keyName(press("Enter", "", { isComposing: true })), null);
    assert.equal(keyName(press("Process")), null);
});

test("one chord is the page's", () => {
    assert.equal(isChord(press(" ", "CS")), true);
    assert.equal(isChord(press(" ", "C")), false);
    assert.equal(isChord(press("k", "C")), false);
});

test("a sticky key counts for one character", () => {
    assert.deepEqual(typedText("c", true, false), { keys: ["C-c"] });
    assert.deepEqual(typedText("X", false, true), { keys: ["M-X"] });
    assert.deepEqual(typedText("word", true, false), { text: "word" });
    assert.deepEqual(typedText("c", false, false), { text: "c" });
});

test("the mouse is reported as the program asked", () => {
    const none = { ctrlKey: false, altKey: false, shiftKey: false };
    const sgr = { ...NO_MODES, mouse: 1002, sgr: true };
    assert.equal(mouseReport(NO_MODES, "press", Button.Left, 0, 0, none), null);
    assert.equal(mouseReport(sgr, "press", Button.Left, 4, 2, none), "\x1b[<0;5;3M");
    assert.equal(mouseReport(sgr, "release", Button.Right, 4, 2, none), "\x1b[<2;5;3m");
    assert.equal(mouseReport(sgr, "move", Button.Left, 4, 2, none), "\x1b[<32;5;3M");
    assert.equal(mouseReport(sgr, "move", Button.None, 4, 2, none), null);
    assert.equal(mouseReport({ ...sgr, mouse: 1000 }, "move", Button.Left, 4, 2, none), null);
    assert.equal(mouseReport({ ...sgr, mouse: 1003 }, "move", Button.None, 0, 0, none), "\x1b[<35;1;1M");
    assert.equal(mouseReport(sgr, "press", Button.WheelDown, 0, 0, { ...none, ctrlKey: true }), "\x1b[<81;1;1M");
    const old = { ...sgr, sgr: false };
    assert.equal(mouseReport(old, "press", Button.Left, 0, 0, none), "\x1b[M !!");
    assert.equal(mouseReport(old, "release", Button.Left, 0, 0, none), "\x1b[M#!!");
    assert.equal(mouseReport(old, "press", Button.Left, 223, 0, none), null);
});

test("a word that is composed is typed as it grows, and mended", () => {
    assert.deepEqual(composedChange("", "h"), { back: 0, text: "h" });
    assert.deepEqual(composedChange("hel", "hello"), { back: 0, text: "lo" });
    assert.deepEqual(composedChange("helo", "hello"), { back: 1, text: "lo" });
    assert.deepEqual(composedChange("ab", ""), { back: 2, text: "" });
    assert.equal(composedChange("", "に"), null);
    assert.deepEqual(composedChange("", "日本", true), { back: 0, text: "日本" });
});

test("Enter is typed where tmux would type nothing for it with Shift or Control", () => {
    const keys = ["S-Enter", "C-Enter", "C-S-Enter", "M-S-Enter", "M-Enter", "C-Up"];
    assert.deepEqual(typable(keys, "3.3a"), ["Enter", "Enter", "Enter", "M-Enter", "M-Enter", "C-Up"]);
    assert.deepEqual(typable(keys, "3.5"), keys);
    assert.deepEqual(typable(keys, "next-3.8"), keys);
    assert.deepEqual(typable(keys, undefined), keys);
});
