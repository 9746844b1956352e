// Tasks of MCP (`io.modelcontextprotocol/tasks`) with the official client packages: run by scripts/mcp-tasks, which sets
// MUXTAP, MUXTAP_SOCKET and the rest of the environment. A model that waits makes one call; the client does the rest.
import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { createRequire } from "node:module";
import { pathToFileURL } from "node:url";
import { join } from "node:path";

const packages = join(process.env.TASKS_PACKAGES, "node_modules/x.js");
const load = (name) => import(pathToFileURL(createRequire(packages).resolve(name)));
const esm = (path) => import(pathToFileURL(join(process.env.TASKS_PACKAGES, "node_modules/@modelcontextprotocol", path)));
const { Client } = await load("@modelcontextprotocol/client");
const { StdioClientTransport } = await load("@modelcontextprotocol/client/stdio");
const { createTaskSessionFromClient } = await esm("ext-tasks/dist/client/index.js");

const version = "2026-07-28";
const info = { name: "tasks-test", version: "1" };
const muxtap = (...args) => execFileSync(process.env.MUXTAP, args, { encoding: "utf8" }).trim();
const pause = (ms, until) => new Promise((done) => {
  const timer = setTimeout(done, ms);
  until?.signal.addEventListener("abort", () => clearTimeout(timer));
});

/** A client with a session for tasks. `requests` counts its requests by method. */
async function open() {
  const transport = new StdioClientTransport({
    command: process.env.MUXTAP, args: ["mcp"], env: process.env, stderr: "inherit",
  });
  const client = new Client(info, { versionNegotiation: { mode: { pin: version } }, capabilities: {} });
  await client.connect(transport);
  // The package leaves the messages of tasks to its host: they go over the same connection, by ids of their own.
  const requests = {}, open = new Map(), usual = transport.onmessage;
  transport.onmessage = (message, extra) => {
    const take = open.get(message.id);
    return take ? take(message) : usual(message, extra);
  };
  let last = 0;
  const rawDispatch = async (request, { signal } = {}) => {
    const id = `task-${++last}`;
    requests[request.method] = (requests[request.method] ?? 0) + 1;
    const answered = new Promise((done, fail) => {
      open.set(id, done);
      signal?.addEventListener("abort", () => fail(signal.reason));
    });
    await transport.send({ jsonrpc: "2.0", id, ...request });
    const { result, error } = await answered.finally(() => open.delete(id));
    return error ? { kind: "error", error } : { kind: "result", result };
  };
  const session = createTaskSessionFromClient(client, {
    endpointId: "muxtap", rawDispatch,
    v2RequestFraming: { protocolVersion: version, clientInfo: info, clientCapabilities: {} },
  });
  return { client, session, requests, rawDispatch };
}

const text = (outcome) => outcome.result.content[0].text;
const cases = {
  async "the server announces tasks"({ client, session }) {
    assert.deepEqual(client.getServerCapabilities().extensions["io.modelcontextprotocol/tasks"], {});
    assert.ok(session.capabilities.execution && session.capabilities.cancellation);
  },

  async "a wait is one call, and its result arrives within 100 ms of the line"({ session, requests }) {
    const execution = await session.callTool("wait_for", {
      panes: ["job"], patterns: ["(\\d+) passed"], timeout_ms: 3600000,
    });
    assert.equal(execution.kind, "task");
    const views = [];
    const settled = execution.settle({ onEvent: (event) => void (event.type === "task" && views.push(event.task)) });
    await pause(Number(process.env.WAITS_QUIET ?? 12) * 1000);
    const before = requests["tasks/get"];
    const begun = performance.now();
    muxtap("send-keys", "-t", "job", "41 passed", "Enter");
    const sent = performance.now();
    const { outcome } = await settled;
    const took = performance.now() - sent;
    assert.equal(outcome.status, "completed");
    assert.match(text(outcome), /^matched in %\d+ .*\n.*41 passed/);
    assert.equal(requests["tools/call"], 1);
    assert.ok(views.some((view) => view.statusMessage === "0 of 1 satisfied"), JSON.stringify(views));
    console.log(`    ${before} tasks/get, all by the client; the result ${took.toFixed(1)} ms after ` +
      `send-keys returned (which took ${(sent - begun).toFixed(0)} ms)`);
    assert.ok(took < 100 || process.env.TASKS_SLOW, `${took} ms`);
    // It has ended for good, and says the same again.
    const again = await session.task(execution.handle.taskId).result();
    assert.equal(text(again), text(outcome));
  },

  async "what is there at once is no task"({ session }) {
    muxtap("send-keys", "-t", "job", "ready", "Enter");
    const execution = await session.callTool("wait_for", { panes: ["job"], patterns: ["ready"], since: "screen" });
    assert.equal(execution.kind, "immediate");
    assert.match(text(await execution.result()), /^matched/);
    const ran = await session.callTool("run", { target: "shell", command: "echo quick" });
    assert.equal(text(await ran.result()), "quick\n[exit status 0]");
  },

  async "a run is a task with the command's output"({ session }) {
    const command = "echo begun; sleep 1.5; seq 2000; exit_with() { return 7; }; exit_with";
    const execution = await session.callTool("run", { target: "shell", command, max_chars: 60 });
    assert.equal(execution.kind, "task");
    const outcome = await execution.result();
    assert.equal(outcome.status, "completed");
    assert.match(text(outcome), /2000\n.*\[exit status 7/s);
    assert.ok(text(outcome).length < 400, text(outcome));
  },

  async "a run that times out has ended, as an error that says what to do"({ session }) {
    const execution = await session.callTool("run", { target: "shell", command: "echo a; sleep 6", timeout_ms: 2000 });
    const outcome = await execution.result();
    assert.equal(outcome.status, "completed");
    assert.ok(outcome.result.isError && /TIMEOUT: .*\bid: "/.test(text(outcome)), text(outcome));
    const again = await session.task(execution.handle.taskId).result();
    assert.equal(text(again), text(outcome));
    const id = /id: "([^"]+)"/.exec(text(outcome))[1];
    const rest = await session.callTool("run", { id });
    assert.match(text(await rest.result()), /^a\n\[exit status 0\]/);
  },

  async "a cancelled task ends its wait"({ session }) {
    const execution = await session.callTool("wait_for", { panes: ["job"], patterns: ["never"], timeout_ms: 3600000 });
    const settled = execution.result();
    await execution.cancel();
    assert.equal((await settled).status, "cancelled");
    assert.deepEqual(JSON.parse(muxtap("result", "--list", "--json")).waits, []);
  },

  async "a task outlives its client"({ session }, reopen) {
    const execution = await session.callTool("wait_for", { panes: ["job"], patterns: ["outlived"], timeout_ms: 3600000 });
    let reference;
    await execution.handoff((given) => void (reference = given));
    const later = await reopen();
    muxtap("send-keys", "-t", "job", "outlived", "Enter");
    const outcome = await (await later.session.resumeTask(reference)).result();
    assert.match(text(outcome), /^matched/);
  },

  async "a result outlives the daemon; a wait that the daemon took along has failed"({ session }, reopen) {
    const of = async (pattern) => {
      const execution = await session.callTool("wait_for", { panes: ["job"], patterns: [pattern], timeout_ms: 3600000 });
      let reference;
      await execution.handoff((given) => void (reference = given));
      return reference;
    };
    const [ended, open] = [await of("kept-\\d"), await of("lost")];
    muxtap("send-keys", "-t", "job", "kept-1", "Enter");
    // The result is in its file.
    for (;;) {
      const { kept } = JSON.parse(muxtap("result", "--list", "--json"));
      if (kept?.some((one) => one.line === "kept-1")) break;
      await pause(20);
    }
    const pid = () => JSON.parse(muxtap("status", "--json")).pid;
    const killed = pid();
    process.kill(killed, "SIGKILL");
    // The next command starts another one, once the first has gone.
    for (let next = killed; next === killed; await pause(20)) {
      try {
        muxtap("list-sessions");
        next = pid();
      } catch { /* It is just ending. */ }
    }
    const later = await reopen();
    assert.match(text(await (await later.session.resumeTask(ended)).result()), /kept-1/);
    const lost = await (await later.session.resumeTask(open)).result();
    assert.equal(lost.status, "failed");
    assert.match(lost.error.message, /unknown/);
  },

  async "unknown tasks, and clients without the extension"({ client, session, rawDispatch }) {
    for (const id of ["x", "wait_for.1.0.w-none", "run.1.0.r0", "kill.1.0.w"]) {
      await assert.rejects(session.task(id).snapshot(), { code: -32602 }, id);
    }
    const meta = { "io.modelcontextprotocol/protocolVersion": version, "io.modelcontextprotocol/clientInfo": info,
      "io.modelcontextprotocol/clientCapabilities": {} };
    const call = { method: "tools/call", params: { name: "wait_for", _meta: meta,
      arguments: { panes: ["job"], patterns: ["later"], detach: true } } };
    const { result } = await rawDispatch(call);
    assert.match(result.content[0].text, /^pending: call wait_for with id: /);
    const asked = await rawDispatch({ method: "tasks/get", params: { taskId: "x", _meta: meta } });
    assert.equal(asked.error.code, -32021);
    assert.ok((await client.listTools()).tools.length > 10);
  },
};

let failed = 0;
for (const [name, run] of Object.entries(cases)) {
  if (process.argv[2] && !name.includes(process.argv[2])) continue;
  const opened = [];
  const reopen = async () => {
    const one = await open();
    opened.push(one);
    return one;
  };
  const late = new AbortController();
  const limit = pause(90000, late).then(() => assert.fail("no end in 90 s"));
  try {
    await Promise.race([run(await reopen(), reopen), limit]);
    console.log(`ok      ${name}`);
  } catch (error) {
    failed += 1;
    console.log(`FAILED  ${name}\n${error.stack}`);
  }
  late.abort();
  for (const one of opened) {
    // The program of a killed daemon's session has exited.
    const closed = one.session.close().then(() => one.client.close()).catch(() => {});
    await Promise.race([closed, pause(5000)]);
  }
}
process.exit(failed ? 1 : 0);
