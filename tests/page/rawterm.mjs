// A terminal like other web terminals, for comparison in the bench: a pty's raw bytes over a WebSocket into xterm.js.

import { spawn } from "node:child_process";
import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import { createServer } from "node:http";

const modules = new URL("../../web/node_modules/@xterm/xterm/", import.meta.url);
const PAGE = `<!doctype html><link rel=stylesheet href=xterm.css><div id=t></div><script src=xterm.js></script><script>
const term = new Terminal({ cols: 80, rows: 24, scrollback: 1000 });
term.open(document.getElementById("t"));
const socket = new WebSocket("ws://" + location.host + "/ws");
socket.binaryType = "arraybuffer";
window.bytes = 0;
window.renders = 0;
term.onRender(() => { window.renders += 1; });
socket.onmessage = (event) => { window.bytes += event.data.byteLength; term.write(new Uint8Array(event.data)); };
term.onData((data) => socket.send(data));
window.term = term;
</script>`;

/** Serves a terminal that is attached to a tmux session. */
export async function serve(env, session) {
    const children = new Set();
    const server = createServer((request, answer) => {
        const file = { "/xterm.js": "lib/xterm.js", "/xterm.css": "css/xterm.css" }[request.url];
        answer.setHeader("content-type", request.url.endsWith(".css") ? "text/css" : request.url.endsWith(".js") ? "text/javascript" : "text/html");
        answer.end(file === undefined ? PAGE : readFileSync(new URL(file, modules)));
    });
    server.on("upgrade", (request, socket) => {
        const accept = createHash("sha1").update(`${request.headers["sec-websocket-key"]}258EAFA5-E914-47DA-95CA-C5AB0DC85B11`).digest("base64");
        socket.write(`HTTP/1.1 101 Switching Protocols\r\nUpgrade: websocket\r\nConnection: Upgrade\r\nSec-WebSocket-Accept: ${accept}\r\n\r\n`);
        const pty = spawn("script", ["-qfc", `stty rows 25 cols 80; exec tmux attach -t ${session}`, "/dev/null"], { env });
        children.add(pty);
        pty.stdout.on("data", (data) => {
            // Unread output is kept, as in other web terminals.
            socket.write(Buffer.concat([header(data.length), data]));
        });
        socket.on("data", (data) => {
            for (const text of frames(data)) {
                pty.stdin.write(text);
            }
        });
        socket.on("close", () => pty.kill());
        socket.on("error", () => pty.kill());
    });
    await new Promise((resolve) => server.listen(0, "127.0.0.1", resolve));
    return {
        url: `http://127.0.0.1:${server.address().port}/`,
        end: () => {
            for (const child of children) {
                child.kill();
            }
            server.closeAllConnections();
            server.close();
        },
    };
}

function header(length) {
    if (length < 126) {
        return Buffer.from([0x82, length]);
    }
    const long = length > 65535;
    const bytes = Buffer.alloc(long ? 10 : 4);
    bytes[0] = 0x82;
    bytes[1] = long ? 127 : 126;
    if (long) {
        bytes.writeBigUInt64BE(BigInt(length), 2);
    } else {
        bytes.writeUInt16BE(length, 2);
    }
    return bytes;
}

/** Decodes the texts of short frames; a person's keys need no others. */
function* frames(data) {
    for (let at = 0; at + 6 <= data.length; ) {
        const length = data[at + 1] & 127;
        const [mask, from] = [data.subarray(at + 2, at + 6), at + 6];
        if ((data[at] & 15) === 1 || (data[at] & 15) === 2) {
            yield Buffer.from(data.subarray(from, from + length).map((byte, index) => byte ^ mask[index % 4]));
        }
        at = from + length;
    }
}
