// A device's workspace: tabs, each a tree of panes.
//
// Pure values: the time is a parameter, and every change is made whole or not at all. The rules are
// those of docs/devices.md, and the same as the command line's.

import { parseSelector, refuse, WorkspaceError } from "./selector";

export type PaneKind = "terminal" | "browser" | "editor" | "claude-chat" | "picker";
export type Direction = "horizontal" | "vertical";
export type ContentRef = { terminalId: string } | { sessionRef: string };
export type Place = { pane: string } | { split: { direction: Direction; percent: number; first: Place; second: Place } };

export interface Tab {
    id: string;
    ownerDeviceId: string;
    title: string;
    status: "ready" | "pending";
    createdAt: number;
    updatedAt: number;
    layoutRevision: number;
    activePaneId: string;
    layout: Place;
}

export interface Pane {
    id: string;
    tabId: string;
    ownerDeviceId: string;
    kind: PaneKind;
    status: "ready" | "pending";
    contentRef?: ContentRef;
    url?: string;
    file?: string;
    updatedAt: number;
    layoutRevision: number;
    /** The command that reserved a pending pane. Only the stored state has it: no response and no snapshot. */
    reserver?: { caller: string; finalizeKey: string };
}

export interface Layout {
    deviceId: string;
    workspaceRevision: number;
    activeTabId?: string;
    tabs: Tab[];
    panes: Pane[];
    nextId: number;
}

export interface Applied {
    appliedRevision: number;
    /**
     * Whether this is the response to an earlier request with this key, and nothing was changed
     * now.
     */
    replayed?: boolean;
    tab?: Tab;
    pane?: Pane;
    idempotencyKey?: string;
}

interface Answer {
    caller: string;
    key: string;
    at: number;
    applied: Applied;
}

export interface State {
    version: 1;
    layout: Layout;
    answers: Answer[];
}

export const TABS = 256;
export const PANES = 1024;
export const DEPTH = 32;
export const PENDING_MS = 30_000;
/** The end of the key with which a reserved pane is finalized. */
const FINALIZE = ".finalize";
const ANSWERS = 256;
const ANSWER_MS = 600_000;

type Args = Record<string, unknown>;
type Content =
    | { picker: true }
    | { pending: true }
    | { browser: string }
    | { editor: string }
    | { ref: ContentRef };

/** The arguments of each command; those with `!` are required. */
const COMMANDS: Record<string, string[]> = {
    "new-tab": ["title", "browser", "editor"],
    "select-tab": ["target!"],
    "kill-tab": ["target!"],
    "rename-tab": ["target!", "title!"],
    "split-pane": ["target!", "tab", "direction!", "browser", "editor"],
    "select-pane": ["target!", "tab"],
    "kill-pane": ["target!", "tab"],
    "resize-pane": ["target!", "tab", "x", "y"],
    "swap-pane": ["source!", "target!", "tab"],
    "open-browser": ["target!", "tab", "url!"],
    navigate: ["target!", "tab", "url!"],
    "open-editor": ["target!", "tab", "file!"],
    "attach-terminal": ["target!", "to!", "tab"],
    bind: ["target!", "tab", "contentRef!"],
    reserve: ["target", "tab", "direction", "title", "shell", "cwd"],
    finalize: ["pane!", "contentRef!"],
    release: ["pane!"],
};
const NEED_KEY = new Set(["new-tab", "split-pane", "attach-terminal", "bind", "reserve", "respawn-pane"]);

const invalid = (message: string) => new WorkspaceError("INVALID_ARGUMENT", message);

/** Parses a command's arguments. Throws `INVALID_ARGUMENT`. */
export function checkArgs(command: string, args: unknown): Args {
    const known = COMMANDS[command];
    if (known === undefined) {
        throw invalid(`unknown command ${JSON.stringify(command)}; expected one of ${Object.keys(COMMANDS).join(", ")}`);
    }
    const given = args === null || args === undefined ? {} : args;
    if (typeof given !== "object" || Array.isArray(given)) {
        throw invalid(`${command}: expected an object of arguments`);
    }
    const values = given as Args;
    for (const [name, value] of Object.entries(values)) {
        const member = known.find((one) => one === name || one === `${name}!`);
        if (member === undefined) {
            throw invalid(`${command}: unknown field \`${name}\``);
        }
        if (value === null && !member.endsWith("!")) {
            continue;
        }
        const fits =
            name === "x" || name === "y"
                ? Number.isInteger(value) && (value as number) >= 0 && (value as number) <= 255
                : name === "direction"
                  ? value === "horizontal" || value === "vertical"
                  : name === "contentRef"
                    ? isRef(value)
                    : typeof value === "string";
        if (!fits) {
            throw invalid(`${command}: invalid \`${name}\``);
        }
    }
    for (const member of known) {
        const name = member.slice(0, -1);
        if (member.endsWith("!") && (values[name] === undefined || values[name] === null)) {
            throw invalid(`${command}: missing field \`${name}\``);
        }
    }
    return values;
}

function isRef(value: unknown): boolean {
    if (typeof value !== "object" || value === null) {
        return false;
    }
    const entries = Object.entries(value);
    return entries.length === 1 && /^(terminalId|sessionRef)$/.test(entries[0]?.[0] ?? "") && typeof entries[0]?.[1] === "string";
}

export function panesOf(place: Place): string[] {
    return "pane" in place ? [place.pane] : [...panesOf(place.split.first), ...panesOf(place.split.second)];
}

function depth(place: Place): number {
    return "pane" in place ? 0 : 1 + Math.max(depth(place.split.first), depth(place.split.second));
}

function splitPlace(place: Place, at: string, direction: Direction, added: string): Place {
    if ("pane" in place) {
        return place.pane === at ? { split: { direction, percent: 50, first: place, second: { pane: added } } } : place;
    }
    const { first, second } = place.split;
    return { split: { ...place.split, first: splitPlace(first, at, direction, added), second: splitPlace(second, at, direction, added) } };
}

function without(place: Place, gone: string): Place | null {
    if ("pane" in place) {
        return place.pane === gone ? null : place;
    }
    const first = without(place.split.first, gone);
    const second = without(place.split.second, gone);
    return first !== null && second !== null ? { split: { ...place.split, first, second } } : (first ?? second);
}

function renamed(place: Place, name: (id: string) => string): Place {
    return "pane" in place
        ? { pane: name(place.pane) }
        : { split: { ...place.split, first: renamed(place.split.first, name), second: renamed(place.split.second, name) } };
}

/**
 * Sets the share of a pane's side of the nearest split in a direction.
 *
 * Null: the pane is not in the tree; false: there is no such split.
 */
function resized(place: Place, pane: string, direction: Direction, percent: number): { place: Place; done: boolean } | null {
    if ("pane" in place) {
        return place.pane === pane ? { place, done: false } : null;
    }
    const { split } = place;
    const first = resized(split.first, pane, direction, percent);
    const found = first ?? resized(split.second, pane, direction, percent);
    if (found === null) {
        return null;
    }
    const inner = first !== null ? { first: found.place } : { second: found.place };
    if (!found.done && split.direction === direction) {
        return { place: { split: { ...split, ...inner, percent: first !== null ? percent : 100 - percent } }, done: true };
    }
    return { place: { split: { ...split, ...inner } }, done: found.done };
}

const HAS_CONTROL = /[\u0000-\u001f\u007f-\u009f]/;
const utf8 = (text: string) => new TextEncoder().encode(text).length;

export function checkUrl(url: string): void {
    const host = /^https?:\/\/([^/?#]*)/.exec(url)?.[1];
    const named = host === undefined ? "" : host.slice(host.lastIndexOf("@") + 1);
    const good = utf8(url) <= 8192 && !HAS_CONTROL.test(url) && !/\s/u.test(url) && named !== "" && !named.startsWith(":") && !/[\\<>"]/.test(named);
    if (!good) {
        throw invalid("url: expected http:// or https:// and a host, at most 8192 bytes");
    }
}

function checkFile(file: string): void {
    if (file === "" || utf8(file) > 4096 || HAS_CONTROL.test(file)) {
        throw invalid("file: expected a path of at most 4096 bytes");
    }
}

function checkTitle(title: string): void {
    if (title.trim() === "" || [...title].length > 256 || HAS_CONTROL.test(title)) {
        throw invalid("title: expected 1 to 256 visible characters");
    }
}

function checkRef(ref: ContentRef): void {
    if ("terminalId" in ref) {
        parseSelector(`terminal:${ref.terminalId}`);
    } else {
        parseSelector(`session:${ref.sessionRef}`);
    }
}

const limit = (what: string, most: number) => new WorkspaceError("RESOURCE_LIMIT", `a workspace has at most ${most} ${what}`);

/** A change in progress, on a copy of the layout. */
class Changing {
    constructor(
        readonly layout: Layout,
        private now: number,
    ) {}

    change(command: string, args: Args): { tab?: string; pane?: string } {
        const text = (name: string) => args[name] as string;
        const maybe = (name: string) => (args[name] ?? undefined) as string | undefined;
        const tab = maybe("tab");
        switch (command) {
            case "new-tab":
                return this.newTab(maybe("title"), shown(maybe("browser"), maybe("editor")));
            case "reserve": {
                const [target, title, direction] = [maybe("target"), maybe("title"), maybe("direction") as Direction | undefined];
                if (target === undefined && tab === undefined && direction === undefined) {
                    return this.newTab(title, { pending: true });
                }
                if (target !== undefined && title === undefined) {
                    return this.split(target, tab, direction ?? "horizontal", { pending: true });
                }
                throw invalid("reserve: either a pane to split (target, direction) or a new tab's title");
            }
            case "split-pane":
                return this.split(text("target"), tab, text("direction") as Direction, shown(maybe("browser"), maybe("editor")));
            case "select-tab": {
                const { id } = this.findTab(text("target"));
                this.layout.activeTabId = id;
                this.touchTab(id);
                return { tab: id };
            }
            case "rename-tab": {
                checkTitle(text("title"));
                const found = this.findTab(text("target"));
                found.title = text("title");
                this.touchTab(found.id);
                return { tab: found.id };
            }
            case "kill-tab":
                this.removeTab(this.findTab(text("target")).id);
                return {};
            case "select-pane": {
                const pane = this.findPane(text("target"), tab);
                this.tab(pane.tabId).activePaneId = pane.id;
                this.layout.activeTabId = pane.tabId;
                return this.touched(pane);
            }
            case "kill-pane":
                return this.removePane(this.findPane(text("target"), tab));
            case "release":
                return this.removePane(this.reserved(text("pane")));
            case "resize-pane":
                return this.resize(text("target"), tab, args.x as number | undefined, args.y as number | undefined);
            case "swap-pane":
                return this.swap(text("source"), text("target"), tab);
            case "open-browser":
                checkUrl(text("url"));
                return this.show(text("target"), tab, { browser: text("url") });
            case "navigate":
                checkUrl(text("url"));
                if (this.findPane(text("target"), tab).kind !== "browser") {
                    throw refuse(`${text("target")} shows no web page; use open-browser`);
                }
                return this.show(text("target"), tab, { browser: text("url") });
            case "open-editor":
                checkFile(text("file"));
                return this.show(text("target"), tab, { editor: text("file") });
            case "attach-terminal": {
                const selector = parseSelector(text("target"));
                if (selector.kind !== "terminal") {
                    throw refuse(`${text("target")} is not a terminal: expected terminal:ID`);
                }
                return this.show(text("to"), tab, { ref: { terminalId: selector.id } });
            }
            case "bind":
                checkRef(args.contentRef as ContentRef);
                return this.show(text("target"), tab, { ref: args.contentRef as ContentRef });
            default: {
                checkRef(args.contentRef as ContentRef);
                const pane = this.reserved(text("pane"));
                return this.fill(pane, { ref: args.contentRef as ContentRef });
            }
        }
    }

    tab(id: string): Tab {
        const tab = this.layout.tabs.find((one) => one.id === id);
        if (tab === undefined) {
            throw new WorkspaceError("INTERNAL_ERROR", `no tab ${id}`);
        }
        return tab;
    }

    findTab(selector: string): Tab {
        const absent = new WorkspaceError("NOT_FOUND", `no tab ${selector}; list-tabs shows what is there`);
        const wanted = parseSelector(selector);
        const { tabs } = this.layout;
        if (wanted.kind === "tab-name") {
            const fitting = tabs.filter((one) => one.title === wanted.id);
            if (fitting.length > 1) {
                const candidates = fitting.map((one) => `tab:${one.id}`);
                throw new WorkspaceError("AMBIGUOUS_TARGET", `ambiguous selector ${selector}: matches ${candidates.join(", ")}`, { candidates });
            }
            if (fitting[0] !== undefined) {
                return fitting[0];
            }
            throw absent;
        }
        if (wanted.kind !== "tab" && wanted.kind !== "tab-index") {
            throw refuse(`${selector} names no tab: expected tab:ID, tab-name:NAME or tab-index:N`);
        }
        const found = wanted.kind === "tab" ? tabs.find((one) => one.id === wanted.id) : tabs[Number(wanted.id)];
        if (found === undefined) {
            throw absent;
        }
        return found;
    }

    findPane(selector: string, tabSelector?: string): Pane {
        const absent = new WorkspaceError("NOT_FOUND", `no pane ${selector}; list-panes shows what is there`);
        const tab = tabSelector === undefined ? undefined : this.findTab(tabSelector);
        const wanted = parseSelector(selector);
        let id: string | undefined;
        if (wanted.kind === "pane") {
            id = wanted.id;
        } else if (wanted.kind === "pane-index") {
            if (tab === undefined) {
                throw refuse(`${selector} requires a tab`);
            }
            id = panesOf(tab.layout)[Number(wanted.id)];
        } else {
            throw refuse(`${selector} names no pane: expected pane:ID, or pane-index:N with a tab`);
        }
        const pane = this.layout.panes.find((one) => one.id === id);
        if (pane === undefined || (tab !== undefined && pane.tabId !== tab.id)) {
            throw absent;
        }
        return pane;
    }

    private id(letter: string): string {
        const id = `${letter}${this.layout.nextId}`;
        this.layout.nextId += 1;
        return id;
    }

    private newTab(title: string | undefined, content: Content): { tab: string; pane: string } {
        if (this.layout.tabs.length >= TABS) {
            throw limit("tabs", TABS);
        }
        if (title !== undefined) {
            checkTitle(title);
        }
        const id = this.id("t");
        const pane = this.newPane(id, content);
        this.layout.tabs.push({
            id,
            ownerDeviceId: this.layout.deviceId,
            title: title ?? id,
            status: "ready",
            createdAt: this.now,
            updatedAt: this.now,
            layoutRevision: this.layout.workspaceRevision,
            activePaneId: pane,
            layout: { pane },
        });
        this.layout.activeTabId = id;
        this.touchTab(id);
        return { tab: id, pane };
    }

    private newPane(tab: string, content: Content): string {
        if (this.layout.panes.length >= PANES) {
            throw limit("panes", PANES);
        }
        const pane: Pane = {
            id: this.id("p"),
            tabId: tab,
            ownerDeviceId: this.layout.deviceId,
            kind: "picker",
            status: "ready",
            updatedAt: this.now,
            layoutRevision: this.layout.workspaceRevision,
        };
        this.layout.panes.push(pane);
        this.setContent(pane, content);
        return pane.id;
    }

    private split(target: string, tab: string | undefined, direction: Direction, content: Content): { tab: string; pane: string } {
        const at = this.findPane(target, tab);
        const added = this.newPane(at.tabId, content);
        const place = this.tab(at.tabId);
        place.layout = splitPlace(place.layout, at.id, direction, added);
        if (depth(place.layout) > DEPTH) {
            throw limit("splits above a pane", DEPTH);
        }
        place.activePaneId = added;
        this.touchTab(at.tabId);
        return { tab: at.tabId, pane: added };
    }

    private resize(target: string, tab: string | undefined, x: number | undefined, y: number | undefined): { tab: string; pane: string } {
        const pane = this.findPane(target, tab);
        if ((x ?? null) === null && (y ?? null) === null) {
            throw invalid("x, y: expected at least one, in percent");
        }
        for (const [name, percent, direction] of [
            ["x", x, "horizontal"],
            ["y", y, "vertical"],
        ] as const) {
            if (percent === undefined || percent === null) {
                continue;
            }
            if (percent < 1 || percent > 99) {
                throw invalid(`${name}: expected 1 to 99 percent, got ${percent}`);
            }
            const place = this.tab(pane.tabId);
            const done = resized(place.layout, pane.id, direction, percent);
            if (done === null || !done.done) {
                throw invalid(`${name}: ${target} has no neighbor in that direction`);
            }
            place.layout = done.place;
        }
        return this.touched(pane);
    }

    private swap(source: string, target: string, tab: string | undefined): { tab: string; pane: string } {
        const one = this.findPane(source, tab);
        const other = this.findPane(target, tab);
        if (one === other) {
            throw refuse("source and target are the same pane");
        }
        const exchanged = (id: string) => (id === one.id ? other.id : id === other.id ? one.id : id);
        const across = one.tabId !== other.tabId;
        for (const id of new Set([one.tabId, other.tabId])) {
            const place = this.tab(id);
            place.layout = renamed(place.layout, exchanged);
            if (across) {
                place.activePaneId = exchanged(place.activePaneId);
            }
        }
        [one.tabId, other.tabId] = [other.tabId, one.tabId];
        this.touchPane(one);
        this.touchPane(other);
        this.touchTab(one.tabId);
        this.touchTab(other.tabId);
        return { tab: one.tabId, pane: one.id };
    }

    private show(target: string, tab: string | undefined, content: Content): { tab: string; pane: string } {
        const pane = this.findPane(target, tab);
        if (pane.status === "pending") {
            throw new WorkspaceError("CONFLICT", `${target} is reserved by a pending command`);
        }
        return this.fill(pane, content);
    }

    private fill(pane: Pane, content: Content): { tab: string; pane: string } {
        this.setContent(pane, content);
        this.touchTab(pane.tabId);
        return { tab: pane.tabId, pane: pane.id };
    }

    private setContent(pane: Pane, content: Content): void {
        delete pane.contentRef;
        delete pane.url;
        delete pane.file;
        delete pane.reserver;
        pane.status = "pending" in content ? "pending" : "ready";
        if ("browser" in content) {
            pane.url = content.browser;
            pane.kind = "browser";
        } else if ("editor" in content) {
            pane.file = content.editor;
            pane.kind = "editor";
        } else if ("ref" in content) {
            pane.contentRef = content.ref;
            pane.kind = "terminalId" in content.ref ? "terminal" : "claude-chat";
        } else {
            pane.kind = "picker";
        }
        this.touchPane(pane);
    }

    private removePane(pane: Pane): { tab?: string } {
        const tab = this.tab(pane.tabId);
        const left = without(tab.layout, pane.id);
        this.layout.panes = this.layout.panes.filter((one) => one !== pane);
        if (left === null) {
            this.removeTab(tab.id);
            return {};
        }
        tab.layout = left;
        if (tab.activePaneId === pane.id) {
            tab.activePaneId = panesOf(left)[0] ?? "";
        }
        this.touchTab(tab.id);
        return { tab: tab.id };
    }

    private removeTab(id: string): void {
        const { layout } = this;
        const at = layout.tabs.findIndex((one) => one.id === id);
        layout.tabs = layout.tabs.filter((one) => one.id !== id);
        layout.panes = layout.panes.filter((one) => one.tabId !== id);
        if (layout.activeTabId === id) {
            // The tab that takes its position, or else the last one.
            const next = layout.tabs[at] ?? layout.tabs[layout.tabs.length - 1];
            if (next === undefined) {
                delete layout.activeTabId;
            } else {
                layout.activeTabId = next.id;
            }
        }
    }

    private reserved(selector: string): Pane {
        const pane = this.findPane(selector);
        if (pane.status !== "pending") {
            throw new WorkspaceError("CONFLICT", `${selector} is not reserved, or no longer reserved`);
        }
        return pane;
    }

    private touched(pane: Pane): { tab: string; pane: string } {
        this.touchTab(pane.tabId);
        this.touchPane(pane);
        return { tab: pane.tabId, pane: pane.id };
    }

    private touchTab(id: string): void {
        const tab = this.tab(id);
        const waiting = this.layout.panes.filter((one) => one.tabId === id && one.status === "pending").length;
        tab.status = waiting === panesOf(tab.layout).length ? "pending" : "ready";
        tab.updatedAt = this.now;
        tab.layoutRevision = this.layout.workspaceRevision;
    }

    private touchPane(pane: Pane): void {
        // A reserved pane's timeout continues from when it was reserved.
        if (pane.status === "ready" || pane.layoutRevision === this.layout.workspaceRevision) {
            pane.updatedAt = this.now;
        }
        pane.layoutRevision = this.layout.workspaceRevision;
    }
}

function shown(browser: string | undefined, editor: string | undefined): Content {
    if (browser !== undefined && editor !== undefined) {
        throw invalid("browser, editor: expected at most one");
    }
    if (browser !== undefined) {
        checkUrl(browser);
        return { browser };
    }
    if (editor !== undefined) {
        checkFile(editor);
        return { editor };
    }
    return { picker: true };
}

export class Workspace {
    private constructor(private state: State) {}

    static empty(deviceId: string): Workspace {
        return new Workspace({ version: 1, layout: { deviceId, workspaceRevision: 1, tabs: [], panes: [], nextId: 1 }, answers: [] });
    }

    /** Parses a stored state. Null: it belongs to another device, or is incomplete. */
    static read(text: string, deviceId: string): Workspace | null {
        try {
            const state = JSON.parse(text) as State;
            const whole = state.version === 1 && state.layout.deviceId === deviceId && isWhole(state.layout) && Array.isArray(state.answers);
            return whole ? new Workspace(state) : null;
        } catch {
            return null;
        }
    }

    write(): string {
        return JSON.stringify(this.state);
    }

    get layout(): Readonly<Layout> {
        return this.state.layout;
    }

    get revision(): number {
        return this.state.layout.workspaceRevision;
    }

    /** Returns the first response to a caller's key. */
    answered(caller: string, key: string | undefined, now: number): Answer | undefined {
        return this.state.answers.find((one) => one.caller === caller && one.key === key && now - one.at <= ANSWER_MS);
    }

    /** Makes a change for a caller. Throws a `WorkspaceError`, and then nothing has changed. */
    apply(command: string, args: unknown, caller: string, now: number, expected?: number, key?: string): Applied {
        const values = checkArgs(command, args);
        if (key !== undefined) {
            if (key === "" || utf8(key) > 128 || HAS_CONTROL.test(key)) {
                throw invalid("idempotencyKey: expected 1 to 128 visible bytes");
            }
            if (command === "reserve" && utf8(key + FINALIZE) > 128) {
                throw invalid(`idempotencyKey: expected at most ${128 - FINALIZE.length} bytes for reserve`);
            }
            const first = this.answered(caller, key, now);
            if (first !== undefined) {
                return { ...first.applied, replayed: true };
            }
        } else if (NEED_KEY.has(command)) {
            throw invalid("idempotencyKey: missing; this command requires one");
        }
        if (expected === undefined) {
            throw invalid("expectedRevision: missing; expected the revision that the change is based on");
        }
        const current = this.revision;
        if (expected !== current) {
            throw new WorkspaceError("REVISION_CONFLICT", `the workspace is at revision ${current}, not ${expected}; read it again`, {
                currentRevision: current,
            });
        }
        const next = structuredClone(this.state.layout);
        next.workspaceRevision += 1;
        const changing = new Changing(next, now);
        if (command === "finalize" || command === "release") {
            this.checkReserver(changing.findPane(values["pane"] as string), command === "finalize", caller, key);
        }
        const made = changing.change(command, values);
        if (command === "reserve" && key !== undefined) {
            const reserved = next.panes.find((one) => one.id === made.pane);
            if (reserved !== undefined) {
                reserved.reserver = { caller, finalizeKey: key + FINALIZE };
            }
        }
        if (!isWhole(next)) {
            throw new WorkspaceError("INTERNAL_ERROR", "the change would make the workspace inconsistent");
        }
        const applied: Applied = { appliedRevision: next.workspaceRevision };
        const tab = next.tabs.find((one) => one.id === made.tab);
        const pane = next.panes.find((one) => one.id === made.pane);
        if (tab !== undefined) {
            applied.tab = structuredClone(tab);
        }
        if (pane !== undefined) {
            applied.pane = structuredClone(pane);
            delete applied.pane.reserver;
        }
        const answers = this.state.answers.filter((one) => now - one.at <= ANSWER_MS);
        if (key !== undefined) {
            applied.idempotencyKey = key;
            answers.push({ caller, key, at: now, applied });
        }
        this.state = { version: 1, layout: next, answers: answers.slice(-ANSWERS) };
        return applied;
    }

    /**
     * Checks that a reserved pane is filled by the command that reserved it, and released by its caller or
     * by this device. A pane whose reserver is unknown is released by this device alone.
     */
    private checkReserver(pane: Pane, fills: boolean, caller: string, key?: string): void {
        const { reserver } = pane;
        const may = caller === reserver?.caller ? !fills || key === reserver.finalizeKey : !fills && caller === "";
        if (pane.status === "pending" && !may) {
            throw new WorkspaceError("CONFLICT", `pane:${pane.id} is reserved by another command`);
        }
    }

    /** Releases reserved panes whose timeout has passed; returns their number. */
    releaseOverdue(now: number): number {
        const overdue = this.layout.panes.filter((one) => one.status === "pending" && one.updatedAt + PENDING_MS <= now);
        for (const pane of overdue) {
            this.apply("release", { pane: `pane:${pane.id}` }, "", now, this.revision);
        }
        return overdue.length;
    }

    /** Returns the snapshot to publish. */
    snapshot(now: number): object {
        const { nextId: _, ...layout } = this.layout;
        const panes = layout.panes.map(({ reserver: _, ...pane }) => pane);
        return { ...layout, panes, capturedAt: now };
    }
}

/** Returns whether the invariants of a layout hold. */
export function isWhole(layout: Layout): boolean {
    const ids = [...layout.tabs.map((tab) => tab.id), ...layout.panes.map((pane) => pane.id)];
    const owners = [...layout.tabs, ...layout.panes];
    const placed = layout.tabs.flatMap((tab) => panesOf(tab.layout).map((id) => [tab.id, id] as const));
    return (
        layout.workspaceRevision >= 1 &&
        layout.tabs.length <= TABS &&
        layout.panes.length <= PANES &&
        new Set(ids).size === ids.length &&
        placed.length === layout.panes.length &&
        new Set(placed.map(([, id]) => id)).size === placed.length &&
        placed.every(([tab, id]) => layout.panes.some((pane) => pane.id === id && pane.tabId === tab)) &&
        layout.tabs.every((tab) => panesOf(tab.layout).includes(tab.activePaneId) && depth(tab.layout) <= DEPTH) &&
        (layout.tabs.length === 0 ? layout.activeTabId === undefined : layout.tabs.some((tab) => tab.id === layout.activeTabId)) &&
        owners.every((one) => one.ownerDeviceId === layout.deviceId && one.layoutRevision <= layout.workspaceRevision)
    );
}
