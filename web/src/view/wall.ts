// The wall: all panes as tiles, by server and session, with a filter. Sessions follow each other
// without a gap: the first tile of each has its heading.

import { type App, isAsking, serverName } from "../app";
import { clean, h, order } from "../dom";
import type { PaneInfo } from "../types";
import { badgeText, Tile } from "./tile";

/** The distance outside the visible area within which tiles stay live. */
const MARGIN = "300px";
/** The pixels between two tiles. */
const GAP = 12;

export class Wall {
    readonly element: HTMLElement;
    private readonly filter: HTMLInputElement;
    private readonly body = h("ul", { cls: "tiles" });
    /** The number of tiles in a row. */
    private columns = 1;
    private readonly empty = h("p", { cls: "empty" });
    private tiles = new Map<string, Tile>();
    private byElement = new Map<Element, Tile>();
    private front: string | null = null;
    private readonly sight = new IntersectionObserver((entries) => this.see(entries), { rootMargin: MARGIN });
    private readonly sizes = new ResizeObserver((entries) => this.measure(entries));

    constructor(
        private app: App,
        private open: (key: string) => void,
    ) {
        this.filter = h(
            "input",
            { type: "search", placeholder: "Filter panes", "aria-label": "Filter panes", autocomplete: "off", spellcheck: "false" },
            { input: () => this.update(), keydown: (event) => this.filterKey(event) },
        );
        this.element = h("section", { cls: "wall", "aria-label": "Panes" }, {}, h("h1", { cls: "sr" }, {}, "Panes"), h("div", { cls: "wall-bar" }, {}, this.filter), this.body, this.empty);
        this.element.addEventListener("keydown", (event) => this.arrows(event));
        this.sizes.observe(this.body);
        app.on("panes", () => this.update());
        app.on("link", () => this.update());
        this.update();
    }

    focusFilter(): void {
        this.filter.focus();
        this.filter.select();
    }

    /** Marks the tile of the pane in front. */
    setFront(key: string | null): void {
        this.front = key;
        for (const tile of this.tiles.values()) {
            tile.front = tile.key === key;
        }
    }

    /** Returns the keys of the visible panes, in order. */
    order(): string[] {
        return [...this.body.querySelectorAll<HTMLElement>("li[data-key]")].map((item) => item.dataset.key ?? "");
    }

    update(): void {
        const words = this.filter.value.toLowerCase().split(/\s+/).filter((word) => word !== "");
        const shown = [...this.app.panes.values()].filter((pane) => fits(pane, words, this.app.sockets)).sort(compare);
        const kept = new Set(shown.map((pane) => pane.key));
        for (const [key, tile] of this.tiles) {
            if (!kept.has(key)) {
                this.sight.unobserve(tile.element);
                this.sizes.unobserve(tile.element);
                this.byElement.delete(tile.element);
                tile.remove();
                this.tiles.delete(key);
            }
        }
        const sizes = new Map<string, number>();
        for (const pane of shown) {
            sizes.set(groupName(pane), (sizes.get(groupName(pane)) ?? 0) + 1);
        }
        let before = "";
        const items = shown.map((pane, index) => {
            const tile = this.tile(pane.key);
            const name = groupName(pane);
            const isFirst = name !== before;
            before = name;
            tile.info();
            // A row that begins in the middle of a session says which.
            tile.head(isFirst ? "first" : this.columns === 1 ? "none" : index % this.columns === 0 ? "again" : "more", heading(pane, this.app.sockets), sizes.get(name) ?? 1);
            return tile.element;
        });
        order(this.body, items);
        this.empty.hidden = shown.length > 0;
        this.empty.textContent =
            this.app.panes.size > 0 ? "No pane matches the filter." : this.app.link === "open" ? "No panes. Start a tmux session; its panes appear here." : "";
    }

    private tile(key: string): Tile {
        const known = this.tiles.get(key);
        if (known !== undefined) {
            return known;
        }
        const tile = new Tile(this.app, key, this.open);
        tile.front = key === this.front;
        this.tiles.set(key, tile);
        this.byElement.set(tile.element, tile);
        this.sight.observe(tile.element);
        this.sizes.observe(tile.element);
        return tile;
    }

    private see(entries: IntersectionObserverEntry[]): void {
        for (const entry of entries) {
            const tile = this.byElement.get(entry.target);
            if (tile !== undefined) {
                tile.seen = entry.isIntersecting;
            }
        }
    }

    private measure(entries: ResizeObserverEntry[]): void {
        for (const entry of entries) {
            if (entry.target === this.body) {
                const tile = Number.parseFloat(getComputedStyle(this.body).getPropertyValue("--tile"));
                const columns = Math.max(1, Math.floor((entry.contentRect.width + GAP) / (tile + GAP)));
                if (columns !== this.columns) {
                    this.columns = columns;
                    this.update();
                }
                continue;
            }
            const thumb = entry.target.querySelector(".thumb");
            if (thumb !== null) {
                this.byElement.get(entry.target)?.resize(thumb.clientWidth, thumb.clientHeight);
            }
        }
    }

    private filterKey(event: KeyboardEvent): void {
        if (event.key === "Enter") {
            const first = this.order()[0];
            if (first !== undefined) {
                this.open(first);
            }
        } else if (event.key === "Escape") {
            this.filter.value = "";
            this.update();
            this.filter.blur();
        }
    }

    /** Moves the focus between tiles with the arrow keys, by their positions on the wall. */
    private arrows(event: KeyboardEvent): void {
        const from = (event.target as HTMLElement).closest("li[data-key]");
        if (from === null || !event.key.startsWith("Arrow") || event.ctrlKey || event.altKey || event.metaKey) {
            return;
        }
        const items = [...this.body.querySelectorAll("li[data-key]")];
        const here = from.getBoundingClientRect();
        const index = items.indexOf(from);
        let next: Element | undefined;
        if (event.key === "ArrowRight" || event.key === "ArrowLeft") {
            next = items[index + (event.key === "ArrowRight" ? 1 : -1)];
        } else {
            const down = event.key === "ArrowDown";
            const beyond = items.filter((item) => {
                const box = item.getBoundingClientRect();
                return down ? box.top >= here.bottom - 4 : box.bottom <= here.top + 4;
            });
            const distance = (item: Element) => {
                const box = item.getBoundingClientRect();
                return Math.abs(box.top - here.top) * 4 + Math.abs(box.left - here.left);
            };
            next = beyond.sort((one, other) => distance(one) - distance(other))[0];
        }
        const tile = next === undefined ? undefined : this.byElement.get(next);
        if (tile !== undefined) {
            event.preventDefault();
            tile.focus();
        }
    }
}

function fits(pane: PaneInfo, words: string[], sockets: string): boolean {
    const text = [pane.session, pane.window_name, pane.title, pane.command, pane.cwd, pane.id, serverName(pane.socket, sockets), badgeText(pane), isAsking(pane) ? "asks" : ""]
        .join(" ")
        .toLowerCase();
    return words.every((word) => text.includes(word));
}

/** Returns a session's heading; the session of a browser's workspace has the browser's id as its name. */
function heading({ session, socket }: PaneInfo, sockets: string): [session: string, server: string] {
    const device = /^device-(web_\w+)$/.exec(session)?.[1];
    const mine = device === localStorage.getItem("muxtap-device");
    return [clean(device === undefined ? session : mine ? "This browser's workspace" : "Another browser's workspace", 80), clean(serverName(socket, sockets), 80)];
}

function groupName(pane: PaneInfo): string {
    return `${pane.socket}\n${pane.session}`;
}

function compare(one: PaneInfo, other: PaneInfo): number {
    return (
        one.socket.localeCompare(other.socket) ||
        one.session.localeCompare(other.session, undefined, { numeric: true }) ||
        Number(one.window) - Number(other.window) ||
        one.pane - other.pane ||
        one.key.localeCompare(other.key)
    );
}

