import assert from "node:assert/strict";
import { test } from "node:test";
import { Connection, type ConnectionEvents, KEPT_FOR, type Pending, type Socket } from "../src/wire";

class FakeSocket implements Socket {
    readyState = 1;
    sent: Record<string, unknown>[] = [];
    closed = false;
    onopen: ((event: never) => void) | null = null;
    onmessage: ((event: { data: unknown }) => void) | null = null;
    onclose: ((event: { code: number; reason: string }) => void) | null = null;
    send(text: string): void {
        this.sent.push(JSON.parse(text) as Record<string, unknown>);
    }
    close(): void {
        this.closed = true;
        this.readyState = 3;
    }
    says(message: object): void {
        this.onmessage?.({ data: JSON.stringify(message) });
    }
    breaks(code = 1006): void {
        this.readyState = 3;
        this.onclose?.({ code, reason: "" });
    }
    of(type: string): Record<string, unknown>[] {
        return this.sent.filter((one) => one.type === type);
    }
}

function world() {
    const sockets: FakeSocket[] = [];
    const timers: { ms: number; then: () => void; gone: boolean }[] = [];
    const frames: (() => void)[] = [];
    const daemon = { barred: false, seen: true };
    const clock = { now: 0 };
    const log: { barred: number; unknown: Pending[][]; refused: [number, string][]; pending: number } = { barred: 0, unknown: [], refused: [], pending: 0 };
    let client: string | null = null;
    const events: ConnectionEvents = {
        link: () => undefined,
        panes: () => undefined,
        waits: () => undefined,
        approvals: () => undefined,
        pending: (pending) => {
            log.pending = pending.length;
        },
        unknown: (lost) => log.unknown.push([...lost]),
        refused: (pending, error) => log.refused.push([pending.seq, error.code]),
        error: () => undefined,
        barred: () => {
            log.barred += 1;
        },
        ready: () => undefined,
    };
    const connection = new Connection(
        {
            open: () => {
                const socket = new FakeSocket();
                sockets.push(socket);
                return socket;
            },
            after: (ms, then) => {
                const timer = { ms, then, gone: false };
                timers.push(timer);
                return () => {
                    timer.gone = true;
                };
            },
            now: () => clock.now,
            frame: (then) => frames.push(then),
            recall: () => client,
            remember: (name) => {
                client = name;
            },
            random: () => 0.5,
            seen: () => daemon.seen,
            barred: async () => daemon.barred,
        },
        events,
    );
    const socket = () => sockets[sockets.length - 1] as FakeSocket;
    const welcome = (name: string, input: number) => {
        socket().onopen?.(undefined as never);
        socket().says({ type: "welcome", version: "1", client: name, input, may: ["read", "input", "create", "kill"], fps: 60 });
    };
    const fire = () => {
        const due = timers.filter((timer) => !timer.gone);
        timers.length = 0;
        for (const timer of due) {
            timer.then();
        }
    };
    const frame = () => frames.splice(0).forEach((then) => then());
    return { daemon, clock, connection, sockets, socket, welcome, fire, frame, timers, log };
}

const seqs = (socket: FakeSocket) => socket.of("input").map((one) => one.seq);

test("a page of a replaced daemon connects at once to the next one, and types what had no response", () => {
    const { connection, sockets, socket, welcome, log } = world();
    connection.connect();
    welcome("a", 0);
    connection.show("KEY", { screen: () => undefined, ended: () => undefined });
    for (const text of ["u", "v", "w", "x", "y"]) {
        connection.type("KEY", { text });
    }
    socket().says({ type: "ack", seq: 1, cursor: "c" });
    // The daemon ignores what arrives while it hands over, and refuses none of it.
    connection.type("KEY", { text: "z" });
    assert.deepEqual(socket().of("input").map((one) => one.seq), [1, 2, 3, 4, 5, 6]);
    socket().breaks(1012);
    assert.equal(sockets.length, 2);
    // The next daemon has taken over the line, in which the first two numbers were taken.
    welcome("a", 2);
    assert.deepEqual(socket().of("input").map((one) => [one.seq, one.text]), [[3, "w"], [4, "x"], [5, "y"], [6, "z"]]);
    assert.deepEqual([socket().of("show").length, log.unknown.length, log.refused.length], [1, 0, 0]);
    for (const seq of [3, 4, 5, 6]) {
        socket().says({ type: "ack", seq, cursor: "c" });
    }
    assert.equal(log.pending, 0);
    // One that does not welcome the page is not asked again at once.
    socket().breaks(1012);
    socket().breaks(1012);
    assert.equal(sockets.length, 3);
});

test("a connection says hello with the name that it was given", () => {
    const { connection, socket, welcome, fire } = world();
    connection.connect();
    welcome("A", 0);
    assert.deepEqual(socket().of("hello"), [{ type: "hello" }]);
    socket().breaks();
    fire();
    welcome("A", 0);
    assert.deepEqual(socket().of("hello"), [{ type: "hello", client: "A" }]);
});

test("what was neither acknowledged nor counted is sent again with its number, once", () => {
    const { connection, socket, welcome, fire, log } = world();
    connection.connect();
    welcome("A", 0);
    for (const text of ["a", "b", "c", "d"]) {
        connection.type("k", { text });
    }
    socket().says({ type: "ack", seq: 1, cursor: "c" });
    socket().breaks();
    connection.type("k", { text: "e" });
    fire();
    welcome("A", 3);
    assert.deepEqual(
        socket().of("input").map((one) => [one.seq, one.text]),
        [
            [4, "d"],
            [5, "e"],
        ],
    );
    assert.equal(log.pending, 2);
    socket().says({ type: "ack", seq: 4, cursor: "c" });
    socket().says({ type: "ack", seq: 5, cursor: "c" });
    assert.equal(log.pending, 0);
    assert.deepEqual(log.unknown, []);
});

test("a number that was taken may still be refused, and what it typed is told", () => {
    const { connection, socket, welcome, fire, log } = world();
    connection.connect();
    welcome("A", 0);
    connection.type("k", { text: "a" });
    socket().breaks();
    fire();
    welcome("A", 1);
    assert.equal(log.pending, 0);
    socket().says({ type: "nack", seq: 1, error: { code: "NOT_FOUND", message: "gone" } });
    assert.deepEqual(log.refused, [[1, "NOT_FOUND"]]);
});

test("another daemon does not know the keys: what was sent is unknown, what never was is typed", () => {
    const { connection, socket, welcome, fire, log } = world();
    connection.connect();
    welcome("A", 7);
    connection.type("k", { text: "a" });
    assert.deepEqual(seqs(socket()), [8]);
    socket().breaks();
    connection.type("k", { text: "b" });
    fire();
    welcome("B", 0);
    assert.deepEqual(log.unknown.map((lost) => lost.map((one) => one.typed)), [[{ text: "a" }]]);
    // Its panes have other keys: the input waits until each is found, and later input behind it.
    connection.type("l2", { text: "c" });
    assert.equal(connection.rehome((key) => (key === "l2" ? key : null), false), null);
    assert.deepEqual(socket().of("input"), []);
    assert.deepEqual(connection.rehome((key) => (key === "k" ? "k2" : key), false), []);
    assert.deepEqual(
        socket().of("input").map((one) => [one.seq, one.key, one.text]),
        [[1, "k2", "b"], [2, "l2", "c"]],
    );
    assert.deepEqual(connection.rehome(() => null, true), [], "once");
});

test("input for a pane that another daemon does not have is returned, all of it, and the rest is typed", () => {
    const { connection, socket, welcome, fire } = world();
    connection.connect();
    welcome("A", 0);
    socket().breaks();
    for (const [key, text] of [["gone", "a"], ["k", "b"], ["gone", "c"]] as const) {
        connection.type(key, { text });
    }
    fire();
    welcome("B", 0);
    const lost = connection.rehome((key) => (key === "k" ? "k2" : null), true);
    assert.deepEqual(lost?.map((one) => one.typed), [{ text: "a" }, { text: "c" }]);
    assert.deepEqual(
        socket().of("input").map((one) => [one.seq, one.key, one.text]),
        [[1, "k2", "b"]],
    );
});

test("input that waited too long for another daemon is returned, with all that was typed into its pane", () => {
    const { clock, connection, socket, welcome, fire } = world();
    connection.connect();
    welcome("A", 0);
    socket().breaks();
    connection.type("k", { text: "rm -rf " });
    clock.now = KEPT_FOR;
    connection.type("k", { text: "old" });
    connection.type("l", { text: "b" });
    clock.now = KEPT_FOR + 1;
    fire();
    welcome("B", 0);
    const lost = connection.rehome((key) => `${key}2`, false);
    assert.deepEqual(lost?.map((one) => one.typed), [{ text: "rm -rf " }, { text: "old" }]);
    assert.deepEqual(
        socket().of("input").map((one) => [one.seq, one.key, one.text]),
        [[1, "l2", "b"]],
    );
});

test("what was never sent into a pane can be thrown away, and leaves no hole in the numbers", () => {
    const { connection, socket, welcome, fire } = world();
    connection.connect();
    welcome("A", 0);
    connection.type("k", { text: "a" });
    socket().breaks();
    for (const [key, text] of [["l", "x"], ["k", "b"], ["l", "y"]] as const) {
        connection.type(key, { text });
    }
    connection.discardUnsent("k");
    fire();
    welcome("A", 1);
    connection.type("k", { text: "c" });
    assert.deepEqual(
        socket().of("input").map((one) => [one.seq, one.text]),
        [[2, "x"], [3, "y"], [4, "c"]],
    );
});

test("a credit is given back once, in the frame in which it was drawn, and not for a view that is hidden", () => {
    const { connection, socket, welcome, frame } = world();
    connection.connect();
    welcome("A", 0);
    const seen: unknown[] = [];
    const view = connection.show("k", { screen: (message) => seen.push(message) });
    const other = connection.show("l", { screen: () => undefined });
    socket().says({ type: "screen", view, cursor: "c", at: [0, 0] });
    assert.equal(seen.length, 1);
    assert.deepEqual(socket().of("drawn"), []);
    connection.drew(view);
    connection.drew(view);
    connection.drew(other);
    connection.hide(other);
    frame();
    assert.deepEqual(socket().of("drawn"), [], "no frame is asked for: there is one");
    connection.giveCredits();
    connection.giveCredits();
    assert.deepEqual(socket().of("drawn"), [{ type: "drawn", views: [view] }]);
});

test("what is shown is asked for together with the hello, once", () => {
    const { connection, socket, welcome, fire } = world();
    connection.connect();
    welcome("A", 0);
    const view = connection.show("k", { screen: () => undefined });
    socket().breaks();
    fire();
    socket().onopen?.(undefined as never);
    assert.deepEqual(socket().sent.map((one) => one.type), ["hello", "list", "show"]);
    // What is shown and hidden meanwhile is said at once, too; what changes something waits.
    const other = connection.show("l", { screen: () => undefined });
    connection.hide(view);
    connection.type("l", { keys: ["a"] });
    assert.deepEqual(socket().sent.slice(3).map((one) => [one.type, one.view]), [["show", other], ["hide", view]]);
    socket().says({ type: "welcome", version: "1", client: "A", input: 0, may: ["read", "input"], fps: 60 });
    assert.equal(socket().of("show").length, 2);
    assert.equal(socket().of("list").length, 1);
    assert.equal(socket().of("input").length, 1);
});

test("views are shown again after a break; calls are told that it broke, and are not made twice", async () => {
    const { connection, socket, welcome, fire } = world();
    connection.connect();
    welcome("A", 0);
    connection.show("k", { screen: () => undefined });
    const call = connection.call("create", {});
    socket().breaks();
    await assert.rejects(call, { code: "UNAVAILABLE" });
    fire();
    welcome("A", 0);
    assert.deepEqual(socket().of("show"), [{ type: "show", view: 1, key: "k" }]);
    assert.deepEqual(socket().of("call"), []);
});

test("a key without an answer has the link doubted, and a new one taken", () => {
    const { connection, sockets, socket, welcome, fire } = world();
    connection.connect();
    welcome("A", 0);
    connection.type("k", { text: "a" });
    fire();
    assert.equal(connection.state, "waiting");
    assert.equal(sockets[0]?.closed, true);
    fire();
    welcome("A", 0);
    assert.deepEqual(seqs(socket()), [1]);
});

test("waits between tries grow, and end at once when the page is looked at", () => {
    const { connection, sockets, socket, fire, timers } = world();
    connection.connect();
    const waits: number[] = [];
    for (let round = 0; round < 8; round += 1) {
        socket().breaks();
        waits.push(timers.filter((timer) => !timer.gone)[0]?.ms ?? 0);
        fire();
    }
    assert.deepEqual(waits, [250, 500, 1000, 2000, 4000, 8000, 8000, 8000]);
    socket().breaks();
    const before = sockets.length;
    connection.probe();
    assert.equal(sockets.length, before + 1);
    // The connection that begins is left alone: a tab that is shown while it opens connects once.
    connection.probe();
    assert.equal(sockets.length, before + 1);
});

test("a page whose name another one says takes a new name", () => {
    const { connection, socket, welcome, fire, log } = world();
    connection.connect();
    welcome("A", 0);
    connection.type("k", { text: "a" });
    socket().says({ type: "error", error: { code: "REPLACED", message: "" } });
    fire();
    welcome("B", 0);
    assert.deepEqual(socket().of("hello"), [{ type: "hello" }]);
    assert.equal(log.unknown.length, 1);
});

test("a login that was taken away is said, and nothing is tried any more until somebody asks", async () => {
    const { daemon, connection, sockets, socket, welcome, fire, log } = world();
    const settled = () => new Promise((resolve) => setImmediate(resolve));
    connection.connect();
    welcome("A", 0);
    socket().breaks();
    await settled();
    assert.deepEqual([log.barred, connection.state], [0, "waiting"]);
    daemon.barred = true;
    fire();
    socket().breaks();
    await settled();
    assert.deepEqual([log.barred, connection.state], [1, "closed"]);
    const before = sockets.length;
    fire();
    assert.equal(sockets.length, before);
    connection.connect();
    welcome("A", 0);
    assert.equal(connection.state, "open");
});

test("an answer that comes when the link is back ends nothing", async () => {
    const { daemon, connection, socket, welcome, fire, log } = world();
    connection.connect();
    welcome("A", 0);
    daemon.barred = true;
    socket().breaks();
    fire();
    welcome("A", 0);
    await new Promise((resolve) => setImmediate(resolve));
    assert.deepEqual([log.barred, connection.state], [0, "open"]);
});

test("a text that is more than a message holds is several inputs; a paste that is, is none", () => {
    const { connection, socket, welcome } = world();
    connection.connect();
    welcome("A", 0);
    assert.equal(connection.type("k", { text: "x".repeat(1_500_000) }), true);
    assert.equal(connection.type("k", { paste: "x".repeat(1_500_000) }), false);
    const inputs = socket().of("input");
    assert.deepEqual(seqs(socket()), [1, 2]);
    assert.equal(inputs.map((one) => String(one.text)).join("").length, 1_500_000);
    assert.ok(inputs.every((one) => JSON.stringify(one).length < 1 << 20));
});

test("a link that is only watched is asked after a silence, and taken for dead when it says nothing", () => {
    const { daemon, connection, socket, welcome, fire, timers } = world();
    connection.connect();
    welcome("A", 0);
    const asked = () => socket().of("history").length;
    const before = asked();
    daemon.seen = false;
    fire();
    assert.equal(asked(), before, "nobody looks");
    daemon.seen = true;
    assert.deepEqual(timers.filter((timer) => !timer.gone).map((timer) => timer.ms), [20_000]);
    fire();
    assert.equal(asked(), before + 1);
    socket().says({ type: "waits", waits: [] });
    fire();
    assert.equal(asked(), before + 2);
    timers.find((timer) => !timer.gone && timer.ms === 4000)?.then();
    assert.equal(connection.state, "waiting");
});

test("a key that is not acknowledged has the link given up, also while other messages come", () => {
    const { connection, socket, welcome, timers } = world();
    connection.connect();
    welcome("A", 0);
    connection.type("k", { text: "a" });
    socket().says({ type: "waits", waits: [] });
    const ack = timers.find((timer) => !timer.gone && timer.ms === 10_000);
    ack?.then();
    assert.equal(connection.state, "waiting");
});

test("a size that was taken is given back by the next connection, where this one broke before", async () => {
    const { connection, socket, welcome, fire } = world();
    connection.connect();
    welcome("A", 0);
    const fitted = connection.fit("k", 100, 30);
    assert.deepEqual(socket().of("fit"), [{ type: "fit", id: 1, key: "k", columns: 100, rows: 30 }]);
    socket().says({ type: "result", id: 1, result: { columns: 100, rows: 30 } });
    await fitted;
    socket().breaks();
    connection.unfit("k");
    await new Promise((resolve) => setImmediate(resolve));
    fire();
    welcome("A", 0);
    assert.deepEqual(socket().of("unfit"), [{ type: "unfit", id: 3, key: "k" }]);
    socket().says({ type: "result", id: 3, result: {} });
    await new Promise((resolve) => setImmediate(resolve));
    connection.unfit("k");
    socket().breaks();
    fire();
    welcome("A", 0);
    assert.deepEqual(socket().of("unfit"), []);
});

test("a link is not given up by a timer that a frozen page fires late", () => {
    const { clock, connection, sockets, socket, welcome, timers } = world();
    connection.connect();
    welcome("A", 0);
    const doubts = () => timers.filter((timer) => !timer.gone && timer.ms === 4000);
    connection.probe();
    const [late] = doubts();
    clock.now = 60_000;
    late!.gone = true;
    late!.then();
    assert.equal(connection.state, "open");
    const [again] = doubts();
    socket().says({ type: "waits", waits: [] });
    assert.ok(again!.gone, "the response that waited ends the doubt");
    connection.probe();
    clock.now += 4000;
    doubts()[0]!.then();
    assert.equal(connection.state, "waiting");
    assert.equal(sockets.length, 1);
});
