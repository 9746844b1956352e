"""Drives a real agent through its states in a pane, and records it: record.py AGENT PROGRAM VERSION FILE

The recording is muxtap's own. Into it go markers `state: …`, each at a moment at which the screen rests and at which it
is known from the model's side what the agent does: an open request is work; a tool call that has not run, though no
request is open, is a question; neither is idleness."""
import glob
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from agents import AGENTS  # noqa: E402
from model import Model, SAID, Step, TURN  # noqa: E402
import queue  # noqa: E402

MUXTAP = os.environ["MUXTAP"]
SIZE = (100, 32)
LIMIT = 40


class Lost(Exception):
    """The agent did something that the scenario does not know."""


class Drive:
    def __init__(self, name, program):
        self.name, self.agent = name, AGENTS[name]
        self.base = "/tmp/mt-agent-" + name
        shutil.rmtree(self.base, ignore_errors=True)
        self.home, self.work = self.base + "/home", self.base + "/project"
        for path in (self.home, self.work):
            os.makedirs(path)
        subprocess.run(["git", "init", "-q", self.work], check=True)
        self.model = Model(os.environ.get("MODEL_LOG"))
        self.marks, self.wrong = [], []
        env = self.agent.setup(self.home, self.work, self.model.port)
        self.env = {"PATH": os.environ["PATH"], "HOME": self.home, "MUXTAP_SOCKET": self.base + "/m.sock",
                    "TMUX_TMPDIR": self.base, "LC_ALL": "C.UTF-8", "SHELL": "/bin/sh", "XDG_STATE_HOME": self.base}
        env = dict(env, PATH=os.environ["PATH"], HOME=self.home, LC_ALL="C.UTF-8", SHELL="/bin/sh", USER="me",
                   TMPDIR=self.base, COLORTERM="truecolor", TERM="tmux-256color", NO_PROXY="127.0.0.1")
        helped = subprocess.run([program, "--help"], env=env, cwd=self.work, stdin=subprocess.DEVNULL, timeout=LIMIT,
                              stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        words = ["env", "-i"] + ["%s=%s" % one for one in env.items()]
        self.command = words + [program] + self.agent.arguments(helped.stdout.decode(errors="replace"))

    def run(self, *words):
        ran = subprocess.run(words, env=self.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, timeout=LIMIT)
        if ran.returncode:
            raise Lost("%s: %s" % (" ".join(words), ran.stderr.decode()))
        return ran.stdout.decode()

    def tmux(self, *words):
        return self.run("tmux", "-f", "/dev/null", "-L", "a", *words)

    def muxtap(self, *words):
        return self.run(MUXTAP, "-L", "a", *words)

    def begin(self, cast):
        self.tmux("new-session", "-d", "-s", "a", "-x", str(SIZE[0]), "-y", str(SIZE[1]), "-c", self.work,
                  "sh", "-c", "read _; \"$@\"; read _", "sh", *self.command)
        begun = json.loads(self.muxtap("record", "-t", "a", "-o", cast, "--detach", "--json"))
        self.id, self.started = begun["id"], begun["started_ms"] / 1000
        self.keys("Enter")

    def keys(self, *keys):
        for key in keys:
            self.tmux("send-keys", "-t", "a", key)
            time.sleep(0.1)

    def screen(self):
        return self.tmux("capture-pane", "-p", "-t", "a")

    def rest(self, least=0.7):
        """Waits until the screen rests, but for spinners and timers. Returns it."""
        still = lambda text: re.sub(r"[\d.]+|[·✢✳✶✻✽*◐◓◑◒◉◎○●∙⠀-⣿⬝■⬡⬢█▀▄░▒▓]", "", text)
        last, since, begun = None, time.time(), time.time()
        while time.time() - since < least and time.time() - begun < 8:
            now = still(self.screen())
            if now != last:
                last, since = now, time.time()
            time.sleep(0.05)
        return self.screen()

    def mark(self, state):
        # An agent has some things of its own to do before its turn is over.
        self.rest(2 if state == "idle" else 0.7)
        self.marks.append((time.time() - self.started, state))
        listed = json.loads(self.muxtap("agents", "--json"))["agents"]
        judged = [one for one in listed if one["state"] != "ended"]
        got = judged[0]["state"] if judged else "none"
        rule = judged[0]["evidence"]["rule"] if judged else "-"
        if got != state:
            self.wrong.append((len(self.marks), state, got, rule, self.screen()))
        print("%s %2d %-10s %-10s %s" % ("  " if got == state else "!!", len(self.marks), state, got, rule), flush=True)

    def seen(self, what, limit=LIMIT):
        try:
            got = self.model.seen.get(timeout=limit)
        except queue.Empty:
            raise Lost("the model waited for %r" % what) from None
        if got != what:
            raise Lost("the model saw %r instead of %r" % (got, what))

    def start(self):
        begun, left = time.time(), list(self.agent.startup)
        while True:
            text = self.rest(3)
            asked = next((one for one in left if re.search(one[0], text, re.M)), None)
            if asked:
                # An answered dialog may stay on the screen.
                left.remove(asked)
                self.mark(asked[1])
                self.keys(*asked[2])
            elif re.search(self.agent.ready, text, re.M):
                return self.mark("idle")
            if time.time() - begun > LIMIT:
                raise Lost("the agent did not start")

    def say(self, text, *steps):
        """Types a prompt. The model's steps are planned before."""
        for step in steps:
            self.model.plan.put(step)
        self.tmux("send-keys", "-t", "a", "-l", "%s %s" % (TURN, text))
        self.rest()
        self.keys("Enter")
        self.seen("asked")
        self.mark("working")

    def release(self):
        self.model.release()
        self.seen("answered")

    def end_of_turn(self):
        self.release()
        self.mark("idle")

    def maybe_asked(self):
        """An agent may tell the model that a person refused, or stop there."""
        try:
            if self.model.seen.get(timeout=2) == "asked" and self.model.seen.get(timeout=1):
                # It has given up at once.
                return
        except queue.Empty:
            if self.model.open == 0:
                return
        self.mark("working")
        self.release()

    def turns(self):
        agent, say = self.agent, Step("say", SAID)
        file = lambda name: os.path.join(self.work, name)
        self.say("say hello", say)
        self.end_of_turn()
        # A tool call that is allowed.
        self.say("touch a file", self.call(agent.shell, "touch one.txt"), say)
        self.release()
        self.mark("permission")
        if os.path.exists(file("one.txt")):
            raise Lost("the tool ran without a question")
        self.keys(*agent.accept)
        self.seen("asked")
        if not os.path.exists(file("one.txt")):
            raise Lost("the tool did not run")
        self.mark("working")
        self.end_of_turn()
        # One that is refused.
        self.say("touch another", self.call(agent.shell, "touch two.txt"), say)
        self.release()
        self.mark("permission")
        self.keys(*agent.refuse)
        self.maybe_asked()
        self.clear_plan()
        self.mark("idle")
        if os.path.exists(file("two.txt")):
            raise Lost("the refused tool ran")
        self.keys("C-u")
        self.say("write a file", self.call(agent.edit, file("three.txt"), "one\ntwo\n"), say)
        self.asks("permission", agent.accept)
        # An interruption.
        self.say("think for long", say)
        self.keys(*agent.interrupt)
        self.seen("gone")
        self.mark("idle")
        self.keys("C-u")
        # An error, and the turn after it.
        self.say("fail now", Step("fail", 400, "the stand-in refuses"))
        self.release()
        self.until_no_more_calls()
        self.mark("errored")
        self.model.always = None
        self.say("say hello again", say)
        self.end_of_turn()
        self.say("ask me", self.call(agent.question), say)
        self.asks("question", ["Enter"])

    def call(self, make, *arguments):
        """A step that calls one of the agent's tools, if the agent offers it."""
        def choose(tools):
            made = make(tools, *arguments)
            return made if made and made[0] in tools else None
        return Step("tool", choose)

    def asks(self, state, keys):
        """The model calls a tool about which the agent asks a person, who answers with these keys."""
        self.release()
        self.rest()
        if self.model.open:
            # The agent needs no permission for this.
            self.seen("asked")
            self.mark("working")
            self.release()
        elif self.model.called:
            self.mark(state)
            self.keys(*keys)
            if re.search(self.agent.submit, self.rest()) and not self.model.open:
                # The answers are shown again, to be sent.
                self.mark("question")
                self.keys("Enter")
            self.seen("asked")
            self.mark("working")
            self.release()
        self.clear_plan()
        self.mark("idle")

    def until_no_more_calls(self):
        """Waits until the agent no longer tries again."""
        begun, calls, since = time.time(), self.model.calls, time.time()
        while time.time() - since < 4 and time.time() - begun < LIMIT:
            if self.model.calls != calls:
                calls, since = self.model.calls, time.time()
            time.sleep(0.1)

    def clear_plan(self):
        while not self.model.plan.empty():
            self.model.plan.get()

    def end(self):
        try:
            self.run(MUXTAP, "record", "stop", self.id)
        finally:
            self.stop()

    def stop(self):
        self.model.stop()
        for words in (["tmux", "-L", "a", "kill-server"], [MUXTAP, "stop"]):
            subprocess.run(words, env=self.env, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        self.kill_rest()

    def kill_rest(self):
        """Kills what the agent has left running (Codex has a daemon of its own)."""
        for path in glob.glob("/proc/[0-9]*/environ"):
            try:
                if ("HOME=" + self.home).encode() in open(path, "rb").read().split(b"\0"):
                    os.kill(int(path.split("/")[2]), signal.SIGKILL)
            except (OSError, ValueError):
                pass

    def merge(self, cast, out, version):
        """Writes the recording with markers of what was true, instead of muxtap's own."""
        lines = open(cast).read().splitlines()
        header = dict(json.loads(lines[0]), title="%s %s" % (self.name, version))
        events = [json.loads(line) for line in lines[1:]]
        events = [event for event in events if event[1] != "m"]
        events += [[round(at, 3), "m", "state: " + state] for at, state in self.marks]
        events.sort(key=lambda event: event[0])
        last = round(max(at for at, _ in self.marks), 3)
        events = [event for event in events if event[0] <= last]
        with open(out, "w") as file:
            for one in [header] + events:
                file.write(json.dumps(one, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    name, program, version, out = sys.argv[1:5]
    drive = Drive(name, program)
    cast = drive.base + "/out.cast"
    lost = None
    drive.begin(cast)
    try:
        drive.start()
        drive.turns()
    except Lost as error:
        lost = error
        print("LOST: %s\n%s" % (error, drive.screen()))
    for at, state, got, rule, screen in drive.wrong:
        print("--- WRONG %d: %s, not %s (%s)\n%s" % (at, state, got, rule, screen))
    drive.end()
    if drive.marks:
        drive.merge(cast, out, version)
    shutil.rmtree(drive.base, ignore_errors=True)
    return 1 if lost else 0


if __name__ == "__main__":
    sys.exit(main())
