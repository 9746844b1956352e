"""Whole turns of a real agent, without a network and without a login: muxtap's daemon and command line, the agent as npm
has it, and a stand-in for the model (obeying.py). Called by scripts/acp-agents with the agent's name and its command."""
import json
import os
import subprocess
import sys
import time

from obeying import ANSWER, Model
# obeying.py has put tests/agents in front.
import agents as known  # noqa: E402

name, command = sys.argv[1], sys.argv[2:]
agent = known.AGENTS[name]
# The mode in which the agent asks before a command, where that is not the first one.
mode = {"claude": ["--mode", "default"], "codex": ["--mode", "read-only"]}.get(name, [])
muxtap = os.environ["MUXTAP"]
home = os.environ["HOME"]
work = os.path.join(home, "work")
begun = time.monotonic()


def run(*arguments, status=0):
    done = subprocess.run([muxtap, *arguments], cwd=work, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                          timeout=120)
    if done.returncode != status:
        sys.exit("%s: %s, not %s\n%s%s" % (arguments, done.returncode, status, done.stdout, done.stderr))
    return done.stdout


def asked(*arguments, status=0):
    return json.loads(run("--json", "agent-session", *arguments, status=status))


def step(what):
    print("%5.1f s  %s: %s" % (time.monotonic() - begun, name, what), flush=True)


def expect(holds, *shown):
    if not holds:
        sys.exit("not as expected: %s" % json.dumps(shown, indent=1))


def entry(session):
    return [one for one in asked("list")["sessions"] if one["session"] == session][0]


def hung(model):
    if not model.hanging.acquire(timeout=60):
        sys.exit("the model was not asked")


model = Model(agent)
os.makedirs(work)
os.makedirs(os.path.join(home, "muxtap"))
# The agents' own variables; none holds a real key, and each address is on this host.
variables = agent.setup(home, work, model.port)
with open(os.path.join(home, "muxtap", "config.toml"), "w") as file:
    file.write("[agent.%s]\ncommand = %s\n" % (name, json.dumps(command)))
given = [part for pair in variables.items() for part in ("--env", "%s=%s" % pair)]

made = asked("create", "--provider", name, *mode, *given)
session = made["session"]
step("a session is open, process %d" % made["pid"])

said = run("agent-session", "send", "-t", session, "--wait", "say something")
expect(ANSWER in said and said.rstrip().endswith("= end_turn"), said)
run("agent-session", "wait", "-t", session, "-p", "^.*" + ANSWER)
step("a turn of text")

for answer, file, is_there in [("--allow", "allowed", True), ("--deny", "denied", False)]:
    asked("send", "-t", session, "run touch %s" % file)
    waited = asked("wait", "-t", session, "--idle", "--question", "-T", "60", status=4)
    question = waited["questions"][0]
    shown = question["title"] + question.get("detail", "")
    expect("touch %s" % file in shown and entry(session)["status"] == "asking", question)
    asked("answer", "-t", session, answer, question["id"])
    asked("wait", "-t", session, "--idle", "-T", "60")
    there = os.path.exists(os.path.join(work, file))
    expect(there == is_there, question, run("agent-session", "list"))
    step("a tool call that asks, with %s" % answer)

asked("send", "-t", session, "hang here")
hung(model)
queued = asked("send", "-t", session, "say more")
asked("interrupt", "-t", session)
asked("wait", "-t", session, "--idle", "-T", "60")
attached = subprocess.Popen([muxtap, "--json", "agent-session", "attach", "-t", session, "--since", "start"],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
asked("send", "-t", session, "hang again")
hung(model)
step("a cancel; the prompt behind it ran")

pid = entry(session)["pid"]
killed = asked("kill", "-t", session)
expect(killed["status"] == "ended", killed)
events = [json.loads(line)["event"] for line in attached.stdout]
outcomes = [event["outcome"] for event in events if event["type"] == "outcome"]
# The stop reason of a turn with a denied permission is up to the agent.
expect(outcomes[2] in ("end_turn", "cancelled"), outcomes)
expect(outcomes[:2] + outcomes[3:] == ["end_turn", "end_turn", "cancelled", "end_turn", "agent_exited"], outcomes)
expect(events[-1]["type"] == "exited" and attached.wait(30) == 0, events[-1])
expect(not os.path.exists("/proc/%d" % pid), pid)
step("a kill, with the prompt's outcome; %d events were followed" % len(events))

listed = subprocess.run([muxtap, "--json", "agent-session", "earlier", "--provider", name, *given], cwd=work,
                        stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120)
expect(listed.returncode == 0 or "does not list" in listed.stderr + listed.stdout, listed.stderr)
lists = listed.returncode == 0 and "its sessions"
if lists:
    mine = [one for one in json.loads(listed.stdout)["sessions"] if session.endswith(":" + one["session_id"])]
    lists = "its sessions, with this one" if mine else "its sessions, without this one"

if name == "gemini":
    # It finds no session of a process that was ended by a signal.
    step("has modes: %s; lists: %s" % (", ".join(one["id"] for one in made.get("modes", [])), lists or "no"))
    run("stop")
    model.stop()
    sys.exit(0)
again = asked("create", "--provider", name, "--resume", session, *mode, *given)
expect(again["session"] == session, again)
attached = subprocess.Popen([muxtap, "--json", "agent-session", "attach", "-t", session, "--since", "start"],
                            stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True)
said = run("agent-session", "send", "-t", session, "--wait", "say more")
expect(ANSWER in said, said)
step("the same session, gone on with by another process")
asked("kill", "-t", session)
again = dict(again, later=[json.loads(line)["event"]["type"] for line in attached.stdout])
expect(attached.wait(30) == 0, again["later"])
kinds = {event["type"] for event in events}
parts = [event for event in events if event["type"] == "message"]
shown = {
    "message ids": bool(parts) and all("message_id" in event for event in parts),
    "modes": ", ".join(one["id"] for one in again.get("modes", [])),
    "options": ", ".join(one["id"] for one in again.get("options", [])),
    "usage": "usage" in kinds, "plans": "plan" in kinds, "titles": "title" in kinds, "lists": lists,
    "sends earlier messages again": "user" in again["later"],
}
step("has " + "; ".join("%s: %s" % (what, {True: "yes", False: "no"}.get(has, has)) for what, has in shown.items()))
run("stop")
model.stop()
