import assert from "node:assert/strict";
import { test } from "node:test";
import { contrast, DARK_GROUND, declarations, indexed, LIGHT_GROUND, readable, type Rgb } from "../src/colour";

test("every colour of the palette can be read on both grounds", () => {
    const inks = (style: string) => [...declarations(style).matchAll(/#([0-9a-f]{6})/g)].map((match) => match[1] ?? "");
    const rgb = (text: string) => [0, 2, 4].map((at) => Number.parseInt(text.slice(at, at + 2), 16)) as Rgb;
    for (let number = 1; number < 256; number += 1) {
        const found = inks(`f${number}`);
        const [light, dark] = found.length === 2 ? found : [found[0], found[0]];
        assert.ok(contrast(rgb(light ?? ""), LIGHT_GROUND) >= 4.4, `${number} ${light} on light`);
        assert.ok(contrast(rgb(dark ?? ""), DARK_GROUND) >= 4.4 || number === 0, `${number} ${dark} on dark`);
    }
});

test("the cube and the greys are xterm's", () => {
    assert.deepEqual([indexed(16), indexed(21), indexed(196), indexed(231), indexed(232), indexed(255)], [[0, 0, 0], [0, 0, 255], [255, 0, 0], [255, 255, 255], [8, 8, 8], [238, 238, 238]]);
});

test("styles are words; unknown ones and hostile ones are left out", () => {
    assert.equal(declarations("b i"), "font-weight:700;font-style:italic");
    assert.equal(declarations("u3 s U#ff0000").startsWith("text-decoration-line:underline line-through;text-decoration-style:wavy"), true);
    assert.equal(declarations("f999 zz f;color:red g#12 url(x)"), "");
    assert.match(declarations("r"), /^color:var\(--ground\);background:var\(--ink\)$/);
    assert.match(declarations("f#ffffff g#000000"), /^color:#ffffff;background:#000000$/);
});

test("a colour is moved until it has the contrast", () => {
    assert.ok(contrast(readable([250, 250, 250], LIGHT_GROUND), LIGHT_GROUND) >= 4.5);
    assert.deepEqual(readable([0, 0, 0], LIGHT_GROUND), [0, 0, 0]);
});
