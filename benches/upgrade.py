#!/usr/bin/env python3
"""Upgrades a private daemon again and again under load, and prints what its callers noticed.

    cargo build --release && benches/upgrade.py target/release/muxtapd [upgrades] [waits] [streams]

Panes flood the daemon, `waits` are open, and `streams` read events. Meanwhile one caller asks for the
status without a pause. Printed: gaps in the streams, missing lines, ended waits, and the longest time
without a response.
"""

import http.client, json, os, socket, subprocess, sys, tempfile, threading, time

PROGRAM = os.path.abspath(sys.argv[1])
UPGRADES, WAITS, STREAMS = (int(arg) for arg in (sys.argv[2:5] + ["100", "200", "50"][len(sys.argv) - 2:]))
FLOOD_LINES = 1_500_000  # of about 40 bytes: 60 MB

folder = tempfile.mkdtemp(prefix="muxtap-upgrade-")
muxtap_socket, tmux_socket = folder + "/muxtap.sock", folder + "/tmux"
env = {**os.environ, "MUXTAP_SOCKET": muxtap_socket, "HOME": folder, "XDG_STATE_HOME": folder,
       "XDG_CONFIG_HOME": folder, "MUXTAP_FLOODS": "follow", "MUXTAP_RING_BYTES": "64M"}
for name in ("TMUX", "TMUX_PANE"):
    env.pop(name, None)


def run(*args):
    done = subprocess.run(args, env=env, text=True, capture_output=True)
    if done.returncode:
        sys.exit(f"{args}: {done.stderr}")
    return done.stdout.strip()


def muxtap(*args):
    return run(PROGRAM, "-S", tmux_socket, *args)


def tmux(*args):
    return run("tmux", "-f", "/dev/null", "-S", tmux_socket, *args)


def request(method, path, body=b"", headers=""):
    stream = socket.socket(socket.AF_UNIX)
    stream.connect(muxtap_socket)
    stream.sendall((f"{method} {path} HTTP/1.1\r\nhost: m\r\nconnection: close\r\ncontent-type: application/json\r\n"
                    f"{headers}content-length: {len(body)}\r\n\r\n").encode() + body)
    return stream


def response(stream):
    data = b""
    while piece := stream.recv(65536):
        data += piece
    return data


class Stream(threading.Thread):
    """Reads events of the flooding pane; counts gaps and missing lines."""

    def __init__(self, pane):
        super().__init__(daemon=True)
        self.gaps = self.missing = self.lines = 0
        self.ended, self.text, self.last = None, "", 0
        path = f"/v1/events?socket={tmux_socket}&panes={pane.replace('%', '%25')}&types=output&since=start"
        self.file = http.client.HTTPResponse(request("GET", path))
        self.file.begin()

    def run(self):
        try:
            for line in self.file:
                if line.startswith(b"data: "):
                    self.event(json.loads(line[6:]))
                elif line.startswith(b"event: error"):
                    self.ended = "error"
        except (OSError, ValueError, http.client.HTTPException) as error:
            self.ended = str(error)
        self.ended = self.ended or "end"

    def event(self, event):
        if event.get("gap"):
            self.gaps += 1
        self.text += event.get("text") or ""
        *lines, self.text = self.text.split("\n")
        for line in lines:
            number = line.strip().removeprefix("line ").split(" ")[0]
            if number.isdigit():
                self.missing += int(number) != self.last + 1
                self.last, self.lines = int(number), self.lines + 1


def main():
    tmux("new-session", "-d", "-s", "work", "-x", "100", "cat")
    quiet = tmux("list-panes", "-t", "work", "-F", "#{pane_id}")
    flood = (f"read go; i=0; while [ $i -lt {FLOOD_LINES} ]; do i=$((i+1)); "
             "echo \"line $i of a flood of sixty megabytes\"; done; cat")
    flooding = tmux("new-window", "-d", "-P", "-F", "#{pane_id}", flood)
    muxtap("read", "-t", flooding)
    body = json.dumps({"panes": [quiet], "patterns": ["DONE"], "timeout_ms": 3_600_000}).encode()
    waits = [request("POST", f"/v1/waits?socket={tmux_socket}", body) for _ in range(WAITS)]
    streams = [Stream(flooding) for _ in range(STREAMS)]
    for stream in streams:
        stream.start()
    while json.loads(muxtap("--json", "status"))["waits"] < WAITS:
        time.sleep(0.05)
    longest, failed, stop = 0.0, 0, threading.Event()

    def probe():
        nonlocal longest, failed
        while not stop.is_set():
            begun = time.monotonic()
            try:
                ok = b" 200 " in response(request("GET", "/v1/status"))[:20]
            except OSError:
                ok = False
            failed += not ok
            longest = max(longest, time.monotonic() - begun)

    prober = threading.Thread(target=probe)
    prober.start()
    tmux("send-keys", "-t", flooding, "go", "Enter")
    begun = time.monotonic()
    for number in range(UPGRADES):
        muxtap("upgrade")
        print(f"\r{number + 1} upgrades", end="", file=sys.stderr, flush=True)
    took = time.monotonic() - begun
    stop.set()
    prober.join()
    still = json.loads(muxtap("--json", "status"))["waits"]
    tmux("send-keys", "-t", quiet, "DONE", "Enter")
    matched = sum(b'"matched"' in response(wait) for wait in waits)
    print()
    print(json.dumps({
        "upgrades": UPGRADES, "seconds": round(took, 1), "waits": WAITS, "waits open after": still,
        "waits matched": matched, "streams": STREAMS, "streams ended": sum(s.ended is not None for s in streams),
        "ends": sorted({str(s.ended) for s in streams}), "gaps": sum(s.gaps for s in streams), "missing lines": sum(s.missing for s in streams),
        "lines read": sum(s.lines for s in streams), "failed requests": failed,
        "longest response ms": round(longest * 1000)}, indent=1))


try:
    main()
finally:
    subprocess.run([PROGRAM, "stop"], env=env, capture_output=True)
    subprocess.run(["tmux", "-S", tmux_socket, "kill-server"], env=env, capture_output=True)
