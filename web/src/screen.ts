// A view's state: applies `screen` messages, and counts what a drawing must redo.

import { type Modes, NO_MODES, type Row, type ScreenMessage } from "./types";

/**
 * A line with its runs; each state of a row is a new object, and a drawing compares by identity.
 */
export interface Line {
    runs: Row;
    /** Whether the line continues in the next row. */
    wrapped: boolean;
}

/**
 * Parses a row from the wire. A line that continues is padded: its trailing blanks are in the
 * middle of a text.
 */
export function lineOf(row: Row, columns = 0): Line {
    if (row.length === 0 || row[row.length - 1] !== "+") {
        return { runs: row, wrapped: false };
    }
    const runs = row.slice(0, -1);
    const width = runs.reduce((sum, run) => sum + (typeof run === "string" ? run.length : run[1]), 0);
    if (width < columns) {
        runs.push(" ".repeat(columns - width));
    }
    return { runs, wrapped: true };
}

/** Returns the text of a line, with the blanks between its runs. */
export function textOf(line: Line): string {
    let text = "";
    for (const run of line.runs) {
        text += typeof run === "string" ? run : run[0];
    }
    return text;
}

const EMPTY: Line = { runs: [], wrapped: false };

export class Screen {
    columns = 80;
    rows = 24;
    lines: Line[] = [];
    at: [number, number] = [0, 0];
    modes: Modes = NO_MODES;
    title = "";
    /** The number of lines above the screen. */
    history = 0;
    /** The number of the oldest of these lines. */
    first = 0;
    /** How often the pane's commands may have changed. */
    commands = 0;
    stale = false;
    cursor = "";
    /** Whether a first message has arrived. */
    known = false;
    /**
     * Rows that ever moved up; below, how often all rows were void. A drawing compares them with
     * what it drew.
     */
    scrolled = 0;
    epoch = 0;
    /** How often the numbers of the history's lines were void. */
    numbering = 0;

    apply(message: ScreenMessage): void {
        this.columns = message.columns ?? this.columns;
        this.rows = message.rows ?? this.rows;
        this.modes = message.modes ?? this.modes;
        this.title = message.title ?? this.title;
        this.history = message.history ?? this.history;
        this.first = message.first ?? this.first;
        this.commands = message.commands ?? this.commands;
        this.stale = message.stale ?? this.stale;
        this.at = message.at;
        this.cursor = message.cursor;
        if (message.whole === true) {
            this.lines = new Array<Line>(this.rows).fill(EMPTY);
            this.epoch += 1;
            this.numbering += message.same_numbers === true ? 0 : 1;
        }
        const up = Math.min(message.up ?? 0, this.lines.length);
        if (up > 0) {
            this.lines.splice(0, up);
            for (let row = 0; row < up; row += 1) {
                this.lines.push(EMPTY);
            }
            this.scrolled += up;
        }
        for (const [number, row] of Object.entries(message.lines ?? {})) {
            const index = Number(number);
            if (index < this.lines.length) {
                this.lines[index] = lineOf(row, this.columns);
            }
        }
        this.known = true;
    }

    /** The number of the line at the screen's top, as history counts. */
    get top(): number {
        return this.first + this.history;
    }
}

/** Joins lines that the terminal wrapped, for reading and copying. */
export function joined(lines: Iterable<Line>): Row[] {
    const whole: Row[] = [];
    let open = false;
    for (const line of lines) {
        const last = whole[whole.length - 1];
        if (open && last !== undefined) {
            last.push(...line.runs);
        } else {
            whole.push([...line.runs]);
        }
        open = line.wrapped;
    }
    return whole;
}
