// The workspace on the screen: tabs, splits, and panes of five kinds.
//
// A pane's element is never moved in the document: a web page in it would be loaded again.

import { type App, paneLabel } from "../app";
import { button, clean, copyText, fill, h, rows, visible } from "../dom";
import { discards } from "../view/ask";
import type { Command } from "../view/palette";
import { Content } from "./content";
import { isNamed, terminalId } from "./terminal";
import { Device, type DeviceSocket, type Request } from "./device";
import { type Pane, panesOf, type Place, type Tab } from "./model";
import { requestWords } from "./words";

interface Box {
    left: number;
    top: number;
    width: number;
    height: number;
}

export class WorkspaceView {
    readonly element: HTMLElement;
    readonly requests = h("div", { cls: "requests", role: "alert" });
    private readonly device: Device;
    private readonly tabs = h("nav", { cls: "tabs", "aria-label": "Tabs" });
    private readonly area = h("div", { cls: "area" });
    private readonly notice = h("div", { cls: "notice", hidden: true });
    private contents = new Map<string, Content>();
    private bars = new Map<string, HTMLElement>();
    private requested = new Map<string, string>();
    private requestElements = new Map<string, HTMLElement>();

    constructor(
        private app: App,
        private on: { wait(key: string, text: string): void; asks(requests: ReadonlyMap<string, string>): void },
    ) {
        this.device = new Device(
            deviceId(),
            deviceLabel(),
            {
                open: () => {
                    const scheme = location.protocol === "https:" ? "wss:" : "ws:";
                    return new WebSocket(`${scheme}//${location.host}/v1/devices/ws`) as unknown as DeviceSocket;
                },
                after: (ms, then) => {
                    const timer = setTimeout(then, ms);
                    return () => clearTimeout(timer);
                },
                now: () => Date.now(),
                seen: () => !document.hidden,
                read: () => localStorage.getItem("muxtap-workspace"),
                write: (state) => localStorage.setItem("muxtap-workspace", state),
                allowed,
                allow: (device) => {
                    const all = new Set([...allowed(), device]);
                    localStorage.setItem("muxtap-allowed", JSON.stringify([...all]));
                    this.drawTabs();
                },
                unsaved: () => {
                    // The first read comes before `contents` exists.
                    const files = [...(this.contents ?? [])].map(([id, content]) => [id, content.unsavedFile] as const);
                    return new Map(files.filter((one): one is readonly [string, string] => one[1] !== null));
                },
            },
            {
                changed: () => this.update(),
                state: () => this.state(),
                ask: (request) => this.ask(request),
                asked: (id) => {
                    this.requestElements.get(id)?.remove();
                    this.requestElements.delete(id);
                    this.requested.delete(id);
                    this.on.asks(this.requested);
                },
            },
        );
        this.element = h("section", { cls: "workspace", "aria-label": "Workspace" }, {}, h("h1", { cls: "sr" }, {}, "Workspace"), this.notice, this.tabs, this.area);
        app.on("panes", () => this.refresh());
        app.on("may", () => {
            // A read-only page is not a device: it could not change the workspace for its callers.
            if (app.mayType) {
                this.device.check();
            }
        });
    }

    set shown(shown: boolean) {
        if (shown) {
            this.update();
        }
        for (const content of this.contents.values()) {
            content.seen = shown;
        }
    }

    reconnect(): void {
        this.device.connect();
    }

    disconnect(): void {
        if (this.device.state !== "replaced") {
            this.device.disconnect();
        }
    }

    /** Carries out the person's change, and shows its error. */
    act(command: string, args: object): ReturnType<Device["act"]> | null {
        try {
            return this.device.act(command, args);
        } catch (error) {
            this.app.note({ kind: "error", text: (error as Error).message, ms: 6000 });
            return null;
        }
    }

    /** Opens a pane of the wall in a new tab. */
    openTerminal(key: string): void {
        const pane = this.app.panes.get(key);
        const id = pane === undefined ? "" : terminalId(pane, this.app.sockets);
        if (!isNamed(id)) {
            this.app.note({ kind: "error", text: `Terminal not opened: a workspace cannot refer to ${clean(id, 200)}`, ms: 8000 });
            return;
        }
        const made = pane === undefined ? null : this.act("new-tab", { title: clean(paneLabel(pane), 60) });
        if (made?.pane !== undefined && pane !== undefined) {
            this.act("attach-terminal", { target: `terminal:${id}`, to: `pane:${made.pane.id}` });
        }
    }

    private state(): void {
        const replaced = this.device.state === "replaced";
        this.notice.hidden = !replaced;
        this.area.classList.toggle("elsewhere", replaced);
        if (replaced) {
            fill(
                this.notice,
                "The workspace is in use in another window of this browser. ",
                button("Use it here", () => void this.takeOver(), { cls: "primary" }),
            );
        }
        this.update();
    }

    /**
     * Takes over the workspace from another window, which may have closed a pane with unsaved text
     * in this one.
     */
    private async takeOver(): Promise<void> {
        const files = this.device.losesByTaking();
        if (files.length === 0 || (await discards(`The other window has closed ${files.join(", ")}, which`))) {
            this.device.connect(true);
        }
    }

    /**
     * Returns the page's commands for the tab in front: a terminal takes every other key, even Tab.
     */
    commands(): Command[] {
        const tab = this.active;
        const all: Command[] = [{ name: "Workspace: new tab", run: () => this.open("new-tab", {}) }];
        const { tabs } = this.device.workspace.layout;
        const at = tabs.findIndex((one) => one.id === tab?.id);
        const step = (name: string, by: number) => {
            const to = tabs[(at + by + tabs.length) % tabs.length];
            if (to !== undefined && tabs.length > 1) {
                all.push({ name: `Workspace: ${name} tab`, hint: to.title, run: () => this.act("select-tab", { target: `tab:${to.id}` }) && this.focusPane(to.activePaneId) });
            }
        };
        step("next", 1);
        step("previous", -1);
        if (tab !== undefined) {
            const panes = panesOf(tab.layout);
            const target = `pane:${tab.activePaneId}`;
            const go = (name: string, by: number) => {
                const to = panes[(panes.indexOf(tab.activePaneId) + by + panes.length) % panes.length];
                if (to !== undefined && panes.length > 1) {
                    all.push({ name: `Workspace: ${name} pane`, run: () => this.act("select-pane", { target: `pane:${to}` }) && this.focusPane(to) });
                }
            };
            go("next", 1);
            go("previous", -1);
            const content = this.contents.get(tab.activePaneId);
            all.push(
                { name: "Workspace: split, add a pane beside this one", run: () => this.open("split-pane", { target, direction: "horizontal" }) },
                { name: "Workspace: split, add a pane below this one", run: () => this.open("split-pane", { target, direction: "vertical" }) },
                { name: "Workspace: close this pane", run: () => void content?.mayClose().then((may) => may && this.open("kill-pane", { target })) },
                { name: "Workspace: close this tab", run: () => void this.closeTab(tab).then(() => this.focusPane(this.active?.activePaneId)) },
            );
            const view = content?.view;
            if (view) {
                all.push(
                    { name: "This terminal: search the output", run: () => view.pane.find() },
                    { name: "This terminal: reading view", run: () => view.pane.toggleReading() },
                    { name: "This terminal: larger text", run: () => view.pane.resizeText(1) },
                    { name: "This terminal: smaller text", run: () => view.pane.resizeText(-1) },
                    { name: "This terminal: set a wait…", run: () => this.on.wait(view.key, "") },
                );
            }
        }
        all.push({ name: "Workspace: always allowed devices", run: () => this.showAllowed() });
        return all;
    }

    /** Makes a change, and focuses the pane that is active afterwards. */
    private open(command: string, args: object): void {
        if (this.act(command, args) !== null) {
            this.focusPane(this.active?.activePaneId);
        }
    }

    private focusPane(id: string | undefined): void {
        if (id !== undefined) {
            this.contents.get(id)?.focus();
        }
    }

    /** Shows the permanently allowed devices, each with a button to revoke the permission. */
    showAllowed(): void {
        if (document.querySelector("dialog[open]") !== null) {
            return;
        }
        const list = h("ul", { cls: "cards" });
        const words = h("p", { cls: "hint" });
        const dialog = h("dialog", { cls: "dialog", "aria-label": "Always allowed devices" }, {}, h("h2", {}, {}, "Always allowed devices"), words, list, button("Close", () => dialog.close()));
        const update = () => {
            const all = allowed();
            words.textContent = all.length === 0 ? "Each device asks before it changes this workspace." : "These devices change this workspace without asking.";
            const item = (device: string) => {
                const remove = button("Remove", () => {
                    localStorage.setItem("muxtap-allowed", JSON.stringify(allowed().filter((one) => one !== device)));
                    update();
                    this.drawTabs();
                });
                return h("li", { cls: "card" }, {}, h("header", {}, {}, h("span", {}, {}, clean(device, 80)), remove));
            };
            fill(list, ...all.map(item));
        };
        update();
        dialog.addEventListener("close", () => dialog.remove());
        document.body.append(dialog);
        dialog.showModal();
    }

    private ask(request: Request): void {
        const answer = (label: string, decision: "once" | "always" | "no", cls?: string) =>
            button(label, () => request.decide(decision), cls === undefined ? {} : { cls });
        const element = h(
            "div",
            { cls: "request" },
            {},
            rows("p", requestWords(request)),
            request.loses.length > 0 ? h("p", {}, {}, clean(`The request would close unsaved changes in ${request.loses.join(", ")}. Save them first: otherwise the request is rejected.`, 300)) : null,
            h("div", { cls: "options" }, {}, answer("Allow once", "once", "primary"), answer("Always allow this device", "always"), answer("Deny", "no")),
        );
        this.requestElements.set(request.id, element);
        this.requests.append(element);
        // A notification shows few lines: the beginning says who asks, and what for.
        this.requested.set(request.id, visible(requestWords(request), 600));
        this.on.asks(this.requested);
    }

    private refresh(): void {
        if (!this.element.hidden) {
            for (const content of this.contents.values()) {
                content.refresh();
            }
            this.nameTabs();
        }
    }

    private get active(): Tab | undefined {
        const { layout } = this.device.workspace;
        return layout.tabs.find((tab) => tab.id === layout.activeTabId);
    }

    private update(): void {
        if (this.element?.hidden !== false) {
            return;
        }
        const { layout } = this.device.workspace;
        this.drawTabs();
        const kept = new Set(layout.panes.map((pane) => pane.id));
        for (const [id, content] of this.contents) {
            if (!kept.has(id)) {
                content.remove();
                this.contents.delete(id);
            }
        }
        for (const tab of layout.tabs) {
            const boxes = new Map<string, Box>();
            place(tab.layout, { left: 0, top: 0, width: 100, height: 100 }, boxes);
            for (const [id, box] of boxes) {
                const pane = layout.panes.find((one) => one.id === id);
                if (pane !== undefined) {
                    this.drawPane(pane, tab, box, boxes.size);
                }
            }
        }
        this.drawBars();
        this.nameTabs();
        this.area.classList.toggle("none", layout.tabs.length === 0);
        const empty = this.area.querySelector(".empty");
        if (layout.tabs.length === 0 && empty === null) {
            this.area.append(
                h(
                    "div",
                    { cls: "empty" },
                    {},
                    h("p", {}, {}, "No tabs. A workspace shows terminals, web pages, files and agents side by side; agents can ask to open panes in it."),
                    button("New tab", () => this.act("new-tab", {}), { cls: "primary" }),
                ),
            );
        } else if (layout.tabs.length > 0) {
            empty?.remove();
        }
    }

    private drawTabs(): void {
        const { layout } = this.device.workspace;
        const focused = document.activeElement?.closest(".tab")?.getAttribute("data-id");
        fill(
            this.tabs,
            ...layout.tabs.map((tab) => {
                const selected = tab.id === layout.activeTabId;
                const name = h(
                    "button",
                    { type: "button", cls: "title", title: "Double-click to rename", ...(selected ? { "aria-current": "true" } : {}) },
                    {
                        click: () => !selected && this.act("select-tab", { target: `tab:${tab.id}` }),
                        dblclick: () => this.rename(tab),
                        keydown: (event) => event.key === "F2" && this.rename(tab),
                    },
                    clean(this.tabName(tab), 40),
                );
                const close = button("×", () => void this.closeTab(tab), { cls: "close", "aria-label": `Close ${clean(this.tabName(tab), 40)}` });
                return h("div", { cls: `tab${selected ? " selected" : ""}`, "data-id": tab.id }, {}, name, close);
            }),
            button("+", () => this.act("new-tab", {}), { cls: "add", "aria-label": "New tab", title: "New tab" }),
            allowed().length > 0 ? button("Allowed devices", () => this.showAllowed(), { title: "Devices that change this workspace without asking" }) : null,
            this.device.state === "online"
                ? button(deviceLabel(), () => void copyText(this.device.id).then((done) => done && this.app.note({ kind: "info", text: `Copied ${this.device.id}`, ms: 3000 })), { cls: "device", title: `Copy this device's id: ${this.device.id}` })
                : h("span", { cls: "device" }, {}, this.device.state),
        );
        if (focused) {
            this.tabs.querySelector<HTMLElement>(`[data-id="${CSS.escape(focused)}"] button`)?.focus();
        }
    }

    /** Returns a tab's title; for one without a title of its own, what its active pane shows, or else another one. */
    private tabName(tab: Tab): string {
        const panes = this.device.workspace.layout.panes.filter((pane) => pane.tabId === tab.id && pane.kind !== "picker");
        const named = panes.find((pane) => pane.id === tab.activePaneId) ?? panes[0];
        return tab.title === tab.id ? (this.contents.get(named?.id ?? tab.activePaneId)?.heading ?? "New tab") : tab.title;
    }

    /** Draws the tabs if their names have changed, unless one is being renamed. */
    private nameTabs(): void {
        const names = this.device.workspace.layout.tabs.map((tab) => this.tabName(tab)).join("\n");
        if (names !== this.names && this.tabs.querySelector("input") === null) {
            this.drawTabs();
        }
        this.names = names;
    }

    private names = "";

    private async closeTab(tab: Tab): Promise<void> {
        const boxes = new Map<string, Box>();
        place(tab.layout, { left: 0, top: 0, width: 100, height: 100 }, boxes);
        for (const id of boxes.keys()) {
            if ((await this.contents.get(id)?.mayClose()) === false) {
                return;
            }
        }
        this.act("kill-tab", { target: `tab:${tab.id}` });
    }

    private rename(tab: Tab): void {
        const field = h("input", { type: "text", "aria-label": "Tab title", value: tab.title });
        const done = (keep: boolean) => {
            if (keep && field.value.trim() !== "" && field.value !== tab.title) {
                this.act("rename-tab", { target: `tab:${tab.id}`, title: field.value });
            } else {
                this.drawTabs();
            }
        };
        field.addEventListener("keydown", (event) => {
            event.stopPropagation();
            if (event.key === "Enter" || event.key === "Escape") {
                done(event.key === "Enter");
            }
        });
        field.addEventListener("blur", () => field.isConnected && done(true));
        this.tabs.querySelector(`[data-id="${CSS.escape(tab.id)}"] button`)?.replaceWith(field);
        field.select();
    }

    private drawPane(pane: Pane, tab: Tab, box: Box, count: number): void {
        let content = this.contents.get(pane.id);
        if (content === undefined) {
            content = new Content(this.app, pane, {
                act: (command, args) => this.act(command, args),
                named: () => this.nameTabs(),
                wait: this.on.wait,
                deviceId: this.device.id,
            });
            this.contents.set(pane.id, content);
            this.area.append(content.element);
        }
        const active = tab.id === this.active?.id;
        content.show(pane, active, tab.activePaneId === pane.id, tab.activePaneId === pane.id && count > 1);
        const style = content.element.style;
        style.left = `${box.left}%`;
        style.top = `${box.top}%`;
        style.width = `${box.width}%`;
        style.height = `${box.height}%`;
    }

    /** Draws the bars between places, which change their shares. */
    private drawBars(): void {
        const seen = new Set<string>();
        const tab = this.active;
        const walk = (node: Place, box: Box, path: string): void => {
            if ("pane" in node) {
                return;
            }
            const { direction, percent, first, second } = node.split;
            const across = direction === "horizontal";
            const [one, other] = halves(node, box);
            const key = `${tab?.id} ${path}`;
            seen.add(key);
            let bar = this.bars.get(key);
            if (bar === undefined) {
                bar = h("div", { cls: "bar", role: "separator", tabindex: 0 });
                this.bars.set(key, bar);
                this.area.append(bar);
            }
            bar.className = `bar ${direction}`;
            bar.setAttribute("aria-orientation", across ? "vertical" : "horizontal");
            bar.setAttribute("aria-valuenow", String(percent));
            bar.setAttribute("aria-label", "Share of the first side, in percent");
            bar.style.left = `${across ? other.left : box.left}%`;
            bar.style.top = `${across ? box.top : other.top}%`;
            bar.style.width = across ? "" : `${box.width}%`;
            bar.style.height = across ? `${box.height}%` : "";
            const set = (share: number) => {
                // The nearest split above a pane counts: the first side's pane that is next to the
                // bar.
                const pane = nearest(first, direction);
                const value = Math.max(5, Math.min(95, Math.round(share)));
                if (pane !== null && value !== percent) {
                    this.act("resize-pane", { target: `pane:${pane.id}`, [across ? "x" : "y"]: pane.first ? value : 100 - value });
                }
            };
            const target = nearest(first, direction) ?? nearest(second, direction);
            bar.hidden = target === null;
            bar.onkeydown = (event) => {
                const step = { ArrowLeft: -5, ArrowUp: -5, ArrowRight: 5, ArrowDown: 5 }[event.key];
                if (step !== undefined) {
                    event.preventDefault();
                    set(percent + step);
                }
            };
            bar.onpointerdown = (event) => this.drag(event, bar as HTMLElement, box, across, set);
            walk(first, one, `${path}0`);
            walk(second, other, `${path}1`);
        };
        if (tab !== undefined) {
            walk(tab.layout, { left: 0, top: 0, width: 100, height: 100 }, "");
        }
        for (const [key, bar] of this.bars) {
            if (!seen.has(key)) {
                bar.remove();
                this.bars.delete(key);
            }
        }
    }

    private drag(event: PointerEvent, bar: HTMLElement, box: Box, across: boolean, set: (share: number) => void): void {
        event.preventDefault();
        bar.setPointerCapture(event.pointerId);
        const area = this.area.getBoundingClientRect();
        let share = 0;
        this.area.classList.add("dragging");
        bar.onpointermove = (move) => {
            const at = across ? ((move.clientX - area.left) / area.width) * 100 : ((move.clientY - area.top) / area.height) * 100;
            share = across ? ((at - box.left) / box.width) * 100 : ((at - box.top) / box.height) * 100;
            const shown = Math.max(5, Math.min(95, share));
            bar.style[across ? "left" : "top"] = `${across ? box.left + (shown * box.width) / 100 : box.top + (shown * box.height) / 100}%`;
        };
        bar.onpointerup = bar.onpointercancel = () => {
            bar.onpointermove = null;
            bar.onpointerup = null;
            bar.onpointercancel = null;
            this.area.classList.remove("dragging");
            if (share > 0) {
                set(share);
            }
            this.update();
        };
    }
}

function halves(node: Place, box: Box): [Box, Box] {
    if ("pane" in node) {
        return [box, box];
    }
    const share = node.split.percent / 100;
    if (node.split.direction === "horizontal") {
        const width = box.width * share;
        return [
            { ...box, width },
            { ...box, left: box.left + width, width: box.width - width },
        ];
    }
    const height = box.height * share;
    return [
        { ...box, height },
        { ...box, top: box.top + height, height: box.height - height },
    ];
}

function place(node: Place, box: Box, boxes: Map<string, Box>): void {
    if ("pane" in node) {
        boxes.set(node.pane, box);
        return;
    }
    const [one, other] = halves(node, box);
    place(node.split.first, one, boxes);
    place(node.split.second, other, boxes);
}

/** Returns a pane for which the nearest split in this direction is the one above `node`. */
function nearest(node: Place, direction: string): { id: string; first: boolean } | null {
    if ("pane" in node) {
        return { id: node.pane, first: true };
    }
    if (node.split.direction === direction) {
        return null;
    }
    return nearest(node.split.first, direction) ?? nearest(node.split.second, direction);
}

/** Returns the devices that may change this workspace without asking. */
function allowed(): string[] {
    return JSON.parse(localStorage.getItem("muxtap-allowed") ?? "[]") as string[];
}

function deviceId(): string {
    let id = localStorage.getItem("muxtap-device");
    if (id === null || !/^[\w.@-]{1,64}$/.test(id)) {
        const bytes = crypto.getRandomValues(new Uint8Array(5));
        id = `web_${[...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("")}`;
        localStorage.setItem("muxtap-device", id);
    }
    return id;
}

function deviceLabel(): string {
    const agent = navigator.userAgent;
    const browser = /Firefox\//.test(agent) ? "Firefox" : /Edg\//.test(agent) ? "Edge" : /Chrome\//.test(agent) ? "Chrome" : /Safari\//.test(agent) ? "Safari" : "browser";
    const system = /Android/.test(agent) ? "Android" : /iPhone|iPad/.test(agent) ? "iOS" : /Mac/.test(agent) ? "macOS" : /Windows/.test(agent) ? "Windows" : /Linux/.test(agent) ? "Linux" : "";
    return `${browser}${system === "" ? "" : ` on ${system}`}`;
}

