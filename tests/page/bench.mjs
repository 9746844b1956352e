// Measures the page beside the same pane's raw bytes streamed into xterm.js, in one run. `scripts/page bench` runs it.
//
// MUXTAP_FLOOD_MB   megabytes of the flood (default 60)

import { spawn } from "node:child_process";
import { statSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { serve } from "./rawterm.mjs";
import { front, shown, until, World } from "./world.mjs";

const FLOOD = Number(process.env.MUXTAP_FLOOD_MB ?? 60);
const KEYS = 200;
const FLOODS = 5;

const world = await World.start();
const raw = await serve(world.env, "work");
const rows = [];
const row = (what, page, xterm = "") => {
    rows.push([what, page, xterm]);
    console.log(`${what.padEnd(58)} ${String(page).padStart(22)} ${String(xterm).padStart(22)}`);
};
row("", "page", "raw bytes in xterm.js");
try {
    await figures();
} finally {
    raw.end();
    await world.end();
}

async function figures() {
    const dist = new URL("../../web/dist/", import.meta.url).pathname;
    const sizes = readdirSync(dist).map((name) => [name, statSync(join(dist, name)).size]);
    const total = sizes.reduce((sum, [, size]) => sum + size, 0);
    const editor = sizes.find(([name]) => name === "editor.js.gz")?.[1] ?? 0;
    row("bytes of the page, compressed", `${kb(total - editor)} + ${kb(editor)}`, kb(statSync(new URL("../../web/node_modules/@xterm/xterm/lib/xterm.js", import.meta.url)).size) + " (not packed)");

    const pane = await world.tmux("list-panes", "-t", "work:0", "-F", "#{pane_id}");
    await world.tmux("respawn-pane", "-k", "-t", pane, "exec cat");
    const page = await world.page();
    // Measures the connection by its messages.
    await page.evaluate(() => {
        const send = WebSocket.prototype.send;
        WebSocket.prototype.send = function (text) {
            window.link = this.url.endsWith("/v1/page/ws") ? this : window.link;
            return send.call(this, text);
        };
    });
    await front(page, world, pane);
    const xterm = await (await (await world.browser()).newContext({ viewport: { width: 1280, height: 800 } })).newPage();
    await xterm.goto(raw.url);
    await xterm.waitForFunction(() => window.bytes > 0);

    await page.bringToFront();
    const own = await echoes(page, ".front .rows");
    await world.tmux("respawn-pane", "-k", "-t", pane, "exec cat");
    await xterm.bringToFront();
    await xterm.click("#t");
    const other = await echoes(xterm, ".xterm-rows");
    const [at50, at99] = await ofThePane(pane);
    const pair = ([middle, late]) => `${middle.toFixed(1)} / ${late.toFixed(1)} ms`;
    row("key pressed to its echo painted, p50 / p99", pair(own), pair(other));
    row(`  beyond what the pane takes (${pair([at50, at99])})`, pair([own[0] - at50, own[1] - at99]), pair([other[0] - at50, other[1] - at99]));

    // The flood without a viewer, with the page, and with the stream.
    const file = join(world.dir, "flood");
    // Each line differs: equal rows would not be redrawn.
    const line = `${"0123456789abcdefghijklmnopqrstuvwxyz ".repeat(2)}\n`;
    writeFileSync(file, Array.from({ length: Math.ceil((FLOOD << 20) / line.length) }, (_, number) => `${String(number).padStart(9, "0")}${line.slice(9)}`).join(""));
    const [alones, watches, streams] = [[], [], []];
    for (let round = 0; round < FLOODS; round += 1) {
        await xterm.goto("about:blank");
        await page.evaluate(() => {
            location.hash = "waits";
        });
        alones.push(await flood(pane, file));
        await page.bringToFront();
        await page.evaluate(() => {
            location.hash = "wall";
        });
        await front(page, world, pane);
        watches.push(await watch(page, ".front .rows", (begins) => flood(pane, file, begins)));
        await until(async () => (await shown(page)).join("\n") === (await world.capture(pane)).join("\n"), "the last screen");
        await page.evaluate(() => {
            location.hash = "waits";
        });
        await xterm.goto(raw.url);
        await xterm.bringToFront();
        await xterm.waitForFunction(() => window.bytes > 0);
        streams.push(await watch(xterm, ".xterm-rows", (begins) => flood(pane, file, begins)));
    }
    await xterm.goto("about:blank");
    const middle = (all, of = (one) => one) => all.map(of).sort((one, other) => one - other)[Math.floor(all.length / 2)];
    const alone = middle(alones);
    const both = (what) => [what(watches), what(streams)];
    const times = (all) => `${middle(all, ({ result }) => result)} ms, ${(middle(all, ({ result }) => result) / alone).toFixed(2)} x`;
    row(`flood of ${FLOOD} MB, of ${FLOODS} the middle one (alone ${alone} ms)`, ...both(times));
    row("  each by the one alone before it", ...both((all) => all.map(({ result }, round) => (result / alones[round]).toFixed(2)).join(", ")));
    row("  frames a second", ...both((all) => middle(all, ({ fps }) => fps).toFixed(0)));
    row("  to the browser", ...both((all) => `${kb(middle(all, ({ bytes }) => bytes))}, ${kb(middle(all, ({ bytes, seconds }) => bytes / seconds))}/s`));
    row("  the script's memory before the first, after the last", ...both((all) => `${kb(all[0].heap[0])}, ${kb(all.at(-1).heap[1])}`));

    // The first drawing of a pane with a long history, and the one after a lost connection.
    await world.tmux("set-option", "-g", "history-limit", "60000");
    const deep = await world.window("i=0; while [ $i -lt 50100 ]; do echo line-$i; i=$((i+1)); done; exec cat");
    await until(async () => (await world.capture(deep)).includes("line-50099"), "the history", 60_000);
    await page.bringToFront();
    await page.evaluate(() => {
        location.hash = "workspace";
    });
    const name = await world.tmux("display-message", "-p", "-t", deep, "#{session_name}:#{window_index}.#{pane_index}");
    const pictures = [];
    for (let round = 0; round < 10; round += 1) {
        await page.evaluate(() => {
            location.hash = "workspace";
        });
        await page.waitForTimeout(100);
        await until(() => page.evaluate((name) => [...document.querySelectorAll("li[data-key]")].some((one) => one.querySelector(".name").textContent === name), name), "its tile");
        const took = await page.evaluate(async (name) => {
            const tile = [...document.querySelectorAll("li[data-key]")].find((one) => one.querySelector(".name").textContent === name);
            const begin = performance.now();
            location.hash = `pane/${tile.dataset.key}`;
            await new Promise((resolve) => {
                const look = () => (/line-50099/.test(document.querySelector(".front .rows")?.textContent ?? "") ? resolve() : requestAnimationFrame(look));
                look();
            });
            return performance.now() - begin;
        }, name);
        pictures.push(took);
    }
    pictures.sort((one, another) => one - another);
    row("first picture of a pane with 50,000 lines, p50 / most", `${pictures[5].toFixed(0)} / ${pictures[9].toFixed(0)} ms`);

    // After a lost connection: from the moment the connection is open to the frame that shows the pane.
    const again = [];
    for (let round = 0; round < 10; round += 1) {
        again.push(
            await page.evaluate(
                () =>
                    new Promise((resolve) => {
                        const Native = window.WebSocket;
                        window.WebSocket = class extends Native {
                            constructor(...args) {
                                super(...args);
                                if (!String(args[0]).endsWith("/v1/page/ws")) {
                                    return;
                                }
                                window.WebSocket = Native;
                                let begin = 0;
                                this.addEventListener("open", () => { begin = performance.now(); });
                                this.addEventListener("message", ({ data }) => {
                                    if (begin > 0 && String(data).startsWith('{"type":"screen"')) {
                                        const opened = begin;
                                        begin = 0;
                                        requestAnimationFrame(() => setTimeout(() => resolve(performance.now() - opened)));
                                    }
                                });
                            }
                        };
                        window.link.close();
                    }),
            ),
        );
        await page.waitForTimeout(300);
    }
    again.sort((one, other) => one - other);
    row("  after a break, from the connection's opening, p50 / most", `${again[5].toFixed(1)} / ${again[9].toFixed(1)} ms`);

    const args = [];
    for (let number = 0; number < 200; number += 1) {
        args.push("new-window", "-d", "-t", "many:", `echo tile-${number}; exec cat`, ";");
    }
    await world.tmux("new-session", "-d", "-s", "many", ...world.size, "exec cat");
    for (let from = 0; from < args.length; from += 150) {
        await world.tmux(...args.slice(from, from + 150));
    }
    const wall = await world.page({ viewport: { width: 1600, height: 20_000 } });
    await until(async () => (await wall.locator(".tile .row", { hasText: /^tile-\d+$/ }).count()) >= 200, "200 tiles", 30_000);
    await wall.waitForTimeout(2000);
    const metrics = await wall.context().newCDPSession(wall);
    await metrics.send("Performance.enable");
    const busy = async () => (await metrics.send("Performance.getMetrics")).metrics.find((one) => one.name === "TaskDuration").value;
    const came = { ...wall.came };
    const before = await busy();
    await wall.waitForTimeout(10_000);
    const share = ((await busy()) - before) / 10;
    row("200 tiles, quiet for 10 s: share of a core", `${(share * 100).toFixed(2)} %`);
    const bytes = (path) => (wall.came[path] ?? 0) - (came[path] ?? 0);
    row("  bytes of the page's connection, of its device's", `${bytes("/v1/page/ws")}, ${bytes("/v1/devices/ws")}`);
}

/** Returns the p50 and the p99 of times. */
function middleAndLate(times) {
    times.sort((one, other) => one - other);
    return [times[Math.floor(times.length / 2)], times[Math.floor(times.length * 0.99)]];
}

/** Types keys one by one in a client attached in a terminal; returns p50 and p99 of the milliseconds to their echo. */
async function ofThePane(pane) {
    await world.tmux("respawn-pane", "-k", "-t", pane, "exec cat");
    const client = spawn("script", ["-qfc", "stty rows 25 cols 80; exec tmux attach -t work", "/dev/null"], { env: world.env });
    const times = [];
    try {
        let heard = () => {};
        client.stdout.on("data", () => heard());
        // The first drawing.
        await new Promise((resolve) => setTimeout(resolve, 1000));
        for (let key = 0; key < KEYS; key += 1) {
            const begin = performance.now();
            const echo = new Promise((resolve) => {
                heard = resolve;
            });
            client.stdin.write("x");
            await echo;
            times.push(performance.now() - begin);
            heard = () => {};
            await new Promise((resolve) => setTimeout(resolve, 15 + (key % 7)));
        }
    } finally {
        client.kill();
    }
    return middleAndLate(times);
}

/** Types keys one by one; returns p50 and p99 of the milliseconds from the key to the frame that has its echo. */
async function echoes(page, selector) {
    await page.evaluate((selector) => {
        window.times = [];
        let at = 0;
        // A change in a frame's own callbacks is drawn in that frame.
        let framing = false;
        const request = window.requestAnimationFrame.bind(window);
        window.requestAnimationFrame = (then) =>
            request((now) => {
                framing = true;
                queueMicrotask(() => queueMicrotask(() => { framing = false; }));
                then(now);
            });
        addEventListener("keydown", () => { at = performance.now(); }, true);
        new MutationObserver(() => {
            if (at > 0) {
                const begin = at;
                at = 0;
                // The frame that draws it ends when the next task begins.
                const drawn = () => setTimeout(() => window.times.push(performance.now() - begin));
                if (framing) {
                    drawn();
                } else {
                    request(drawn);
                }
            }
        }).observe(document.querySelector(selector), { childList: true, subtree: true, characterData: true });
    }, selector);
    for (let key = 0; key < KEYS; key += 1) {
        await page.keyboard.press(key % 60 === 59 ? "Enter" : "x");
        await page.waitForTimeout(15 + (key % 7));
    }
    await page.waitForTimeout(300);
    return middleAndLate(await page.evaluate(() => window.times));
}

/** Prints a file in a pane; returns the milliseconds that it took. */
async function flood(pane, file, begins = async () => {}) {
    const done = join(world.dir, "done");
    writeFileSync(done, "");
    // Started by a key, like floods: for a while after a screen was cleared for another program, tmux is asked for it.
    await world.tmux("respawn-pane", "-k", "-t", pane, "exec sh");
    await until(async () => /[$#] *$/.test((await world.capture(pane)).join("\n").trimEnd()), "a prompt");
    await new Promise((resolve) => setTimeout(resolve, 1000));
    await begins();
    await world.tmux("send-keys", "-t", pane, `begin=$(date +%s%N); cat ${file}; end=$(date +%s%N); echo $(((end-begin)/1000000)) > ${done}`, "Enter");
    const { readFileSync } = await import("node:fs");
    return until(() => Number(readFileSync(done, "utf8")) || null, "the flood", 300_000);
}

/** Counts frames with a drawing, and bytes, during `what`, which reports its start and its duration in milliseconds. */
async function watch(page, selector, what) {
    const client = await page.context().newCDPSession(page);
    await client.send("Network.enable");
    let bytes = 0;
    client.on("Network.webSocketFrameReceived", ({ response }) => {
        bytes += response.opcode === 2 ? (response.payloadData.length * 3) / 4 : response.payloadData.length;
    });
    const heap = async () => {
        await client.send("HeapProfiler.collectGarbage");
        return page.evaluate(() => performance.memory?.usedJSHeapSize ?? 0);
    };
    const before = await heap();
    await page.evaluate((selector) => {
        window.drawn = 0;
        let changed = false;
        window.counter = new MutationObserver(() => {
            if (!changed) {
                changed = true;
                window.drawn += 1;
                requestAnimationFrame(() => { changed = false; });
            }
        });
        window.counter.observe(document.querySelector(selector), { childList: true, subtree: true, characterData: true });
    }, selector);
    const result = await what(() => {
        bytes = 0;
        return page.evaluate(() => { window.drawn = 0; });
    });
    const seconds = result / 1000;
    const drawn = await page.evaluate(() => window.drawn);
    await page.waitForTimeout(500);
    return { result, seconds, fps: drawn / seconds, bytes, heap: [before, await heap()] };
}

function kb(bytes) {
    return bytes >= 1 << 20 ? `${(bytes / (1 << 20)).toFixed(1)} MB` : `${(bytes / 1024).toFixed(1)} KB`;
}
