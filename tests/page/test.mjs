// Tests the page in a browser, with a separate muxtap and tmux. `scripts/page test` runs it.
//
// MUXTAP_PAGE_BREAKS   how often the link breaks in the middle of output and typing (default 25)

import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { existsSync, mkdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { after, before, test as declare } from "node:test";
import "./look.mjs";
import { Tabs } from "./tabs.mjs";
import { front, shown, until, World } from "./world.mjs";

const BREAKS = Number(process.env.MUXTAP_PAGE_BREAKS ?? 25);

/** A test with a time limit, so that a hang names the test. */
const test = (name, body) => declare(name, { timeout: 300_000 }, body);

let world;
let page;
before(async () => {
    world = await World.start();
});
after(async () => {
    await world?.end();
});

const home = async () => {
    await page.evaluate(() => {
        location.hash = "wall";
    });
};

/** Asserts that the visible page equals tmux's screen. */
async function same(pane, of = page, where = world) {
    let seen;
    let there;
    await until(async () => {
        [there, seen] = [await where.capture(pane), await shown(of)];
        return there.join("\n") === seen.join("\n");
    }, "what tmux shows").catch(() => assert.deepEqual(seen, there));
}

/** Returns the rows of a pane from tmux: each character with the escape sequences in force at it. */
async function cells(pane) {
    const text = await world.tmux("capture-pane", "-e", "-p", "-t", pane);
    let style = "";
    return text.split("\n").map((row) => {
        const made = [];
        for (const [, codes, character] of row.matchAll(/\x1b\[([\d;]*)m|([^])/g)) {
            if (character !== undefined) {
                made.push([character, style]);
            } else {
                for (const code of codes.split(";").map(Number)) {
                    let [letters, ground] = code === 0 || style === "" ? [39, 49] : style.split(" ").map(Number);
                    letters = code >= 30 && code < 40 ? code : letters;
                    ground = code >= 40 && code < 50 ? code : ground;
                    style = letters === 39 && ground === 49 ? "" : `${letters} ${ground}`;
                }
            }
        }
        return made;
    });
}

/** Returns whether the page shows these cells: their characters, and the same class for each style of tmux's. */
function alike(there, seen, styles) {
    const found = new Map(styles);
    for (const [index, row] of there.entries()) {
        const shown = (seen[index] ?? []).flatMap(([text, name]) => [...text].map((character) => [character, name]));
        for (let column = 0; column < Math.max(row.length, shown.length); column += 1) {
            const [one, style] = row[column] ?? [" ", ""];
            const [other, name] = shown[column] ?? [" ", ""];
            if (one !== other) {
                return false;
            }
            if (one !== " " && (found.get(style) ?? name) !== name) {
                return false;
            }
            if (one !== " ") {
                found.set(style, name);
            }
        }
    }
    if (new Set(found.values()).size !== found.size) {
        return false;
    }
    for (const [style, name] of found) {
        styles.set(style, name);
    }
    return true;
}

test("a code logs one browser in, once, and is not left in the address", async () => {
    const link = await world.link();
    page = await world.page();
    assert.equal(new URL(page.url()).hash, "");
    const cookie = (await page.context().cookies()).find((one) => one.name === "muxtap_page");
    assert.ok(cookie.httpOnly && cookie.sameSite === "Strict");
    const one = await (await world.browser()).newContext();
    const first = await one.newPage();
    await first.goto(link);
    await first.locator(".status.open").waitFor();
    const other = await (await world.browser()).newContext();
    const second = await other.newPage();
    await second.goto(link);
    await second.getByText("This browser is not logged in").waitFor();
    await one.close();
    await other.close();
});

test("the wall shows each pane, filters, and goes from tile to tile by keys", async () => {
    await world.window("printf 'apples\\n'; exec cat");
    await world.window("printf 'pears\\n'; exec cat");
    await page.locator(".tile", { hasText: "apples" }).waitFor();
    await page.locator(".tile", { hasText: "pears" }).waitFor();
    assert.equal(await page.locator(".tile").count(), 3);
    await page.keyboard.press("/");
    await page.keyboard.type("work cat");
    await until(async () => (await page.locator(".tile").count()) === 2, "two tiles");
    await page.keyboard.press("Escape");
    await until(async () => (await page.locator(".tile").count()) === 3, "three tiles");
    await page.locator(".tile").first().focus();
    await page.keyboard.press("ArrowRight");
    await page.keyboard.press("Enter");
    await page.locator(".front h1 .name:text-is('work:1.0')").waitFor();
    await home();
});

test("what is typed arrives and is seen, wide characters in their columns", async () => {
    const pane = await world.tmux("list-panes", "-t", "work:0", "-F", "#{pane_id}");
    await front(page, world, pane);
    await page.keyboard.type("echo hello-$((40+2))");
    await page.keyboard.press("Enter");
    await until(async () => (await shown(page)).includes("hello-42"), "the echo");
    await same(pane);
    await page.keyboard.insertText("printf '日本語|\\nabcdef|\\n' # ü");
    await page.keyboard.press("Enter");
    await until(async () => (await shown(page)).includes("abcdef|"), "the echo");
    await same(pane);
    const at = (text) =>
        page.locator(".front .screen .row", { hasText: text }).last().evaluate((row) => {
            const range = document.createRange();
            range.selectNodeContents(row);
            const walker = document.createTreeWalker(row, NodeFilter.SHOW_TEXT);
            while (walker.nextNode()) {
                const index = walker.currentNode.data.indexOf("|");
                if (index >= 0) {
                    range.setStart(walker.currentNode, index);
                    range.setEnd(walker.currentNode, index + 1);
                }
            }
            return range.getBoundingClientRect().left;
        });
    const [wide, narrow] = [await at(/^日本語\|$/), await at(/^abcdef\|$/)];
    assert.ok(Math.abs(wide - narrow) < 0.6, `${wide} ${narrow}`);
    await page.keyboard.type("sleep 100");
    await page.keyboard.press("Enter");
    // An interrupt before the program has the terminal is the shell's.
    await until(async () => (await world.tmux("display-message", "-p", "-t", pane, "#{pane_current_command}")) === "sleep", "the program");
    await page.keyboard.press("Control+c");
    await page.keyboard.type("echo after");
    await page.keyboard.press("Enter");
    await until(async () => (await shown(page)).includes("after"), "the interrupt");
    await same(pane);
});

test("history is there when it is scrolled to, and is found", async () => {
    const pane = await world.window("i=1; while [ $i -le 1500 ]; do echo line-$i; i=$((i+1)); done; exec cat");
    await until(async () => (await world.capture(pane)).includes("line-1500"), "1500 lines");
    await front(page, world, pane);
    await same(pane);
    await page.locator(".front .scroller").hover();
    await page.evaluate(() => document.querySelector(".front .scroller").scrollTo(0, 0));
    await page.locator(".front .past .row:text-is('line-1')").waitFor();
    await page.getByRole("button", { name: "Search the output" }).click();
    await page.keyboard.type("line-1234");
    await page.keyboard.press("Enter");
    await page.locator(".hits button", { hasText: "line-1234" }).click();
    await page.locator(".front .past .row:text-is('line-1234')").waitFor();
    await page.keyboard.press("Escape");
    await page.locator(".front .down").click();
    await until(async () => page.evaluate(() => {
        const scroller = document.querySelector(".front .scroller");
        return scroller.scrollTop + scroller.clientHeight >= scroller.scrollHeight - 2;
    }), "the screen");
    await world.tmux("kill-pane", "-t", pane);
    await page.locator(".note", { hasText: "The pane no longer exists" }).waitFor();
});

/** Runs in the page: resolves when its pane has been scrolled and has not moved for this many frames. */
const scrolled = () =>
    new Promise((resolve) => {
        const scroller = document.querySelector(".front .scroller");
        let [at, moved, still] = [scroller.scrollTop, false, 0];
        const frame = () => {
            still = scroller.scrollTop === at ? still + 1 : 0;
            moved ||= still === 0;
            at = scroller.scrollTop;
            if ((moved && still > 10) || still > 600) {
                resolve(moved);
            } else {
                requestAnimationFrame(frame);
            }
        };
        frame();
    });

/** Scrolls a pane of many lines up to its first one, while it prints more. */
async function readsUp(page) {
    const pane = await world.window("i=1; while :; do while [ $i -le ${to:=900} ]; do echo line-$i; i=$((i+1)); done; read -r to; done");
    await until(async () => (await world.capture(pane)).includes("line-900"), "900 lines");
    await front(page, world, pane);
    await same(pane, page);
    await page.locator(".front .scroller").hover();
    // The visible lines, by their numbers, and the empty space above them.
    const view = () =>
        page.evaluate(() => {
            const scroller = document.querySelector(".front .scroller");
            const room = scroller.getBoundingClientRect();
            const rows = [...document.querySelectorAll(".front .row")]
                .map((row) => ({ text: row.textContent, ...row.getBoundingClientRect().toJSON() }))
                .filter(({ text, top, bottom }) => top >= room.top && bottom <= room.bottom && /^line-\d+$/.test(text))
                .sort((one, other) => one.top - other.top);
            return {
                numbers: rows.map(({ text }) => Number(text.slice(5))),
                full: rows.length > 5 && rows[0].top - room.top < rows[0].height,
                at: scroller.scrollTop,
            };
        });
    const seen = async () => (await view()).numbers;
    const whole = (numbers) => numbers.every((number, at) => at === 0 || number === numbers[at - 1] + 1);
    let last = await seen();
    let printed = 900;
    for (let step = 0, { at } = await view(); at > 0; step += 1) {
        const rest = page.evaluate(scrolled);
        await page.mouse.wheel(0, -300);
        await rest;
        let now = [];
        await until(async () => {
            const shown = await view();
            [now, at] = [shown.numbers, shown.at];
            return shown.full && whole(now) && now[0] < last[0];
        }, `lines before ${last}`);
        assert.ok(now.at(-1) >= last[0] - 1, `${now} and then ${last}`);
        if (step === 3) {
            printed = 1200;
            await world.tmux("send-keys", "-t", pane, "1200", "Enter");
            await until(async () => (await world.capture(pane)).includes("line-1200"), "more lines");
            await page.waitForFunction(() => [...document.querySelectorAll(".front .rows .row")].some((row) => row.textContent === "line-1200"));
            assert.deepEqual(await seen(), now, "it moved");
        }
        last = now;
    }
    assert.equal(last[0], 1, "the first line");
    await page.locator(".front .down").click();
    await same(pane, page);
    await until(async () => (await seen()).at(-1) === printed, "the end");
    // The tile beside it is drawn less often.
    await page.locator(".tile.current .row", { hasText: `line-${printed}` }).waitFor();
    await world.tmux("kill-pane", "-t", pane);
    await page.locator(".note", { hasText: "The pane no longer exists" }).waitFor();
}

test("scrolled up step by step nothing is left out, and what is read stays where it is while the pane prints", () => readsUp(page));

test("the same over a slow link", async () => {
    const own = await world.page({ delay: 300 });
    await readsUp(own);
    await own.context().close();
});

test("a program on the alternate screen, its colours, and the mouse that it asked for", async () => {
    const pane = await world.window("printf '\\033[?1049h\\033[?1000h\\033[?1006h\\033[2;3H\\033[31;1mred\\033[0m \\033[7mreverse\\033[0m'; exec cat -v");
    await front(page, world, pane);
    await page.locator(".front .screen .row span", { hasText: /^red$/ }).first().waitFor();
    const style = await page.locator(".front .screen .row span", { hasText: /^red$/ }).first().evaluate((span) => [getComputedStyle(span).fontWeight, getComputedStyle(span).color]);
    assert.equal(style[0], "700");
    const box = await page.locator(".front .screen").boundingBox();
    await page.mouse.click(box.x + (box.width / 80) * 10.5, box.y + (box.height / 24) * 5.5);
    await page.keyboard.press("Enter");
    await until(async () => (await world.capture(pane)).join(" ").includes("^[[<0;11;6M^[[<0;11;6m"), "the report");
    await page.mouse.move(box.x + (box.width / 80) * 3.5, box.y + (box.height / 24) * 5.5);
    await page.mouse.down();
    await page.mouse.move(box.x + (box.width / 80) * 3.5, 2);
    await page.mouse.up();
    await page.keyboard.press("Shift+Enter");
    await until(async () => (await world.capture(pane)).join(" ").includes("^[[<0;4;6M^[[<0;4;1m"), "the release outside of the screen");
    await same(pane);
    await world.tmux("kill-pane", "-t", pane);
    await home();
});

test("after each break in the middle of output and typing the screen is tmux's, no key lost, none twice", async () => {
    const file = join(world.dir, "typed");
    const still = join(world.dir, "still");
    const pane = await world.window(`(i=0; while :; do i=$((i+1)); [ -e ${still} ] || printf '\\033[3%d;4%dm%s\\033[0m\\n' $((i%8)) $((i/8%8)) $(date +%s%N); sleep 0.02; done) & exec sh -c 'while read -r line; do echo "$line" >> ${file}; done'`);
    const own = await world.page({ breaks: true });
    const styles = new Map();
    await front(own, world, pane);
    const sent = [];
    for (let round = 0; round < BREAKS; round += 1) {
        const word = `w${round}x`;
        sent.push(word);
        const { link, daemon } = own.links.at(-1);
        const typing = own.keyboard.type(word, { delay: 3 });
        await new Promise((resolve) => setTimeout(resolve, (round * 7) % 23));
        await Promise.all([link.close({ code: 4001 }), daemon.close({ code: 4001 })]);
        await typing;
        await own.keyboard.press("Enter");
        // Like a network that is back; every third time no event comes, and the page retries by itself.
        if (round % 3 > 0) {
            await own.evaluate(() => dispatchEvent(new Event("online")));
        }
        await until(() => own.links.at(-1).link !== link, "a new link");
        await until(() => own.evaluate(() => document.querySelector(".status.open") !== null), "the welcome");
        // The output stops for a moment, and is compared, with its colors.
        writeFileSync(still, "");
        await until(async () => {
            const there = await cells(pane);
            const seen = await own.locator(".front .paper > .screen .row").evaluateAll((rows) => rows.map((row) => [...row.childNodes].map((node) => [node.textContent, node.className ?? ""])));
            return alike(there, seen, styles);
        }, `tmux's screen after break ${round}`).catch(async (error) => {
            throw new Error(`${error.message}: ${JSON.stringify([await cells(pane).then((rows) => rows.slice(-3)), await shown(own), [...styles]]).slice(0, 3000)}`);
        });
        rmSync(still);
    }
    assert.ok(styles.size > 8, `${styles.size} styles`);
    await until(() => own.evaluate(() => document.querySelector(".front .pane.unsure") === null && document.querySelector(".status.open") !== null), "all acknowledged");
    await until(() => {
        try {
            return readFileSync(file, "utf8").trim().split("\n").length >= sent.length;
        } catch {
            return false;
        }
    }, "all lines");
    assert.deepEqual(readFileSync(file, "utf8").trim().split("\n"), sent);
    await world.tmux("send-keys", "-t", pane, "-H", "0");
    await world.tmux("respawn-pane", "-k", "-t", pane, "printf done; exec cat");
    await until(async () => (await shown(own))[0] === "done", "the last screen");
    await same(pane, own);
    assert.equal(await own.locator(".note.error").count(), 0);
    await own.context().close();
    await world.tmux("kill-pane", "-t", pane);
});

test("what a pane prints is text: no markup, no script, no address that is not one", async () => {
    const pane = await world.window(
        `printf '\\033]2;<img src=x onerror=hacked=1>\\007<script>hacked=1</script><img src=x onerror="hacked=1">\\njavascript:hacked=1 http://example.com/<b>\\n\\033]52;c;aGFja2Vk\\007\\033]8;;javascript:hacked=1\\033\\\\\\\\link\\033]8;;\\033\\\\\\\\\\n'; exec cat`,
    );
    await front(page, world, pane);
    await page.locator(".front .screen .row", { hasText: "<script>" }).waitFor();
    await same(pane);
    const seen = await page.evaluate(() => ({
        hacked: typeof globalThis.hacked,
        elements: [...document.querySelectorAll(".front .pane-body *, .tile *")].filter((element) => ["IMG", "SCRIPT", "IFRAME", "B"].includes(element.tagName)).length,
        links: [...document.querySelectorAll(".front .screen a")].map((link) => [link.href, link.rel, link.target]),
    }));
    assert.equal(seen.hacked, "undefined");
    assert.equal(seen.elements, 0);
    assert.deepEqual(seen.links, [["http://example.com/", "noopener noreferrer", "_blank"]]);
    await world.tmux("kill-pane", "-t", pane);
    await home();
});

test("a page of another origin reaches nothing, though the browser sends it the cookie", async () => {
    const server = createServer((_, answer) => answer.setHeader("content-type", "text/html").end("<p>other</p>")).listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    const other = await page.context().newPage();
    await other.goto(`http://127.0.0.1:${server.address().port}/`);
    const said = await other.evaluate(async (url) => {
        const socket = new WebSocket(`${url.replace("http", "ws")}/v1/page/ws`, "muxtap-page-1");
        const opened = await new Promise((resolve) => {
            socket.onopen = () => resolve("open");
            socket.onerror = () => resolve("refused");
        });
        const read = await fetch(`${url}/v1/panes`, { credentials: "include" }).then((answer) => answer.status, () => "refused");
        const wrote = await fetch(`${url}/v1/sessions`, { method: "POST", mode: "no-cors", credentials: "include", body: "{}" }).then((answer) => answer.status, () => "refused");
        const frame = document.createElement("iframe");
        frame.src = url;
        document.body.append(frame);
        await new Promise((resolve) => frame.addEventListener("load", resolve));
        let inside = "opaque";
        try {
            inside = frame.contentDocument === null ? "opaque" : "readable";
        } catch {}
        return { opened, read, wrote, inside };
    }, world.url);
    assert.deepEqual(said, { opened: "refused", read: "refused", wrote: 0, inside: "opaque" });
    assert.equal((await world.tmux("list-sessions", "-F", "#{session_name}")).includes("\n"), false);
    await other.close();
    server.close();
});

test("who looks by a read-only link types nothing, whatever the page does", async () => {
    const pane = await world.window("exec cat");
    const own = await world.page({ readOnly: true });
    await own.getByText("read-only", { exact: true }).waitFor();
    await front(own, world, pane);
    await own.keyboard.type("nothing");
    const said = await own.evaluate(async () => {
        const socket = new WebSocket(`ws://${location.host}/v1/page/ws`, "muxtap-page-1");
        const answers = [];
        await new Promise((resolve) => {
            socket.onopen = () => socket.send('{"type":"hello"}');
            socket.onmessage = (event) => {
                const message = JSON.parse(event.data);
                answers.push(message.type);
                if (message.type === "welcome") {
                    socket.send('{"type":"list"}');
                } else if (message.type === "panes") {
                    const key = message.set.at(-1).key;
                    socket.send(JSON.stringify({ type: "input", seq: 1, key, text: "nothing" }));
                    socket.send(JSON.stringify({ type: "call", id: 1, tool: "create", arguments: {} }));
                } else if (message.type === "result") {
                    answers.push(message.error?.code);
                }
                if (answers.includes("result") && answers.includes("nack")) {
                    resolve();
                }
            };
        });
        socket.close();
        return answers;
    });
    assert.ok(said.includes("nack"), said.join(" "));
    assert.ok(said.includes("READ_ONLY") || said.includes("UNAUTHORIZED"), said.join(" "));
    const posted = await own.evaluate(() => fetch("/v1/sessions", { method: "POST", headers: { "content-type": "application/json" }, body: "{}" }).then((answer) => answer.status));
    assert.ok(posted === 401 || posted === 403, String(posted));
    assert.equal((await world.capture(pane)).join(""), "");
    await own.context().close();
    await world.tmux("kill-pane", "-t", pane);
});

test("on a phone: keys for touch, one sticky, lines as wide as the page", async () => {
    const long = "long ".repeat(30).trim();
    const pane = await world.window(`echo ${long}; exec cat -v`);
    const phone = await world.page({ viewport: { width: 390, height: 780 }, isMobile: true, hasTouch: true, deviceScaleFactor: 2 });
    await front(phone, world, pane);
    await phone.locator(".front .screen .row", { hasText: "long" }).first().waitFor();
    await phone.locator(".front .scroller").tap();
    await phone.locator(".keybar button", { hasText: "Ctrl" }).tap();
    await phone.keyboard.insertText("b");
    await phone.keyboard.insertText("b");
    await phone.locator(".keybar button", { hasText: "Esc" }).tap();
    await phone.locator(".keybar button", { hasText: "⏎" }).tap();
    await until(async () => (await world.capture(pane)).includes("^Bb^["), "the keys");
    assert.ok(await phone.evaluate(() => document.documentElement.scrollWidth <= innerWidth), "nothing is wider than the page");
    await phone.getByRole("button", { name: /Reading view/ }).tap();
    await phone.locator(".reading p", { hasText: long }).waitFor();
    await phone.context().close();
    await world.tmux("kill-pane", "-t", pane);
});

test("an agent's question is on the badge and in the title, and a button answers it", async () => {
    mkdirSync(join(world.dir, "bin"), { recursive: true });
    const program = join(world.dir, "bin", "claude");
    writeFileSync(program, "#!/bin/sh\nprintf 'Bash command\\n\\n  cargo test\\n\\nDo you want to proceed?\\n\\342\\235\\257 1. Yes\\n  2. No, and tell Claude what to do differently\\n'\nread -r answer\nclear\necho thank-you\nexec cat\n", { mode: 0o755 });
    const pane = await world.window(program);
    await until(async () => (await page.title()).startsWith("(1)"), "the title's count");
    await page.locator(".count-badge", { hasText: "1" }).waitFor();
    assert.match(await page.locator("[role=alert].sr").textContent(), /asks: Bash command\s+cargo test\s+Do you want to proceed\?/);
    // Its tile shows its last lines, and that the agent asks.
    const tile = page.locator(`li[data-key$=".${pane.slice(1)}"] .tile`);
    await tile.locator(".row", { hasText: "Do you want to proceed?" }).waitFor();
    await tile.locator(".row", { hasText: "2. No, and tell Claude" }).waitFor();
    await tile.getByText("Claude Code asks").waitFor();
    await page.getByRole("link", { name: /Agents/ }).click();
    await page.locator(".card.asks", { hasText: "Do you want to proceed?" }).waitFor();
    await page.getByRole("button", { name: "1. Yes" }).click();
    await until(async () => (await world.capture(pane)).includes("thank-you"), "the answer");
    await until(async () => !(await page.title()).startsWith("("), "the title without a count");
    await world.tmux("kill-pane", "-t", pane);
    await home();
});

test("a wait that is set in the page is listed, and said when it is met", async () => {
    const pane = await world.window("exec cat");
    await front(page, world, pane);
    await page.getByRole("button", { name: "Notify me when it prints something" }).click();
    await page.getByRole("textbox", { name: "Text" }).fill("7 passed");
    await page.getByRole("button", { name: "Wait", exact: true }).click();
    await until(async () => (await world.ask("GET", "/v1/waits")).waits.length === 1, "the wait");
    await page.evaluate(() => {
        location.hash = "waits";
    });
    await page.locator(".waits .card", { hasText: "passed" }).waitFor();
    // A pressed button and the focus survive the updates of each second.
    const cancel = await page.locator(".waits .card button", { hasText: "Cancel" }).elementHandle();
    await cancel.focus();
    const left = await page.locator(".waits .left").textContent();
    await until(async () => (await page.locator(".waits .left").textContent()) !== left, "an update");
    assert.ok(await cancel.evaluate((button) => button.isConnected && document.activeElement === button));
    await world.tmux("send-keys", "-t", pane, "all 7 passed", "Enter");
    await page.locator(".note", { hasText: "all 7 passed" }).waitFor();
    await page.locator(".note .close").first().click();
    await world.tmux("kill-pane", "-t", pane);
    await home();
});

test("a workspace: an agent's page opens when the person allows it; a reload keeps it; the newer window wins", async () => {
    const server = createServer((_, answer) => answer.setHeader("content-type", "text/html").end("<h1>dev server</h1>")).listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    const url = `http://127.0.0.1:${server.address().port}/`;
    await page.getByRole("link", { name: "Workspace" }).click();
    await page.locator(".area .empty").getByRole("button", { name: "New tab" }).click();
    await page.getByRole("button", { name: "New terminal" }).click();
    await page.locator(".place .screen .row").first().waitFor();
    const device = await page.evaluate(() => localStorage.getItem("muxtap-device"));
    const pane = await page.evaluate(() => JSON.parse(localStorage.getItem("muxtap-workspace")).layout.panes[0].id);
    const asked = world.muxtap("workspace", "split-pane", "--device", device, "--target", `pane:${pane}`, "--direction", "horizontal", "--browser", url, "--json");
    await page.locator(".request", { hasText: url }).waitFor();
    await page.getByRole("button", { name: "Allow once" }).click();
    const answer = JSON.parse(await asked);
    assert.ok(answer.appliedRevision > 1);
    await page.frameLocator(".place iframe").getByText("dev server").waitFor();
    assert.match(await page.locator(".place iframe").getAttribute("sandbox"), /allow-scripts/);
    assert.equal(await page.locator(".place header input:visible").inputValue(), url);
    const before = await page.evaluate(() => JSON.parse(localStorage.getItem("muxtap-workspace")).layout);
    await page.reload();
    await page.frameLocator(".place iframe").getByText("dev server").waitFor();
    const live = JSON.parse(await world.muxtap("workspace", "list-panes", "--device", device, "--json"));
    assert.deepEqual([live.panes.length, live.source], [2, "live"]);
    const kept = await page.evaluate(() => JSON.parse(localStorage.getItem("muxtap-workspace")).layout);
    assert.deepEqual(kept, before);
    const newer = await page.context().newPage();
    await newer.goto(`${world.url}/#workspace`);
    await newer.locator(".place iframe").waitFor();
    await page.getByRole("button", { name: "Use it here" }).click();
    await newer.getByRole("button", { name: "Use it here" }).waitFor();
    await newer.close();
    // A refusal is a response too, and changes nothing.
    const refused = world.muxtap("workspace", "split-pane", "--device", device, "--target", `pane:${pane}`, "--direction", "vertical", "--browser", url, "--json").then(() => "done", (error) => `${error.stdout}${error.stderr}`);
    await page.getByRole("button", { name: "Deny" }).click();
    assert.match(await refused, /UNAUTHORIZED/);
    server.close();
    await home();
});

test("a workspace by keys alone: out of a terminal and an editor, from pane to pane and tab to tab", async () => {
    const own = await world.page();
    const layout = () => own.evaluate(() => JSON.parse(localStorage.getItem("muxtap-workspace") ?? "null")?.layout);
    const command = async (words) => {
        await own.keyboard.press("Control+Shift+Space");
        await own.locator("dialog.palette").waitFor();
        await own.keyboard.type(words);
        await own.keyboard.press("Enter");
        await own.locator("dialog.palette").waitFor({ state: "detached" });
    };
    const within = (selector) => until(() => own.evaluate((selector) => document.activeElement?.closest(selector) !== null && document.activeElement !== document.body, selector), `the keys in ${selector}`);
    await command("show: workspace");
    await command("workspace new tab");
    await within(".picker");
    await own.keyboard.press("Enter");
    await own.locator(".place .screen .row").first().waitFor();
    await command("split beside");
    await within(".picker");
    await own.locator(".picker:visible input[aria-label=File]").fill(join(world.env.HOME, "keys.txt"));
    await own.keyboard.press("Enter");
    await own.locator(".place .editor .cm-content").click();
    await own.keyboard.type("abc");
    // The editor handles its own keys; the terminal receives all, Tab too.
    await command("workspace next pane");
    await within(".place .pane");
    const before = (await layout()).workspaceRevision;
    await own.keyboard.press("Tab");
    await within(".place .pane");
    assert.equal((await layout()).workspaceRevision, before);
    await command("this terminal search");
    await own.locator(".place .finder, .place [role=search], .place .find").first().waitFor();
    await own.keyboard.press("Escape");
    await command("this terminal wait");
    await own.getByRole("button", { name: "Cancel" }).click();
    await command("workspace new tab");
    await command("workspace previous tab");
    await within(".place .pane");
    await command("workspace next pane");
    await command("close this pane");
    await own.getByRole("button", { name: "Keep", exact: true }).click();
    assert.equal((await layout()).panes.length, 3);
    await command("close this pane");
    await own.getByRole("button", { name: "Discard" }).click();
    await until(async () => (await layout()).panes.length === 2, "two panes");
    await own.context().close();
});

test("each command of a workspace reaches a page, once its person allows the device", async () => {
    const server = createServer((_, answer) => answer.setHeader("content-type", "text/html").end("<h1>site</h1>")).listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    const url = `http://127.0.0.1:${server.address().port}/`;
    const file = join(world.env.HOME, "commands.txt");
    writeFileSync(file, "in the file\n");
    const own = await world.page();
    await own.getByRole("link", { name: "Workspace" }).click();
    const device = await own.evaluate(() => localStorage.getItem("muxtap-device"));
    const call = (name, ...args) => world.muxtap("workspace", name, "--device", device, ...args, "--json").then((text) => JSON.parse(text || "null"));
    const layout = () => own.evaluate(() => JSON.parse(localStorage.getItem("muxtap-workspace")).layout);
    const made = call("new-tab", "-n", "build", "--shell", "exec cat");
    await own.getByRole("button", { name: "Always allow this device" }).click();
    const { tab, pane } = await made;
    const at = `pane:${pane.id}`;
    await own.locator(".place .screen .row").first().waitFor();
    // The pane's terminal, which the page names.
    const terminal = (await layout()).panes[0].contentRef.terminalId;
    await call("send-keys", "--target", at, "hello", "Enter");
    await call("wait-for", "--target", at, "-p", "hello", "-T", "10");
    assert.match(JSON.stringify(await call("capture-pane", "--target", at)), /hello/);
    await own.locator(".place .screen .row", { hasText: "hello" }).first().waitFor();
    // Tabs.
    const second = (await call("new-tab", "-n", "second", "--shell", "exec cat")).tab.id;
    assert.deepEqual((await call("list-tabs")).tabs.map((one) => one.title), ["build", "second"]);
    await call("select-tab", "--target", `tab:${tab.id}`);
    await own.locator(".tab.selected", { hasText: "build" }).waitFor();
    await call("rename-tab", "--target", "tab-index:1", "logs");
    await own.locator(".tab", { hasText: "logs" }).waitFor();
    await call("kill-tab", "--target", `tab:${second}`);
    await until(async () => (await own.locator(".tabs .tab").count()) === 1, "one tab");
    // Panes, of each kind.
    const web = (await call("split-pane", "--target", at, "--direction", "horizontal", "--browser", url)).pane.id;
    await own.frameLocator(".place iframe").getByText("site").waitFor();
    const text = (await call("split-pane", "--target", `pane:${web}`, "--direction", "vertical", "--editor", file)).pane.id;
    await own.locator(".place .cm-content", { hasText: "in the file" }).waitFor();
    const shell = (await call("split-pane", "--target", at, "--direction", "vertical", "--shell", "echo below; exec cat")).pane.id;
    await own.locator(".place .screen .row", { hasText: "below" }).first().waitFor();
    await call("resize-pane", "--target", at, "-x", "30");
    assert.equal((await layout()).tabs[0].layout.split.percent, 30);
    await call("swap-pane", "--source", at, "--target", `pane:${web}`);
    await call("select-pane", "--target", `pane:${text}`);
    assert.equal((await layout()).tabs[0].activePaneId, text);
    await call("navigate", "--target", `pane:${web}`, `${url}?next`);
    await own.locator(`.place iframe[src="${url}?next"]`).waitFor();
    await call("open-browser", "--target", `pane:${shell}`, url);
    await call("open-editor", "--target", `pane:${shell}`, file);
    await call("attach-terminal", "--target", `terminal:${terminal}`, "--to", `pane:${shell}`);
    await until(async () => (await own.locator(".place .screen .row", { hasText: "hello" }).count()) >= 2, "the terminal in two panes");
    // Unsaved text is not closed.
    await own.locator(".place .cm-content").click();
    await own.keyboard.type("mine ");
    const refused = await call("kill-pane", "--target", `pane:${text}`).then(() => "done", (error) => `${error.stdout}${error.stderr}`);
    assert.match(refused, /CONFLICT.*commands\.txt/s);
    await own.keyboard.press("Control+s");
    await own.locator(".editor").getByText("saved").waitFor();
    await call("kill-pane", "--target", `pane:${text}`);
    await own.locator(".place .editor").waitFor({ state: "detached" });
    // Status commands.
    const format = await world.muxtap("workspace", "display", "--device", device, "-t", at, "-p", "%tabTitle %paneKind %terminalId %ownerOnline");
    assert.equal(format.trim(), `build terminal ${terminal} true`);
    assert.match(JSON.stringify(await call("device-status")), /"online":true/);
    assert.equal((await call("list-panes")).panes.length, 3);
    // A permanent approval is revoked.
    await own.getByRole("button", { name: "Allowed devices" }).click();
    await own.getByRole("button", { name: "Remove" }).click();
    await own.getByRole("button", { name: "Close", exact: true }).click();
    const asked = call("rename-tab", "--target", "tab-index:0", "no").then(() => "done", (error) => `${error.stdout}${error.stderr}`);
    await own.getByRole("button", { name: "Deny" }).click();
    assert.match(await asked, /UNAUTHORIZED/);
    assert.deepEqual(own.failures, []);
    await own.context().close();
    server.close();
});


test("a device whose connection died unnoticed is there again once the page's own link is new", async () => {
    const own = await world.page({ breaks: true });
    const ends = [];
    await own.routeWebSocket(/\/v1\/devices\/ws/, (link) => {
        const daemon = link.connectToServer();
        // The page gets no close event, like after a lost network.
        daemon.onClose(() => undefined);
        ends.push(daemon);
    });
    await own.reload();
    await own.locator(".status.open").waitFor();
    const device = await own.evaluate(() => localStorage.getItem("muxtap-device"));
    // Unknown until the page has registered it.
    const online = async () =>
        (await world.muxtap("workspace", "device-status", "--device", device, "--json").catch((error) => error.stdout)).includes('"online":true');
    await until(online, "the device");
    await ends.at(-1).close({ code: 3001 });
    await until(async () => !(await online()), "its end");
    assert.equal(ends.length, 1);
    const { link, daemon } = own.links.at(-1);
    await Promise.all([link.close({ code: 4001 }), daemon.close({ code: 4001 })]);
    await until(online, "the device, again", 10_000);
    await own.context().close();
});

test("over TLS a link logs a browser in, by a cookie that no open connection carries", async () => {
    const own = await World.start({ config: "tls = true" });
    try {
        assert.match(own.url, /^https:/);
        const browser = await own.page({ ignoreHTTPSErrors: true });
        const cookie = (await browser.context().cookies()).find((one) => one.name === "muxtap_page");
        assert.ok(cookie.secure && cookie.httpOnly && cookie.sameSite === "Strict");
        await browser.locator(".tile").first().waitFor();
        await browser.getByRole("link", { name: "Workspace" }).click();
        await browser.locator(".tabs button.device[title*=web_]").waitFor();
        assert.deepEqual(browser.failures, []);
    } finally {
        await own.end();
    }
});

test("a file in a pane: it is saved, not over what something else has written, and made where it was not there", async () => {
    const file = join(world.env.HOME, "notes.txt");
    writeFileSync(file, "one\n");
    await page.getByRole("link", { name: "Workspace" }).click();
    await page.getByRole("button", { name: "New tab" }).first().click();
    const open = async (path) => {
        await page.locator(".picker:visible input[aria-label=File]").fill(path);
        await page.keyboard.press("Enter");
        await page.locator(".place .editor:visible .cm-content").waitFor();
    };
    await open(file);
    const editor = page.locator(".place .editor:visible");
    const type = async (text) => {
        await editor.locator(".cm-content").click();
        await page.keyboard.press("Control+End");
        await page.keyboard.type(text);
    };
    await type("two");
    await page.keyboard.press("Control+s");
    await editor.getByText("saved").waitFor();
    assert.equal(readFileSync(file, "utf8"), "one\ntwo");
    writeFileSync(file, "by somebody else\n");
    await type(" three");
    await editor.getByRole("button", { name: "Reload" }).click();
    await page.getByRole("button", { name: "Keep", exact: true }).click();
    await page.locator(".place:visible > header").getByRole("button", { name: /^Close this pane/ }).click();
    await page.getByRole("button", { name: "Keep", exact: true }).click();
    assert.match(await editor.locator(".cm-content").innerText(), /two three/);
    await editor.getByRole("button", { name: "Save" }).click();
    await page.getByRole("button", { name: "Overwrite" }).waitFor();
    assert.equal(readFileSync(file, "utf8"), "by somebody else\n");
    await page.getByRole("button", { name: "Overwrite" }).click();
    await editor.getByText("saved").waitFor();
    assert.equal(readFileSync(file, "utf8"), "one\ntwo three");
    await page.getByRole("button", { name: "New tab" }).first().click();
    await page.locator(".picker:visible input[aria-label=File]").fill("/etc/hostname");
    await page.keyboard.press("Enter");
    await page.locator(".editor:visible").getByText("page_folders").waitFor();
    await page.getByRole("button", { name: "New tab" }).first().click();
    await open(join(world.env.HOME, "new.txt"));
    await page.locator(".editor:visible").getByText("new file").waitFor();
    await page.locator(".editor:visible .cm-content").click();
    await page.keyboard.type("begun");
    await page.keyboard.press("Control+s");
    await page.locator(".editor:visible").getByText("saved").waitFor();
    assert.equal(readFileSync(join(world.env.HOME, "new.txt"), "utf8"), "begun");
    // The browser itself logs each error response.
    assert.deepEqual(page.failures.splice(0).map((failure) => failure.match(/status of (\d+)/)?.[1]), ["409", "400", "404"]);
    await home();
});

test("an agent session in a pane: what it says, its question answered by a button, its outcome", async () => {
    const { session } = await world.ask("POST", "/v1/agent-sessions", { provider: "claude", cwd: world.dir });
    await page.evaluate(() => {
        location.hash = "workspace";
    });
    await page.getByRole("button", { name: "New tab" }).click();
    await page.locator(".picker:visible .choices button", { hasText: "claude idle" }).click();
    await page.getByRole("textbox", { name: "Prompt" }).fill("fix the test <b>now</b>");
    await page.keyboard.press("Enter");
    await page.locator(".said.user", { hasText: "<b>now</b>" }).waitFor();
    await page.locator(".chat .question pre", { hasText: "command: cargo test --all" }).waitFor();
    await page.locator(".chat .question").getByRole("button", { name: "Yes, proceed" }).click();
    await page.locator(".said.message", { hasText: "The test passes now." }).waitFor();
    await page.locator(".tool[data-status=completed]", { hasText: "cargo test" }).waitFor();
    // A hidden page has no connection; messages from that time appear once, after the earlier ones.
    const asked = [];
    page.on("request", (request) => request.url().includes("/stream?since=") && asked.push(new URL(request.url()).searchParams.get("since")));
    await home();
    await world.ask("POST", `/v1/agent-sessions/${encodeURIComponent(session)}/prompts`, { text: "once more" });
    await page.evaluate(() => {
        location.hash = "workspace";
    });
    await page.locator(".chat .question").getByRole("button", { name: "Yes, proceed" }).click();
    await until(async () => (await page.locator(".said.message", { hasText: "The test passes now." }).count()) === 2, "the second answer");
    assert.equal(await page.locator(".said.user", { hasText: "<b>now</b>" }).count(), 1);
    assert.match(asked.join(" "), /^e\S+$/);
    await world.ask("DELETE", `/v1/agent-sessions/${encodeURIComponent(session)}`);
    await page.locator(".fact", { hasText: "The agent has ended." }).waitFor();
    await home();
});

test("a session's question is notified, and is among the agents with its own answers", async () => {
    const own = await world.page();
    await own.evaluate(() => {
        location.hash = "agents";
        globalThis.notified = [];
        globalThis.Notification = class {
            static permission = "granted";
            constructor(title, { body }) {
                globalThis.notified.push(`${title}: ${body}`);
            }
        };
        Object.defineProperty(document, "hidden", { value: true });
    });
    const { session } = await world.ask("POST", "/v1/agent-sessions", { provider: "claude", cwd: world.dir });
    const path = `/v1/agent-sessions/${encodeURIComponent(session)}`;
    await world.ask("POST", `${path}/prompts`, { text: "test it" });
    const card = own.locator(".approvals .card", { hasText: "cargo test" });
    await card.getByRole("button", { name: "Yes, proceed" }).waitFor();
    assert.equal(await card.getByRole("heading").textContent(), "cargo test");
    assert.deepEqual(await card.locator(".options button").allTextContents(), ["Yes, proceed", "No"]);
    // The command and who asks, not the agent's title alone.
    const [notified, ...more] = await own.evaluate(() => globalThis.notified);
    assert.match(notified, /^muxtap: agent question: the agent session:claude:\S+, process \d+, in .* asks: command: cargo test --all\n/);
    assert.deepEqual(more, []);
    // No line of what would be permitted is left out.
    const { approvals } = await world.ask("GET", "/v1/approvals");
    assert.equal(await card.locator("pre").textContent(), approvals.find((one) => one.session === session).prompt);
    assert.match(approvals[0].prompt, /^command: cargo test --all/);
    assert.match(await card.locator(".question p").first().textContent(), /process \d+/);
    assert.match(await own.title(), /^\(1\)/);
    await card.getByRole("button", { name: "Yes, proceed" }).click();
    await card.waitFor({ state: "detached" });
    await until(async () => !(await own.title()).startsWith("("), "the title without a count");
    await world.ask("DELETE", path);
    await own.context().close();
});

test("a tab behind another one is sent no screens, frozen or not, and shows what is true when it is in front again", async () => {
    const tabs = await Tabs.start(world.dir);
    try {
        const count = (word) => `i=0; while [ $i -lt 50000 ]; do echo ${word}-$i; i=$((i+1)); done`;
        const pane = await world.window(`exec sh -c 'read -r _; ${count("hidden")}; read -r _; ${count("frozen")}; exec cat'`);
        const tab = await tabs.tab(await world.link());
        const tile = `document.querySelector('li[data-key$=".${pane.slice(1)}"] .tile')`;
        await tab.until(`${tile} !== null`, "the pane's tile");
        await tab.evaluate(`${tile}.click()`);
        await tab.until("document.querySelector('.front .paper > .screen .row') !== null", "the pane");
        const other = await tabs.tab("about:blank");
        await other.front();
        await tab.until("document.visibilityState === 'hidden'", "a tab that is hidden");
        // Everything drawn while visible is acknowledged: one more screen is sent, and no other.
        const screens = () => tab.messages.filter((message) => message.type === "screen").length;
        const before = screens();
        const views = await tab.evaluate("document.querySelectorAll('.tile .screen, .front .screen').length");
        const flood = async (word) => {
            await world.tmux("send-keys", "-t", pane, "Enter");
            await until(async () => (await world.capture(pane)).includes(`${word}-49999`), `the end of ${word}`);
        };
        await flood("hidden");
        const sent = screens() - before;
        assert.ok(sent >= 1 && sent <= views, `${sent} screens of ${views} views`);
        await tab.send("Page.setWebLifecycleState", { state: "frozen" });
        await flood("frozen");
        assert.equal(screens() - before, sent, "screens without a credit");
        await tab.send("Page.setWebLifecycleState", { state: "active" });
        assert.equal(await tab.evaluate("document.visibilityState"), "hidden");
        await tab.front();
        const rows = "JSON.stringify([...document.querySelectorAll('.front .paper > .screen .row')].map((row) => row.textContent.trimEnd()))";
        const shows = (text) => until(async () => {
            const there = await world.capture(pane);
            return there.some((row) => row.includes(text)) && (await tab.evaluate(rows)) === JSON.stringify(there);
        }, `what tmux shows, with ${text}`);
        await shows("frozen-49999");
        // Typing works as before.
        await tab.evaluate("document.querySelector('.front textarea').focus()");
        await tab.send("Input.insertText", { text: "in front again" });
        await shows("in front again");
        assert.equal(tab.connections, 1 + tab.frozen, "its connection has survived, unless the browser ended it");
    } finally {
        await tabs.end();
    }
});

test("a page that draws nothing is sent nothing, and then what is true", async () => {
    const pane = await world.window("exec sh -c 'read -r _; i=0; while [ $i -lt 200000 ]; do echo $i; i=$((i+1)); done; exec cat'");
    let frames = 0;
    const own = await world.page();
    await front(own, world, pane);
    const client = await own.context().newCDPSession(own);
    await client.send("Network.enable");
    client.on("Network.webSocketFrameReceived", () => {
        frames += 1;
    });
    await own.evaluate(() => {
        globalThis.held = [];
        globalThis.requestAnimationFrame = (then) => held.push(then);
    });
    await world.tmux("send-keys", "-t", pane, "Enter");
    await until(async () => (await world.capture(pane)).includes("199999"), "the flood");
    assert.ok(frames <= 12, `${frames} messages to a page that draws none`);
    await own.evaluate(() => {
        const { held } = globalThis;
        globalThis.requestAnimationFrame = (then) => setTimeout(then, 16);
        for (const then of held) {
            then();
        }
    });
    await same(pane, own);
    await own.context().close();
    await world.tmux("kill-pane", "-t", pane);
});

test("two hundred tiles are alive, and cost nothing while they are quiet", async () => {
    const args = [];
    for (let number = 0; number < 200; number += 1) {
        args.push("new-window", "-d", "-t", "many:", `echo tile-${number}; exec cat`, ";");
    }
    await world.tmux("new-session", "-d", "-s", "many", ...world.size, "exec cat");
    for (let from = 0; from < args.length; from += 150) {
        await world.tmux(...args.slice(from, from + 150));
    }
    const own = await world.page({ viewport: { width: 1600, height: 20_000 } });
    await until(async () => (await own.locator(".tile .row", { hasText: /^tile-\d+$/ }).count()) >= 200, "200 tiles");
    const client = await own.context().newCDPSession(own);
    await client.send("Network.enable");
    let frames = 0;
    client.on("Network.webSocketFrameReceived", () => {
        frames += 1;
    });
    client.on("Network.webSocketFrameSent", () => {
        frames += 1;
    });
    // Messages about the panes' first output may still arrive.
    await new Promise((resolve) => setTimeout(resolve, 1500));
    frames = 0;
    await new Promise((resolve) => setTimeout(resolve, 1500));
    assert.ok(frames <= 2, `${frames} messages in 1.5 s of quiet`);
    await own.context().close();
    await world.tmux("kill-session", "-t", "many");
});

test("two viewers of different size leave the pane's size alone", async () => {
    const pane = await world.tmux("list-panes", "-t", "work:0", "-F", "#{pane_id}");
    const size = () => world.tmux("display-message", "-p", "-t", pane, "#{pane_width}x#{pane_height}");
    const before = await size();
    const small = await world.page({ viewport: { width: 390, height: 700 } });
    const large = await world.page({ viewport: { width: 2000, height: 1400 } });
    for (const one of [small, large]) {
        await front(one, world, pane);
    }
    await large.keyboard.type("echo both");
    await large.keyboard.press("Enter");
    for (const one of [small, large]) {
        await until(async () => (await shown(one)).includes("both"), "the echo");
        await same(pane, one);
    }
    assert.equal(await size(), before);
    await small.context().close();
    await large.context().close();
});

test("the reading view holds what is read, back to the beginning and down to the screen", async () => {
    await world.tmux("set-option", "-g", "history-limit", "10000");
    const pane = await world.window("i=1; while [ $i -le 6000 ]; do echo read-$i; i=$((i+1)); done; exec cat");
    await until(async () => (await world.capture(pane)).includes("read-6000"), "6000 lines");
    const own = await world.page();
    await front(own, world, pane);
    await own.getByRole("button", { name: /Reading view/ }).click();
    await own.locator(".reading-now p", { hasText: /^read-6000$/ }).waitFor();
    const first = await world.tmux("capture-pane", "-p", "-t", pane, "-S", "-").then((text) => text.split("\n")[0]);
    const scroll = (to) => own.evaluate((to) => document.querySelector(".reading").scrollTo(0, to === "top" ? 0 : 1e9), to);
    const has = (line) => own.evaluate((line) => {
        const all = [...document.querySelectorAll(".reading-past p")].map((one) => one.textContent);
        globalThis.most = Math.max(globalThis.most ?? 0, all.length);
        return all.includes(line);
    }, line);
    await until(async () => scroll("top").then(() => has(first)), "the first line", 60_000);
    await until(async () => scroll("end").then(() => own.locator(".reading-now:visible p", { hasText: /^read-6000$/ }).count()), "the screen", 60_000);
    assert.ok((await own.evaluate(() => globalThis.most)) <= 5000);
    assert.deepEqual(own.failures, []);
    await own.context().close();
    await world.tmux("kill-pane", "-t", pane);
});

test("a page that comes back from the back/forward cache, or anew, is live", async () => {
    const pane = await world.window("exec cat");
    const own = await world.page();
    await front(own, world, pane);
    await own.evaluate(() => {
        globalThis.stayed = "here";
        addEventListener("pageshow", (event) => {
            globalThis.persisted = event.persisted;
        });
    });
    const there = own.url();
    await own.goto(`${world.url}/page/icon.svg`);
    await own.goBack({ waitUntil: "commit" });
    assert.equal(own.url(), there);
    // The same page that was left, not a new one.
    assert.deepEqual(await own.evaluate(() => [globalThis.stayed, globalThis.persisted]), ["here", true]);
    await own.locator(".status.open").waitFor();
    await own.locator(".front .screen .row").first().waitFor();
    await own.locator(".front .scroller").click();
    await own.keyboard.type("back");
    await own.keyboard.press("Enter");
    await until(async () => (await world.capture(pane)).includes("back"), "the keys");
    await same(pane, own);
    await own.context().close();
    await world.tmux("kill-pane", "-t", pane);
});

test("over a slow link each key arrives once, and the picture is tmux's", async () => {
    const pane = await world.window("exec cat");
    const own = await world.page({ delay: 300 });
    await front(own, world, pane);
    const text = "slow but each key once, 0123456789";
    const begin = Date.now();
    await own.keyboard.type(text);
    await own.keyboard.press("Enter");
    await until(async () => (await shown(own)).filter((row) => row === text).length === 2, "the echo");
    assert.ok(Date.now() - begin >= 600, "the link is slow");
    assert.deepEqual((await world.capture(pane)).slice(0, 2), [text, text]);
    await same(pane, own);
    await own.context().close();
    await world.tmux("kill-pane", "-t", pane);
});

test("what the page did while the screen was read is there when the reading view is left, and typing there says why not", async () => {
    const pane = await world.window("exec cat");
    await front(page, world, pane);
    await page.getByRole("button", { name: /Reading view/ }).click();
    await world.tmux("send-keys", "-t", pane, "while-reading", "Enter");
    await page.locator(".reading-now p", { hasText: /^while-reading$/ }).first().waitFor();
    await page.locator(".reading").focus();
    await page.keyboard.press("x");
    await page.getByRole("button", { name: "Return to the screen" }).click();
    // No more output arrives: the screen was drawn when the reading view was left.
    assert.deepEqual(await shown(page), await world.capture(pane));
    await page.keyboard.type("typed");
    await until(async () => (await world.capture(pane)).includes("typed"), "the keys");
    await world.tmux("kill-pane", "-t", pane);
    await home();
});

test("after a selection with the mouse each key and a paste go to the program, and what is pasted ends no brackets", async () => {
    const pane = await world.window("printf 'select-me\\n\\033[?2004h'; exec cat -v");
    const own = await world.page({ permissions: ["clipboard-read", "clipboard-write"] });
    await front(own, world, pane);
    const select = async () => {
        const box = await own.locator(".front .screen .row", { hasText: "select-me" }).first().boundingBox();
        await own.mouse.move(box.x + 1, box.y + box.height / 2);
        await own.mouse.down();
        await own.mouse.move(box.x + box.width * 0.9, box.y + box.height / 2, { steps: 5 });
        await own.mouse.up();
        assert.equal(await own.evaluate(() => getSelection().toString().trim()), "select-me");
    };
    const has = (text) => until(async () => (await world.capture(pane)).join("").includes(text), text);
    await select();
    await own.keyboard.press("Escape");
    await own.keyboard.press("Tab");
    await own.keyboard.press("ArrowUp");
    await own.keyboard.press("Enter");
    await has("^[");
    await has("^[[A");
    await select();
    await own.keyboard.press("Control+c");
    assert.equal((await own.evaluate(() => navigator.clipboard.readText())).trim(), "select-me");
    assert.equal(await own.evaluate(() => document.activeElement.className), "keys");
    await own.keyboard.press("Control+Shift+v");
    await has("^[[200~select-me");
    await select();
    await own.evaluate(() => navigator.clipboard.writeText("hostile\u001b[201~rm\ttab"));
    await own.keyboard.press("Control+Shift+v");
    await has("[201~rm");
    assert.equal((await world.capture(pane)).join("").match(/hostile(.*?)rm/)[1].includes("^["), false);
    // A program's clipboard sequence does not reach this clipboard.
    await world.tmux("respawn-pane", "-k", "-t", pane, "printf '\\033]52;c;aGFja2Vk\\007there'; exec cat");
    await until(async () => (await shown(own)).includes("there"), "the program");
    assert.match(await own.evaluate(() => navigator.clipboard.readText()), /^hostile/);
    assert.deepEqual(own.failures, []);
    await own.context().close();
    await world.tmux("kill-pane", "-t", pane);
});

test("a login over a link that is bad says so, and goes on when it is back", async () => {
    const context = await world.context();
    const own = await context.newPage();
    let bad = true;
    await own.route("**/v1/page/login", (route) => (bad ? route.abort("connectionreset") : route.continue()));
    await own.goto(await world.link());
    await own.getByText("muxtap does not respond").waitFor();
    assert.match(own.url(), /code=/);
    bad = false;
    await own.locator(".status.open").waitFor();
    assert.equal(new URL(own.url()).hash, "");
    await context.close();
});

test("a daemon that begins anew keeps the pane in front, though its key is another one", async () => {
    const own = await World.start();
    try {
        const pane = await own.tmux("list-panes", "-t", "work:0", "-F", "#{pane_id}");
        const viewer = await own.page();
        await front(viewer, own, pane);
        const before = viewer.url();
        await own.restart();
        await until(() => viewer.url() !== before, "another key", 20_000);
        assert.match(viewer.url(), /#pane\//);
        // The address changes before the pane does.
        await until(async () => (await shown(viewer)).length > 0 && (await viewer.evaluate(() => document.activeElement?.classList.contains("keys") === true)), "the pane");
        await viewer.keyboard.type("echo still-here");
        await viewer.keyboard.press("Enter");
        await until(async () => (await shown(viewer)).includes("still-here"), "the keys");
        await same(pane, viewer, own);
    } finally {
        await own.end();
    }
});

test("a finger on a screen that does not scroll turns the wheel", async () => {
    const pane = await world.window("printf '\\033[?1049h'; exec cat -v");
    const phone = await world.page({ viewport: { width: 390, height: 780 }, isMobile: true, hasTouch: true, deviceScaleFactor: 2 });
    await front(phone, world, pane);
    const client = await phone.context().newCDPSession(phone);
    const touch = (type, y) => client.send("Input.dispatchTouchEvent", { type, touchPoints: type === "touchEnd" ? [] : [{ x: 150, y }] });
    await touch("touchStart", 300);
    for (let y = 290; y >= 240; y -= 10) {
        await touch("touchMove", y);
    }
    await touch("touchEnd", 240);
    await world.tmux("send-keys", "-t", pane, "Enter");
    await until(async () => (await world.capture(pane)).join("").includes("^[[B^[[B"), "the keys");
    assert.equal(await phone.evaluate(() => getComputedStyle(document.querySelector(".front .keys")).fontSize), "16px");
    await phone.context().close();
    await world.tmux("kill-pane", "-t", pane);
});

test("the pane has this page's size only by an act that says so, and its own again when it is left", async (t) => {
    const pane = await world.window("exec cat");
    const size = () => world.tmux("display-message", "-p", "-t", pane, "#{pane_width}x#{pane_height}");
    const before = await size();
    const small = await world.page({ viewport: { width: 700, height: 500 } });
    const large = await world.page({ viewport: { width: 1800, height: 1200 } });
    await front(large, world, pane);
    await front(small, world, pane);
    assert.equal(await size(), before);
    await small.getByRole("button", { name: /Fit the pane to this page/ }).click();
    const said = await until(async () => ((await size()) !== before && "fitted") || ((await small.locator(".note.error").count()) > 0 && small.locator(".note.error").first().textContent()), "an answer");
    if (said !== "fitted") {
        await small.context().close();
        await large.context().close();
        await world.tmux("kill-pane", "-t", pane);
        t.skip(`this muxtap does not resize: ${said}`);
        return;
    }
    await small.getByText("The pane has this page's size").waitFor();
    await same(pane, large);
    await small.evaluate(() => {
        location.hash = "wall";
    });
    await until(async () => (await size()) === before, "its own size");
    await front(small, world, pane);
    await small.getByRole("button", { name: /Fit the pane to this page/ }).click();
    await until(async () => (await size()) !== before, "the page's size");
    await small.getByRole("button", { name: "Undo" }).click();
    await until(async () => (await size()) === before, "its own size again");
    await small.context().close();
    await large.context().close();
    await world.tmux("kill-pane", "-t", pane);
});

test("a flood in a pane that is shown: few bytes, memory flat, and history asked for a few times a second", async () => {
    const file = join(world.dir, "flood");
    writeFileSync(file, `${"0123456789abcdefghijklmnopqrstuvwxyz ".repeat(2)}\n`.repeat(140_000));
    const pane = await world.window("exec cat");
    const own = await world.page();
    await front(own, world, pane);
    const client = await own.context().newCDPSession(own);
    await client.send("Network.enable");
    let bytes = 0;
    let histories = 0;
    client.on("Network.webSocketFrameReceived", ({ response }) => {
        bytes += response.payloadData.length;
    });
    client.on("Network.webSocketFrameSent", ({ response }) => {
        histories += response.payloadData.includes('"history"') ? 1 : 0;
    });
    const heap = async () => {
        await client.send("HeapProfiler.collectGarbage");
        return own.evaluate(() => performance.memory.usedJSHeapSize);
    };
    const before = await heap();
    const begin = Date.now();
    await world.tmux("respawn-pane", "-k", "-t", pane, `cat ${file}; echo; echo flood-is-over; exec cat`);
    await until(async () => (await shown(own)).includes("flood-is-over"), "the flood's end", 60_000);
    const seconds = (Date.now() - begin) / 1000;
    await same(pane, own);
    assert.ok(bytes / Math.max(1, seconds) < 1 << 20, `${bytes} bytes in ${seconds} s`);
    assert.ok(histories <= 4 * seconds + 4, `${histories} questions in ${seconds} s`);
    assert.ok((await heap()) - before < 3 << 20, `${before} and then more`);
    await own.context().close();
    await world.tmux("kill-pane", "-t", pane);
});

test("a wait is set from a selection; letters grow and shrink; motion is left out where it is not wanted; all has a name", async () => {
    const pane = await world.window("printf 'build finished\\n'; exec cat");
    const own = await world.page({ reducedMotion: "reduce" });
    await front(own, world, pane);
    const size = () => own.locator(".front .scroller").evaluate((one) => Number.parseFloat(getComputedStyle(one).fontSize));
    const first = await size();
    await own.getByRole("button", { name: "Smaller text" }).click();
    const small = await size();
    await own.getByRole("button", { name: "Larger text" }).click();
    assert.ok(small < first && (await size()) > small, `${first} ${small}`);
    await own.locator(".front .screen .row", { hasText: "build finished" }).first().evaluate((row) => getSelection().selectAllChildren(row));
    await own.getByRole("button", { name: "Notify me when it prints something" }).click();
    assert.equal((await own.getByRole("textbox", { name: "Text" }).inputValue()).trim(), "build finished");
    await own.keyboard.press("Escape");
    const nameless = await own.evaluate(() => [...document.querySelectorAll("button, a, input, textarea, [role=region]")].filter((one) => (one.getAttribute("aria-label") ?? one.textContent ?? "").trim() === "" && one.title === "" && !(one.labels?.length > 0)).map((one) => one.outerHTML.slice(0, 100)));
    assert.deepEqual(nameless, []);
    const moves = await own.evaluate(() => document.getAnimations().filter((one) => one.effect.getTiming().duration > 1).length);
    assert.equal(moves, 0);
    assert.deepEqual(own.failures, []);
    await own.context().close();
    await world.tmux("kill-pane", "-t", pane);
});

const vim = spawnSync("vim", ["--version"]).status === 0;
test("vim in a pane: typing, Escape, and its end", { skip: !vim && "no vim is installed" }, async () => {
    const file = join(world.dir, "vim.txt");
    const pane = await world.window(`vim -u NONE -N -i NONE ${file}; exec cat`);
    await front(page, world, pane);
    await until(async () => (await shown(page)).some((row) => row.startsWith("~")), "vim");
    await page.locator(".front .scroller").click();
    await page.keyboard.type("ione two");
    await page.keyboard.press("Escape");
    await page.keyboard.type("0x:w");
    await page.keyboard.press("Enter");
    await until(() => existsSync(file) && readFileSync(file, "utf8") === "ne two\n", "the file");
    await same(pane);
    await page.keyboard.type(":q!");
    await page.keyboard.press("Enter");
    await until(async () => (await world.tmux("display-message", "-p", "-t", pane, "#{pane_current_command}")) === "cat", "vim's end");
    await same(pane);
    await world.tmux("kill-pane", "-t", pane);
    await home();
});

test("what an input method composes is typed once, when it is chosen", async () => {
    const pane = await world.window("exec cat");
    await front(page, world, pane);
    const client = await page.context().newCDPSession(page);
    await page.locator(".front .scroller").click();
    for (const text of ["に", "にほ", "にほん"]) {
        await client.send("Input.imeSetComposition", { text, selectionStart: text.length, selectionEnd: text.length });
    }
    await client.send("Input.insertText", { text: "日本" });
    await page.keyboard.press("Enter");
    await until(async () => (await world.capture(pane)).filter((row) => row === "日本").length === 2, "the word and its echo");
    await same(pane);
    await client.detach();
    await world.tmux("kill-pane", "-t", pane);
    await home();
});

test("a browser whose login is taken away says so, keeps what is open, and goes on when it is let in again", async () => {
    const own = await world.page();
    await world.muxtap("open", "--revoke");
    await own.getByText("This browser is not logged in").waitFor();
    const again = await own.context().newPage();
    await again.goto(await world.link());
    await again.locator(".status.open").waitFor();
    await own.bringToFront();
    await own.getByRole("button", { name: "Try again" }).click();
    await own.locator(".status.open").waitFor();
    await own.locator(".tile").first().waitFor();
    await own.context().close();
    // Every browser was logged out; a link that is followed in the same window changes only its address.
    await page.getByText("This browser is not logged in").waitFor();
    await page.goto(await world.link());
    await page.locator(".status.open").waitFor();
    assert.equal(new URL(page.url()).hash, "");
    // The browser itself logs each error response.
    assert.deepEqual(page.failures.splice(0).filter((failure) => !failure.includes("401")), []);
});

test("the theme follows the system and the switch, and nothing failed in the page", async () => {
    const ground = () => page.evaluate(() => getComputedStyle(document.documentElement).backgroundColor);
    await page.emulateMedia({ colorScheme: "light" });
    const light = await ground();
    await page.emulateMedia({ colorScheme: "dark" });
    assert.notEqual(await ground(), light);
    await page.getByRole("button", { name: /^Theme/ }).click();
    assert.equal(await ground(), light);
    assert.deepEqual(page.failures, []);
});
