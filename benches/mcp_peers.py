#!/usr/bin/env python3
"""muxtap's MCP beside its peers over stdio, on one private tmux server, turn by turn in one run.

    benches/mcp_peers.py [--muxtap PROGRAM] [--tmux PROGRAM] [--rounds N] [--bin DIR]

Peers: `tmux-mcp` and `tmux-mcp-rs` (crates.io), `libtmux-mcp` (PyPI), looked for on PATH and in DIR; what is not there is skipped and said.
The floor is a bare control client (`tmux -C attach`). All speak the same JSON lines to the same panes; a wait's time is from just before the
program in the pane writes (its own clock reading) to the answer. Prints medians in milliseconds, and ratios to the floor.
"""

import argparse
import json
import os
import queue
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time

# Runs in a pane: prints the lines of its pipe, and reports the time before each one.
ACTOR = """
import os, sys, time
told = os.open(sys.argv[2], os.O_WRONLY)
for line in open(sys.argv[1]):
    now = time.monotonic_ns()
    os.write(1, line.encode())
    os.write(told, b"%d\\n" % now)
"""
LIMIT_S = 20
# Between the request for a wait and the awaited output, and before the baseline's own.
PAUSE_S = 0.15


def lines(pipe):
    """Lines as they come, and when: read in whole chunks, as every client does."""
    buffer = b""
    while chunk := os.read(pipe.fileno(), 1 << 18):
        now = time.monotonic_ns()
        *whole, buffer = (buffer + chunk).split(b"\n")
        for line in whole:
            yield now, line


class Client:
    """An MCP client, as small as one can be: any number of requests under way."""

    def __init__(self, command, env):
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, env=env, bufsize=0
        )
        self.answers, self.next = {}, 0
        threading.Thread(target=self.listen, daemon=True).start()
        begun = {"protocolVersion": "2025-06-18", "capabilities": {}, "clientInfo": {"name": "bench", "version": "1"}}
        self.ask("initialize", begun)
        self.say({"jsonrpc": "2.0", "method": "notifications/initialized"})
        self.listed = self.ask("tools/list", {})

    def listen(self):
        for now, line in lines(self.process.stdout):
            message = json.loads(line)
            if "id" in message and "method" not in message:
                self.answers[message["id"]].put((now, message, len(line) + 1))

    def say(self, message):
        self.process.stdin.write(json.dumps(message).encode() + b"\n")

    def begin(self, method, params):
        self.next += 1
        answer = self.answers[self.next] = queue.Queue()
        self.say({"jsonrpc": "2.0", "id": self.next, "method": method, "params": params})
        return answer

    def ask(self, method, params):
        return self.begin(method, params).get(timeout=LIMIT_S)

    def call(self, call):
        # Only muxtap knows this field: its results are then also JSON.
        meta = {"muxtap/structured": True}
        return self.begin("tools/call", {"name": call[0], "arguments": call[1], "_meta": meta})


def failed(message):
    return "error" in message or message["result"].get("isError", False)


class Muxtap:
    name = "muxtap"

    def command(self, stage, program):
        return [program, "-S", stage.socket, "mcp"]

    def wait(self, pane, text):
        return "wait_for", {"panes": [pane], "patterns": [text], "since": "now", "timeout_ms": 15_000}

    def capture(self, pane):
        return "capture_pane", {"target": pane}

    def since(self, pane, cursor):
        return "read_since", {"target": pane, "since": cursor or "now"}

    def cursor(self, answer):
        return answer["result"]["structuredContent"]["cursor"]

    def run(self, pane):
        return "run", {"target": pane, "command": "true"}


class TmuxMcp(Muxtap):
    name = "tmux-mcp"

    def command(self, stage, program):
        return [program, "-S", stage.socket]

    def wait(self, pane, text):
        return "wait_for_text", {"pane": pane, "patterns": [text], "seconds": 15}

    def capture(self, pane):
        return "capture_pane", {"pane": pane}

    def since(self, pane, cursor):
        return "capture_since", {"pane": pane, **({"cursor": cursor} if cursor else {})}

    def cursor(self, answer):
        return answer["result"]["structuredContent"].get("cursor")

    def run(self, pane):
        return "run_shell_command", {"pane": pane, "command": "true"}


class LibtmuxMcp(Muxtap):
    name = "libtmux-mcp"

    def command(self, stage, program):
        return [program]

    def wait(self, pane, text):
        return "wait_for_text", {"pane_id": pane, "patterns": [text], "timeout": 15, "socket_name": "bench"}

    def capture(self, pane):
        return "capture_pane", {"pane_id": pane, "socket_name": "bench"}

    def since(self, pane, cursor):
        return "capture_since", {"pane_id": pane, "socket_name": "bench", **({"cursor": cursor} if cursor else {})}

    def cursor(self, answer):
        return (answer["result"].get("structuredContent") or {}).get("cursor")

    def run(self, pane):
        return "run_command", {"pane_id": pane, "command": "true", "socket_name": "bench"}


class TmuxMcpRs(Muxtap):
    """It has neither waits nor reads since a point."""

    name = "tmux-mcp-rs"
    wait = since = None

    def command(self, stage, program):
        return [program, "--socket", stage.socket]

    def capture(self, pane):
        return "capture-pane", {"paneId": pane}

    def run(self, pane):
        return "execute-command", {"paneId": pane, "command": "true", "waitMs": 10_000}


class Stage:
    def __init__(self, tmux):
        self.dir = tempfile.mkdtemp(prefix="mt-peers-")
        os.mkdir(f"{self.dir}/bin")
        os.symlink(os.path.abspath(shutil.which(tmux) or sys.exit(f"no {tmux}")), f"{self.dir}/bin/tmux")
        os.makedirs(f"{self.dir}/tmux-{os.getuid()}", mode=0o700)
        self.socket = f"{self.dir}/tmux-{os.getuid()}/bench"
        self.env = {name: value for name, value in os.environ.items() if not name.startswith(("TMUX", "MUXTAP", "XDG_"))}
        self.env |= {"PATH": f"{self.dir}/bin:{os.environ['PATH']}", "TMUX_TMPDIR": self.dir, "HOME": self.dir,
                     "MUXTAP_SOCKET": f"{self.dir}/m.sock", "SHELL": "/bin/sh", "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}
        self.tmux("-f", "/dev/null", "new-session", "-d", "-s", "bench", "-x", "120", "-y", "40", "/bin/sh")
        self.shell = self.tmux("display-message", "-p", "-t", "bench", "#{pane_id}")
        self.actors, self.beside = [], []

    def tmux(self, *args):
        done = subprocess.run(["tmux", "-u", "-S", self.socket, *args], env=self.env, check=True, capture_output=True, text=True)
        return done.stdout.strip()

    def actor(self):
        """A pane that prints what it is told to: its id, and a function that says when it began."""
        number = len(self.actors)
        to, told = f"{self.dir}/to{number}", f"{self.dir}/told{number}"
        os.mkfifo(to)
        os.mkfifo(told)
        pane = self.tmux("new-window", "-d", "-P", "-F", "#{pane_id}", "-t", "bench", sys.executable, "-c", ACTOR, to, told)
        told, to = open(told), open(to, "w", buffering=1)

        def prints(text):
            to.write(text + "\n")
            return int(told.readline())

        self.actors.append((to, told))
        return pane, prints

    def end(self, muxtap):
        # A server may remain if its client's output is not read at the end.
        for client in self.beside:
            client.stdin.close()
            client.wait(timeout=LIMIT_S)
        subprocess.run([muxtap, "stop"], env=self.env, capture_output=True)
        subprocess.run(["tmux", "-S", self.socket, "kill-server"], env=self.env, capture_output=True)
        shutil.rmtree(self.dir, ignore_errors=True)


class Bare:
    """What no client of tmux can be quicker than: one that is told of output, and looks at nothing else."""

    def __init__(self, stage):
        self.process = subprocess.Popen(
            ["tmux", "-u", "-S", stage.socket, "-C", "attach", "-t", "bench"], env=stage.env,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, bufsize=0,
        )
        stage.beside.append(self.process)
        self.lines = queue.Queue()
        threading.Thread(target=self.listen, daemon=True).start()

    def listen(self):
        for now, line in lines(self.process.stdout):
            self.lines.put((now, line))

    def until(self, text):
        while True:
            now, line = self.lines.get(timeout=LIMIT_S)
            if text in line and line.startswith(b"%output"):
                return now

    def send(self, line):
        self.process.stdin.write(line.encode() + b"\n")


def ms(nanoseconds):
    return f"{statistics.median(nanoseconds) / 1e6:8.2f}" if nanoseconds else "       -"


def forks():
    with open("/proc/stat") as stat:
        return next(int(line.split()[1]) for line in stat if line.startswith("processes "))


def main():
    options = argparse.ArgumentParser()
    options.add_argument("--muxtap", default="target/release/muxtap")
    options.add_argument("--tmux", default="tmux")
    options.add_argument("--rounds", type=int, default=50)
    options.add_argument("--bin", default="")
    options = options.parse_args()
    path = f"{options.bin}:{os.environ['PATH']}"
    stage = Stage(options.tmux)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    muxtap = os.path.abspath(options.muxtap)
    try:
        servers = [(kind := Muxtap(), Client(kind.command(stage, muxtap), stage.env))]
        for kind in (TmuxMcp(), TmuxMcpRs(), LibtmuxMcp()):
            if program := shutil.which(kind.name, path=path):
                servers.append((kind, Client(kind.command(stage, os.path.abspath(program)), stage.env)))
            else:
                print(f"skipped: {kind.name} is not installed")
        print(stage.tmux("-V"), f"- {options.rounds} rounds, {os.cpu_count()} cores")
        measure(stage, servers, options.rounds)
    finally:
        stage.end(muxtap)


def measure(stage, servers, rounds):
    pane, prints = stage.actor()
    bare = Bare(stage)
    time.sleep(1)
    waits, captures, sinces, runs = ({kind.name: [] for kind, _ in servers} for _ in range(4))
    waits["bare"], runs["bare"] = [], []
    refused, cursors = {}, {}

    def timed(kind, client, call, into, what):
        begun = time.monotonic_ns()
        now, answer, _ = client.call(call).get(timeout=LIMIT_S)
        if failed(answer):
            refused[kind.name, what] = json.dumps(answer)[:300]
            return None
        into[kind.name].append(now - begun)
        return answer

    for turn in range(rounds):
        mark = f"BARE{turn}x"
        # Either every client is measured on an idle machine, or none is.
        time.sleep(PAUSE_S)
        written = prints(mark)
        waits["bare"].append(bare.until(mark.encode()) - written)
        begun = time.monotonic_ns()
        bare.send(f"send-keys -t {stage.shell} \"true; echo B''ARE{turn}y\" Enter")
        runs["bare"].append(bare.until(f"BARE{turn}y".encode()) - begun)
        for kind, client in servers:
            if kind.wait:
                mark = f"MARK{turn}{kind.name}"
                answer = client.call(kind.wait(pane, mark))
                # The wait must have begun when the pane prints; some servers take long to begin it.
                time.sleep(PAUSE_S)
                written = prints(mark)
                now, message, _ = answer.get(timeout=LIMIT_S)
                if failed(message) or mark not in json.dumps(message):
                    refused[kind.name, "wait"] = json.dumps(message)[:300]
                else:
                    waits[kind.name].append(now - written)
            timed(kind, client, kind.capture(pane), captures, "capture")
            if kind.since:
                answer = timed(kind, client, kind.since(pane, cursors.get(kind.name)), sinces, "since")
                if answer:
                    cursors[kind.name] = kind.cursor(answer)
            timed(kind, client, kind.run(stage.shell), runs, "run")

    floor, base = statistics.median(waits["bare"]), statistics.median(runs["bare"])
    print(f"{'':14}     wait  /bare  capture    since      run  /bare  tools/list  100 waits  forks/s in 50 waits")
    print(f"{'bare client':14} {ms(waits['bare'])}   1.00        -        - {ms(runs['bare'])}   1.00")
    panes = [stage.actor() for _ in range(10)]
    for kind, client in servers:
        many, forked = "        -", "-"
        if kind.wait:
            many = f"{at_once(kind, client, panes):5} right"
            forked = f"{forks_while_waiting(kind, client, pane, prints):.0f}"
        ratio = lambda times, to: f"{statistics.median(times) / to:6.2f}" if times else "     -"
        print(f"{kind.name:14} {ms(waits[kind.name])} {ratio(waits[kind.name], floor)} {ms(captures[kind.name])} {ms(sinces[kind.name])} "
              f"{ms(runs[kind.name])} {ratio(runs[kind.name], base)}  {client.listed[2]:8} B {many}  {forked}")
    for (name, what), why in refused.items():
        print(f"{name} refused {what}: {why}")


def at_once(kind, client, panes):
    """A hundred waits over ten panes: how many are answered, and with their own text."""
    marks = [(pane, prints, f"MANY{number}of{at}{kind.name}") for at, (pane, prints) in enumerate(panes) for number in range(10)]
    answers = [client.call(kind.wait(pane, mark)) for pane, _, mark in marks]
    time.sleep(2)
    for _, prints, mark in marks:
        prints(mark)
    right = 0
    for (_, _, mark), answer in zip(marks, answers):
        try:
            _, message, _ = answer.get(timeout=LIMIT_S)
            right += not failed(message) and mark in json.dumps(message)
        except queue.Empty:
            pass
    return right


def forks_while_waiting(kind, client, pane, prints):
    """Processes that are started in a second while fifty waits are open, without those that are started anyway."""
    idle = forks()
    time.sleep(2)
    idle = forks() - idle
    mark = f"HELD{kind.name}"
    answers = [client.call(kind.wait(pane, mark)) for _ in range(50)]
    time.sleep(1)
    before = forks()
    time.sleep(2)
    started = forks() - before
    prints(mark)
    for answer in answers:
        try:
            answer.get(timeout=LIMIT_S)
        except queue.Empty:
            break
    return max(0, started - idle) / 2


if __name__ == "__main__":
    main()
