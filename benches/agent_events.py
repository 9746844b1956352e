#!/usr/bin/env python3
"""How long after an agent's screen has changed the event of its new state arrives: agent_events.py [CHANGES]

A program named `claude` draws, in turn, a row of work and none. Each change is timed from its last byte to the line of
`muxtap --json agents --watch`. Beside it, in the same run: a wait for the same text, which needs no rest of the screen.
MUXTAP: the program to measure (default: target/release/muxtap)."""
import json
import os
import subprocess
import sys
import tempfile
import threading
import queue
import time

MUXTAP = os.path.abspath(os.environ.get("MUXTAP", "target/release/muxtap"))
CHANGES = int(sys.argv[1]) if len(sys.argv) > 1 else 400
WORK = "\u273b Working\u2026 (3s \u00b7 esc to interrupt)"


def percentile(values, share):
    return sorted(values)[min(len(values) - 1, int(len(values) * share))]


def main():
    with tempfile.TemporaryDirectory(prefix="mt-bench-") as base:
        env = {"PATH": base + ":" + os.environ["PATH"], "HOME": base, "TMUX_TMPDIR": base, "LC_ALL": "C.UTF-8",
               "MUXTAP_SOCKET": base + "/m.sock", "XDG_STATE_HOME": base}
        program = base + "/claude"
        with open(program, "w") as file:
            file.write("#!/bin/sh\nstty -echo\nread -r _\n")
        os.chmod(program, 0o755)

        def run(*words):
            return subprocess.run(words, env=env, check=True, stdout=subprocess.PIPE, timeout=60).stdout.decode()

        run("tmux", "-f", "/dev/null", "-L", "a", "new-session", "-d", "-s", "a", "-x", "80", "-y", "24", program)
        tty = run("tmux", "-L", "a", "display-message", "-p", "-t", "a", "#{pane_tty}").strip()
        try:
            measure(env, run, tty)
        finally:
            subprocess.run(["tmux", "-L", "a", "kill-server"], env=env)
            subprocess.run([MUXTAP, "stop"], env=env)


def measure(env, run, tty):
    run(MUXTAP, "-L", "a", "list-panes")
    watch = subprocess.Popen([MUXTAP, "-L", "a", "--json", "agents", "--watch"], env=env, stdout=subprocess.PIPE)
    lines = queue.Queue()
    threading.Thread(target=lambda: [lines.put((time.monotonic(), json.loads(line))) for line in watch.stdout],
                     daemon=True).start()
    terminal = open(tty, "wb", buffering=0)
    states, waits = [], []
    lines.get(timeout=30)
    for number in range(CHANGES):
        text = "\033[2J\033[H%s\r\nchange %d.\r\n\r\n" % (WORK if number % 2 == 0 else "quiet", number)
        words = [MUXTAP, "-L", "a", "wait-for", "-t", "a", "-p", "change %d\\." % number, "--since", "now"]
        wait = subprocess.Popen(words, env=env, stdout=subprocess.PIPE)
        # The wait must be there before the text.
        while not json.loads(run(MUXTAP, "status", "--json"))["waits"]:
            pass
        begun = time.monotonic()
        terminal.write(text.encode())
        wait.stdout.read()
        waits.append((time.monotonic() - begun) * 1000)
        at, event = lines.get(timeout=30)
        assert event["state"] == ("working" if number % 2 == 0 else "idle"), event
        states.append((at - begun) * 1000)
        wait.wait()
    for name, values in (("state", states), ("wait", waits)):
        told = (name, percentile(values, 0.5), percentile(values, 0.99), max(values))
        print("%-5s p50 %6.1f ms  p99 %6.1f ms  most %6.1f ms" % told)
    print("ratio p50 %.1f, of which a rest of 30 ms" % (percentile(states, 0.5) / percentile(waits, 0.5)))
    watch.kill()


if __name__ == "__main__":
    main()
