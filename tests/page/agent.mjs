// A coding agent without a model, for the page's tests: it speaks ACP, asks for permission once, and always gives the same
// replies.

import { createInterface } from "node:readline";

const say = (message) => process.stdout.write(`${JSON.stringify({ jsonrpc: "2.0", ...message })}\n`);
const update = (sessionId, what) => say({ method: "session/update", params: { sessionId, update: what } });
const text = (words) => ({ type: "text", text: words });
let prompt = null;

const DIFF = "--- a/src/lib.rs\n+++ b/src/lib.rs\n@@ -1,3 +1,3 @@\n pub fn add(a: u32, b: u32) -> u32 {\n-    a - b\n+    a + b\n }\n";

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
            update(sessionId, { sessionUpdate: "agent_message_chunk", content: text("I look at the test ") });
            update(sessionId, { sessionUpdate: "agent_message_chunk", content: text("and at what it calls.") });
            update(sessionId, { sessionUpdate: "tool_call", toolCallId: "edit", title: "Edit src/lib.rs", kind: "edit", status: "completed", content: [{ type: "content", content: text(DIFF) }] });
            update(sessionId, { sessionUpdate: "tool_call", toolCallId: "test", title: "cargo test", kind: "execute", status: "pending" });
            say({
                id: "ask",
                method: "session/request_permission",
                params: {
                    sessionId,
                    toolCall: { toolCallId: "test", title: "cargo test", kind: "execute" },
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
