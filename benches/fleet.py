#!/usr/bin/env python3
"""Measures a fleet: daemons on this machine, each with a tmux server of its own, and one NATS server.

    cargo build --release && benches/fleet.py target/release/muxtapd [hosts] [waits] [seconds of the tail]
    benches/fleet.py --members N        what N members cost a NATS server, without muxtap

Printed by the first, each beside bare NATS in the same run and in turns with it:

- how many messages it takes that one more host joins;
- a wait on another host: from the write of a pane's program to the response, beside a request and its reply between two
  bare clients of NATS, and beside the same wait without a fleet (a request to the host's own daemon);
- an absent host: from the request to its error, beside a request to NATS on a subject without subscribers;
- an idle fleet: messages, processor time and memory in a minute, without NATS' pings, which are not messages;
- many waits over all hosts: how many were answered rightly, and when;
- a tail of ten panes of each host, a hundred lines a second each: whether it is whole, and the rate that was reached.

Printed by the second: of a NATS server with N connections that have the subscriptions of hosts, the memory, the time of
one announcement to all, and the time of one list of all.

The bare clients are written in Python, as the caller is. It needs `nats-server` and `tmux` in PATH.
"""

import json, os, resource, selectors, shutil, signal, socket, statistics, subprocess, sys, tempfile, threading, time
import urllib.request

# Measurements of each kind, the length of the idle time in seconds, panes of a host, and lines a second of a pane.
ROUNDS, IDLE, PANES, RATE = 300, 60, 10, 100
# The Unix socket of a daemon serves 8,192 connections, so one caller holds half of that.
CALLER_WAITS = 4096
# How long anything may take, in seconds; a run that exceeds it fails.
LIMIT = 600

# The subscriptions of a host `NAME` that offers all tiers (docs/fleet.md).
SUBSCRIPTIONS = ["_INBOX.NAME.>", "$SRV.HELLO.muxtap.*",
                 *(f"$SRV.{verb}{whom}" for verb in ("PING", "INFO", "STATS")
                   for whom in ("", ".muxtap", ".muxtap.NAME")),
                 *(f"muxtap.v1.NAME.{tier}.open" for tier in ("read", "input", "create", "kill"))]

folder = None


def until(what, holds):
    """Waits for a state that no event announces to this process."""
    end = time.monotonic() + LIMIT
    while not (found := holds()):
        if time.monotonic() > end:
            sys.exit(f"never: {what}")
        time.sleep(0.01)
    return found


class Nats:
    """A NATS server without JetStream or users, and what bare clients need."""

    def __init__(self):
        self.process = subprocess.Popen(["nats-server", "-a", "127.0.0.1", "-p", "-1", "-m", "-1", "--ports_file_dir",
                                         folder], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        name = f"{folder}/nats-server_{self.process.pid}.ports"

        def written():
            try:
                return os.path.exists(name) and json.load(open(name))
            except ValueError:
                return None  # half written

        ports = until("the NATS server listens", written)
        self.port = int(ports["nats"][0].rsplit(":", 1)[1])
        self.monitor = ports["monitoring"][0]

    def messages(self):
        found = json.load(urllib.request.urlopen(self.monitor + "/varz"))
        return found["in_msgs"] + found["out_msgs"]


class Client:
    """A bare client of NATS."""

    def __init__(self, port):
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.data = b""
        self.line()
        self.send(b'CONNECT {"verbose":false,"headers":true,"no_responders":true}\r\nPING\r\n')
        while self.line() != b"PONG":
            pass

    def send(self, data):
        self.socket.sendall(data)

    def more(self):
        piece = self.socket.recv(65536)
        if not piece:
            raise OSError("NATS closed the connection")
        self.data += piece

    def line(self):
        while b"\r\n" not in self.data:
            self.more()
        line, _, self.data = self.data.partition(b"\r\n")
        return line

    def message(self):
        """The next message: the reply subject, and whether it has a status of NATS."""
        while True:
            words = self.line().split()
            if words[0] == b"PING":
                self.send(b"PONG\r\n")
            if words[0] in (b"MSG", b"HMSG"):
                break
        size = int(words[-1]) + 2
        while len(self.data) < size:
            self.more()
        data, self.data = self.data[:size], self.data[size:]
        named = 4 if words[0] == b"MSG" else 5
        return (words[3] if len(words) > named else b""), data.startswith(b"NATS/1.0 ")

    def request(self, subject):
        """Sends a request and awaits its reply. Returns whether NATS itself has replied."""
        self.send(b"PUB " + subject + b" inbox.bare 2\r\nhi\r\n")
        return self.message()[1]


def respond(port):
    """The other bare client, a process of its own: replies to each request."""
    client = Client(port)
    client.send(b"SUB echo 1\r\nPING\r\n")
    while client.line() != b"PONG":
        pass
    print("ready", flush=True)
    while True:
        reply, _ = client.message()
        client.send(b"PUB " + reply + b" 2\r\nhi\r\n")


class Host:
    """A daemon that is a member of the fleet, and its tmux server."""

    def __init__(self, program, url, name, offer):
        self.name, self.folder = name, f"{folder}/{name}"
        self.socket, self.ttys = self.folder + "/m.sock", []
        self.tmux_socket = f"{self.folder}/tmux-{os.getuid()}/default"
        os.makedirs(os.path.dirname(self.tmux_socket), mode=0o700)
        self.env = {**os.environ, "MUXTAP_SOCKET": self.socket, "HOME": self.folder, "XDG_STATE_HOME": self.folder,
                    "XDG_CONFIG_HOME": self.folder, "TMUX_TMPDIR": self.folder, "MUXTAP_FLEET": url,
                    "MUXTAP_FLEET_NAME": name, "MUXTAP_FLEET_OFFER": offer}
        for given in ("TMUX", "TMUX_PANE"):
            self.env.pop(given, None)
        self.process = subprocess.Popen([program, "serve"], env=self.env, stdout=subprocess.DEVNULL,
                                        stderr=open(self.folder + "/log", "w"))

    def begin(self):
        until(f"{self.name} listens", lambda: os.path.exists(self.socket) and self.get("/v1/status")[0] == 200)

    def tmux(self, *args):
        done = subprocess.run(["tmux", "-f", "/dev/null", "-S", self.tmux_socket, *args], env=self.env, text=True,
                              capture_output=True)
        if done.returncode:
            sys.exit(f"tmux: {args}: {done.stderr}")
        return done.stdout.split()

    def open_panes(self, count):
        """Opens panes that print what is written to their terminals."""
        self.tmux("new-session", "-d", "-s", "work", "-x", "100", "-y", "24", "exec sleep 100000")
        for _ in range(1, count):
            self.tmux("new-window", "-d", "exec sleep 100000")
        self.ttys = [os.open(tty, os.O_WRONLY | os.O_NOCTTY) for tty in
                     self.tmux("list-panes", "-s", "-F", "#{pane_tty}")]

    def request(self, method, path, body=None):
        """Sends a request; the response ends the connection."""
        stream = socket.socket(socket.AF_UNIX)
        stream.connect(self.socket)
        data = b"" if body is None else json.dumps(body).encode()
        stream.sendall((f"{method} {path} HTTP/1.1\r\nhost: m\r\nconnection: close\r\n"
                        f"content-type: application/json\r\ncontent-length: {len(data)}\r\n\r\n").encode() + data)
        return stream

    def get(self, path):
        return response(self.request("GET", path))

    def wait(self, panes, pattern, since=None):
        body = {"panes": panes, "patterns": [pattern], "timeout_ms": LIMIT * 1000}
        return self.request("POST", "/v1/waits", body if since is None else {**body, "since": since})

    def usage(self):
        """Processor time in seconds, and resident memory in MB, of which the shared part counts in each process."""
        fields = open(f"/proc/{self.process.pid}/stat").read().rsplit(")", 1)[1].split()
        return (sum(map(int, fields[11:13])) / os.sysconf("SC_CLK_TCK"),
                int(fields[21]) * os.sysconf("SC_PAGE_SIZE") / 1e6)

    def end(self):
        self.process.send_signal(signal.SIGTERM)
        self.process.wait(LIMIT)


def response(stream):
    """Reads a response to its end: status and body."""
    data = b""
    while piece := stream.recv(65536):
        data += piece
    stream.close()
    return parsed(data)


def parsed(data):
    head, _, body = data.partition(b"\r\n\r\n")
    return int(head.split()[1]), json.loads(body)


def timed(work):
    begun = time.perf_counter()
    result = work()
    return 1e6 * (time.perf_counter() - begun), result


def figures(times):
    times = sorted(times)
    return {"median µs": round(statistics.median(times)), "99 % µs": round(times[int(0.99 * (len(times) - 1))])}


def beside(own, bare):
    own, bare = figures(own), figures(bare)
    return {"fleet": own, "bare NATS": bare,
            "ratio of medians": round(own["median µs"] / bare["median µs"], 2),
            "ratio at 99 %": round(own["99 % µs"] / bare["99 % µs"], 2)}


def open_waits(host):
    return host.get("/v1/status")[1]["waits"]


def one_wait(near, host, pane, number, bare):
    """The times of one wait by way of `near`, and of a bare round trip."""
    before = open_waits(host)
    stream = near.wait([pane], f"hit {number}$")
    until("the wait is open", lambda: open_waits(host) > before)

    def hit():
        os.write(host.ttys[0], f"hit {number}\n".encode())
        return response(stream)

    took, (status, answer) = timed(hit)
    if status != 200 or answer["outcome"] != "matched":
        sys.exit(f"a wait failed: {answer}")
    return took, timed(lambda: bare.request(b"echo"))[0]


def measure_wait(near, host, bare):
    fleet, local, nats = [], [], []
    for number in range(ROUNDS):
        took, trip = one_wait(near, host, f"{host.name}/%0", 2 * number, bare)
        fleet.append(took)
        nats.append(trip)
        took, trip = one_wait(host, host, "%0", 2 * number + 1, bare)
        local.append(took)
        nats.append(trip)
    return {**beside(fleet, nats), "the host's own daemon": figures(local)}


def measure_absent(near, bare):
    own, nats = [], []
    for _ in range(ROUNDS):
        took, (status, answer) = timed(lambda: response(near.wait(["gone/%0"], "x")))
        if status < 400 or "gone" not in json.dumps(answer):
            sys.exit(f"an absent host: {status} {answer}")
        own.append(took)
        took, is_absent = timed(lambda: bare.request(b"absent"))
        if not is_absent:
            sys.exit("a bare request without a subscriber was answered")
        nats.append(took)
    return beside(own, nats)


def measure_idle(nats, hosts):
    # A link without requests is closed after a minute.
    time.sleep(75)
    before, used = nats.messages(), sum(host.usage()[0] for host in hosts)
    time.sleep(IDLE)
    messages, used = nats.messages() - before, sum(host.usage()[0] for host in hosts) - used
    resident = statistics.mean(host.usage()[1] for host in hosts)
    return {"daemons": len(hosts), "seconds": IDLE, "messages": messages, "processor s": round(used, 2),
            "resident MB of a daemon": round(resident, 1)}


def measure_waits(nears, hosts, count):
    begun = time.monotonic()
    waits = {}
    for number in range(count):
        host = hosts[number % len(hosts)]
        pane = (number // len(hosts)) % PANES
        near = nears[number // CALLER_WAITS]
        waits[near.wait([f"{host.name}/%{pane}"], f"^wait {number}\\.$")] = number
    until("all waits are open", lambda: sum(open_waits(host) for host in hosts) >= count)
    opened = time.monotonic() - begun
    selector = selectors.DefaultSelector()
    for stream in waits:
        selector.register(stream, selectors.EVENT_READ, [])
    begun = time.monotonic()

    def hit():
        for number in range(count):
            tty = hosts[number % len(hosts)].ttys[(number // len(hosts)) % PANES]
            os.write(tty, f"wait {number}.\n".encode())

    writer = threading.Thread(target=hit)
    writer.start()
    right, wrong = 0, []
    while selector.get_map() and time.monotonic() - begun < LIMIT:
        for key, _ in selector.select(1):
            piece = key.fileobj.recv(65536)
            if piece:
                key.data.append(piece)
                continue
            selector.unregister(key.fileobj)
            status, answer = parsed(b"".join(key.data))
            number = waits[key.fileobj]
            if status == 200 and answer.get("outcome") == "matched" and f"wait {number}." in json.dumps(answer):
                right += 1
            else:
                wrong.append((status, answer))
            key.fileobj.close()
    writer.join()
    return {"waits": count, "hosts": len(hosts), "answered rightly": right, "wrongly": len(wrong), "why": wrong[:2],
            "not at all": count - right - len(wrong), "opened in s": round(opened, 1),
            "answered in s": round(time.monotonic() - begun, 1)}


class Tail(threading.Thread):
    """Reads the events of a host's panes, and keeps them as they came."""

    def __init__(self, near, host):
        super().__init__(daemon=True)
        self.host, self.raw, self.bytes, self.ends = host, [], 0, 0
        panes = ",".join(f"{host.name}/%25{number}" for number in range(PANES))
        self.stream = near.request("GET", f"/v1/events?panes={panes}&types=output")
        while b"id: " not in b"".join(self.raw):
            self.take()

    def take(self):
        piece = self.stream.recv(262144)
        self.raw.append(piece)
        self.bytes += len(piece)
        self.ends += piece.count(b"tail ends")
        return piece

    def run(self):
        while self.ends < PANES and self.take():
            pass

    def whole(self, count):
        """How many panes' lines all came, in order and once, and how many gaps there were."""
        texts, gaps = {}, 0
        for line in b"".join(self.raw).splitlines():
            if line.startswith(b"data: "):
                event = json.loads(line[6:])
                gaps += bool(event.get("gap"))
                texts[event.get("pane")] = texts.get(event.get("pane"), "") + (event.get("text") or "")
        expected = "".join(f"tail {number} of a pane\n" for number in range(count)) + "tail ends"
        return sum(expected in text.replace("\r", "") for text in texts.values()), gaps


def measure_tail(near, hosts, seconds):
    tails = [Tail(near, host) for host in hosts]
    for tail in tails:
        tail.start()
    ttys, count = [tty for host in hosts for tty in host.ttys], seconds * RATE
    begun = time.monotonic()
    for number in range(count):
        line = f"tail {number} of a pane\n".encode()
        for tty in ttys:
            os.write(tty, line)
        time.sleep(max(0, begun + (number + 1) / RATE - time.monotonic()))
    written = time.monotonic() - begun
    for tty in ttys:
        os.write(tty, b"tail ends\n")
    for tail in tails:
        tail.join(LIMIT)
    read = time.monotonic() - begun
    found = [tail.whole(count) for tail in tails]
    return {"panes": len(ttys), "lines of a pane": count, "panes whole": sum(whole for whole, _ in found),
            "gaps": sum(gaps for _, gaps in found), "lines a second written": round(count * len(ttys) / written),
            "read in s": round(read, 1), "written in s": round(written, 1),
            "MB of events": round(sum(tail.bytes for tail in tails) / 1e6)}


def members(count):
    """What a NATS server needs for this many members, and how long it takes to reach all of them."""
    nats, clients = Nats(), []
    try:
        pages = lambda: int(open(f"/proc/{nats.process.pid}/statm").read().split()[1])
        memory = lambda: pages() * os.sysconf("SC_PAGE_SIZE") / 1e6
        empty, begun = memory(), time.monotonic()
        for number in range(count):
            clients.append(Client(nats.port))
            clients[-1].send("".join(f"SUB {subject.replace('NAME', f'host-{number}')} {n}\r\n"
                                     for n, subject in enumerate(SUBSCRIPTIONS)).encode())
        for client in clients:
            client.send(b"PING\r\n")
            while client.line() != b"PONG":
                pass
        joined = time.monotonic() - begun
        about = json.dumps({"name": "muxtap", "id": "host", "metadata": {"text": "x" * 350}}).encode()

        def each(subject, reply):
            """The time until each client has got one message, and has replied to it if it names an inbox."""
            selector = selectors.DefaultSelector()
            for client in clients:
                selector.register(client.socket, selectors.EVENT_READ, client)
            begun, left = time.monotonic(), count
            clients[0].send(f"PUB {subject} {reply}{len(about)}\r\n".encode() + about + b"\r\n")
            while left:
                for key, _ in selector.select():
                    inbox, _ = key.data.message()
                    if inbox:
                        key.data.send(b"PUB " + inbox + f" {len(about)}\r\n".encode() + about + b"\r\n")
                    selector.unregister(key.fileobj)
                    left -= 1
            return time.monotonic() - begun

        hello = each("$SRV.HELLO.muxtap.host-0", "")
        lister = Client(nats.port)
        lister.send(b"SUB _INBOX.list.1 1\r\nPING\r\n")
        while lister.line() != b"PONG":
            pass
        begun = time.monotonic()
        each("$SRV.INFO.muxtap", "_INBOX.list.1 ")
        for _ in range(count):
            lister.message()
        listed = time.monotonic() - begun
        return {"members": count, "subscriptions": count * len(SUBSCRIPTIONS), "joined in s": round(joined, 1),
                "resident MB, empty": round(empty), "resident MB": round(memory()),
                "KB a member": round(1000 * (memory() - empty) / count, 1),
                "an announcement to all, s": round(hello, 2), "a list of all, s": round(listed, 2)}
    finally:
        nats.process.kill()
        nats.process.wait()


def fleet(program, count, waits, seconds):
    nats, processes, hosts, nears = Nats(), [], [], []
    try:
        responder = subprocess.Popen([sys.executable, __file__, "--respond", str(nats.port)], stdout=subprocess.PIPE)
        processes.append(responder)
        responder.stdout.readline()
        bare = Client(nats.port)
        bare.send(b"SUB inbox.bare 1\r\n")

        def host(name, offer):
            host = Host(program, f"nats://127.0.0.1:{nats.port}", name, offer)
            processes.append(host.process)
            return host

        nears = [host(f"near{number}", "") for number in range(1 + (waits - 1) // CALLER_WAITS)]
        hosts = [host(f"h{number:02}", "read") for number in range(count)]
        for one in [*nears, *hosts]:
            one.begin()
        for one in hosts:
            one.open_panes(PANES)
        known = lambda near, look: len(near.get(f"/v1/hosts?look={look}")[1]["hosts"])
        for near in nears:
            until("all hosts are known", lambda: known(near, "true") == count)
        before = nats.messages()
        gone = host("gone", "read")
        gone.begin()
        for near in nears:
            until("the next host is known", lambda: known(near, "false") == count + 1)
        until("it knows all others", lambda: known(gone, "false") == count)
        print(json.dumps({"a host joins": {"other hosts": count, "messages": nats.messages() - before}}), flush=True)
        gone.end()
        for name, measure in [("a wait on another host", lambda: measure_wait(nears[0], hosts[0], bare)),
                              ("an absent host", lambda: measure_absent(nears[0], bare)),
                              ("an idle fleet", lambda: measure_idle(nats, [*nears, *hosts])),
                              ("many waits", lambda: measure_waits(nears, hosts, waits)),
                              ("a tail", lambda: measure_tail(nears[0], hosts, seconds))]:
            print(json.dumps({name: measure()}, ensure_ascii=False), flush=True)
    finally:
        for one in hosts:
            # It may run although the opening of panes has failed.
            subprocess.run(["tmux", "-S", one.tmux_socket, "kill-server"], capture_output=True)
        for process in [*processes, nats.process]:
            process.kill()
            process.wait()


def main():
    global folder
    match sys.argv[1:]:
        case ["--respond", port]:
            return respond(int(port))
        case ["--members", count]:
            measure = lambda: print(json.dumps(members(int(count))))
        case [program, *numbers]:
            numbers = [int(number) for number in numbers] + [50, 10_000, 10][len(numbers):]
            if min(numbers) < 1:
                sys.exit(f"invalid numbers: {numbers}; expected at least 1 each")
            measure = lambda: fleet(os.path.abspath(program), *numbers)
        case _:
            sys.exit(__doc__)
    resource.setrlimit(resource.RLIMIT_NOFILE, (resource.getrlimit(resource.RLIMIT_NOFILE)[1],) * 2)
    folder = tempfile.mkdtemp(prefix="muxtap-fleet-")
    try:
        measure()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


main()
