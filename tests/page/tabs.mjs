// A browser whose tabs are hidden like a person hides them. Playwright makes each of its pages believe that it is visible,
// so this browser is controlled by the DevTools protocol itself, over its pipe.

import { spawn } from "node:child_process";
import { join } from "node:path";
import { LIMIT, until } from "./world.mjs";

const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";

export class Tabs {
    static async start(dir) {
        const tabs = new Tabs();
        const args = ["--headless", "--remote-debugging-pipe", `--user-data-dir=${join(dir, "tabs")}`, "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync", "about:blank"];
        tabs.process = spawn(CHROMIUM, args, { stdio: ["ignore", "ignore", "pipe", "pipe", "pipe"] });
        tabs.exited = new Promise((resolve) => tabs.process.on("exit", resolve));
        tabs.said = "";
        tabs.process.stderr.setEncoding("utf8").on("data", (text) => {
            tabs.said = (tabs.said + text).slice(-2000);
        });
        tabs.calls = new Map();
        tabs.open = new Map();
        tabs.last = 0;
        let rest = "";
        tabs.process.stdio[4].setEncoding("utf8").on("data", (data) => {
            const parts = (rest + data).split("\0");
            rest = parts.pop();
            for (const part of parts) {
                tabs.receive(JSON.parse(part));
            }
        });
        tabs.process.stdio[3].on("error", () => undefined);
        await tabs.send("Target.getTargets");
        return tabs;
    }

    send(method, params = {}, sessionId = undefined) {
        this.last += 1;
        const id = this.last;
        return new Promise((resolve, reject) => {
            const late = setTimeout(() => {
                this.calls.delete(id);
                reject(new Error(`no response to ${method} in ${LIMIT} ms; the browser (${this.process.exitCode ?? "running"}) wrote: ${this.said}`));
            }, LIMIT);
            const settle = (then) => (value) => {
                clearTimeout(late);
                then(value);
            };
            this.calls.set(id, { resolve: settle(resolve), reject: settle(reject) });
            this.process.stdio[3].write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
        });
    }

    receive({ id, result, error, method, params, sessionId }) {
        const call = this.calls.get(id);
        this.calls.delete(id);
        if (error !== undefined) {
            call?.reject(new Error(error.message));
        } else if (id !== undefined) {
            call?.resolve(result);
        } else {
            this.open.get(sessionId)?.event(method, params);
        }
    }

    /** Opens a tab in front of the others. */
    async tab(url) {
        const { targetId } = await this.send("Target.createTarget", { url: "about:blank" });
        const { sessionId } = await this.send("Target.attachToTarget", { targetId, flatten: true });
        const tab = new Tab(this, targetId, sessionId);
        this.open.set(sessionId, tab);
        await tab.send("Network.enable");
        await tab.send("Page.enable");
        await tab.send("Page.navigate", { url });
        return tab;
    }

    async end() {
        this.process.kill();
        await this.exited;
    }
}

class Tab {
    /** Messages of the page's connections, and how many connections there were. */
    messages = [];
    connections = 0;
    /** How many of them the browser ended because it froze the tab (Chromium 156.0.8078.108 does). */
    frozen = 0;
    paths = new Map();

    constructor(tabs, targetId, sessionId) {
        Object.assign(this, { tabs, targetId, sessionId });
    }

    send(method, params) {
        return this.tabs.send(method, params, this.sessionId);
    }

    event(method, params) {
        if (method === "Network.webSocketCreated") {
            const path = new URL(params.url).pathname;
            this.paths.set(params.requestId, path);
            this.connections += path === "/v1/page/ws" ? 1 : 0;
        } else if (method === "Network.webSocketFrameError" && this.paths.get(params.requestId) === "/v1/page/ws") {
            this.frozen += params.errorMessage.includes("Back-Forward Cache") ? 1 : 0;
        } else if (method === "Network.webSocketFrameReceived" && this.paths.get(params.requestId) === "/v1/page/ws") {
            this.messages.push(JSON.parse(params.response.payloadData));
        }
    }

    async evaluate(expression) {
        const { result, exceptionDetails } = await this.send("Runtime.evaluate", { expression, returnByValue: true });
        if (exceptionDetails !== undefined) {
            throw new Error(exceptionDetails.exception?.description ?? exceptionDetails.text);
        }
        return result.value;
    }

    /** Waits until an expression is true in the tab. */
    until(expression, name) {
        return until(() => this.evaluate(expression), name);
    }

    /** Brings the tab to the front, which hides the others. */
    async front() {
        await this.tabs.send("Target.activateTarget", { targetId: this.targetId });
        await this.until("document.visibilityState === 'visible'", "a tab that is seen");
    }
}
