#!/usr/bin/env python3
"""Upgrades a private daemon again and again under load, and prints what its callers noticed.

    cargo build --release && benches/upgrade.py target/release/muxtapd [upgrades] [waits] [streams]

A pane floods the daemon, `waits` of all kinds are open, `streams` read events, and a page shows the
flood and types numbers into another pane. Meanwhile one caller asks for the status every 10 ms, first without an upgrade.
Printed: refused upgrades, gaps in the streams, missing lines, ended waits, the page's lost and doubled inputs, the
times of responses without and with upgrades, and the longest time without the page's connection. From the daemons' logs:
how long each step of an upgrade took. UPGRADE_LOG=FILE keeps that log.
"""

import http.client, json, os, re, socket, struct, subprocess, sys, tempfile, threading, time

PROGRAM = os.path.abspath(sys.argv[1])
UPGRADES, WAITS, STREAMS = (int(arg) for arg in (sys.argv[2:5] + ["100", "200", "50"][len(sys.argv) - 2:]))
# For how long requests are sent before the first upgrade, and the longest that streams may lag, in seconds.
BARE, READ_LIMIT = 10, 600
# The flood comes in parts, one with each upgrade and one a second before: together 60 MB, in lines of about 40 bytes.
PART = 1_500_000 // (UPGRADES + BARE)
FLOOD_LINES = PART * (UPGRADES + BARE)

folder = tempfile.mkdtemp(prefix="muxtap-upgrade-")
muxtap_socket, tmux_socket = folder + "/muxtap.sock", folder + "/tmux"
env = {**os.environ, "MUXTAP_SOCKET": muxtap_socket, "HOME": folder, "XDG_STATE_HOME": folder,
       "XDG_CONFIG_HOME": folder, "MUXTAP_FLOODS": "follow", "MUXTAP_RING_BYTES": "64M",
       "MUXTAP_LOG": "muxtap_engine::handover=debug,info", "MUXTAP_LOG_FORMAT": "json"}
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


# What the pane prints. A comparison with it costs little: fifty streams are read by one interpreter.
FLOOD = "".join(f"line {n} of a flood of sixty megabytes\n" for n in range(1, FLOOD_LINES + 1))


class Stream(threading.Thread):
    """Reads events of the flooding pane; counts gaps and missing lines."""

    def __init__(self, pane):
        super().__init__(daemon=True)
        self.gaps = self.missing = self.lines = 0
        self.ended, self.text, self.place, self.differs = None, "", None, False
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
        text = event.get("text") or ""
        if self.place is None:
            # After what was typed.
            self.text += text
            begin = self.text.find("line 1 ")
            if begin < 0:
                return
            self.place, text = 0, self.text[begin:]
        if not self.differs and FLOOD.startswith(text, self.place):
            self.place += len(text)
            self.lines += text.count("\n")
            return
        # From here on something is missing, or it is the end.
        rest = FLOOD[self.place:self.place + len(text)]
        if not self.differs and len(rest) < len(text) and text.startswith(rest):
            self.place += len(rest)
            self.lines += rest.count("\n")
            return
        self.missing += text.count("\n") if self.differs else max(1, text.count("\n"))
        self.differs = True


# A process of its own, which does not wait for this one's threads: it sends a request every 10 ms, and prints the times
# of the responses for each line of its stdin.
PROBE = """
import json, socket, sys, threading, time

times, failed, lock = [], [], threading.Lock()

def send():
    while True:
        begun, data = time.monotonic(), b""
        try:
            stream = socket.socket(socket.AF_UNIX)
            stream.connect(sys.argv[1])
            stream.sendall(b"GET /v1/status HTTP/1.1\\r\\nhost: m\\r\\nconnection: close\\r\\n\\r\\n")
            while piece := stream.recv(65536):
                data += piece
        except OSError as error:
            data = str(error).encode()
        took = time.monotonic() - begun
        with lock:
            times.append((took, time.time()))
            if b" 200 " not in data[:20]:
                failed.append(data[:200].decode(errors="replace"))
        time.sleep(max(0, 0.01 - took))

threading.Thread(target=send, daemon=True).start()
for _ in sys.stdin:
    with lock:
        some, lost, times[:], failed[:] = sorted(times), failed[:], [], []
    at = lambda share: round(1000 * some[int(share * (len(some) - 1))][0], 1) if some else 0
    print(json.dumps({"count": len(some), "failed": len(lost), "why": sorted(set(lost))[:3], "median ms": at(0.5),
                      "99 % ms": at(0.99), "longest ms": at(1),
                      "over 100 ms": sum(took > 0.1 for took, _ in some),
                      "slowest, and their ends": [f"{1000 * took:.0f} ms, " + time.strftime("%H:%M:%S", time.gmtime(end))
                                                  + f"{end % 1:.3f}"[1:] for took, end in some[:-11:-1]]}), flush=True)
"""

# The page's inputs without an outcome, and after how many refusals in a row no upgrade is tried again.
IN_FLIGHT, REFUSALS = 4, 20


class Page(threading.Thread):
    """A page: shows a pane, and types numbered lines into another one; connects again when it is closed."""

    def __init__(self, shown, typed):
        super().__init__(daemon=True)
        self.shown, self.typed, self.client, self.seq, self.sent = shown, typed, None, 0, []
        self.keys, self.is_shown = {}, False
        self.screens = self.connections = self.unknown = self.refused = 0
        self.longest, self.codes, self.done = 0.0, set(), threading.Event()
        self.connect()

    def connect(self):
        self.socket = socket.socket(socket.AF_UNIX)
        self.socket.connect(muxtap_socket)
        self.socket.sendall(b"GET /v1/page/ws HTTP/1.1\r\nhost: m\r\nconnection: upgrade\r\nupgrade: websocket\r\n"
                            b"sec-websocket-version: 13\r\nsec-websocket-key: AAAAAAAAAAAAAAAAAAAAAA==\r\n"
                            b"sec-websocket-protocol: muxtap-page-1\r\n\r\n")
        self.file = self.socket.makefile("rb")
        status = self.file.readline()
        while self.file.readline().strip():
            pass
        if b" 101 " not in status:
            raise OSError(status)
        self.connections += 1
        self.is_shown = False
        self.send({"type": "hello", **({"client": self.client} if self.client else {})})
        self.send({"type": "list"})

    def send(self, message):
        data = json.dumps(message).encode()
        length = struct.pack(">BBH", 0x81, 0xfe, len(data)) if len(data) > 125 else bytes([0x81, 0x80 | len(data)])
        self.socket.sendall(length + bytes(4) + data)

    def frame(self):
        head = self.file.read(2)
        if len(head) < 2:
            raise OSError("the connection ended")
        length = head[1] & 127
        if length > 125:
            length = int.from_bytes(self.file.read(2 if length == 126 else 8), "big")
        return head[0] & 15, self.file.read(length)

    def run(self):
        lost = None
        while not self.done.is_set():
            try:
                kind, data = self.frame()
                if kind == 8:
                    self.codes.add(int.from_bytes(data[:2], "big"))
                    raise OSError("closed")
                if kind == 1:
                    message = json.loads(data)
                    if message["type"] == "welcome" and lost:
                        self.longest = max(self.longest, time.monotonic() - lost)
                        lost = None
                    self.receive(message)
            except OSError:
                lost = lost or time.monotonic()
                try:
                    self.connect()
                except OSError:
                    time.sleep(0.001)

    def receive(self, message):
        if message["type"] == "welcome":
            known, self.client = message["client"] == self.client, message["client"]
            if not known:
                # As the page does: what had no response is reported as unknown.
                self.unknown += len(self.sent)
                self.sent, self.seq = [], message["input"]
            self.sent = [one for one in self.sent if one[0] > message["input"]]
            for seq, number in self.sent:
                self.input(seq, number)
        elif message["type"] == "panes":
            # Only panes that are new or have changed.
            self.keys |= {pane["id"]: pane["key"] for pane in message["set"]}
            if not self.is_shown and {self.shown, self.typed} <= self.keys.keys():
                self.is_shown = True
                self.send({"type": "show", "view": 1, "key": self.keys[self.shown]})
                self.fill()
            self.send({"type": "drawn", "views": [], "list": True})
        elif message["type"] == "screen":
            self.screens += 1
            self.send({"type": "drawn", "views": [1]})
        elif message["type"] in ("ack", "nack"):
            self.refused += message["type"] == "nack"
            self.sent = [one for one in self.sent if one[0] != message["seq"]]
            self.fill()

    number = 0

    def fill(self):
        # As the page, it does not wait for outcomes.
        while len(self.sent) < IN_FLIGHT and not self.done.is_set():
            self.type()

    def type(self):
        self.seq, self.number = self.seq + 1, self.number + 1
        self.sent.append((self.seq, self.number))
        self.input(self.seq, self.number)

    def input(self, seq, number):
        key = self.keys[self.typed]
        self.send({"type": "input", "seq": seq, "key": key, "text": f"typed {number}\r"})


# Panes: the quiet one, another one, the flooding one.
KINDS = [
    lambda quiet, other, flood: {"panes": [quiet], "patterns": ["DONE"]},
    lambda quiet, other, flood: {"panes": [quiet, other], "patterns": ["DONE"]},
    lambda quiet, other, flood: {"panes": [quiet, other], "mode": "all", "patterns": ["DONE"]},
    lambda quiet, other, flood: {"panes": [quiet], "patterns": ["FIRST", "DONE"]},
    lambda quiet, other, flood: {"panes": [quiet], "patterns": ["never"], "fail": ["DONE"]},
    lambda quiet, other, flood: {"panes": [quiet], "screen": ["DONE"]},
    lambda quiet, other, flood: {"panes": [quiet], "patterns": ["DONE"], "settle_ms": 50},
    lambda quiet, other, flood: {"panes": [quiet], "patterns": ["DONE"], "stable_ms": 50},
    lambda quiet, other, flood: {"panes": [quiet, flood], "patterns": ["DONE"]},
    lambda quiet, other, flood: {"panes": [quiet], "patterns": ["DONE"], "detach": True},
]


def steps(log):
    """How long each step took, and for how long its thread ran; steps 4 to 6 of the old daemon together."""
    found, quiet = {}, []
    for line in open(log):
        try:
            fields = json.loads(line)
        except ValueError:
            continue
        if "so_far_ms" in fields:
            step = fields["ms"], fields.get("cpu_ms", 0), fields["bytes"]
            found.setdefault(f"{fields['side']}: {fields['step']}", []).append(step)
            if fields["side"] == "old":
                quiet = ([] if fields["step"] == "finish requests" else quiet) + [step]
                if fields["step"] == "await its begin":
                    found.setdefault("steps 4 to 6", []).append([round(sum(all), 1) for all in zip(*quiet)])
    middle = lambda values: sorted(values)[len(values) // 2]
    return {step: {"median ms": middle(all[0]), "longest ms": max(all[0]), "median cpu ms": middle(all[1]),
                   "longest cpu ms": max(all[1]), "bytes": max(all[2])}
            for step, all in ((step, list(zip(*times))) for step, times in found.items())}


def main():
    tmux("new-session", "-d", "-s", "work", "-x", "100", "cat")
    quiet = tmux("list-panes", "-t", "work", "-F", "#{pane_id}")
    other, typed = (tmux("new-window", "-d", "-P", "-F", "#{pane_id}", what) for what in ("cat", f"cat >{folder}/typed"))
    parts = folder + "/parts"
    os.mkfifo(parts)
    flood = (f"exec 3<>{parts}; i=0; while [ $i -lt {FLOOD_LINES} ] && read go <&3; do end=$((i+{PART})); "
             "while [ $i -lt $end ]; do i=$((i+1)); echo \"line $i of a flood of sixty megabytes\"; done; done; cat")
    flooding = tmux("new-window", "-d", "-P", "-F", "#{pane_id}", flood)
    go = os.open(parts, os.O_RDWR)
    muxtap("read", "-t", flooding)
    bodies = [{**KINDS[n % len(KINDS)](quiet, other, flooding), "timeout_ms": 3_600_000} for n in range(WAITS)]
    waits = [request("POST", f"/v1/waits?socket={tmux_socket}", json.dumps(body).encode()) for body in bodies]
    page = Page(flooding, typed)
    page.start()
    streams = [Stream(flooding) for _ in range(STREAMS)]
    for stream in streams:
        stream.start()
    while json.loads(muxtap("--json", "status"))["waits"] < WAITS:
        time.sleep(0.05)
    log = json.loads(muxtap("--json", "status"))["log"]
    prober = subprocess.Popen([sys.executable, "-c", PROBE, muxtap_socket], stdin=subprocess.PIPE,
                              stdout=subprocess.PIPE, text=True)

    def probed():
        """The times of the responses since the last call."""
        prober.stdin.write("\n")
        prober.stdin.flush()
        return json.loads(prober.stdout.readline())

    print("without upgrades", end="", file=sys.stderr, flush=True)
    probed()
    for _ in range(BARE):
        os.write(go, b"go\n")
        time.sleep(1)
    bare = probed()
    begun, load = time.monotonic(), [os.getloadavg()[0]]
    refused, reasons, flooded = 0, {}, 0
    for number in range(UPGRADES):
        os.write(go, b"go\n")
        # A daemon that is too busy to finish what is open refuses, and goes on.
        for _ in range(REFUSALS):
            upgrade = subprocess.run([PROGRAM, "upgrade"], env=env, capture_output=True, text=True)
            if not upgrade.returncode:
                break
            refused += 1
            reason = upgrade.stderr.strip()
            reasons[reason] = reasons.get(reason, 0) + 1
        else:
            raise SystemExit(f"\nupgrade {number + 1} was refused {REFUSALS} times in a row: {upgrade.stderr.strip()}")
        if number == UPGRADES // 2:
            tmux("send-keys", "-t", quiet, "FIRST", "Enter")
        flooded += any(s.place is not None and s.place < len(FLOOD) for s in streams)
        print(f"\r{number + 1} upgrades, {time.monotonic() - begun:.0f} s ", end="", file=sys.stderr, flush=True)
    took = time.monotonic() - begun
    during = probed()
    load.append(os.getloadavg()[0])
    print(f"\nwithout upgrades: {bare}\nduring: {during}", file=sys.stderr, flush=True)
    prober.stdin.close()
    prober.wait()
    # What is read late is also compared.
    for _ in range(READ_LIMIT * 10):
        if all(s.ended or s.place == len(FLOOD) or s.differs for s in streams):
            break
        time.sleep(0.1)
    still = json.loads(muxtap("--json", "status"))["waits"]
    page.done.set()
    tmux("send-keys", "-t", quiet, "DONE", "Enter")
    tmux("send-keys", "-t", other, "DONE", "Enter")
    ends = []
    for body, wait in zip(bodies, waits):
        answer = json.loads(response(wait).partition(b"\r\n\r\n")[2])
        if body.get("detach"):
            path = f"/v1/waits/{answer['id']}?timeout_ms=60000"
            answer = json.loads(response(request("GET", path)).partition(b"\r\n\r\n")[2])
        ends.append(answer["outcome"] if answer.get("outcome") != ("failed" if body.get("fail") else "matched") else "as expected")
    # The last inputs may still be on their way.
    for _ in range(600):
        with open(folder + "/typed") as file:
            if len(file.readlines()) >= page.number:
                break
        time.sleep(0.05)
    with open(folder + "/typed") as file:
        numbers = [int(line.split()[1]) for line in file]
    expected = list(range(1, page.number + 1))
    print()
    print(json.dumps({
        "upgrades": UPGRADES, "of them during the flood": flooded, "refused upgrades": refused, "reasons": reasons, "seconds": round(took, 1), "load before and after": load, "waits": WAITS, "waits open after": still,
        "waits ended": {end: ends.count(end) for end in sorted(set(ends))}, "streams": STREAMS, "streams ended": sum(s.ended is not None for s in streams),
        "ends": sorted({str(s.ended) for s in streams}), "gaps": sum(s.gaps for s in streams), "missing lines": sum(s.missing for s in streams),
        "lines read": sum(s.lines for s in streams), "streams at the end": sum(s.place == len(FLOOD) for s in streams),
        "page connections": page.connections, "page close codes": sorted(page.codes), "page screens": page.screens,
        "page inputs": page.number, "refused": page.refused, "unknown to the page": page.unknown,
        "doubled": len(numbers) - len(set(numbers)), "in order": numbers == sorted(numbers),
        "lost": len(set(expected) - set(numbers)),
        "responses without upgrades": bare, "responses during upgrades": during,
        "longest, ratio": round(during["longest ms"] / bare["longest ms"], 1), "steps": steps(log),
        "longest without the page ms": round(page.longest * 1000)}, indent=1))
    if page.refused:
        raise SystemExit(f"{page.refused} inputs of the page were refused")


try:
    main()
finally:
    if keep := os.environ.get("UPGRADE_LOG"):
        subprocess.run(f"cat {folder}/*.log {folder}/muxtap/*.log > {keep}", shell=True, stderr=subprocess.DEVNULL)
    subprocess.run([PROGRAM, "stop"], env=env, capture_output=True)
    subprocess.run(["tmux", "-S", tmux_socket, "kill-server"], env=env, capture_output=True)
