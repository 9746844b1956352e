// Agents: their states, their questions with answers as buttons, their last lines; and requests
// that need approval.

import { type App, fullName, http, isAsking, messageOf, paneLabel, paneName, serverName } from "../app";
import { button, clean, fill, h, type Kept, Keyed, order, rows, visible, visibleLine, write } from "../dom";
import { writeRuns } from "../draw";
import { type Line, textOf } from "../screen";
import type { Agent, Approval, PaneInfo } from "../types";
import { badgeText } from "./tile";

/** Rows of an agent's screen that are shown. */
const ROWS = 12;
/** Maximum length of a question, in characters: longer than the daemon's limit. */
const QUESTION = 20_000;

/**
 * Answers an agent's question by the answer's key or label.
 *
 * `false`: the answer did not arrive, and the person was notified.
 */
export async function answerQuestion(app: App, pane: PaneInfo, answer: string): Promise<boolean> {
    try {
        await app.connection.call("send_keys", {
            target: pane.id,
            server: pane.socket,
            question_id: pane.agent?.question_id,
            answer,
        });
        return true;
    } catch (error) {
        app.note({ kind: "error", text: `Answer not sent: ${messageOf(error)}`, ms: 10_000 });
        return false;
    }
}

/**
 * Returns the text of a permission question: who asks, what will happen, and the agent's own name for
 * it, which is never shown alone.
 */
export function questionText(askedBy?: string, detail?: string, title?: string): HTMLElement[] {
    return [
        h("p", {}, {}, visibleLine(`${askedBy ?? "An agent"} asks to do this:`)),
        rows("pre", visible(detail ?? "", QUESTION)),
        h("p", { cls: "hint" }, {}, visibleLine(`The agent's title: ${title ?? ""}`, 600)),
    ];
}

/** Returns a question with its answers. */
export function questionBox(app: App, pane: PaneInfo, agent: Agent): HTMLElement {
    const options = (agent.options ?? []).map((option) =>
        button(
            visibleLine(option.key !== undefined && option.key !== "" ? `${option.key}. ${option.label}` : option.label, 300),
            (event) => {
                const pressed = event.currentTarget as HTMLButtonElement;
                pressed.disabled = true;
                void answerQuestion(app, pane, option.key || option.label).then((done) => {
                    pressed.disabled = done;
                });
            },
            { disabled: !app.mayType || agent.question_id === undefined, ...(option.selected ? { cls: "selected" } : {}) },
        ),
    );
    // The whole question, line by line: no part of what is permitted may be cut off.
    const question = rows("p", visible(agent.question ?? "The agent asks a question.", QUESTION));
    return h("div", { cls: "question" }, {}, question, h("div", { cls: "options" }, {}, ...options));
}

/** Returns the lines above a question, which is shown by itself; all lines if it is not among them. */
export function above(lines: readonly Line[], question: string): Line[] {
    const words = (text: string) => text.replace(/[^\p{L}\p{N}]+/gu, "");
    const asked = words(question);
    const rows = lines.map((line) => words(textOf(line)));
    const from = asked === "" ? -1 : rows.findLastIndex((row) => row !== "" && asked.startsWith(row));
    let end = from < 0 ? lines.length : from;
    // The frame around a question has no words.
    while (from >= 0 && end > 0 && rows[end - 1] === "") {
        end -= 1;
    }
    return lines.slice(0, end);
}

class Card {
    readonly element = h("li", { cls: "card" });
    private readonly badge = h("span", { cls: "badge" });
    private readonly name = h("h2", {});
    private readonly where = h("span", { cls: "where" });
    private readonly body = h("div", {});
    private readonly last = h("div", { cls: "last", role: "group", "aria-label": "The agent's last lines" });
    private shown = "";
    private use: ReturnType<App["feeds"]["use"]>;

    constructor(
        private app: App,
        readonly key: string,
        private open: (key: string) => void,
    ) {
        const head = h("header", {}, {}, this.badge, this.name, this.where, button("Open", () => this.open(this.key)));
        this.element.append(head, this.body, this.last);
        this.use = app.feeds.use(key, () => this.draw());
        this.info();
    }

    info(): void {
        const pane = this.app.panes.get(this.key);
        const agent = pane?.agent;
        if (pane === undefined || !agent) {
            return;
        }
        this.badge.className = `badge ${agent.state}`;
        write(this.badge, badgeText(pane));
        write(this.name, clean(paneLabel(pane), 60));
        write(this.where, clean([paneName(pane), serverName(pane.socket, this.app.sockets), pane.cwd].filter((word) => word !== "").join(" · "), 160));
        // Only another question needs other buttons; otherwise they are kept.
        const now = JSON.stringify([isAsking(pane), agent.question, agent.question_id, agent.options, this.app.mayType]);
        if (now === this.shown) {
            return;
        }
        this.shown = now;
        fill(this.body, isAsking(pane) ? questionBox(this.app, pane, agent) : null);
        this.element.classList.toggle("asks", isAsking(pane));
        this.draw();
    }

    remove(): void {
        this.use.end();
        this.element.remove();
    }

    private draw(): void {
        const pane = this.app.panes.get(this.key);
        const question = pane && isAsking(pane) ? pane.agent?.question : undefined;
        const lines = above(this.use.feed.screen.lines, question ?? "");
        while (lines.length > 0 && lines[lines.length - 1]?.runs.length === 0) {
            lines.pop();
        }
        this.last.hidden = lines.length === 0;
        this.last.replaceChildren(
            ...lines.slice(-ROWS).map((line) => {
                const row = h("div", { cls: "row" });
                writeRuns(row, line.runs, false);
                return row;
            }),
        );
    }
}

export class Agents {
    readonly element: HTMLElement;
    private readonly list = h("ul", { cls: "cards" });
    private readonly approvals = h("ul", { cls: "cards approvals" });
    private readonly empty = h("p", { cls: "empty" }, {}, "No coding agents are running in these panes.");
    private readonly notify: HTMLButtonElement;
    private cards = new Map<string, Card>();
    private readonly asked = new Keyed<Approval>(this.approvals, (approval) => this.approval(approval));
    private visible = false;

    constructor(
        private app: App,
        private open: (key: string) => void,
    ) {
        this.notify = button("Notify me when an agent asks", () => void this.grant());
        this.element = h("section", { cls: "agents", "aria-label": "Agents" }, {}, h("div", { cls: "view-bar" }, {}, h("h1", {}, {}, "Agents"), this.notify), this.approvals, this.list, this.empty);
        for (const topic of ["panes", "approvals", "may"] as const) {
            app.on(topic, () => this.update());
        }
    }

    set shown(shown: boolean) {
        this.visible = shown;
        this.update();
    }

    private async grant(): Promise<void> {
        if (typeof Notification !== "undefined") {
            await Notification.requestPermission();
        }
        this.update();
    }

    private update(): void {
        const rank = (pane: PaneInfo) => (isAsking(pane) ? 0 : pane.agent?.state === "errored" ? 1 : pane.agent?.state === "working" ? 2 : 3);
        const agents = this.visible
            ? [...this.app.panes.values()]
                  .filter((pane) => pane.agent)
                  .sort((one, other) => rank(one) - rank(other) || paneName(one).localeCompare(paneName(other)))
            : [];
        const kept = new Set(agents.map((pane) => pane.key));
        for (const [key, card] of this.cards) {
            if (!kept.has(key)) {
                card.remove();
                this.cards.delete(key);
            }
        }
        const all = agents.map((pane) => {
            let card = this.cards.get(pane.key);
            if (card === undefined) {
                card = new Card(this.app, pane.key, this.open);
                this.cards.set(pane.key, card);
            }
            card.info();
            return card.element;
        });
        order(this.list, all);
        this.empty.hidden = agents.length > 0 || this.app.approvals.length > 0;
        this.notify.hidden = typeof Notification === "undefined" || Notification.permission !== "default";
        this.asked.show(this.app.approvals.map((approval) => [approval.id, approval]));
    }

    /**
     * Shows a session question's own answers; yes and no until they are known, and if they are not
     * available.
     */
    private async ownOptions(session: string, approval: Approval, options: HTMLElement): Promise<void> {
        const path = `/v1/agent-sessions/${encodeURIComponent(session)}/questions`;
        try {
            const { questions } = await http<{ questions: { id: string; title?: string; detail?: string; options?: { id: string; name: string }[] }[] }>("GET", path);
            // An approval has an id of its own: two questions with one text are indistinguishable.
            const same = questions.filter((one) => one.title === approval.name && (approval.prompt ?? "").startsWith(one.detail ?? ""));
            const [question] = same;
            const own = question === undefined || same.length > 1 ? [] : (question.options ?? []);
            const press = async (option: string) => {
                try {
                    await http("POST", `${path}/${encodeURIComponent(question?.id ?? "")}`, { option });
                } catch (error) {
                    this.app.note({ kind: "error", text: messageOf(error), ms: 8000 });
                }
            };
            if (own.length > 0) {
                // The prompt stays as it is: the agent chooses the answers' names, and must not hide
                // a line of what is permitted.
                fill(options, ...own.map((one) => button(visibleLine(one.name, 300), () => void press(one.id))));
            }
        } catch {
            // The answers yes and no stay.
        }
    }

    private approval(approval: Approval): Kept<Approval> {
        const answer = async (word: "approved" | "denied") => {
            try {
                await http("POST", `/v1/approvals/${encodeURIComponent(approval.id)}`, { answer: word });
            } catch (error) {
                this.app.note({ kind: "error", text: messageOf(error), ms: 8000 });
            }
        };
        const options = h("div", { cls: "options" }, {}, button("Allow", () => void answer("approved")), button("Deny", () => void answer("denied")));
        const [who, prompt, called] = questionText(approval.asked_by, approval.prompt, approval.name) as [HTMLElement, HTMLElement, HTMLElement];
        if (approval.kind === "permission" && approval.session !== undefined) {
            void this.ownOptions(approval.session, approval, options);
        }
        const element = h(
            "li",
            { cls: "card asks" },
            {},
            h("header", {}, {}, h("span", { cls: "badge permission" }, {}, "asks"), h("h2", {}, {}, clean(approvalWords(approval), 120)), h("span", { cls: "where" }, {}, clean(approval.working_dir ?? "", 120))),
            h(
                "div",
                { cls: "question" },
                {},
                who,
                prompt,
                approval.kind === "permission" ? called : null,
                options,
            ),
        );
        // The content of an id never changes.
        return { element, update: () => undefined };
    }
}

/** Returns the title of an approval. */
export function approvalWords(approval: Approval): string {
    return approval.kind === "permission" ? approval.name : `to start ${approval.kind} ${approval.name}`;
}

/**
 * The title's count, a notification, and the text for a screen reader, when agents ask questions.
 */
export class Bell {
    readonly live = h("div", { cls: "sr", "aria-live": "assertive", role: "alert" });
    private known = new Set<string>();

    /** `show` shows a view of the page. */
    constructor(
        private app: App,
        private open: (key: string) => void,
        private show: (view: string) => void,
    ) {
        app.on("panes", () => this.update());
        app.on("approvals", () => this.update());
    }

    private requests = new Map<string, string>();

    /**
     * Sets the pending requests of other devices to the workspace, in words, by the requests' ids.
     */
    ask(requests: ReadonlyMap<string, string>): void {
        this.requests = new Map(requests);
        this.update();
    }

    private update(): void {
        const asking = this.app.asking();
        const count = asking.length + this.app.approvals.length + this.requests.size;
        document.title = count > 0 ? `(${count}) muxtap` : "muxtap";
        const now = new Set<string>();
        for (const approval of this.app.approvals) {
            const name = `approval ${approval.id}`;
            now.add(name);
            if (!this.known.has(name)) {
                // A notification shows few lines: what will happen comes before the agent's name for it.
                const what = `${approval.asked_by ?? "An agent"} asks: ${approval.prompt ?? ""} (${approvalWords(approval)})`;
                this.say(name, "muxtap: agent question", visible(what, 600), () => this.show("agents"));
            }
        }
        for (const [id, words] of this.requests) {
            const name = `request ${id}`;
            now.add(name);
            if (!this.known.has(name)) {
                // The question itself is an alert, which a screen reader reads.
                this.notify(name, "muxtap: device request", words, () => this.show("workspace"));
            }
        }
        for (const pane of asking) {
            const name = `${pane.key} ${pane.agent?.question_id ?? pane.agent?.question}`;
            now.add(name);
            if (!this.known.has(name)) {
                this.ring(pane);
            }
        }
        this.known = now;
    }

    private ring(pane: PaneInfo): void {
        const text = clean(`${pane.agent?.name} in ${fullName(pane)} asks: ${pane.agent?.question ?? ""}`, 300);
        this.say(pane.key, `${pane.agent?.name} asks`, text, () => this.open(pane.key));
    }

    private say(tag: string, title: string, text: string, open: () => void): void {
        this.live.textContent = text;
        this.notify(tag, title, text, open);
    }

    private notify(tag: string, title: string, body: string, open: () => void): void {
        if (document.hidden && typeof Notification !== "undefined" && Notification.permission === "granted") {
            notify(title, { body, tag }, open);
        }
    }
}

/** Shows a notification, if the browser permits it: some phone browsers throw. */
export function notify(title: string, options: NotificationOptions, open?: () => void): void {
    try {
        const notification = new Notification(title, { icon: "/page/icon.svg", ...options });
        notification.onclick = () => {
            window.focus();
            open?.();
            notification.close();
        };
    } catch {
        // The page's title and badge show it all the same.
    }
}
