// Converts keyboard and mouse events to input: names of keys as tmux knows them, and mouse reports.

import type { Modes, Typed } from "./types";

export interface KeyPress {
    key: string;
    ctrlKey: boolean;
    altKey: boolean;
    shiftKey: boolean;
    metaKey: boolean;
    isComposing?: boolean;
    getModifierState?(name: string): boolean;
}

const NAMED: Record<string, string> = {
    Enter: "Enter",
    Tab: "Tab",
    Escape: "Escape",
    Backspace: "BSpace",
    Delete: "DC",
    Insert: "IC",
    ArrowUp: "Up",
    ArrowDown: "Down",
    ArrowLeft: "Left",
    ArrowRight: "Right",
    Home: "Home",
    End: "End",
    PageUp: "PPage",
    PageDown: "NPage",
};

/**
 * The chord that leaves a terminal for the page's own commands; every other key goes to the
 * program.
 */
export function isChord(press: KeyPress): boolean {
    return press.ctrlKey && press.shiftKey && !press.altKey && !press.metaKey && (press.key === " " || press.key === "Spacebar");
}

/**
 * Returns a key's name for tmux, or null for one that types text or that the browser keeps.
 *
 * Text comes as text, through an input method.
 */
export function keyName(press: KeyPress, mac = false): string | null {
    if (press.isComposing === true || press.metaKey || press.key === "Dead" || press.key === "Process") {
        return null;
    }
    const graph = press.getModifierState?.("AltGraph") === true;
    const control = press.ctrlKey && !graph;
    // A Mac's Option key types characters; so does AltGr.
    const alt = press.altKey && !graph && !(mac && press.key.length === 1);
    const named = NAMED[press.key] ?? (/^F([1-9]|1[0-2])$/.test(press.key) ? press.key : undefined);
    if (named !== undefined) {
        if (named === "Tab" && press.shiftKey && !control && !alt) {
            return "BTab";
        }
        // tmux types nothing for these with Shift, which is often held down while typing capitals.
        const shift = press.shiftKey && named !== "BSpace" && named !== "Escape";
        return `${control ? "C-" : ""}${alt ? "M-" : ""}${shift ? "S-" : ""}${named}`;
    }
    if ([...press.key].length !== 1 || (!control && !alt)) {
        return null;
    }
    return withModifiers(press.key, control, alt);
}

/**
 * Returns the keys that this version of tmux types.
 *
 * Until 3.5 tmux types nothing for Enter with Shift or Control, which a terminal sends as Enter.
 */
export function typable(names: string[], version: string | undefined): string[] {
    const [major = 0, minor = 0] = (/(\d+)\.(\d+)/.exec(version ?? "") ?? []).slice(1).map(Number);
    const old = major > 0 && (major < 3 || (major === 3 && minor < 5));
    return old ? names.map((name) => name.replace(/^(?:C-)?(M-)?(?:S-)?Enter$/, (_, meta: string | undefined) => `${meta ?? ""}Enter`)) : names;
}

/** Returns the name of a character with Control or Alt. */
export function withModifiers(character: string, control: boolean, alt: boolean): string {
    let name = control && /^[A-Z]$/.test(character) ? character.toLowerCase() : character;
    if (name === " ") {
        name = "Space";
    }
    return `${control ? "C-" : ""}${alt ? "M-" : ""}${name}`;
}

/** Converts text that was typed with a sticky key of the touch key bar. */
export function typedText(text: string, control: boolean, alt: boolean): Typed {
    const characters = [...text];
    if ((control || alt) && characters.length === 1) {
        return { keys: [withModifiers(characters[0] ?? "", control, alt)] };
    }
    return { text };
}

/** The buttons of a mouse report. */
export const enum Button {
    Left = 0,
    Middle = 1,
    Right = 2,
    None = 3,
    WheelUp = 64,
    WheelDown = 65,
}

export interface MouseEventLike {
    ctrlKey: boolean;
    altKey: boolean;
    shiftKey: boolean;
}

/**
 * Returns the bytes of a mouse report at a cell (from 0), in the form that the program requested.
 *
 * Null if the program did not request this report.
 */
export function mouseReport(
    modes: Modes,
    kind: "press" | "release" | "move",
    button: number,
    column: number,
    row: number,
    event: MouseEventLike,
): string | null {
    if (modes.mouse === 0) {
        return null;
    }
    if (kind === "move" && (modes.mouse < 1002 || (modes.mouse === 1002 && button === Button.None))) {
        return null;
    }
    const modifiers = (event.altKey ? 8 : 0) + (event.ctrlKey ? 16 : 0);
    const code = button + modifiers + (kind === "move" ? 32 : 0);
    if (modes.sgr) {
        return `\x1b[<${code};${column + 1};${row + 1}${kind === "release" ? "m" : "M"}`;
    }
    // The old form has one byte for each coordinate, and ends at column 223.
    if (column > 222 || row > 222) {
        return null;
    }
    const old = kind === "release" ? Button.None + modifiers : code;
    return `\x1b[M${String.fromCharCode(32 + old, 33 + column, 33 + row)}`;
}

/** Encodes the bytes of a report in base64. */
export function base64(bytes: string): string {
    return btoa(bytes);
}

/**
 * Removes control characters from text to paste: one could end the paste's brackets, and type what
 * follows.
 */
export function pasteable(text: string): string {
    return text.replace(/\r\n?/g, "\n").replace(/[\u0000-\u0008\u000b-\u001f\u007f-\u009f]/g, "\ufffd");
}
