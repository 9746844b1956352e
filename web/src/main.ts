// The page: login, routing, theme.

import { App, fullName, LIST_TIME, samePane } from "./app";
import { button, fill, h } from "./dom";
import { isChord } from "./keys";
import type { PaneInfo } from "./types";
import { Agents, Bell } from "./view/agents";
import { Notes } from "./view/notes";
import { type Command, openHelp, openPalette } from "./view/palette";
import { PaneView } from "./view/pane";
import { waitDialog, Waits } from "./view/waits";
import { Wall } from "./view/wall";
import { WorkspaceView } from "./workspace/view";

/** Matches the code in a link. */
const CODE = /[#&]code=([\w-]+)/;
/** Milliseconds without a connection after which the page says what to do. */
const GONE_TIME = 15_000;
const THEMES = ["auto", "light", "dark"] as const;

/** Trades the code in the address for the cookie. Returns false if there is neither. */
async function login(say: (words: string) => void): Promise<boolean> {
    const code = CODE.exec(location.hash)?.[1];
    for (let wait = 500; code !== undefined; wait = Math.min(wait * 2, 4000)) {
        const answer = await fetch("/v1/page/login", {
            method: "POST",
            headers: { "content-type": "application/json" },
            body: JSON.stringify({ code }),
            credentials: "same-origin",
        }).catch(() => null);
        if (answer !== null) {
            // The code works once: it is removed from the address, whatever the result.
            history.replaceState(null, "", location.pathname);
            if (answer.ok) {
                return true;
            }
            break;
        }
        // Without a response the code was not used: it stays in the address, and is tried again.
        say("muxtap does not respond. Retrying…");
        await new Promise((resolve) => setTimeout(resolve, wait));
    }
    const answer = await fetch("/v1/status", { credentials: "same-origin" }).catch(() => null);
    return answer === null || answer.status !== 401;
}

/** The view for a browser without a session. */
function loginView(again: () => void): HTMLElement {
    return h(
        "main",
        { cls: "login" },
        {},
        h("img", { src: "/page/icon.svg", alt: "", width: 64, height: 64 }),
        h("h1", {}, {}, "muxtap"),
        h("p", {}, {}, "This browser is not logged in. On the machine where muxtap runs, enter"),
        h("pre", {}, {}, "muxtap open"),
        h("p", {}, {}, "and open the printed link. It works once, within a minute."),
        button("Try again", again, { cls: "primary" }),
    );
}

function sayLogin(): void {
    fill(document.body, loginView(() => location.reload()));
    // A link that is opened in this window changes only the address.
    addEventListener("hashchange", () => location.reload());
}

/** Returns a decoded part of an address, or null if it is not one. */
function decoded(text: string): string | null {
    try {
        return decodeURIComponent(text);
    } catch {
        return null;
    }
}

class Page {
    private readonly app = new App();
    private readonly notes = new Notes();
    private readonly wall: Wall;
    private readonly agents: Agents;
    private readonly waits: Waits;
    private readonly workspace: WorkspaceView;
    private readonly bell: Bell;
    private readonly main = h("main", { cls: "main" });
    private readonly front = h("div", { cls: "front" });
    private readonly nav = new Map<string, HTMLAnchorElement>();
    private readonly badge = h("span", { cls: "count-badge", hidden: true });
    private readonly status = h("button", { cls: "status", type: "button" }, { click: () => this.app.connection.probe() });
    private readonly theme = this.themeButton();
    private pane: PaneView | null = null;
    private login: HTMLElement | null = null;
    private lastKey = "";

    constructor() {
        const app = this.app;
        app.note = (note) => this.notes.show(note);
        app.barred = () => this.bar();
        const open = (key: string) => this.go(`pane/${key}`);
        this.wall = new Wall(app, open);
        this.agents = new Agents(app, open);
        this.waits = new Waits(app, open);
        this.bell = new Bell(app, open, (view) => this.go(view));
        this.workspace = new WorkspaceView(app, { wait: (key, text) => waitDialog(app, key, text), asks: (requests) => this.bell.ask(requests) });
        const link = (name: string, label: string, more?: HTMLElement) => {
            const element = h("a", { href: `#${name}` }, {}, label, more ?? null);
            this.nav.set(name, element);
            return element;
        };
        const header = h(
            "header",
            { cls: "top" },
            {},
            h("a", { cls: "brand", href: "#wall", "aria-label": "muxtap: the wall" }, {}, h("img", { src: "/page/icon.svg", alt: "", width: 22, height: 22 }), h("span", {}, {}, "muxtap")),
            h("nav", { "aria-label": "Views" }, {}, link("wall", "Wall"), link("agents", "Agents", this.badge), link("waits", "Waits"), link("workspace", "Workspace")),
            this.status,
            button("⌘", () => this.palette(), { title: "Commands (Ctrl+K; Ctrl+Shift+Space in a terminal)", "aria-label": "Commands", cls: "icon" }),
            this.theme,
            button("?", () => openHelp(app.version), { title: "Keyboard shortcuts", "aria-label": "Keyboard shortcuts", cls: "icon extra" }),
        );
        this.main.append(this.wall.element, this.front, this.agents.element, this.waits.element, this.workspace.element);
        fill(document.body, header, this.main, this.notes.element, this.workspace.requests, this.bell.live);
        app.on("panes", () => this.counts());
        app.on("approvals", () => this.counts());
        app.on("panes", () => this.gone());
        app.on("link", () => this.link());
        app.on("may", () => this.link());
        app.on("may", () => this.letIn());
        setInterval(() => this.link(), 1000);
        addEventListener("hashchange", () => {
            if (CODE.test(location.hash)) {
                // The address is trimmed when the response comes; nothing is shown for the code.
                void login((text) => app.note({ kind: "error", text, ms: 3000 })).then((may) => {
                    this.route();
                    return may && app.connection.connect();
                });
                return;
            }
            this.route();
        });
        addEventListener("keydown", (event) => this.key(event));
        // In the capture phase, before an editor, a conversation or a form handles the key: the
        // chord leaves each of them.
        addEventListener(
            "keydown",
            (event) => {
                if (isChord(event) && document.querySelector("dialog[open]") === null) {
                    event.preventDefault();
                    event.stopPropagation();
                    this.palette();
                }
            },
            true,
        );
        addEventListener("online", () => app.connection.probe());
        addEventListener("pageshow", (event) => {
            if (event.persisted) {
                app.connection.connect();
                this.workspace.reconnect();
            }
        });
        // A page in the back/forward cache has no connection, and connects again when it comes
        // back.
        addEventListener("pagehide", () => {
            app.connection.close();
            this.workspace.disconnect();
        });
        document.addEventListener("visibilitychange", () => {
            if (!document.hidden) {
                app.connection.probe();
            }
        });
        // On iOS the keyboard covers the page without resizing it: the row of keys stays above the
        // keyboard.
        visualViewport?.addEventListener("resize", () => {
            const { height, scale } = visualViewport as VisualViewport;
            const covered = scale === 1 && height < innerHeight - 1;
            document.documentElement.style.setProperty("--seen", covered ? `${height}px` : "100dvh");
            scrollTo(0, 0);
        });
        this.route();
        app.connection.connect();
    }

    private go(where: string): void {
        location.hash = where;
    }

    private route(): void {
        const hash = location.hash.slice(1);
        const key = hash.startsWith("pane/") ? decoded(hash.slice(5)) : null;
        const view = key !== null ? "wall" : this.nav.has(hash) ? hash : "wall";
        for (const [name, link] of this.nav) {
            if (name === view) {
                link.setAttribute("aria-current", "page");
            } else {
                link.removeAttribute("aria-current");
            }
        }
        this.main.className = `main ${key !== null ? "has-front" : ""}`;
        this.wall.element.hidden = view !== "wall";
        this.agents.element.hidden = view !== "agents";
        this.agents.shown = view === "agents";
        this.waits.element.hidden = view !== "waits";
        this.workspace.element.hidden = view !== "workspace";
        this.workspace.shown = view === "workspace";
        this.front.hidden = key === null;
        if (view === "waits") {
            this.app.tell("waits");
        }
        if (this.pane?.key !== key) {
            this.pane?.remove();
            this.pane = null;
            if (key !== null) {
                this.pane = new PaneView(this.app, key, {
                    close: () => this.go("wall"),
                    wait: (text) => waitDialog(this.app, key, text),
                });
                this.front.append(this.pane.element);
            }
            this.was = key === null ? undefined : this.app.panes.get(key);
            this.wall.setFront(key);
        }
        this.pane?.focus();
    }

    /** Handles the end of the pane in front: the wall comes back once the list is known. */
    private gone(): void {
        const { app, pane } = this;
        if (pane === null || app.link !== "open") {
            return;
        }
        if (app.panes.has(pane.key)) {
            this.was = app.panes.get(pane.key);
            this.wasAt = app.readyAt;
            return;
        }
        // A restarted daemon has other keys for the same panes. If the daemon is the same, tmux was
        // restarted, and a pane with this name is another one.
        const key = this.was?.key === pane.key && this.wasAt !== app.readyAt ? samePane(app.panes, pane.key, this.was) : null;
        if (key !== null) {
            location.replace(`#pane/${key}`);
        } else if (Date.now() - app.readyAt < LIST_TIME) {
            this.goneTimer ??= setTimeout(() => {
                this.goneTimer = null;
                this.gone();
            }, LIST_TIME);
        } else {
            app.note({ kind: "info", text: "The pane no longer exists.", ms: 4000 });
            this.go("wall");
        }
    }

    private goneTimer: ReturnType<typeof setTimeout> | null = null;
    /** The last listed state of the pane in front. */
    private was: PaneInfo | undefined;
    private wasAt = 0;

    /**
     * Handles a revoked login. Open content stays behind the message: a file may have unsaved text.
     */
    private bar(): void {
        this.letIn();
        this.workspace.disconnect();
        this.login = loginView(() => this.app.connection.connect());
        document.body.classList.add("barred");
        document.body.append(this.login);
    }

    private letIn(): void {
        if (this.login !== null) {
            this.login.remove();
            this.login = null;
            document.body.classList.remove("barred");
            this.pane?.focus();
        }
    }

    private counts(): void {
        const count = this.app.asking().length + this.app.approvals.length;
        this.badge.textContent = String(count);
        this.badge.hidden = count === 0;
        this.badge.setAttribute("aria-label", `${count} open ${count === 1 ? "question" : "questions"}`);
    }

    private link(): void {
        const { link, may } = this.app;
        const left = Math.max(0, Math.ceil((this.app.retryAt - Date.now()) / 1000));
        const words = {
            open: may.includes("input") ? "live" : "read-only",
            connecting: "connecting…",
            waiting: left > 0 ? `disconnected; retry in ${left} s` : "disconnected",
            closed: "disconnected",
        }[link];
        if (this.status.textContent !== words) {
            this.status.textContent = words;
        }
        if (link === "open") {
            this.linkAt = Date.now();
            this.unreachable?.();
            this.unreachable = null;
        } else if (this.login === null && Date.now() - this.linkAt > GONE_TIME) {
            // A daemon that was started without an address for browsers is there all the same.
            this.unreachable ??= this.app.note({
                kind: "error",
                text: `muxtap does not respond at ${location.host}. If it was restarted, run \`muxtap open\` and use the new link.`,
                actions: [{ label: "Retry", press: () => this.app.connection.probe() }],
                tag: "link",
            });
        }
        this.status.className = `status ${link}`;
        document.body.classList.toggle("offline", link !== "open");
    }

    /** When the connection was last open. */
    private linkAt = Date.now();
    private unreachable: (() => void) | null = null;

    private themeButton(): HTMLButtonElement {
        const saved = localStorage.getItem("muxtap-theme");
        let theme = THEMES.find((one) => one === saved) ?? "auto";
        const apply = () => {
            document.documentElement.dataset.theme = theme;
            made.textContent = { auto: "◐", light: "☀", dark: "☾" }[theme];
            made.title = `Theme: ${theme === "auto" ? "system" : theme}`;
            made.setAttribute("aria-label", made.title);
        };
        const made = button(
            "",
            () => {
                theme = THEMES[(THEMES.indexOf(theme) + 1) % THEMES.length] ?? "auto";
                localStorage.setItem("muxtap-theme", theme);
                apply();
            },
            { cls: "icon extra" },
        );
        apply();
        return made;
    }

    // --- keys outside terminals

    private key(event: KeyboardEvent): void {
        const target = event.target as HTMLElement;
        const writes = target.closest("input, textarea, select, [contenteditable]") !== null;
        if (event.defaultPrevented || (target as Element).closest("dialog") !== null) {
            return;
        }
        if (event.key.toLowerCase() === "k" && (event.ctrlKey || event.metaKey) && !target.classList.contains("keys")) {
            event.preventDefault();
            this.palette();
            return;
        }
        if (writes || event.ctrlKey || event.altKey || event.metaKey) {
            return;
        }
        const last = this.lastKey;
        this.lastKey = event.key;
        const views: Record<string, string> = { w: "wall", a: "agents", t: "waits", s: "workspace" };
        if (last === "g" && views[event.key] !== undefined) {
            event.preventDefault();
            this.go(views[event.key] ?? "wall");
        } else if (event.key === "?") {
            event.preventDefault();
            openHelp(this.app.version);
        } else if (event.key === "/") {
            event.preventDefault();
            this.go("wall");
            this.wall.focusFilter();
        } else if (event.key === "Enter" && target === document.body) {
            this.pane?.focus();
        }
    }

    private palette(): void {
        const view = (name: string, where: string): Command => ({ name: `Show: ${name}`, run: () => this.go(where) });
        const pane = this.pane;
        const commands: Command[] = [];
        for (const one of this.app.asking()) {
            commands.push({ name: `${fullName(one)} asks a question`, hint: one.agent?.question ?? "", run: () => this.go(`pane/${one.key}`) });
        }
        if (pane !== null) {
            commands.push(
                ...pane.commands(),
                {
                    name: "This pane: open in the workspace",
                    run: () => {
                        this.go("workspace");
                        this.workspace.openTerminal(pane.key);
                    },
                },
            );
            const order = this.wall.order();
            const at = order.indexOf(pane.key);
            const [next, previous] = [order[at + 1] ?? order[0], order[at - 1] ?? order[order.length - 1]];
            commands.push({ name: "Next pane", run: () => this.go(`pane/${next}`) }, { name: "Previous pane", run: () => this.go(`pane/${previous}`) });
        }
        if (!this.workspace.element.hidden) {
            commands.push(...this.workspace.commands());
        }
        commands.push(view("wall", "wall"), view("agents", "agents"), view("waits", "waits"), view("workspace", "workspace"));
        commands.push({ name: "Change the theme: system, light, dark", run: () => this.theme.click() });
        commands.push({ name: "Keyboard shortcuts", hint: "?", run: () => openHelp(this.app.version) });
        for (const one of this.app.panes.values()) {
            commands.push({ name: fullName(one), hint: `${one.command} ${one.cwd}`, run: () => this.go(`pane/${one.key}`) });
        }
        commands.push({ name: "Log out", run: () => void this.logout() });
        openPalette(commands);
    }

    private async logout(): Promise<void> {
        await fetch("/v1/page/logout", { method: "POST", credentials: "same-origin" });
        this.app.connection.close();
        sayLogin();
    }
}

if (await login((words) => fill(document.body, h("main", { cls: "login", role: "status" }, {}, h("p", {}, {}, words))))) {
    new Page();
} else {
    sayLogin();
}
