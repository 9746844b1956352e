// Tests what a person sees of the page: names, tiles, commands, messages, conversations, phones, accessibility. `test.mjs` runs
// them with the others.

import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { createRequire } from "node:module";
import { join } from "node:path";
import { after, before, test as declare } from "node:test";
import { front, shown, until, World } from "./world.mjs";

const require = createRequire(new URL("../../web/package.json", import.meta.url));
const AXE = readFileSync(require.resolve("axe-core/axe.min.js"), "utf8");
const PHONE = { viewport: { width: 390, height: 780 }, isMobile: true, hasTouch: true, deviceScaleFactor: 2 };

/** A test with a time limit, so that a hang names the test. */
const test = (name, body) => declare(name, { timeout: 120_000 }, body);

let world;
let page;
before(async () => {
    world = await World.start({ columns: 120, rows: 40 });
    page = await world.page({ permissions: ["clipboard-read", "clipboard-write"] });
});
after(async () => {
    await world?.end();
});

const home = (of = page) =>
    of.evaluate(() => {
        location.hash = "wall";
    });

const tile = (pane, of = page) => of.locator(`li[data-key$=".${pane.slice(1)}"]`);

/** Returns what axe finds wrong with a page. */
async function findings(of) {
    await of.evaluate(AXE);
    return of.evaluate(async () => {
        const { violations } = await globalThis.axe.run();
        return violations.map(({ id, nodes }) => `${id}: ${nodes.map(({ html }) => html.slice(0, 120)).join(" ")}`);
    });
}

/** Starts a shell that marks its prompts and commands; returns its pane. */
async function shell() {
    const rc = join(world.dir, "rc");
    writeFileSync(rc, "PS1='\\[\\e]133;A\\a\\]$ \\[\\e]133;B\\a\\]'\nPS0='\\e]133;C\\a'\nPROMPT_COMMAND='printf \"\\e]133;D;$?\\a\"'\n");
    const pane = await world.window(`exec bash --rcfile ${rc} -i`);
    await until(async () => (await world.capture(pane))[0] === "$", "the prompt");
    return pane;
}

test("a tile has its window's name, is legible around the cursor, and says how its program ended", async () => {
    const rows = Array.from({ length: 60 }, (_, number) => `row-${number}`).join("\\n");
    const pane = await world.tmux("new-window", "-d", "-P", "-F", "#{pane_id}", "-t", "work:", "-n", "build", `printf '${rows}\\n'; exec cat`);
    await world.tmux("set-option", "-p", "-t", pane, "remain-on-exit", "on");
    const one = tile(pane);
    await one.locator(".row", { hasText: "row-59" }).waitFor();
    assert.equal(await one.locator(".name").textContent(), "build");
    assert.match(await one.locator(".where").textContent(), /^work:\d+\.0$/);
    assert.notEqual(await one.locator(".folder").textContent(), "");
    const look = () =>
        one.evaluate((item) => {
            const screen = item.querySelector(".screen");
            const scale = new DOMMatrix(getComputedStyle(screen).transform).a;
            const box = item.querySelector(".thumb").getBoundingClientRect();
            const inside = (element) => {
                const { top, bottom, left } = element.getBoundingClientRect();
                return top >= box.top - 1 && bottom <= box.bottom + 1 && left >= box.left - 1 && left < box.right;
            };
            const last = [...item.querySelectorAll(".row")].findLast((row) => row.textContent === "row-59");
            return { size: scale * Number.parseFloat(getComputedStyle(screen).fontSize), cursor: inside(item.querySelector(".cursor")), last: inside(last) };
        });
    await until(async () => (await look()).cursor, "the cursor in the tile");
    const seen = await look();
    assert.ok(seen.size >= 9 && seen.last, JSON.stringify(seen));
    // The cursor at the other end of the screen.
    await world.tmux("respawn-pane", "-k", "-t", pane, `printf '${rows}\\033[3;100H'; exec cat`);
    await until(async () => (await one.locator(".row", { hasText: "row-59" }).count()) === 1 && (await look()).cursor, "the cursor at its new place");
    await world.tmux("respawn-pane", "-k", "-t", pane, "exit 3");
    await one.locator(".badge.errored", { hasText: "ended: 3" }).waitFor();
    await world.tmux("kill-pane", "-t", pane);
});

test("small sessions share a row, and a pane that prints is marked for a moment", async () => {
    for (const session of ["a1", "a2"]) {
        await world.tmux("new-session", "-d", "-s", session, "exec cat");
    }
    const box = (session) => page.locator("li[data-key]", { has: page.locator(`h2:text-is("${session}")`) }).boundingBox();
    const [one, other] = [await box("a1"), await box("a2")];
    assert.equal(one.y, other.y);
    assert.ok(one.x + one.width <= other.x);
    // Every row is full, and says whose its first tile is.
    for (const session of ["b1", "b2", "b2", "b2", "b2"]) {
        await world.tmux("new-session", "-d", "-s", session, "exec cat").catch(() => world.tmux("new-window", "-d", "-t", `${session}:`, "exec cat"));
    }
    await until(async () => (await page.locator("li[data-key]").count()) === 8, "eight tiles");
    const rows = await page.evaluate(() => {
        const rows = new Map();
        for (const item of document.querySelectorAll("li[data-key]")) {
            const { top } = item.querySelector(".tile").getBoundingClientRect();
            rows.set(top, [...(rows.get(top) ?? []), item.querySelector(".head").textContent]);
        }
        return [...rows.values()];
    });
    assert.deepEqual(rows, [["a1", "a2", "b1"], ["b24", "", ""], ["b2", "work"]]);
    for (const session of ["b1", "b2"]) {
        await world.tmux("kill-session", "-t", session);
    }
    const pane = await world.tmux("list-panes", "-t", "a1", "-F", "#{pane_id}");
    await tile(pane).locator(".screen .row").first().waitFor({ state: "attached" });
    await world.tmux("send-keys", "-t", pane, "x");
    await tile(pane).locator(".tile.busy").waitFor();
    await tile(pane).locator(".tile:not(.busy)").waitFor();
    for (const session of ["a1", "a2"]) {
        await world.tmux("kill-session", "-t", session);
    }
});

test("commands have their results beside them; keys and buttons go from one to the next; output is copied", async () => {
    const pane = await shell();
    await front(page, world, pane);
    for (const line of ["seq 3", "false", "seq 200", "echo end"]) {
        await page.keyboard.type(line);
        await page.keyboard.press("Enter");
        await until(async () => (await world.capture(pane)).filter((row) => row !== "").at(-1) === "$", `the end of ${line}`);
    }
    await until(async () => (await page.locator(".front .mark").count()) === 4, "four commands");
    const marks = () =>
        page.evaluate(() =>
            [...document.querySelectorAll(".front .mark")].map((mark) => {
                const { top } = mark.getBoundingClientRect();
                const row = [...document.querySelectorAll(".front .row")].find((row) => Math.abs(row.getBoundingClientRect().top - top) < 1);
                return [row?.textContent.trim(), mark.className, mark.textContent.replace(/( ·)? \d+ ms$/, "")];
            }),
        );
    await page.keyboard.press("Control+Shift+ArrowUp");
    await page.keyboard.press("Control+Shift+ArrowUp");
    await until(async () => (await marks())[2][0] === "$ seq 200", "the command before the screen");
    const band = () => page.evaluate(() => document.querySelector(".front .band").getBoundingClientRect().top);
    const at = (line) => page.locator(".front .row", { hasText: line }).first().evaluate((row) => row.getBoundingClientRect().top);
    assert.ok(Math.abs((await band()) - (await at("$ seq 200"))) < 1);
    await page.getByRole("button", { name: /^Previous command/ }).click();
    await page.getByRole("button", { name: /^Previous command/ }).click();
    await until(async () => (await marks())[0][0] === "$ seq 3", "the first command");
    assert.deepEqual((await marks()).slice(0, 2).map(([line, look, end]) => [line, look, end]), [["$ seq 3", "mark done", "✓"], ["$ false", "mark failed", "✗ 1"]]);
    await page.getByRole("button", { name: /^Copy the output/ }).click();
    await page.locator(".note", { hasText: "Copied 3 lines" }).waitFor();
    assert.equal((await page.evaluate(() => navigator.clipboard.readText())).trim(), "1\n2\n3");
    await page.getByRole("button", { name: /^Next command/ }).click();
    await until(async () => Math.abs((await band()) - (await at("$ false"))) < 1, "the second command");
    // The commands of a cleared screen are not beside what is printed later.
    await page.keyboard.type("clear");
    await page.keyboard.press("Enter");
    await until(async () => (await world.capture(pane))[0] === "$", "a clear screen");
    await page.keyboard.type("true");
    await page.keyboard.press("Enter");
    await until(async () => (await marks()).at(-1)?.[0] === "$ true", "the new command");
    const visible = (await marks()).filter(([line]) => line !== undefined);
    assert.ok(visible.every(([line]) => line.startsWith("$ ")), JSON.stringify(visible));
    await world.tmux("kill-pane", "-t", pane);
    await home();
});

test("Enter in the search goes from match to match, and the text keeps its size", async () => {
    const pane = await world.window("i=1; while [ $i -le 300 ]; do echo line-$i; i=$((i+1)); done; exec cat");
    await front(page, world, pane);
    await until(async () => (await shown(page)).includes("line-300"), "300 lines");
    const size = () => page.locator(".front .scroller").evaluate((one) => getComputedStyle(one).fontSize);
    const before = await size();
    await page.getByRole("button", { name: "Search the output" }).click();
    await page.keyboard.type("line-2");
    await page.keyboard.press("Enter");
    await page.locator(".finder [role=status]", { hasText: "1 of 111" }).waitFor();
    await page.keyboard.press("Enter");
    await page.keyboard.press("Enter");
    await page.locator(".finder [role=status]", { hasText: "3 of 111" }).waitFor();
    await page.keyboard.press("Shift+Enter");
    await page.locator(".finder [role=status]", { hasText: "2 of 111" }).waitFor();
    assert.equal(await page.locator(".hits [aria-current]").textContent(), "line-298");
    await until(() => page.evaluate(() => {
        const row = [...document.querySelectorAll(".front .row")].find((row) => row.textContent === "line-298");
        return row !== undefined && Math.abs(row.getBoundingClientRect().top - document.querySelector(".front .band").getBoundingClientRect().top) < 1;
    }), "the match");
    assert.equal(await size(), before);
    await page.keyboard.press("Escape");
    await world.tmux("kill-pane", "-t", pane);
    await home();
});

test("a paste of several lines is for the pane that it names, and is no longer offered in another one", async () => {
    const [one, other] = [await world.window("exec cat"), await world.window("exec cat")];
    await front(page, world, one);
    await page.evaluate(() => navigator.clipboard.writeText("first\nsecond\n"));
    const name = `${await page.locator(".front h1 .label").textContent()} (${await page.locator(".front h1 .name").textContent()})`;
    await page.keyboard.press("Control+Shift+v");
    await page.locator(".note", { hasText: `Paste 2 lines into ${name}?` }).waitFor();
    await tile(other).locator(".tile").click();
    await page.locator(".note").waitFor({ state: "detached" });
    await page.keyboard.press("Control+Shift+v");
    await page.locator(".note").getByRole("button", { name: "Paste" }).click();
    await until(async () => (await world.capture(other)).includes("second"), "the paste");
    assert.equal((await world.capture(one)).join(""), "");
    for (const pane of [one, other]) {
        await world.tmux("kill-pane", "-t", pane);
    }
    await home();
});

/** Ends the daemon, and waits until the page has noticed. */
const goAway = async (own, viewer) => {
    const stopped = new Promise((resolve) => own.daemon.on("exit", resolve));
    own.daemon.kill("SIGTERM");
    await stopped;
    await viewer.locator(".status:not(.open)").waitFor();
};

test("keys that are typed while the daemon restarts are typed once", async () => {
    const own = await World.start();
    try {
        const pane = await own.window("exec cat");
        const viewer = await own.page();
        await front(viewer, own, pane);
        await goAway(own, viewer);
        await viewer.keyboard.type("while it was away");
        await viewer.locator(".pending", { hasText: "17 keys pending" }).waitFor();
        await own.serve(new URL(own.url).host);
        await until(async () => (await own.capture(pane))[0] === "while it was away", "the keys");
        await until(() => viewer.evaluate(() => document.querySelector(".front .pane.unsure") === null), "all acknowledged");
        assert.equal(await viewer.locator(".note").count(), 0);
        await viewer.keyboard.press("Enter");
        await until(async () => (await own.capture(pane))[1] === "while it was away", "the echo");
    } finally {
        await own.end();
    }
});

test("keys are not typed into another tmux's pane with the same id and the same session", async () => {
    const own = await World.start();
    try {
        const pane = await own.window("exec cat");
        const viewer = await own.page();
        await front(viewer, own, pane);
        await goAway(own, viewer);
        await viewer.keyboard.type("abc");
        await own.tmux("kill-server");
        // The earlier server may still be ending.
        await until(() => own.tmux("-f", "/dev/null", "new-session", "-d", "-s", "work", ...own.size, "exec sh").then(() => true, () => false), "another server");
        assert.equal(await own.window("exec cat"), pane);
        await own.serve(new URL(own.url).host);
        await viewer.locator(".note", { hasText: /^3 keys were not typed into \w+ \(work:1\.0\): the pane no longer exists/ }).waitFor();
        assert.equal((await own.capture(pane)).join(""), "");
    } finally {
        await own.end();
    }
});

test("messages come one at a time: keys for a pane that is gone are one message, and a lasting one returns", async () => {
    const own = await World.start();
    try {
        const pane = await own.window("exec cat");
        const viewer = await own.page();
        await front(viewer, own, pane);
        own.daemon.kill("SIGTERM");
        await viewer.locator(".status:not(.open)").waitFor();
        await viewer.keyboard.type("abc");
        await own.tmux("kill-pane", "-t", pane);
        // Without a daemon the page says what to do.
        await viewer.locator(".note", { hasText: "muxtap open" }).waitFor();
        assert.equal(await viewer.locator(".note").count(), 1);
        await own.serve(new URL(own.url).host);
        await viewer.locator(".status.open").waitFor();
        await viewer.locator(".note", { hasText: /^3 keys were not typed into \w+ \(work:1\.0\): the pane no longer exists/ }).waitFor();
        assert.equal(await viewer.locator(".note").count(), 1);
    } finally {
        await own.end();
    }
});

test("a conversation shows Markdown as text; a question covers no message; Stop is there while a prompt runs", async () => {
    const { session } = await world.ask("POST", "/v1/agent-sessions", { provider: "claude", cwd: world.dir });
    await page.getByRole("link", { name: "Workspace" }).click();
    await page.getByRole("button", { name: "New tab" }).first().click();
    await page.locator(".picker:visible .choices button", { hasText: "claude idle" }).click();
    await page.locator(".place .name", { hasText: /^claude · mt-page-/ }).waitFor();
    const stop = page.getByRole("button", { name: "Stop" });
    assert.equal(await stop.isVisible(), false);
    await page.getByRole("textbox", { name: "Prompt" }).fill("Markdown, please");
    await page.keyboard.press("Enter");
    await page.locator(".chat .question").waitFor();
    assert.equal(await stop.isVisible(), true);
    const said = page.locator(".said.message").first();
    await said.locator("p", { hasText: /^End\.$/ }).waitFor();
    const seen = await said.evaluate((message) => ({
        heading: message.querySelector(".heading").textContent,
        emphasis: message.querySelector("blockquote em").textContent,
        strong: message.querySelector("strong").textContent,
        links: [...message.querySelectorAll("a")].map((link) => [link.textContent, link.href, link.rel]),
        items: [...message.querySelectorAll("li li")].map((item) => item.textContent),
        code: [...message.querySelectorAll("pre")].map((code) => code.textContent),
        end: message.lastElementChild.textContent,
        left: message.querySelector(":scope > .fact").textContent.replace(/\d+/, "N"),
        cells: [...message.querySelectorAll("th, td")].map((cell) => cell.textContent),
        foreign: message.querySelectorAll("img, b, script").length,
        hacked: typeof globalThis.hacked,
    }));
    assert.deepEqual(seen, {
        heading: "The test",
        emphasis: "stays",
        strong: "subtracts",
        links: [["the book", "https://doc.rust-lang.org/book/", "noopener noreferrer"]],
        items: ["unit tests", "<img src=x onerror=hacked=1>"],
        code: ["pub fn add(a: u32, b: u32) -> u32 {\n    a + b // <b>not bold</b>\n}", "if x; then\n  y"],
        end: "End.",
        left: "N lines are not shown.",
        cells: ["file", "lines", "src/lib.rs", "1"],
        foreign: 0,
        hacked: "undefined",
    });
    // The newest message is above the question, not behind it.
    const last = () => page.evaluate(() => document.querySelector(".chat-log").lastElementChild.getBoundingClientRect().bottom <= document.querySelector(".chat-asks").getBoundingClientRect().top + 1);
    await until(last, "the last message above the question");
    assert.deepEqual(await findings(page), []);
    await page.locator(".chat .question").getByRole("button", { name: "Yes, proceed" }).click();
    await page.locator(".said.message", { hasText: "The test passes now." }).waitFor();
    await until(async () => !(await stop.isVisible()), "no Stop");
    await world.ask("DELETE", `/v1/agent-sessions/${encodeURIComponent(session)}`);
    await home();
});

test("axe finds nothing wrong with any view, on a desktop and on a phone", async () => {
    mkdirSync(join(world.dir, "bin"), { recursive: true });
    const program = join(world.dir, "bin", "claude");
    writeFileSync(program, "#!/bin/sh\nprintf 'Bash command\\n\\n  cargo test\\n\\nDo you want to proceed?\\n\\342\\235\\257 1. Yes\\n  2. No\\n'\nread -r answer\n", { mode: 0o755 });
    const agent = await world.window(program);
    const pane = await shell();
    for (const options of [{ colorScheme: "light" }, { colorScheme: "dark", ...PHONE }]) {
        const own = await world.page(options);
        await tile(agent, own).locator(".badge.permission").waitFor();
        assert.deepEqual(await findings(own), [], "the wall");
        await front(own, world, pane);
        await own.keyboard.type("false");
        await own.keyboard.press("Enter");
        await own.locator(".front .mark").first().waitFor({ state: "attached" });
        await own.getByRole("button", { name: "Search the output" }).click();
        await own.keyboard.type("false");
        await own.keyboard.press("Enter");
        await own.locator(".hits button").first().waitFor();
        assert.deepEqual(await findings(own), [], "a pane");
        for (const view of ["agents", "waits", "workspace"]) {
            await own.evaluate((view) => {
                location.hash = view;
            }, view);
            await own.locator(`.${view}:visible`).waitFor();
            assert.deepEqual(await findings(own), [], view);
        }
        await own.context().close();
    }
    for (const one of [agent, pane]) {
        await world.tmux("kill-pane", "-t", one);
    }
});

test("on a phone a wide pane fits whole, no tool is cut off, and nothing scrolls sideways", async () => {
    const pane = await shell();
    const phone = await world.page(PHONE);
    await front(phone, world, pane);
    await phone.getByRole("button", { name: /Scale the text/ }).tap();
    const box = await phone.evaluate(() => {
        const scroller = document.querySelector(".front .scroller");
        const tools = [...document.querySelectorAll(".front .tools button")].filter((one) => one.offsetParent !== null);
        return {
            over: scroller.scrollWidth - scroller.clientWidth,
            bar: scroller.offsetHeight - scroller.clientHeight,
            cut: tools.filter((one) => one.scrollWidth > one.clientWidth + 1 || one.getBoundingClientRect().right > innerWidth).map((one) => one.textContent),
            page: document.documentElement.scrollWidth - innerWidth,
        };
    });
    assert.deepEqual(box, { over: 0, bar: 0, cut: [], page: 0 });
    await phone.context().close();
    await world.tmux("kill-pane", "-t", pane);
});
