#!/usr/bin/env python3
"""What a model reads of muxtap's MCP: the characters, divided by 4, of the results of usual tasks, of the tools, the instructions and the list of resources.

    benches/mcp_tokens.py [--muxtap PROGRAM] [--claude PROGRAM] [--codex PROGRAM] [--show]

The rows: `protocol` (a bare client, which reads structured content if a result has it, else text), `sdk` (the official Python SDK, if this
Python has it: target/mcp-sdk/bin/python after scripts/mcp-sdk), and real clients whose model is a stand-in on loopback: it requests the
tasks one after the other, and counts what it is sent. Each row has a daemon and a tmux server of its own. `--show` prints every result.
"""

import argparse
import asyncio
import http.server
import json
import os
import subprocess
import sys
import tempfile
import threading

LIMIT_S = 120
TASKS = [
    ("list", {}),
    ("list", {"what": "sessions"}),
    ("list", {"what": "windows"}),
    ("list", {"what": "agents"}),
    ("capture_pane", {"target": "main"}),
    ("run", {"target": "main", "command": "seq 20"}),
    ("run", {"target": "main", "command": "ls /absent"}),
    ("wait_for", {"panes": ["main"], "prompt": True}),
    ("send_keys", {"target": "main", "text": "echo hel''lo", "submit": True}),
    ("wait_for", {"panes": ["main"], "patterns": ["^hello$"]}),
    ("read_since", {"target": "main"}),
    ("read_since", {"target": "main", "since": "lines:30"}),
    ("search", {"pattern": "hello", "context": 1}),
    ("create", {"what": "window", "target": "main", "name": "logs", "command": "cat"}),
    ("create", {"what": "pane", "target": "main:logs"}),
    ("rename", {"target": "main:logs", "name": "notes"}),
    ("resize", {"target": "main:notes", "layout": "tiled"}),
    ("select", {"target": "main:0"}),
    ("create", {"name": "marked", "command": "bash", "shell_integration": True}),
    ("wait_for", {"panes": ["marked"], "prompt": True}),
    ("run", {"target": "marked", "command": "(exit 3)"}),
    ("list", {"what": "commands", "target": "marked"}),
    ("watch", {"targets": ["main"], "types": ["output"], "since": "lines:10", "wait_ms": 1000}),
    ("kill", {"target": "main:notes"}),
    ("capture_pane", {"target": "absent"}),
    ("snapshot", {"action": "save", "name": "s"}),
    ("list", {}),
]
ARGUMENTS = ["mcp", "--tools", "native,snapshot"]


class World:
    """A home directory, a daemon and a tmux server."""

    def __init__(self, program):
        self.program = program
        self.directory = tempfile.TemporaryDirectory(prefix="mt-tok-")
        here = self.directory.name
        self.socket = here + "/tmux"
        dropped = ("TMUX", "TMUX_PANE", "XDG_RUNTIME_DIR")
        self.env = {name: value for name, value in os.environ.items() if name not in dropped}
        self.env.update(
            HOME=here, XDG_CONFIG_HOME=here, XDG_STATE_HOME=here, MUXTAP_SOCKET=here + "/m.sock", SHELL="/bin/sh",
            LC_ALL="C.UTF-8", TERM="xterm-256color", PS1="$ ",
        )
        shell = ["new-session", "-d", "-s", "main", "-x", "100", "-y", "30", "/bin/sh"]
        subprocess.run(["tmux", "-S", self.socket, "-f", "/dev/null", *shell], check=True, env=self.env, cwd=here)

    def command(self):
        return [self.program, "-S", self.socket, *ARGUMENTS]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        subprocess.run([self.program, "stop"], env=self.env, capture_output=True, timeout=LIMIT_S)
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], env=self.env, capture_output=True, timeout=LIMIT_S)
        self.directory.cleanup()


def compact(value):
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


def shown(result):
    """What a client shows of a result: structured content if there is some, else the text."""
    if result.get("structuredContent") is not None:
        return compact(result["structuredContent"])
    return "".join(part.get("text", "") for part in result["content"])


def protocol(world):
    process = subprocess.Popen(world.command(), stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=world.env)
    asked = 0

    def say(message):
        process.stdin.write(json.dumps({"jsonrpc": "2.0", **message}).encode() + b"\n")
        process.stdin.flush()

    def ask(method, params):
        nonlocal asked
        asked += 1
        say({"id": asked, "method": method, "params": params})
        while True:
            message = json.loads(process.stdout.readline())
            if message.get("id") == asked and "method" not in message:
                return message["result"]

    client = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
    instructions = ask("initialize", client)["instructions"]
    say({"method": "notifications/initialized"})
    tools = compact(ask("tools/list", {})["tools"])
    listed = [ask("resources/" + what, {}) for what in ("list", "templates/list")]
    resources = "".join(compact(value) for answer in listed for value in answer.values() if isinstance(value, list))
    results = [shown(ask("tools/call", {"name": tool, "arguments": given})) for tool, given in TASKS]
    process.stdin.close()
    process.wait(LIMIT_S)
    return results, tools, instructions, resources


def sdk(world):
    from mcp import Client, StdioServerParameters

    async def calls():
        program, *arguments = world.command()
        async with Client(StdioServerParameters(command=program, args=arguments, env=world.env)) as client:
            listed = await client.list_tools()
            tools = [tool.model_dump(by_alias=True, exclude_none=True, mode="json") for tool in listed.tools]
            results = []
            for tool, given in TASKS:
                answer = await client.call_tool(tool, given)
                results.append(shown(answer.model_dump(by_alias=True, exclude_none=True, mode="json")))
            return results, compact(tools), "", ""

    return asyncio.run(calls())


class Model:
    """A stand-in for a model: requests the tasks, and keeps what it is sent."""

    def __init__(self):
        model = self
        self.results, self.tools, self.instructions = [], "", ""
        self.lock = threading.Lock()

        class Handler(http.server.BaseHTTPRequestHandler):
            def log_message(self, *_):
                pass

            def do_HEAD(self):
                self.empty(200)

            def do_GET(self):
                self.empty(404)

            def empty(self, status):
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
                path = self.path.split("?")[0]
                if path.endswith("/responses"):
                    model.responses(self, body)
                elif path.endswith("/messages"):
                    model.messages(self, body)
                else:
                    self.empty(404)

            def stream(self):
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.end_headers()

            def event(self, kind, **fields):
                fields["type"] = kind
                self.wfile.write(("event: %s\ndata: %s\n\n" % (kind, json.dumps(fields))).encode())
                self.wfile.flush()

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.url = "http://127.0.0.1:%d" % self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def next(self, results):
        """The next task. `results`: everything that tools have returned in this conversation."""
        with self.lock:
            self.results = max(self.results, results, key=len)
        return TASKS[len(results)] if len(results) < len(TASKS) else None

    def messages(self, http, body):
        tools = [tool for tool in body.get("tools") or [] if tool.get("name", "").startswith("mcp__muxtap__")]
        results = []
        for message in body.get("messages") or []:
            parts = message["content"] if isinstance(message["content"], list) else []
            for part in parts:
                if part.get("type") == "tool_result":
                    content = part.get("content") or ""
                    results.append(content if isinstance(content, str) else "".join(one.get("text", "") for one in content))
        # A request without tools is one of the client's own, for a title and the like.
        task = self.next(results) if tools else None
        if tools:
            self.tools = compact(tools)
        block = {"type": "text", "text": "done"}
        if task:
            block = {"type": "tool_use", "id": "toolu_%d" % len(results), "name": "mcp__muxtap__" + task[0], "input": task[1]}
        reason = "tool_use" if task else "end_turn"
        usage = {"input_tokens": 1, "output_tokens": 1}
        message = {
            "id": "msg_%d" % len(results), "type": "message", "role": "assistant", "model": body.get("model"), "content": [],
            "stop_reason": None, "stop_sequence": None, "usage": usage,
        }
        if not body.get("stream"):
            text = json.dumps(dict(message, content=[block], stop_reason=reason)).encode()
            http.send_response(200)
            http.send_header("content-type", "application/json")
            http.send_header("content-length", str(len(text)))
            http.end_headers()
            http.wfile.write(text)
            return
        http.stream()
        http.event("message_start", message=message)
        if task:
            http.event("content_block_start", index=0, content_block=dict(block, input={}))
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        else:
            http.event("content_block_start", index=0, content_block={"type": "text", "text": ""})
            delta = {"type": "text_delta", "text": "done"}
        http.event("content_block_delta", index=0, delta=delta)
        http.event("content_block_stop", index=0)
        http.event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=usage)
        http.event("message_stop")

    def responses(self, http, body):
        tools = [tool for tool in body.get("tools") or [] if "muxtap" in tool.get("name", "")]
        if tools:
            self.tools = compact(tools)
        results = []
        for item in body.get("input") or []:
            if item.get("type") == "function_call_output":
                output = item.get("output") or ""
                results.append(output if isinstance(output, str) else "".join(one.get("text", "") for one in output))
        task = self.next(results) if tools else None
        http.stream()
        http.event("response.created", response={"id": "r"})
        if task:
            item = {"type": "function_call", "id": "f%d" % len(results), "call_id": "c%d" % len(results),
                    "name": task[0], "arguments": json.dumps(task[1])}
            # Newer versions group the tools of a server.
            if any(tool.get("type") == "namespace" for tool in tools):
                item["namespace"] = tools[0]["name"]
            else:
                item["name"] = "mcp__muxtap__" + task[0]
        else:
            item = {"type": "message", "role": "assistant", "id": "m", "content": [{"type": "output_text", "text": "done"}]}
        http.event("response.output_item.done", output_index=0, item=item)
        usage = {"input_tokens": 1, "input_tokens_details": None, "output_tokens": 1, "output_tokens_details": None,
                 "total_tokens": 2}
        http.event("response.completed", response={"id": "r", "output": [item], "usage": usage})


def run(world, model, command, env):
    done = subprocess.run(
        command, env={**world.env, **env}, cwd=world.directory.name, stdin=subprocess.DEVNULL, capture_output=True,
        text=True, timeout=5 * LIMIT_S,
    )
    if len(model.results) < len(TASKS):
        sys.exit("%s: %d of %d results\n%s\n%s" % (command[0], len(model.results), len(TASKS), done.stdout, done.stderr))
    return model.results, model.tools, "", ""


def claude(world, program):
    model = Model()
    here = world.directory.name
    with open(here + "/.claude.json", "w") as file:
        json.dump({"hasCompletedOnboarding": True}, file)
    with open(here + "/mcp.json", "w") as file:
        server, *arguments = world.command()
        json.dump({"mcpServers": {"muxtap": {"type": "stdio", "command": server, "args": arguments}}}, file)
    command = [program, "-p", "go", "--mcp-config", here + "/mcp.json", "--strict-mcp-config", "--allowedTools", "mcp__muxtap"]
    env = {
        "ANTHROPIC_BASE_URL": model.url, "ANTHROPIC_API_KEY": "none", "CLAUDE_CONFIG_DIR": here,
        "CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC": "1", "DISABLE_AUTOUPDATER": "1", "ENABLE_TOOL_SEARCH": "false",
    }
    return run(world, model, command, env)


def codex(world, program):
    model = Model()
    here = world.directory.name
    server, *arguments = world.command()
    with open(here + "/config.toml", "w") as file:
        file.write(
            'model = "gpt-5"\nmodel_provider = "standin"\n[model_providers.standin]\nname = "standin"\n'
            f'base_url = "{model.url}/v1"\nwire_api = "responses"\nrequires_openai_auth = false\n'
            f'[mcp_servers.muxtap]\ncommand = {json.dumps(server)}\nargs = {json.dumps(arguments)}\n'
            f'env = {{ MUXTAP_SOCKET = {json.dumps(world.env["MUXTAP_SOCKET"])} }}\n'
        )
    command = [program, "exec", "--skip-git-repo-check", "--dangerously-bypass-approvals-and-sandbox", "go"]
    return run(world, model, command, {"CODEX_HOME": here})


def main():
    options = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    options.add_argument("--muxtap", default="target/debug/muxtapd")
    options.add_argument("--claude")
    options.add_argument("--codex")
    options.add_argument("--show", action="store_true")
    given = options.parse_args()
    program = os.path.abspath(given.muxtap)
    rows = [("protocol", protocol)]
    try:
        import mcp  # noqa: F401

        rows.append(("sdk", sdk))
    except ImportError:
        print("the official SDK is not installed for this Python: skipped")
    if given.claude:
        rows.append(("claude", lambda world: claude(world, os.path.abspath(given.claude))))
    if given.codex:
        rows.append(("codex", lambda world: codex(world, os.path.abspath(given.codex))))
    print("| client | results of %d calls | tools | instructions | resources |\n| --- | --- | --- | --- | --- |" % len(TASKS))
    for name, measure in rows:
        with World(program) as world:
            results, tools, instructions, resources = measure(world)
        if given.show:
            for (tool, arguments), result in zip(TASKS, results):
                print("--- %s %s %s: %d\n%s" % (name, tool, compact(arguments), len(result), result))
        count = [sum(map(len, results)), len(tools), len(instructions), len(resources)]
        print("| %s | %s |" % (name, " | ".join(str(round(chars / 4)) if chars else "" for chars in count)), flush=True)


main()
