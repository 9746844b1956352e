// The 256 colors, and the CSS of a run's style. A pane's color is used only if it is readable on
// its background.

export type Rgb = [number, number, number];

// Two palettes of sixteen: one that is readable on a dark background, one on a light one.
const DARK16 =
    "3b4252 f0717b 8fce7e e6b450 6ea8fe c39af0 5fc9c9 d5d9e0 7a8394 ff8f97 a9e29a f5cd78 95c1ff d9b8ff 86e0e0 ffffff";
const LIGHT16 =
    "1f2329 b3202c 21712a 8a5a00 1d55c0 8128a8 00707a 62676f 5d636c c8313d 2a7a32 8f6200 2862d6 9038b8 007984 3f444b";
const PLAIN16 =
    "1f2329 c4353f 2f8f3a b8860b 2f6fd6 9440c0 148a94 d5d9e0 6a7280 f0717b 8fce7e e6b450 6ea8fe c39af0 5fc9c9 ffffff";

const parse = (words: string): Rgb[] => words.split(" ").map(hex);
const dark16 = parse(DARK16);
const light16 = parse(LIGHT16);
const plain16 = parse(PLAIN16);

export const DARK_GROUND: Rgb = hex("14171c");
export const LIGHT_GROUND: Rgb = hex("ffffff");

function hex(text: string): Rgb {
    const value = Number.parseInt(text, 16);
    return [(value >> 16) & 255, (value >> 8) & 255, value & 255];
}

const LEVELS = [0, 95, 135, 175, 215, 255];

/** Returns a color of the cube or the grays, 16 to 255. */
export function indexed(number: number): Rgb {
    if (number >= 232) {
        const grey = 8 + (number - 232) * 10;
        return [grey, grey, grey];
    }
    const cube = number - 16;
    return [LEVELS[Math.floor(cube / 36)] ?? 0, LEVELS[Math.floor(cube / 6) % 6] ?? 0, LEVELS[cube % 6] ?? 0];
}

/** Returns the relative luminance, as WCAG defines it. */
export function luminance([red, green, blue]: Rgb): number {
    const part = (value: number) => {
        const share = value / 255;
        return share <= 0.03928 ? share / 12.92 : ((share + 0.055) / 1.055) ** 2.4;
    };
    return 0.2126 * part(red) + 0.7152 * part(green) + 0.0722 * part(blue);
}

export function contrast(one: Rgb, other: Rgb): number {
    const [low, high] = [luminance(one), luminance(other)].sort((a, b) => a - b) as [number, number];
    return (high + 0.05) / (low + 0.05);
}

/** Moves a color away from its background until it has this contrast. */
export function readable(colour: Rgb, ground: Rgb, least = 4.5): Rgb {
    const target: Rgb = luminance(ground) > 0.4 ? [0, 0, 0] : [255, 255, 255];
    let moved = colour;
    for (let step = 1; step <= 20 && contrast(moved, ground) < least; step += 1) {
        const share = step / 20;
        moved = colour.map((value, index) => Math.round(value + ((target[index] ?? 0) - value) * share)) as Rgb;
    }
    return moved;
}

const css = (colour: Rgb) => `#${colour.map((value) => value.toString(16).padStart(2, "0")).join("")}`;

function both(light: Rgb, dark: Rgb): string {
    const [one, other] = [css(light), css(dark)];
    return one === other ? one : `light-dark(${one},${other})`;
}

/** Parses `1`, `255` or `#aabbcc`. */
function colourOf(word: string): { number: number | null; plain: Rgb } | null {
    if (/^#[0-9a-f]{6}$/i.test(word)) {
        return { number: null, plain: hex(word.slice(1)) };
    }
    const number = Number(word);
    if (!/^\d{1,3}$/.test(word) || number > 255) {
        return null;
    }
    return { number, plain: number < 16 ? (plain16[number] ?? [0, 0, 0]) : indexed(number) };
}

/** Returns a text's color on the page's own background. */
function ink(word: string): string | null {
    const colour = colourOf(word);
    if (colour === null) {
        return null;
    }
    if (colour.number !== null && colour.number < 16) {
        return both(light16[colour.number] ?? [0, 0, 0], dark16[colour.number] ?? [255, 255, 255]);
    }
    return both(readable(colour.plain, LIGHT_GROUND), readable(colour.plain, DARK_GROUND));
}

const DECORATIONS: Record<string, string> = {
    u: "solid",
    u2: "double",
    u3: "wavy",
    u4: "dotted",
    u5: "dashed",
};

/** Returns the CSS declarations of a STYLE of docs/page.md. Unknown words are ignored. */
export function declarations(style: string): string {
    const words = style.split(" ").filter((word) => word !== "");
    const flags = new Set(words);
    const colour = (letter: string) => words.find((word) => word.startsWith(letter) && /^.[#\d]/.test(word))?.slice(1);
    const [text, ground, underline] = [colour("f"), colour("g"), colour("U")];
    const parts: string[] = [];
    const groundColour = ground === undefined ? null : colourOf(ground);
    let front = text === undefined ? null : ink(text);
    let back: string | null = null;
    if (groundColour !== null) {
        const textColour = text === undefined ? null : colourOf(text);
        const usual: Rgb = luminance(groundColour.plain) > 0.25 ? [16, 19, 24] : [242, 244, 248];
        front = css(readable(textColour?.plain ?? usual, groundColour.plain, 3));
        back = css(groundColour.plain);
    }
    if (flags.has("r")) {
        [front, back] = [back ?? "var(--ground)", front ?? "var(--ink)"];
    }
    if (flags.has("h")) {
        front = "transparent";
    }
    if (front !== null) {
        parts.push(`color:${front}`);
    }
    if (back !== null) {
        parts.push(`background:${back}`);
    }
    if (flags.has("b")) {
        parts.push("font-weight:700");
    }
    if (flags.has("d")) {
        parts.push("opacity:.7");
    }
    if (flags.has("i")) {
        parts.push("font-style:italic");
    }
    const lines = [];
    const under = words.find((word) => word in DECORATIONS);
    if (under !== undefined) {
        lines.push("underline");
    }
    if (flags.has("s")) {
        lines.push("line-through");
    }
    if (flags.has("o")) {
        lines.push("overline");
    }
    if (lines.length > 0) {
        parts.push(`text-decoration-line:${lines.join(" ")}`);
        parts.push(`text-decoration-style:${DECORATIONS[under ?? "u"] ?? "solid"}`);
        const line = underline === undefined ? null : ink(underline);
        if (line !== null) {
            parts.push(`text-decoration-color:${line}`);
        }
    }
    return parts.join(";");
}
