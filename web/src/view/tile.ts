// A tile: a pane, small, with its name and its agent's state. If the whole pane would be illegible,
// the tile shows the part around the cursor.

import { type App, baseName, isAsking, paneLabel, paneName } from "../app";
import { clean, fill, h, write } from "../dom";
import { Drawing } from "../draw";
import { cellRatio, rowHeight } from "../metrics";
import { type Screen, textOf } from "../screen";
import type { PaneInfo } from "../types";

/** The font's size in a tile before it is scaled; below, the smallest one that is legible. */
const SIZE = 12;
const LEAST = 9.6;
/** The columns by which the visible part moves sideways. */
const STEP = 8;
/** Milliseconds for which a pane that has printed is marked. */
const BUSY = 2000;
/** Milliseconds between drawings of a pane that is visible at full size beside its tile. */
const PACE = 250;

export class Tile {
    readonly element: HTMLLIElement;
    private readonly button: HTMLButtonElement;
    private readonly heading = h("div", { cls: "head" });
    private headed = "";
    private readonly thumb = h("div", { cls: "thumb", "aria-hidden": "true" });
    private readonly name = h("span", { cls: "name" });
    private readonly what = h("span", { cls: "what" });
    private readonly folder = h("span", { cls: "folder" });
    private readonly where = h("span", { cls: "where" });
    private readonly badge = h("span", { cls: "badge" });
    private readonly question = h("span", { cls: "sr" });
    private readonly drawing = new Drawing(false);
    private use: ReturnType<App["feeds"]["use"]> | null = null;
    private width = 0;
    private height = 0;
    private placed = "";
    private shown = "";
    private isFront = false;
    private due: number | null = null;
    private quiet: number | undefined;
    private output = "";

    constructor(
        private app: App,
        readonly key: string,
        open: (key: string) => void,
    ) {
        this.drawing.element.classList.add("small");
        this.drawing.element.style.setProperty("--row", `${rowHeight(SIZE)}px`);
        this.thumb.append(this.drawing.element);
        this.button = h(
            "button",
            { cls: "tile", type: "button" },
            { click: () => open(key) },
            this.thumb,
            h("span", { cls: "caption" }, {}, this.name, this.what, this.badge, this.folder, this.where, this.question),
        );
        this.element = h("li", { "data-key": key }, {}, this.heading, this.button);
        this.info();
    }

    /** Shows the pane's entry in the list. */
    info(): void {
        const pane = this.app.panes.get(this.key);
        if (pane === undefined) {
            return;
        }
        // Every change of the list updates each tile: unchanged content is not written again.
        const [label, name, folder] = [paneLabel(pane), paneName(pane), baseName(pane.cwd)];
        const now = JSON.stringify([label, name, folder, this.subtitle(pane), badgeText(pane), pane.agent?.state, pane.agent?.question]);
        if (now === this.shown) {
            return;
        }
        this.shown = now;
        const state = pane.agent?.state;
        write(this.name, clean(label, 60));
        write(this.where, clean(name, 60));
        write(this.folder, clean(folder, 60));
        write(this.what, clean(this.subtitle(pane), 120));
        write(this.badge, badgeText(pane));
        this.badge.className = `badge ${state ?? (isDead(pane) ? (exitWords(pane) === "" ? "dead" : "errored") : "")}`;
        this.button.classList.toggle("asks", isAsking(pane));
        this.button.classList.toggle("dead", isDead(pane));
        write(this.question, isAsking(pane) ? clean(pane.agent?.question ?? "", 400) : "");
    }

    /**
     * Shows the session above its first tile and, more quietly, above one that begins a row.
     */
    head(place: "first" | "again" | "more" | "none", [session, server]: [string, string], size: number): void {
        const now = JSON.stringify([place, session, server, size]);
        if (now === this.headed) {
            return;
        }
        this.headed = now;
        this.heading.className = `head ${place}`;
        this.heading.hidden = place === "none";
        const soft = (text: string) => text !== "" && h("span", { cls: "soft" }, {}, text);
        fill(this.heading, ...(place === "first" ? [h("h2", {}, {}, session), soft(server), soft(size > 1 ? String(size) : "")] : [soft(place === "again" ? session : "")]));
    }

    set front(front: boolean) {
        this.isFront = front;
        this.button.classList.toggle("current", front);
        if (front) {
            this.button.setAttribute("aria-current", "true");
            this.element.scrollIntoView({ block: "nearest" });
        } else {
            this.button.removeAttribute("aria-current");
        }
    }

    /** Starts to show the pane's screen when the tile comes into view, and stops when it leaves. */
    set seen(seen: boolean) {
        if (seen && this.use === null) {
            this.use = this.app.feeds.use(this.key, () => this.changed());
        } else if (!seen && this.use !== null) {
            this.use.end();
            this.use = null;
        }
    }

    /** Sets the size of the screen, in pixels. */
    resize(width: number, height: number): void {
        [this.width, this.height] = [width, height];
        this.draw();
    }

    focus(): void {
        this.button.focus();
    }

    remove(): void {
        clearTimeout(this.due ?? undefined);
        clearTimeout(this.quiet);
        this.seen = false;
        this.element.remove();
    }

    /** Returns what runs in the pane, as far as its name does not say it. */
    private subtitle(pane: PaneInfo): string {
        const label = paneLabel(pane);
        const plain = pane.title === "" || pane.title === pane.command || this.app.isCommonTitle(pane);
        return [pane.command === label || pane.agent ? "" : pane.command, plain || pane.title === label ? "" : pane.title].filter((word) => word !== "").join(" — ");
    }

    /**
     * Draws the changes, later for a pane that is visible at full size: a flood would be drawn
     * twice.
     */
    private changed(): void {
        if (!this.isFront) {
            this.draw();
        } else {
            this.due ??= window.setTimeout(() => {
                this.due = null;
                this.draw();
            }, PACE);
        }
    }

    private draw(): void {
        const screen = this.use?.feed.screen;
        if (screen === undefined || !screen.known) {
            return;
        }
        this.place(screen);
        this.drawing.draw(screen);
        if (this.output !== "" && this.output !== screen.cursor) {
            this.button.classList.add("busy");
            clearTimeout(this.quiet);
            this.quiet = window.setTimeout(() => this.button.classList.remove("busy"), BUSY);
        }
        this.output = screen.cursor;
    }

    /** Scales the screen to show all of it, or, at a legible size, the part around the cursor. */
    private place(screen: Screen): void {
        if (this.width <= 0) {
            return;
        }
        const [cellWidth, cellHeight] = [SIZE * cellRatio(), rowHeight(SIZE)];
        const whole = Math.min(this.width / (screen.columns * cellWidth), this.height / (screen.rows * cellHeight), 1.2);
        const scale = Math.max(whole, LEAST / SIZE);
        const [columns, rows] = [Math.floor(this.width / (cellWidth * scale)), Math.floor(this.height / (cellHeight * scale))];
        const [column, row] = this.use?.feed.exit === undefined && screen.modes.cursor ? screen.at : [0, lastRow(screen)];
        // Sideways no more than needed, and in steps: the text must not move with each key.
        const left = Math.max(0, Math.min(screen.columns - columns, Math.ceil((column + 2 - columns) / STEP) * STEP));
        const top = Math.max(0, Math.min(screen.rows - rows, row - rows + (screen.modes.alternate ? Math.ceil(rows / 2) : 1)));
        const placed = `scale(${scale}) translate(${-left * cellWidth}px, ${-top * cellHeight}px)`;
        if (this.placed !== placed) {
            this.placed = placed;
            this.drawing.element.style.transform = placed;
        }
    }
}

/**
 * Returns the last row with text of the program, not tmux's own of a pane that has ended; on the
 * alternate screen, the first row.
 */
function lastRow(screen: Screen): number {
    const lines = screen.modes.alternate ? [] : screen.lines;
    return Math.max(0, lines.findLastIndex((line) => line.runs.length > 0 && !textOf(line).startsWith("Pane is dead")));
}

/** Returns the status or signal with which a pane's program ended; "" after a success. */
function exitWords(pane: PaneInfo): string {
    const { status, signal } = (pane.dead ?? {}) as { status?: number | null; signal?: number | string | null };
    return signal !== null && signal !== undefined ? `signal ${signal}` : (status ?? 0) === 0 ? "" : String(status);
}

export function isDead(pane: PaneInfo): boolean {
    return pane.dead !== null && pane.dead !== undefined && pane.dead !== false;
}

const WORDS: Record<string, string> = {
    permission: "asks",
    question: "asks",
    working: "working",
    errored: "error",
    idle: "idle",
    ended: "ended",
};

export function badgeText(pane: PaneInfo): string {
    if (pane.agent) {
        return `${pane.agent.name} ${WORDS[pane.agent.state] ?? pane.agent.state}`;
    }
    const words = exitWords(pane);
    return isDead(pane) ? `ended${words === "" ? "" : `: ${words}`}` : "";
}
