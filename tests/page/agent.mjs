// A coding agent without a model, for the page's tests: it speaks ACP, asks for permission once, and always gives the same
// replies.

import { createInterface } from "node:readline";

const say = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const update = (sessionId, what) => say({ method: "session/update", params: { sessionId, update: what } });
const text = (words) => ({ type: "text", text: words });
let prompt = null;

const DIFF = "--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -1,3 +1,3 @@\n pub fn add(a: u32, b: u32) -> u32 {\n-    a - b\n+    a + b\n }\n";

/** A reply in Markdown, in parts that are cut anywhere, with text that must not become markup. */
const MARKDOWN = [
    "## The test\n\nIt calls `add`, wh",
    "ich **subtracts**. See [the book](https://doc.rust-lang.org/book/) and [a trap](javascript:alert(1)).\n\n",
    "1. Change the operator\n2. Run the tests\n   - unit tests\n   - <img src=x onerror=hacked=1>\n\n``",
    "`rust\npub fn add(a: u32, b: u32) -> u32 {\n    a + b // <b>not bold</b>\n}\n```\n\n",
    "| file | lines |\n| --- | --- |\n| src/lib.rs | 1 |\n\n> The rest *stays* as it is.\n\n",
    "- In a list:\n  ```sh\n  if x; then\n    y\n  ```\n\n",
    // Each of these could take a naive parser long, or to the end of its stack.
    `${">".repeat(20_000)}\n\n${"`a``b".repeat(800)}\n\n${"[".repeat(4900)}\n\n${"*a".repeat(2400)}\n\n`,
    // More lines than a page draws, and than a call takes arguments.
    ...Array(20).fill("a\n".repeat(5000)),
    "\nEnd.",
];

createInterface({ input: process.stdin }).on("line", (line) => {
    const message = JSON.parse(line);
    const answer = (result) => say({ id: message.id, result });
    switch (message.method) {
        case "initialize":
            answer({ protocolVersion: 1, agentCapabilities: {}, authMethods: [] });
            break;
        case "session/new":
            answer({ sessionId: `s${process.pid}` });
            break;
        case "session/prompt": {
            const { sessionId } = message.params;
            prompt = { id: message.id, sessionId };
            const said = message.params.prompt?.[0]?.text.includes("Markdown") ? MARKDOWN : ["I look at the test ", "and at what it calls."];
            for (const words of said) {
                update(sessionId, { sessionUpdate: "agent_message_chunk", content: text(words) });
            }
            update(sessionId, { sessionUpdate: "tool_call", toolCallId: "edit", title: "Edit src/lib.rs", kind: "edit", status: "completed", content: [{ type: "content", content: text(DIFF) }] });
            update(sessionId, { sessionUpdate: "tool_call", toolCallId: "test", title: "cargo test", kind: "execute", status: "pending" });
            say({
                id: "ask",
                method: "session/request_permission",
                params: {
                    sessionId,
                    toolCall: { toolCallId: "test", title: "cargo test", kind: "execute", rawInput: { command: ["cargo", "test", "--all"] } },
                    options: [
                        { optionId: "yes", name: "Yes, proceed", kind: "allow_once" },
                        { optionId: "no", name: "No", kind: "reject_once" },
                    ],
                },
            });
            break;
        }
        case undefined:
            if (message.id === "ask" && prompt !== null) {
                const allowed = message.result?.outcome?.optionId === "yes";
                const { id, sessionId } = prompt;
                update(sessionId, { sessionUpdate: "tool_call_update", toolCallId: "test", status: allowed ? "completed" : "failed", content: [{ type: "content", content: text(allowed ? "test result: ok. 41 passed; 0 failed" : "not allowed") }] });
                update(sessionId, { sessionUpdate: "agent_message_chunk", content: text(allowed ? "The test passes now." : "Then I leave it.") });
                say({ id, result: { stopReason: "end_turn" } });
                prompt = null;
            }
            break;
    }
});
