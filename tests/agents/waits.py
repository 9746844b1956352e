"""A real agent waits for a pane: waits.py AGENT PROGRAM

The model is a stand-in that counts: from its one call to the end of the wait, the agent asks it nothing. For Claude Code
the plugin of this repository is loaded, and its skill, tools and hooks must be there."""
import json
import os
import re
import subprocess
import sys
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
import record  # noqa: E402
from agents import write  # noqa: E402
from model import SAID, Step  # noqa: E402
import queue  # noqa: E402

ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# How long nothing happens. The wait itself may take an hour: what counts is that no request comes.
QUIET = float(os.environ.get("WAITS_QUIET", "70"))
LINE = "job: 41 passed"
PATTERN = r"(\d+) passed"
TOOL = "mcp__plugin_muxtap_muxtap__"


class Failed(Exception):
    pass


class Waiting(record.Drive):
    def __init__(self, name, program):
        super().__init__(name, program)
        self.model.log = self.base + "/requests"
        folder = os.path.dirname(os.path.abspath(record.MUXTAP))
        at = self.command.index(program)
        # In its demonstration mode Claude Code trusts no folder, and runs no hook.
        given = [word for word in self.command[2:at] if not word.startswith("IS_DEMO=")]
        env = ["CLAUDE_CODE_DISABLE_OFFICIAL_MARKETPLACE_AUTOINSTALL=1", "MUXTAP_SOCKET=" + self.env["MUXTAP_SOCKET"],
               "PATH=%s:%s" % (folder, os.environ["PATH"]), "XDG_STATE_HOME=" + self.base, "TMUX_TMPDIR=" + self.base]
        # What a shell in the pane has, and nothing else of this one.
        inside = 'exec env -i TMUX="$TMUX" TMUX_PANE="$TMUX_PANE" "$@"'
        self.command = ["sh", "-c", inside, "sh"] + given + env + [program] + self.command[at + 1:]
        self.started = time.time()
        getattr(self, "set_up_" + name)()

    def set_up_claude(self):
        path = self.home + "/.claude.json"
        settings = json.load(open(path))
        settings["projects"] = {os.path.realpath(self.work): {"hasTrustDialogAccepted": True}}
        write(path, settings)
        self.command += ["--plugin-dir", ROOT, "--allowedTools", "Bash(muxtap wait-for:*)", TOOL + "wait_for"]

    def set_up_codex(self):
        path = self.home + "/.codex/config.toml"
        text = open(path).read().replace('"read-only"', '"danger-full-access"').replace('"on-request"', '"never"')
        write(path, text + """
[mcp_servers.muxtap]
command = "%s"
args = ["mcp", "--hold", "2h"]
tool_timeout_sec = 7500
env = { MUXTAP_SOCKET = "%s", TMUX_TMPDIR = "%s", XDG_STATE_HOME = "%s" }
env_vars = ["TMUX", "TMUX_PANE"]
""" % (os.path.abspath(record.MUXTAP), self.env["MUXTAP_SOCKET"], self.base, self.base))

    def begin(self):
        self.tmux("new-session", "-d", "-s", "a", "-x", "100", "-y", "32", "-c", self.work, "sh", "-c",
                  '"$@"; read _', "sh", *self.command)
        # Without an echo: each line is printed once.
        self.tmux("new-session", "-d", "-s", "job", "stty -echo; exec cat")

    def mark(self, state):
        """Startup dialogs need no judgement here."""
        self.rest(0.7)

    def prompt(self, text, *steps):
        for step in steps:
            self.model.plan.put(step)
        self.tmux("send-keys", "-t", "a", "-l", "%s %s" % (record.TURN, text))
        self.rest()
        self.keys("Enter")

    def requests(self):
        """The bodies of all requests of turns so far."""
        if not os.path.exists(self.model.log):
            return []
        bodies = [json.loads(line.split(" ", 1)[1]) for line in open(self.model.log)]
        return [body for body in bodies if self.model.is_turn(body)]

    def wait(self, call, what, *steps):
        """Lets the model make this call, and nothing else until the pane prints its line."""
        before = len(self.requests())
        self.prompt("wait for the job", Step("tool", call), *steps, Step("say", SAID))
        # The call, and where the agent goes on meanwhile, its one answer.
        for _ in range(1 + len(steps)):
            self.seen("asked")
            self.release()
        begun = time.time()
        waits = lambda: json.loads(self.muxtap("result", "--list", "--json"))["waits"]
        while not waits():
            if time.time() - begun > record.LIMIT:
                raise Failed("%s: no wait began\n%s" % (what, self.screen()))
            time.sleep(0.05)
        asked = len(self.requests()) - before
        try:
            early = self.model.seen.get(timeout=QUIET)
            raise Failed("%s: the model was asked before the pane printed (%s)" % (what, early))
        except queue.Empty:
            pass
        if len(self.requests()) - before != asked or len(waits()) != 1:
            raise Failed("%s: polled: %d requests, %r" % (what, len(self.requests()) - before - asked, waits()))
        printed = time.time()
        self.tmux("send-keys", "-t", "job", "-l", LINE)
        self.tmux("send-keys", "-t", "job", "Enter")
        self.seen("asked")
        took = time.time() - printed
        # Of a command in the background Claude Code says how it ended, and where its output is.
        last = json.dumps(self.requests()[-1].get("messages", self.requests()[-1].get("input"))[-2:])
        if LINE not in last and not re.search(r"Wait for the job.{1,20}completed \(exit code 0\)", last):
            raise Failed("%s: the result does not reach the model: %s" % (what, last[-2000:]))
        self.release()
        self.rest()
        print("%s: 1 call, 0 requests to the model in %.0f s, then asked %.2f s after the line" % (what, QUIET, took))


def background(tools):
    return "Bash", {"command": "muxtap wait-for -t job -p '%s' -T 2h" % PATTERN, "description": "Wait for the job",
                    "run_in_background": True}


def wait_for(name, *namespace):
    return lambda tools: (name, {"panes": ["job"], "patterns": [PATTERN], "timeout_ms": 7200000}, *namespace)


def takes_tasks(program):
    """Claude Code announces tasks from some version after 2.1.197 on, and in 2.1.332."""
    version = subprocess.run([program, "--version"], stdout=subprocess.PIPE, timeout=record.LIMIT).stdout.decode()
    return tuple(map(int, version.split()[0].split("."))) >= (2, 1, 332)


def check_plugin(drive):
    drive.prompt("hello", Step("say", SAID))
    drive.seen("asked")
    body = drive.requests()[-1]
    tools = {tool["name"] for tool in body["tools"]}
    text = json.dumps(body)
    for tool in ("list", "run", "wait_for", "read_since", "send_keys"):
        if TOOL + tool not in tools and TOOL + tool not in text:
            raise Failed("no tool %s: %s" % (tool, sorted(tools)))
    skill = open(ROOT + "/docs/skill/SKILL.md").read().split("description: ")[1].split("\n")[0]
    if "muxtap:muxtap" not in text or skill[:60] not in text:
        raise Failed("no skill")
    drive.release()
    drive.rest()
    # A hook waits only 100 ms for the daemon: on a busy machine one may be lost.
    for _ in range(5):
        found = json.loads(drive.muxtap("agents", "explain", "-t", "a", "--json"))
        if any(report["source"] == "claude" for report in found["reports"]):
            break
        drive.prompt("hello again", Step("say", SAID, held=False))
        drive.rest(3)
    else:
        raise Failed("no report of a hook: %r" % found)
    print("plugin: tools, skill and hooks are there")


def main():
    name, program = sys.argv[1:3]
    drive, failed = Waiting(name, program), None
    try:
        drive.begin()
        drive.start()
        if name == "claude":
            check_plugin(drive)
            drive.wait(background, "claude, a background command", Step("say", "I wait."))
            if takes_tasks(program):
                # It tells the model at once that the task goes on, as of a command in the background.
                drive.wait(wait_for(TOOL + "wait_for"), "claude, wait_for as a task", Step("say", "I wait."))
        else:
            drive.wait(wait_for("wait_for", {"namespace": "mcp__muxtap"}), name + ", wait_for")
    except (Failed, record.Lost) as error:
        failed = error
        print("FAILED: %s\n%s" % (error, drive.screen()))
    drive.stop()
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
