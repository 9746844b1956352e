// Takes the pictures of the page for docs/page/, with a separate muxtap and tmux. `scripts/page pictures` runs it.

import { mkdirSync, statSync, writeFileSync } from "node:fs";
import { createServer } from "node:http";
import { join } from "node:path";
import { front, shown, until, World } from "./world.mjs";

const OUT = new URL("../../docs/page/", import.meta.url).pathname;
mkdirSync(OUT, { recursive: true });

async function make() {
    const at = (name) => join(world.dir, "home", name);
    const write = (name, text, mode = 0o644) => {
        mkdirSync(join(at(name), ".."), { recursive: true });
        writeFileSync(at(name), text, { mode });
    };
    write("src/cursor.rs", RUST);
    write("bin/claude", `#!/bin/sh\n${CLAUDE}\nread -r _; exec cat\n`, 0o755);
    write("bin/codex", "#!/bin/sh\nprintf '\\033[1m>_ OpenAI Codex\\033[0m\\n\\n\\033[2m• Ran\\033[0m rg -n \"fn parse\" src\\n\\033[2m  └\\033[0m src/wire.rs:88\\n\\n\\033[36m• Working\\033[0m (12s • esc to interrupt)\\n'; exec cat\n", 0o755);
    const shell = (text) => `printf '${text}'; exec cat`;
    await world.tmux("respawn-pane", "-k", "-t", "work:0", `cd ${at("src")}; exec vim -u NONE -c 'syntax on' -c 'set number laststatus=2 ruler bg=dark' -c 14 cursor.rs`);
    await world.tmux("rename-window", "-t", "work:0", "edit");
    const window = async (name, command, session = "work") => {
        const pane = await world.window(command, session);
        await world.tmux("rename-window", "-t", pane, name);
        return pane;
    };
    await window("tests", shell(CARGO));
    const agent = await window("review", `exec ${at("bin/claude")}`);
    // The machine's processes stay private: this program shows a file made for the picture.
    write("src/RELEASE.md", RELEASE);
    await window("notes", `cd ${at("src")}; exec less RELEASE.md`);
    await world.tmux("new-session", "-d", "-s", "ops", "-n", "server", ...world.size, shell(LOG));
    await window("migrate", `exec ${at("bin/codex")}`, "ops");
    await world.tmux("new-session", "-d", "-s", "git", "-n", "log", ...world.size, shell(GIT));

    // A shell that marks its commands.
    write("rc", "PS1='\\[\\e]133;A\\a\\e[32m\\]ann@box\\[\\e[m\\]:\\[\\e[34m\\]~/src\\[\\e[m\\]$ \\[\\e]133;B\\a\\]'\nPS0='\\e]133;C\\a'\nPROMPT_COMMAND='printf \"\\e]133;D;$?\\a\"'\ncargo() { sleep 0.$3; echo \"    Finished in 0.$3 s\"; return $2; }\n");
    const build = await window("build", `cd ${at("src")}; exec bash --rcfile ${at("rc")} -i`, "ops");
    await until(async () => (await world.capture(build))[0].endsWith("$"), "the prompt");

    const take = async (page, name) => {
        await page.waitForTimeout(300);
        // A test's directory means nothing to readers.
        await page.evaluate(() => {
            for (const element of document.querySelectorAll(".front .where")) {
                element.textContent = "~/src";
            }
        });
        const path = `${OUT}${name}.png`;
        await page.screenshot({ path });
        console.log(String(statSync(path).size).padStart(8), name);
    };
    const vim = await world.tmux("list-panes", "-t", "work:0", "-F", "#{pane_id}");
    const dark = await world.page({ colorScheme: "dark" });
    await dark.locator(".badge.permission").first().waitFor();
    for (const line of ["ls", "cargo check 0 4", "grep -n 'fn distance' cursor.rs", "cargo test 101 9", "grep -c epoch cursor.rs RELEASE.md", "git push"]) {
        await world.tmux("send-keys", "-t", build, line, "Enter");
        await until(async () => (await world.capture(build)).filter((row) => row !== "").at(-1).endsWith("$"), line);
    }
    await take(dark, "wall-dark");
    await front(dark, world, vim);
    await until(async () => (await shown(dark)).some((row) => row.includes("cursor.rs")), "vim");
    await take(dark, "pane-dark");
    await front(dark, world, build);
    await dark.locator(".front .mark").nth(5).waitFor();
    for (let step = 0; step < 3; step += 1) {
        await dark.keyboard.press("Control+Shift+ArrowUp");
    }
    await take(dark, "commands-dark");
    await dark.getByRole("link", { name: /Agents/ }).click();
    await take(dark, "agents-dark");

    const light = await world.page({ colorScheme: "light" });
    await light.locator(".badge.permission").first().waitFor();
    await take(light, "wall-light");
    await workspace(light);
    await take(light, "workspace-light");

    const phone = await world.page({ colorScheme: "dark", viewport: { width: 390, height: 780 }, isMobile: true, hasTouch: true, deviceScaleFactor: 2 });
    await front(phone, world, agent);
    await phone.getByRole("button", { name: /Reading view/ }).tap();
    await phone.locator(".reading-now p").first().waitFor();
    await take(phone, "phone-pane");
    await phone.getByRole("link", { name: /Agents/ }).click();
    await take(phone, "phone-question");
}

async function workspace(page) {
    const server = createServer((_, answer) => answer.setHeader("content-type", "text/html").end(SITE)).listen(0, "127.0.0.1");
    await new Promise((resolve) => server.once("listening", resolve));
    server.unref();
    await world.ask("POST", "/v1/agent-sessions", { provider: "claude", cwd: world.dir });
    await page.getByRole("link", { name: "Workspace" }).click();
    await page.locator(".area .empty").getByRole("button", { name: "New tab" }).click();
    await page.locator(".picker:visible .choices button", { hasText: "work:1.0" }).click();
    const split = (how) => page.locator(".place.active, .place:only-of-type").last().getByRole("button", { name: `Split: add a pane ${how} this one` }).click();
    await split("beside");
    await page.locator(".picker:visible input[aria-label=Address]").fill(`http://127.0.0.1:${server.address().port}/`);
    await page.keyboard.press("Enter");
    await page.frameLocator("iframe").getByText("Hello").waitFor();
    await split("below");
    await page.locator(".picker:visible .choices button", { hasText: "claude idle" }).click();
    await page.getByRole("textbox", { name: "Prompt" }).fill("Fix the failing test in src/lib.rs");
    await page.keyboard.press("Enter");
    await page.locator(".chat .question").waitFor();
    await page.locator(".place .scroller").click();
    await page.locator(".place.active").getByRole("button", { name: "Split: add a pane below this one" }).click();
}

const SITE = `<!doctype html><style>body{font:16px system-ui,sans-serif;margin:0;color:#223;background:#f3f6fc}main{padding:28px}h1{margin:0 0 6px;font-size:26px}.c{display:inline-block;background:#fff;border:1px solid #d5def0;border-radius:10px;padding:10px 16px;margin:10px 8px 0 0}</style><main><h1>Hello from the dev server</h1><p>It reloads when a file is saved.</p><div class=c>12 orders</div><div class=c>3 open</div><div class=c>0 failed</div></main>`;

const RUST = `//! Places in a pane's output.

use std::fmt;

/// A place in the stream of one pane; it stays good while the bytes behind it are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    epoch: u64,
    offset: u64,
}

impl Cursor {
    /// Returns the bytes between two places, or none where they are of two servers.
    pub fn distance(self, other: Self) -> Option<u64> {
        if self.epoch != other.epoch {
            return None;
        }
        Some(self.offset.abs_diff(other.offset))
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "c{:x}.{:x}", self.epoch, self.offset)
    }
}
`;

const RELEASE = `# Releases

A release is a tag. What it needs, in this order:

1. The tests pass on Linux and macOS.
2. CHANGELOG.md says what is new, for people who use it.
3. The version in Cargo.toml is the tag's.
4. cargo publish --dry-run says nothing.

## 0.3.0

- Panes in a browser: a wall of tiles, one in front.
- A workspace holds terminals, web pages and files.
- Waits end with the line that met them.

## 0.2.1

- A paste keeps its brackets on slow links.
- History is found from its beginning on.

## 0.2.0

- Agents are listed with what they ask.
- Reads go on from a cursor, after a reconnect too.
`;

const CLAUDE = `printf '\\033[2m> the test in src/lib.rs fails, have a look\\033[0m\\n\\n\\342\\227\\217 The subtraction in \\033[1madd\\033[0m is the wrong way round. I mend it and run the tests.\\n\\n\\342\\227\\217 \\033[1mUpdate\\033[0m(src/lib.rs)\\n  \\342\\224\\224  Updated with 1 addition and 1 removal\\n       12    pub fn add(a: u32, b: u32) -> u32 {\\n       13  \\033[31m-     a - b\\033[0m\\n       13  \\033[32m+     a + b\\033[0m\\n       14    }\\n\\n\\033[34mBash command\\033[0m\\n\\n  cargo test --lib\\n  \\033[2mRun the unit tests\\033[0m\\n\\nDo you want to proceed?\\n\\033[36m\\342\\235\\257 1. Yes\\033[0m\\n  2. Yes, and don\\047t ask again for cargo test\\n  3. No, and tell Claude what to do differently (esc)\\n'`;

const CARGO = [
    "$ cargo nextest run",
    "\\033[1;32m   Compiling\\033[0m muxtap v0.3.0",
    "\\033[1;32m    Finished\\033[0m `test` profile [unoptimized] target(s) in 41.20s",
    "\\033[1;32m    Starting\\033[0m 412 tests across 9 binaries",
    ...["hub::every_pane_is_heard", "waits::a_match_counts_once", "screen::wide_characters_wrap", "stream::a_gap_is_told", "modes::copy_mode_is_left", "streams::a_slow_reader_is_told"].map((name, index) => `\\033[1;32m        PASS\\033[0m [   0.${index}31s] \\033[35mmuxtap\\033[0m \\033[34m${name}\\033[0m`),
    "\\033[1;31m        FAIL\\033[0m [   1.204s] \\033[35mmuxtap\\033[0m \\033[34minput::a_paste_is_bracketed\\033[0m",
    "",
    "  thread \\047input::a_paste_is_bracketed\\047 panicked at tests/integration/input.rs:88:5:",
    "  assertion \\140left == right\\140 failed",
    "\\033[1m     Summary\\033[0m [  12.331s] 412 tests run: \\033[1;32m411 passed\\033[0m, \\033[1;31m1 failed\\033[0m",
    "$ ",
].join("\\n").replaceAll("`", "\\140");

const LOG = Array.from({ length: 24 }, (_, index) => `\\033[2m2026-11-23T19:0${index % 10}:1${index % 7}Z\\033[0m ${index % 6 === 4 ? "\\033[33m WARN\\033[0m" : "\\033[32m INFO\\033[0m"} ${["request{id=81c2} GET /v1/panes 200 in 1.2 ms", "session{id=7} opened from 10.0.0.4", "cache: 1204 hits, 3 misses", "request{id=81c9} POST /v1/waits 200 in 812 ms", "queue is 83 %% full"][index % 5]}`).join("\\n");

const GIT = ["\\033[33m* 5da778c\\033[0m (\\033[1;36mHEAD -> \\033[1;32mmain\\033[0m) The page: its connection and its files", "\\033[33m* f5df9db\\033[0m Screens as rows of runs", "\\033[33m* 40b9f34\\033[0m The model keeps modes of input", "\\033[31m|\\033[32m\\\\\\\\\\033[0m", "\\033[31m|\\033[0m \\033[33m* a6dc4e9\\033[0m Documents of hosts and devices", "\\033[31m|\\033[0m \\033[33m* 54c8ee7\\033[0m Benches of recordings and the relay", "\\033[31m|\\033[32m/\\033[0m", "\\033[33m* 9813961\\033[0m Tests of peers and agent sessions", ""].join("\\n");

const world = await World.start({ columns: 96, rows: 28 });
try {
    await make();
} finally {
    await world.end();
}
