// A tile: a whole pane, small, with its name and its agent's state.

import { type App, isAsking, paneName } from "../app";
import { clean, h, write } from "../dom";
import { Drawing } from "../draw";
import { cellRatio, rowHeight } from "../metrics";
import type { PaneInfo } from "../types";

/** The font's size in a tile before it is scaled. */
const SIZE = 12;
/** Milliseconds between drawings of a pane that is visible at full size beside its tile. */
const PACE = 250;

export class Tile {
    readonly element: HTMLLIElement;
    private readonly button: HTMLButtonElement;
    private readonly thumb = h("div", { cls: "thumb", "aria-hidden": "true" });
    private readonly name = h("span", { cls: "name" });
    private readonly what = h("span", { cls: "what" });
    private readonly badge = h("span", { cls: "badge" });
    private readonly drawing = new Drawing(false);
    private use: ReturnType<App["feeds"]["use"]> | null = null;
    private width = 0;
    private height = 0;
    private shape = "";
    private shown = "";
    private isFront = false;
    private due: number | null = null;

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
            h("span", { cls: "caption" }, {}, this.name, this.what, this.badge),
        );
        this.element = h("li", { "data-key": key }, {}, this.button);
        this.info();
    }

    /** Shows the pane's entry in the list. */
    info(): void {
        const pane = this.app.panes.get(this.key);
        if (pane === undefined) {
            return;
        }
        // Every change of the list updates each tile: unchanged content is not written again.
        const now = JSON.stringify([paneName(pane), this.subtitle(pane), badgeText(pane), pane.agent?.state, pane.agent?.question, isDead(pane)]);
        if (now === this.shown) {
            return;
        }
        this.shown = now;
        const state = pane.agent?.state;
        write(this.name, clean(paneName(pane), 60));
        write(this.what, clean(this.subtitle(pane), 120));
        write(this.badge, badgeText(pane));
        this.badge.className = `badge ${state ?? (isDead(pane) ? "dead" : "")}`;
        this.button.classList.toggle("asks", isAsking(pane));
        this.button.classList.toggle("dead", isDead(pane));
        const asks = isAsking(pane) ? `, ${pane.agent?.name} asks: ${pane.agent?.question ?? ""}` : "";
        this.button.setAttribute("aria-label", clean(`${paneName(pane)}, ${this.subtitle(pane)}${asks}`, 400));
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
        this.shape = "";
        this.draw();
    }

    focus(): void {
        this.button.focus();
    }

    remove(): void {
        clearTimeout(this.due ?? undefined);
        this.seen = false;
        this.element.remove();
    }

    private subtitle(pane: PaneInfo): string {
        const plain = pane.title === "" || pane.title === pane.command || this.app.isCommonTitle(pane);
        return plain ? pane.command : `${pane.command} — ${pane.title}`;
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
        const shape = `${screen.columns}x${screen.rows}`;
        if (this.shape !== shape && this.width > 0) {
            this.shape = shape;
            const across = this.width / (screen.columns * SIZE * cellRatio());
            const down = this.height / (screen.rows * rowHeight(SIZE));
            this.drawing.element.style.transform = `scale(${Math.min(across, down, 1.2)})`;
        }
        this.drawing.draw(screen);
    }
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
    return isDead(pane) ? "ended" : "";
}
