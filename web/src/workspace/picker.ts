// A pane without content yet: the person chooses it.

import { type App, baseName, http, messageOf, paneLabel, paneName, serverName } from "../app";
import { button, clean, fill, h, Keyed, write } from "../dom";
import type { PaneInfo } from "../types";
import type { Shown } from "./content";
import { terminalId } from "./terminal";

interface SessionInfo {
    session: string;
    provider: string;
    session_id: string;
    status: string;
    cwd: string;
}

export class Picker implements Shown {
    readonly element: HTMLElement;
    private readonly terminals = h("div", { cls: "choices" });
    private readonly sessions = h("div", { cls: "choices" });
    private readonly end: () => void;

    constructor(
        private app: App,
        private on: { act(command: string, args: object): unknown; pane: string; deviceId: string },
    ) {
        const url = h("input", { type: "text", placeholder: "http://localhost:3000", "aria-label": "Address", spellcheck: "false" });
        const file = h("input", { type: "text", placeholder: "/path/to/file", "aria-label": "File", spellcheck: "false" });
        const provider = h("input", { type: "text", value: "claude", "aria-label": "Agent", size: 8, spellcheck: "false" });
        const cwd = h("input", { type: "text", placeholder: "/path/to/project", "aria-label": "Directory", spellcheck: "false" });
        const form = (title: string, submit: () => void, ...fields: HTMLElement[]) =>
            h(
                "form",
                {},
                {
                    submit: (event) => {
                        event.preventDefault();
                        submit();
                    },
                },
                h("h2", {}, {}, title),
                h("div", { cls: "row-of" }, {}, ...fields, h("button", { type: "submit" }, {}, "Open")),
            );
        this.element = h(
            "div",
            { cls: "picker" },
            { keydown: (event) => event.stopPropagation() },
            h("section", {}, {}, h("h2", {}, {}, "Terminal"), button("New terminal", () => void this.newTerminal(), { cls: "primary", disabled: !app.may.includes("create") }), this.terminals),
            form("Web page", () => this.open("open-browser", { url: url.value.includes("://") ? url.value : `http://${url.value}` }), url),
            form("File", () => this.open("open-editor", { file: file.value }), file),
            h(
                "section",
                {},
                {},
                form("Agent session", () => void this.newSession(provider.value, cwd.value), provider, cwd),
                this.sessions,
            ),
        );
        this.end = app.on("panes", () => this.list());
        this.list();
        void this.listSessions();
    }

    title(): string {
        return "New pane";
    }

    focus(): void {
        this.element.querySelector("button")?.focus();
    }

    remove(): void {
        this.end();
        this.element.remove();
    }

    private open(command: string, args: object): void {
        this.on.act(command, args);
    }

    private readonly offered = new Keyed<PaneInfo>(this.terminals, (pane) => {
        const element = button("", () => this.bind({ terminalId: terminalId(pane, this.app.sockets) }));
        return { element, update: (now) => write(element, clean([paneLabel(now), now.command === paneLabel(now) ? "" : now.command, baseName(now.cwd), paneName(now)].filter((word) => word !== "").join(" · "), 90)) };
    });

    private list(): void {
        this.offered.show([...this.app.panes.values()].slice(0, 60).map((pane) => [pane.key, pane]));
    }

    private bind(contentRef: object): void {
        this.on.act("bind", { contentRef });
    }

    private async newTerminal(): Promise<void> {
        const name = `device-${this.on.deviceId}`;
        try {
            const there = [...this.app.panes.values()].some((pane) => pane.session === name && serverName(pane.socket, this.app.sockets) === "");
            const made = there
                ? await http<{ pane: string }>("POST", "/v1/windows", { session: name })
                : await http<{ pane: string }>("POST", "/v1/sessions", { name, or_existing: true });
            this.bind({ terminalId: made.pane });
        } catch (error) {
            this.app.note({ kind: "error", text: `Terminal not created: ${messageOf(error)}`, ms: 8000 });
        }
    }

    private async listSessions(): Promise<void> {
        try {
            const { sessions } = await http<{ sessions: SessionInfo[] }>("GET", "/v1/agent-sessions");
            fill(
                this.sessions,
                ...sessions.map((one) => button(clean(`${one.provider} ${one.status} ${one.cwd}`, 90), () => this.bind({ sessionRef: one.session.replace(/^session:/, "") }))),
            );
        } catch {
            fill(this.sessions);
        }
    }

    private async newSession(provider: string, cwd: string): Promise<void> {
        this.app.note({ kind: "info", text: `Starting ${clean(provider, 40)}…`, ms: 4000 });
        try {
            const made = await http<SessionInfo>("POST", "/v1/agent-sessions", { provider, cwd });
            this.bind({ sessionRef: made.session.replace(/^session:/, "") });
        } catch (error) {
            this.app.note({ kind: "error", text: `Agent not started: ${messageOf(error)}`, ms: 10_000 });
        }
    }
}
