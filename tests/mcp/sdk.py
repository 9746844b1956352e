"""Drives muxtap's MCP with the official Python SDK: over stdio and streamable HTTP, in the protocol's older and newer form.

scripts/mcp-sdk prepares what this needs, and says it in the environment: MUXTAP (the program), MUXTAP_SOCKET (its daemon, which confirms
the tier `kill`), SDK_URL and SDK_TOKEN (its port), SDK_TMUX (the tmux socket). `claude` on the server's PATH is a stand-in.
"""

import asyncio
import contextlib
import json
import os
import subprocess
import sys

import httpx2
from mcp import Client, MCPError, StdioServerParameters
from mcp.client.streamable_http import streamable_http_client
from mcp_types import ElicitResult, PromptReference, ResourceTemplateReference

SOCKET = os.environ["SDK_TMUX"]
LIMIT_S = 30


def tmux(*args):
    done = subprocess.run(["tmux", "-S", SOCKET, *args], capture_output=True, text=True, timeout=LIMIT_S)
    assert done.returncode == 0, f"tmux {args}: {done.stderr}"
    return done.stdout.strip()


def metric(name):
    done = subprocess.run(
        ["curl", "-sf", "--unix-socket", os.environ["MUXTAP_SOCKET"], "http://muxtap/metrics"],
        check=True, capture_output=True, text=True, timeout=LIMIT_S,
    )
    return next(int(float(line.split()[1])) for line in done.stdout.splitlines() if line.startswith(name + " "))


async def until(what, holds):
    """Only for what nothing announces: the state of the other side."""
    for _ in range(LIMIT_S * 50):
        if holds():
            return
        await asyncio.sleep(0.02)
    raise AssertionError(f"never: {what}")


class Person:
    """Whoever sits in front of the client."""

    def __init__(self):
        self.says, self.asked = "accept", []

    async def __call__(self, context, params):
        self.asked.append(params.message)
        return ElicitResult(action=self.says, content={} if self.says == "accept" else None)


class Heard:
    """What the server tells by itself."""

    def __init__(self):
        self.messages, self.logs = asyncio.Queue(), []

    async def message(self, message):
        await self.messages.put(message)

    async def log(self, params):
        self.logs.append((params.level, params.data))

    async def next(self, method):
        while True:
            message = await asyncio.wait_for(self.messages.get(), LIMIT_S)
            if getattr(message, "method", None) == method:
                return message


@contextlib.asynccontextmanager
async def connected(transport, mode, person=None, heard=None, log_level=None):
    async with contextlib.AsyncExitStack() as stack:
        if transport == "stdio":
            env = {name: value for name, value in os.environ.items() if name not in ("TMUX", "TMUX_PANE")}
            server = StdioServerParameters(command=os.environ["MUXTAP"], args=["-S", SOCKET, "mcp"], env=env)
        else:
            headers = {"Authorization": f"Bearer {os.environ['SDK_TOKEN']}"}
            http = await stack.enter_async_context(httpx2.AsyncClient(headers=headers, timeout=120))
            server = streamable_http_client(os.environ["SDK_URL"] + "/mcp", http_client=http)
        yield await stack.enter_async_context(
            Client(
                server, mode=mode, elicitation_callback=person, log_level=log_level,
                message_handler=heard and heard.message, logging_callback=heard and heard.log,
            )
        )


# A program requests results as JSON; without this, they are texts for a model.
STRUCTURED = {"muxtap/structured": True}


async def call(client, tool, arguments, **more):
    answer = await client.call_tool(tool, arguments, meta=STRUCTURED, **more)
    assert not answer.is_error, (tool, arguments, answer)
    return answer.structured_content or answer.content[0].text


async def fails(client, code, tool, arguments):
    answer = await client.call_tool(tool, arguments, meta=STRUCTURED)
    assert answer.is_error and answer.structured_content["code"] == code, (tool, arguments, answer)
    return answer.content[0].text


async def every_tool(client, session):
    listed = await client.list_tools()
    names = [tool.name for tool in listed.tools]
    size = len(listed.model_dump_json(by_alias=True, exclude_none=True))
    assert size < 8_400, size
    assert not any(tool.output_schema for tool in listed.tools), listed
    text = await client.call_tool("list", {"target": session})
    assert text.structured_content is None and text.content[0].text.startswith("%"), text
    used = set()

    async def use(tool, arguments):
        used.add(tool)
        return await call(client, tool, arguments)

    panes = (await use("list", {"target": session}))["panes"]
    assert [pane["session"] for pane in panes] == [session], panes
    pane = panes[0]["id"]
    ran = await use("run", {"target": pane, "command": "seq 3; (exit 4)"})
    assert (ran["output"], ran["exit_status"]) == ("1\n2\n3\n", 4), ran
    watch = await use("watch", {"targets": [session], "wait_ms": 0})
    await use("wait_for", {"panes": pane, "prompt": True})
    sent = await use("send_keys", {"target": pane, "text": "echo se''nt", "keys": "Enter"})
    waited = await use("wait_for", {"panes": pane, "patterns": "^sent$"})
    assert waited["outcome"] == "matched", waited
    read = await use("read_since", {"target": pane, "since": sent["cursor"]})
    assert "sent\n" in read["text"], read
    assert (await use("read_since", {"target": pane, "since": read["cursor"]}))["text"] == ""
    assert "sent" in (await use("capture_pane", {"target": pane}))["text"]
    found = await use("search", {"pattern": "^sent$", "targets": session})
    assert (found["matches"], found["lines"][0]["pane"]) == (1, pane), found
    happened = await use("watch", {"targets": [session], "resume": watch["resume"], "wait_ms": 20_000})
    assert any(event["type"] == "output" and "sent" in event["text"] for event in happened["events"]), happened
    made = await use("create", {"what": "window", "target": session, "name": "logs", "command": "echo made; exec cat"})
    waited = await use("wait_for", {"panes": [made["pane"]], "patterns": ["made"], "since": "start"})
    assert waited["outcome"] == "matched", waited
    await use("rename", {"target": f"{session}:logs", "name": "other"})
    await use("resize", {"target": f"{session}:other", "width": 90})
    await use("select", {"target": f"{session}:other"})
    await use("respawn", {"target": made["pane"], "command": "exec cat", "kill": True})
    assert (await use("list", {"what": "windows", "target": f"{session}:other"}))["windows"][0]["name"] == "other"
    agents = (await use("list", {"what": "agents"}))["agents"]
    # Those of earlier rounds have ended.
    assert all(agent["state"] == "ended" for agent in agents), agents
    await use("kill", {"target": made["pane"]})
    # Offered only where it is configured; a client that knows it can call it.
    listed_claude = await call(client, "manage_tmux_sessions", {"action": "list"})
    assert listed_claude.startswith("No Claude sessions found across "), listed_claude
    assert used == set(names), (set(names) - used, used - set(names))
    assert "list shows what is there" in await fails(client, "NOT_FOUND", "capture_pane", {"target": "nobody"})
    await fails(client, "INVALID_ARGUMENT", "capture_pane", {"target": pane, "colour": True})
    try:
        await client.session.call_tool("rm_rf", {})
        raise AssertionError("a tool that is not there was called")
    except MCPError as error:
        assert error.error.code == -32602, error


async def resources_and_prompts(client, session):
    uris = [str(one.uri) for one in (await client.list_resources(cache_mode="bypass")).resources]
    pane = tmux("display-message", "-p", "-t", session + ":", "#{pane_id}")
    assert {"tmux://panes", "tmux://sessions", "tmux://agents", f"tmux://pane/{pane}"} <= set(uris), uris

    async def read(uri):
        return (await client.read_resource(uri, cache_mode="bypass")).contents[0].text

    for uri in [uri for uri in uris if "/session/" not in uri or session in uri]:
        await read(uri)
    assert json.loads(await read(f"tmux://session/{session}"))["panes"][0]["id"] == pane
    assert len((await client.list_resource_templates()).resource_templates) == 2
    try:
        await read("tmux://nothing")
        raise AssertionError("what is not there was read")
    except MCPError as error:
        assert "tmux://panes" in error.error.message, error
    completed = await client.complete(
        ResourceTemplateReference(uri="tmux://pane/{target}"), {"name": "target", "value": session[:3]}
    )
    assert session in completed.completion.values, completed
    for prompt in (await client.list_prompts()).prompts:
        given = {argument.name: session for argument in prompt.arguments or []}
        got = await client.get_prompt(prompt.name, given)
        assert not given or session in got.messages[0].content.text, got
        for name in given:
            reference = PromptReference(name=prompt.name)
            await client.complete(reference, {"name": name, "value": ""})


async def subscriptions(transport, mode, session):
    heard = Heard()
    pane = tmux("display-message", "-p", "-t", session + ":", "#{pane_id}")
    uri = f"tmux://pane/{pane}"
    async with connected(transport, mode, heard=heard) as client:
        await client.list_resources()
        if mode == "legacy":
            await client.subscribe_resource(uri)
            tmux("send-keys", "-t", pane, "echo changed", "Enter")
            assert str((await heard.next("notifications/resources/updated")).params.uri) == uri
            tmux("new-window", "-d", "-t", session + ":", "-n", "new")
            await heard.next("notifications/resources/list_changed")
            await client.unsubscribe_resource(uri)
        else:
            async with client.listen(resources_list_changed=True, resource_subscriptions=[uri]) as events:
                tmux("send-keys", "-t", pane, "echo changed", "Enter")
                event = await asyncio.wait_for(anext(events), LIMIT_S)
                assert getattr(event, "uri", None) == uri, event
                tmux("new-window", "-d", "-t", session + ":", "-n", "new")
                while type(event).__name__ != "ResourcesListChanged":
                    event = await asyncio.wait_for(anext(events), LIMIT_S)


async def progress_and_cancellation(transport, mode, session):
    told = []

    async def progress(done, total, message):
        told.append(message)

    open_waits = lambda: metric("muxtap_waits_active")
    before = open_waits()
    async with connected(transport, mode) as client:
        wait = {"panes": [session], "patterns": ["^progressed$"]}
        waiting = asyncio.create_task(call(client, "wait_for", wait, progress_callback=progress))
        await until("the wait tells that it goes on", lambda: told)
        tmux("send-keys", "-t", session + ":", "echo progr''essed", "Enter")
        assert (await waiting)["outcome"] == "matched"
        assert "0 of 1" in told[0], told
        # A cancelled call ends its wait.
        waiting = asyncio.create_task(call(client, "wait_for", {"panes": [session], "patterns": ["never"]}))
        await until("it is open", lambda: open_waits() == before + 1)
        waiting.cancel()
        await until("it is closed", lambda: open_waits() == before)
    # A wait that returns `pending` continues, for any caller with its id.
    async with connected(transport, mode) as client:
        held = asyncio.create_task(client.call_tool("wait_for", {"panes": [session], "patterns": ["^later$"]}, meta=STRUCTURED))
        await until("it is open", lambda: open_waits() == before + 1)
        tmux("send-keys", "-t", session + ":", "echo la''ter", "Enter")
        wait = (await held).structured_content["id"]
    async with connected(transport, mode) as client:
        again = await call(client, "wait_for", {"id": wait})
        assert again["outcome"] == "matched", again


async def elicitation(transport, mode, session):
    person = Person()
    async with connected(transport, mode, person) as client:
        tmux("new-window", "-d", "-t", session + ":", "-n", "doomed")
        person.says = "decline"
        assert "declined" in await fails(client, "READ_ONLY", "kill", {"target": f"{session}:doomed"})
        person.says = "accept"
        await call(client, "kill", {"target": f"{session}:doomed"})
        assert "doomed" not in tmux("list-windows", "-t", session, "-F", "#{window_name}")
        assert len(person.asked) == 2 and f"{session}:doomed" in person.asked[0], person.asked
        # The supervisor's spawn asks too.
        name = f"claude-{transport}-{mode}"
        spawn = {"action": "spawn", "prompt": "say hello", "name": name}
        person.says = "decline"
        assert await call(client, "manage_tmux_sessions", spawn) == "Spawn denied by user."
        person.says = "accept"
        spawned = await call(client, "manage_tmux_sessions", spawn)
        assert spawned.startswith(f"Spawned tmux session `{name}`."), spawned
        assert "say hello" in person.asked[-1], person.asked
        assert name in tmux("list-sessions", "-F", "#{session_name}")
        # The configuration requires confirmation for everything that ends something.
        person.says = "decline"
        kill = {"action": "kill", "target": name}
        assert "declined" in await call(client, "manage_tmux_sessions", kill)
        assert name in tmux("list-sessions", "-F", "#{session_name}")
        person.says = "accept"
        await call(client, "manage_tmux_sessions", kill)
        assert name not in tmux("list-sessions", "-F", "#{session_name}")
        # A session without a name is asked about once, regardless of its generated name.
        before = len(person.asked)
        spawned = await call(client, "manage_tmux_sessions", {"action": "spawn", "prompt": "nameless"})
        assert spawned.startswith("Spawned tmux session `earl-") and len(person.asked) == before + 1, spawned
        nameless = spawned.split("`")[1]
        await call(client, "manage_tmux_sessions", {"action": "kill", "target": nameless})
    async with connected(transport, mode) as client:
        tmux("new-window", "-d", "-t", session + ":", "-n", "kept")
        assert "confirmed" in await fails(client, "READ_ONLY", "kill", {"target": f"{session}:kept"})
        refused = await call(client, "manage_tmux_sessions", {"action": "spawn", "prompt": "x", "name": "never"})
        assert refused.startswith("Error: spawn"), refused


async def logging(transport, mode, session):
    heard = Heard()
    async with connected(transport, mode, heard=heard, log_level=None if mode == "legacy" else "debug") as client:
        if mode == "legacy":
            await client.set_logging_level("debug")
        await call(client, "list", {})
        await fails(client, "NOT_FOUND", "capture_pane", {"target": "nobody"})
        await until("both calls are told of", lambda: len(heard.logs) == 2)
        (level, data), (failed, error) = heard.logs
        assert (level, data["tool"], failed, error["error"]["code"]) == ("debug", "list", "info", "NOT_FOUND"), heard.logs


async def main():
    for transport in ("stdio", "http"):
        for mode in ("legacy", "auto"):
            session = f"{transport}-{mode}"
            tmux("new-session", "-d", "-s", session, "-x", "80", "-y", "24", "sh")
            async with connected(transport, mode, Person()) as client:
                version = client.protocol_version
                await every_tool(client, session)
                await resources_and_prompts(client, session)
            for check in (subscriptions, progress_and_cancellation, elicitation, logging):
                await asyncio.wait_for(check(transport, mode, session), 3 * LIMIT_S)
                print(f"ok: {check.__name__} over {transport}, MCP {version}")
            print(f"ok: every tool, resource and prompt over {transport}, MCP {version}")
            tmux("kill-session", "-t", session)


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
