// Waits: the open ones, and new ones. The daemon waits and notifies the page, however often its
// connection breaks.

import { type App, fullName, http, messageOf } from "../app";
import { button, clean, h, type Kept, Keyed, write } from "../dom";
import { Followed, type WaitAnswer } from "../follow";
import type { PaneInfo, Wait } from "../types";
import { notify } from "./agents";

/** A wait that this page has set. */
interface Mine {
    key: string;
    words: string;
}

export class Waits {
    readonly element: HTMLElement;
    private readonly list = h("ul", { cls: "cards" });
    private readonly empty = h("p", { cls: "empty" }, {}, "No waits. Select text in a pane and choose Wait… to be notified when it appears again.");

    constructor(
        private app: App,
        private open: (key: string) => void,
    ) {
        this.element = h("section", { cls: "waits", "aria-label": "Waits" }, {}, h("div", { cls: "view-bar" }, {}, h("h1", {}, {}, "Waits")), this.list, this.empty);
        app.on("waits", () => this.update());
        app.on("panes", () => this.update());
        setInterval(() => this.update(), 1000);
    }

    private update(): void {
        if (!this.element.isConnected || this.element.hidden) {
            return;
        }
        this.empty.hidden = this.app.waits.length > 0;
        this.cards.show(this.app.waits.map((wait) => [wait.id, wait]));
    }

    private readonly cards = new Keyed<Wait>(this.list, (wait, id) => this.card(wait, id));

    /**
     * Returns a wait's card. Its conditions never change; its panes' names and its remaining time
     * do.
     */
    private card(wait: Wait, id: string): Kept<Wait> {
        const panes = h("span", { cls: "panes" });
        const named = new Keyed<PaneInfo | undefined>(panes, (pane, name) => {
            const element = pane === undefined ? h("span", {}, {}, clean(name)) : button("", () => this.open(pane.key), { cls: "link" });
            return { element, update: (now) => now && write(element, clean(fullName(now), 90)) };
        });
        const left = h("span", { cls: "left" });
        const cancel = button("Cancel", () => void this.cancel(id));
        const element = h(
            "li",
            { cls: "card" },
            {},
            h("header", {}, {}, panes, h("span", { cls: "where" }, {}, clean(`${wait.who ?? ""} ${wait.face ?? ""}`, 80)), left, cancel),
            h("ul", { cls: "conditions" }, {}, ...wait.conditions.map((one) => h("li", {}, {}, h("span", { cls: "kind" }, {}, one.kind), one.pattern === undefined ? null : h("code", {}, {}, clean(one.pattern, 300))))),
        );
        const update = (now: Wait) => {
            named.show(
                now.panes.map((name) => {
                    const pane = [...this.app.panes.values()].find((one) => one.id === name && (now.socket === undefined || one.socket === now.socket));
                    return [pane?.key ?? name, pane];
                }),
            );
            write(left, time(Math.max(0, Math.round((now.until_ms - Date.now()) / 1000))));
            cancel.disabled = !this.app.mayType;
        };
        return { element, update };
    }

    private async cancel(id: string): Promise<void> {
        try {
            await http("DELETE", `/v1/waits/${encodeURIComponent(id)}`);
        } catch (error) {
            this.app.note({ kind: "error", text: messageOf(error), ms: 8000 });
        }
    }
}

function time(seconds: number): string {
    return seconds >= 3600 ? `${Math.floor(seconds / 3600)} h ${Math.floor((seconds % 3600) / 60)} min` : seconds >= 60 ? `${Math.floor(seconds / 60)} min ${seconds % 60} s` : `${seconds} s`;
}

/** Returns a regex that matches only this text. */
export function escaped(text: string): string {
    return text.replace(/[\\^$.*+?()[\]{}|#&\-~]/g, "\\$&").replace(/\s+/g, "\\s+");
}

/** Asks for the condition of a wait in a pane, and sets the wait. */
export function waitDialog(app: App, key: string, selected: string): void {
    const pane = app.panes.get(key);
    if (pane === undefined) {
        return;
    }
    const text = h("input", { type: "text", "aria-label": "Text", value: selected.split("\n")[0]?.trim() ?? "", placeholder: "for example: passed", spellcheck: "false" });
    const regex = h("input", { type: "checkbox", id: "wait-regex" });
    const kind = h("select", { "aria-label": "Condition" }, {}, ...([["pattern", "prints this text"], ["stable", "prints nothing for 5 s"], ["prompt", "shows a shell prompt"], ["exit", "ends"]] as const).map(([value, label]) => h("option", { value }, {}, label)));
    const minutes = h("select", { "aria-label": "Timeout" }, {}, ...[10, 60, 480].map((count) => h("option", { value: count }, {}, count < 60 ? `${count} minutes` : `${count / 60} h`)));
    const dialog = h("dialog", { cls: "dialog", "aria-label": "Wait" });
    const textRow = h("label", {}, {}, "Text ", text);
    kind.addEventListener("change", () => {
        textRow.hidden = kind.value !== "pattern";
    });
    const submit = (event: Event) => {
        event.preventDefault();
        const what: Record<string, object> = {
            pattern: { patterns: [regex.checked ? text.value : escaped(text.value)], since: "now" },
            stable: { stable_ms: 5000 },
            prompt: { prompt: true, since: "now" },
            exit: { exit: true },
        };
        dialog.close();
        void begin(app, key, { ...what[kind.value], timeout_ms: Number(minutes.value) * 60_000 }, kind.value === "pattern" ? text.value : (kind.selectedOptions[0]?.textContent ?? ""));
    };
    dialog.append(
        h(
            "form",
            {},
            { submit },
            h("h2", {}, {}, clean(`Notify me when ${fullName(pane)}…`, 100)),
            h("label", {}, {}, "Condition ", kind),
            textRow,
            h("label", { cls: "check" }, {}, regex, " Regular expression"),
            h("label", {}, {}, "Timeout ", minutes),
            h("div", { cls: "options" }, {}, h("button", { type: "submit", cls: "primary" }, {}, "Wait"), button("Cancel", () => dialog.close())),
        ),
    );
    dialog.addEventListener("close", () => dialog.remove());
    document.body.append(dialog);
    dialog.showModal();
    text.focus();
}

async function begin(app: App, key: string, what: object, words: string): Promise<void> {
    const pane = app.panes.get(key);
    if (pane === undefined) {
        return;
    }
    try {
        const path = `/v1/waits?socket=${encodeURIComponent(pane.socket)}`;
        const begun = await http<WaitAnswer>("POST", path, { panes: [pane.id], detach: true, ...what });
        app.note({ kind: "info", text: `Waiting in ${fullName(pane)}: ${words}`, ms: 4000 });
        followed(app).add(begun.id, { key, words }, app.waits.map((one) => one.id));
    } catch (error) {
        app.note({ kind: "error", text: `Wait not set: ${messageOf(error)}`, ms: 10_000 });
    }
}

let all: Followed<Mine> | undefined;

/** Returns the waits that this page has set while it is open. */
function followed(app: App): Followed<Mine> {
    if (all === undefined) {
        const made = new Followed<Mine>(
            async (id) => {
                try {
                    return await http<WaitAnswer>("GET", `/v1/waits/${encodeURIComponent(id)}`);
                } catch (error) {
                    if ((error as { status?: number }).status === 404) {
                        return null;
                    }
                    throw error;
                }
            },
            ({ key, words }, answer) => say(app, key, answer?.outcome ?? "result no longer available", words, answer?.predicates?.find((one) => one.line !== undefined)?.line ?? ""),
            () => app.connection.askWaits(),
        );
        app.on("waits", () => made.look(app.waits.map((one) => one.id)));
        all = made;
    }
    return all;
}

function say(app: App, key: string, outcome: string, words: string, line: string): void {
    const text = outcome === "matched" ? `${app.name(key)}: ${line || words}` : `${app.name(key)}: ${outcome} (${words})`;
    app.note({ kind: outcome === "matched" ? "info" : "error", text: clean(text, 300) });
    if (document.hidden && typeof Notification !== "undefined" && Notification.permission === "granted") {
        notify(`muxtap: ${outcome}`, { body: clean(text, 300) });
    }
}
