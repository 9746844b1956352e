// A test's own tmux server, muxtap and browser, and functions to use them. None of them outlives `end`.

import { execFile, spawn } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { request } from "node:http";
import { createRequire } from "node:module";
import { join } from "node:path";
import { promisify } from "node:util";
import { gunzipSync } from "node:zlib";

const run = promisify(execFile);
const require = createRequire(new URL("../../web/package.json", import.meta.url));
const { chromium } = require("playwright-core");

const MUXTAP = process.env.MUXTAP_BIN;
const CHROMIUM = process.env.CHROMIUM ?? "/usr/bin/chromium";
/** A web/dist whose files replace those in the program, for work on the page. */
const FILES = process.env.MUXTAP_PAGE_FILES;
/** The time limit of any step, in milliseconds. */
export const LIMIT = 30_000;

export class World {
    static async start({ columns = 80, rows = 24, env = {}, config = "" } = {}) {
        const world = new World();
        world.dir = mkdtempSync("/tmp/mt-page-");
        for (const name of ["run", "state", "home"]) {
            mkdirSync(join(world.dir, name), { mode: 0o700 });
        }
        const at = (name) => join(world.dir, name);
        world.env = {
            PATH: process.env.PATH,
            LANG: "C.UTF-8",
            TERM: "xterm-256color",
            SHELL: "/bin/sh",
            PS1: "$ ",
            HOME: at("home"),
            XDG_RUNTIME_DIR: at("run"),
            XDG_STATE_HOME: at("state"),
            XDG_CONFIG_HOME: at("home"),
            TMUX_TMPDIR: at("run"),
            MUXTAP_SOCKET: at("m.sock"),
            HISTFILE: "/dev/null",
            ...env,
        };
        // An agent that speaks ACP and always gives the same replies.
        mkdirSync(join(world.dir, "home", "muxtap"), { mode: 0o700 });
        const agent = [process.execPath, new URL("agent.mjs", import.meta.url).pathname];
        writeFileSync(join(world.dir, "home", "muxtap", "config.toml"), `${config}\n[agent.claude]\ncommand = ${JSON.stringify(agent)}\ndefault = true\n`);
        world.size = ["-x", String(columns), "-y", String(rows)];
        await world.tmux("-f", "/dev/null", "new-session", "-d", "-s", "work", ...world.size, "exec sh");
        world.socket = at("m.sock");
        await world.serve("127.0.0.1:0");
        return world;
    }

    async serve(address) {
        this.daemon = spawn(MUXTAP, ["serve", "--http", address], { env: this.env, stdio: ["ignore", "ignore", "inherit"] });
        const status = await until(async () => {
            const status = await this.ask("GET", "/v1/status").catch(() => null);
            return status?.http?.length > 0 ? status : null;
        }, "the daemon");
        this.url = status.http[0];
        // From now on the default server is followed.
        await this.ask("GET", "/v1/panes");
    }

    /** Ends the daemon, and starts another one on the same port. */
    async restart() {
        this.daemon.kill("SIGTERM");
        await new Promise((resolve) => this.daemon.on("exit", resolve));
        await this.serve(new URL(this.url).host);
    }

    async browser() {
        this.chromium ??= await chromium.launch({
            executablePath: CHROMIUM,
            ignoreDefaultArgs: ["--disable-back-forward-cache"],
            args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
        });
        return this.chromium;
    }

    async context(options = {}) {
        const browser = await this.browser();
        const context = await browser.newContext({ viewport: { width: 1280, height: 800 }, ...options });
        if (FILES !== undefined) {
            await served(context);
        }
        return context;
    }

    /** Opens a logged-in page in a browser. `failures`: its errors. */
    async page({ readOnly = false, breaks = false, delay = 0, ...options } = {}) {
        const context = await this.context(options);
        const page = await context.newPage();
        page.setDefaultTimeout(LIMIT);
        page.failures = [];
        page.links = [];
        // Received characters, by the path of their WebSocket.
        page.came = {};
        page.on("websocket", (socket) => {
            const path = new URL(socket.url()).pathname;
            socket.on("framereceived", ({ payload }) => {
                page.came[path] = (page.came[path] ?? 0) + payload.length;
            });
        });
        if (breaks) {
            // A link that can be broken: the page's messages reach the daemon through it.
            await page.routeWebSocket(/\/v1\/page\/ws/, (link) => {
                const daemon = link.connectToServer();
                page.links.push({ link, daemon });
            });
        }
        if (delay > 0) {
            // Chromium's own throttling does not affect WebSockets: each message is delayed here, both ways, in order.
            await page.routeWebSocket(/\/v1\/page\/ws/, (link) => {
                const daemon = link.connectToServer();
                link.onMessage((text) => setTimeout(() => daemon.send(text), delay));
                daemon.onMessage((text) => setTimeout(() => link.send(text), delay));
            });
        }
        page.on("pageerror", (error) => page.failures.push(String(error.stack)));
        page.on("console", (message) => {
            if (message.type() === "error") {
                page.failures.push(message.text());
            }
        });
        await page.goto(await this.link(readOnly));
        await page.locator(".status.open").waitFor().catch(async (error) => {
            throw new Error(`${error.message}; the page shows ${await page.evaluate(() => document.body.innerText.slice(0, 300))}; ${page.failures.join(" ")}`);
        });
        return page;
    }

    async link(readOnly = false) {
        const { code } = await this.ask("POST", "/v1/page/codes", { read_only: readOnly });
        return `${this.url}/#code=${code}`;
    }

    /** Sends a request to the daemon's Unix socket. */
    ask(method, path, body) {
        return new Promise((resolve, reject) => {
            const asked = request({ socketPath: this.socket, method, path, headers: { "content-type": "application/json" } }, (answer) => {
                let text = "";
                answer.on("data", (part) => {
                    text += part;
                });
                answer.on("end", () => {
                    const value = JSON.parse(text || "{}");
                    if (answer.statusCode >= 400) {
                        reject(new Error(`${method} ${path}: ${text}`));
                    } else {
                        resolve(value);
                    }
                });
            });
            asked.on("error", reject);
            asked.end(body === undefined ? undefined : JSON.stringify(body));
        });
    }

    async tmux(...args) {
        const { stdout } = await run("tmux", args, { env: this.env, cwd: this.dir, maxBuffer: 64 << 20 });
        return stdout.replace(/\n$/, "");
    }

    muxtap(...args) {
        return run(MUXTAP, args, { env: this.env }).then(({ stdout }) => stdout);
    }

    /** Starts a window with a command; returns its pane. */
    async window(command, session = "work") {
        return this.tmux("new-window", "-d", "-P", "-F", "#{pane_id}", "-t", `${session}:`, command);
    }

    /** Returns the rows of a pane from tmux, without trailing blanks. */
    async capture(pane) {
        const rows = (await this.tmux("capture-pane", "-p", "-t", pane)).split("\n");
        return rows.map((row) => row.trimEnd());
    }

    async end() {
        await this.chromium?.close();
        this.daemon?.kill("SIGTERM");
        await new Promise((resolve) => (this.daemon?.exitCode === null && this.daemon.signalCode === null ? this.daemon.on("exit", resolve) : resolve()));
        await this.tmux("kill-server").catch(() => undefined);
        rmSync(this.dir, { recursive: true, force: true });
    }
}

const POLICY = "default-src 'self'; connect-src 'self'; frame-src http: https:; object-src 'none'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'";
const TYPES = { html: "text/html", js: "text/javascript", css: "text/css", svg: "image/svg+xml", webmanifest: "application/manifest+json" };

/** Gives a browser the files of `FILES`, with the daemon's policy. */
async function served(context) {
    await context.route(/https?:\/\/127\.0\.0\.1:\d+\/page\/[\w.]+$/, async (route) => {
        const name = new URL(route.request().url()).pathname.replace("/page/", "");
        const headers = { "content-security-policy": POLICY, "content-type": TYPES[name.split(".").pop()] };
        return route.fulfill({ headers, body: gunzipSync(readFileSync(join(FILES, `${name}.gz`))) });
    });
}

/** Waits until a value exists, and returns it. */
export async function until(what, name, limit = LIMIT) {
    const end = Date.now() + limit;
    for (;;) {
        const value = await what();
        if (value) {
            return value;
        }
        if (Date.now() > end) {
            throw new Error(`${name} did not come in ${limit} ms`);
        }
        await new Promise((resolve) => setTimeout(resolve, 20));
    }
}

/** Returns the rows of the pane in front, without trailing blanks. */
export async function shown(page, within = ".front") {
    return page.locator(`${within} .paper > .screen .row`).evaluateAll((rows) => rows.map((row) => row.textContent.trimEnd()));
}

/** Puts a pane in front, by its tmux id. */
export async function front(page, world, pane) {
    const name = await world.tmux("display-message", "-p", "-t", pane, "#{session_name}:#{window_index}.#{pane_index}");
    // By its id: a pane that was just closed may have had the same name.
    await page.locator(`li[data-key$=".${pane.slice(1)}"] .tile`).click();
    await page.locator(`.front h1 .name:text-is("${name}")`).waitFor();
    await page.locator(".front .screen .row").first().waitFor();
}
