"""A stand-in for a model on loopback: the two APIs of models that the agents call, as far as one turn needs them.

The agents are real, only the model is not: a prompt that says `run COMMAND` is answered by a tool call, one that says
`hang` by nothing, all others by a sentence. No request leaves the machine."""
import http.server
import json
import os
import threading

ANSWER = "hello from the stand-in"


def texts(value):
    """Every text in a message's content."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, list):
        return [text for part in value for text in texts(part)]
    if isinstance(value, dict):
        return texts(value.get("text") or value.get("content") or "")
    return []


class Model:
    def __init__(self):
        model = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                self.empty(200)

            def do_GET(self):
                self.empty(404)

            def empty(self, status):
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def do_POST(self):
                body = json.loads(self.rfile.read(int(self.headers.get("content-length", 0))) or b"{}")
                if "MODEL_LOG" in os.environ:
                    with open(os.environ["MODEL_LOG"], "a") as file:
                        file.write("%s %s\n" % (self.path, json.dumps(body)))
                try:
                    if self.path.split("?")[0].endswith("/responses"):
                        model.responses(self, body)
                    elif self.path.split("?")[0].endswith("/messages"):
                        model.messages(self, body)
                    else:
                        self.empty(404)
                except (BrokenPipeError, ConnectionResetError):
                    pass

            def stream(self):
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()

            def event(self, kind, **fields):
                fields["type"] = kind
                self.wfile.write(("event: %s\ndata: %s\n\n" % (kind, json.dumps(fields))).encode())
                self.wfile.flush()

        self.hanging = threading.Semaphore(0)
        self.over = threading.Event()
        self.calls = 0
        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.over.set()
        self.server.shutdown()

    def choose(self, said):
        """What the model does: a command to run, or None for a sentence. What agents add stands before the prompt."""
        for text in said[-1:]:
            if text.startswith("hang "):
                self.hanging.release()
                self.over.wait(120)
            if text.startswith("run "):
                return text[4:].strip()
        return None

    # codex uses OpenAI's Responses API.
    def responses(self, http, body):
        items = body.get("input", [])
        last = items[-1] if items else {}
        http.stream()
        http.event("response.created", response={"id": "r"})
        command = None
        if last.get("type") == "message" and last.get("role") == "user":
            command = self.choose(texts(last.get("content")))
        self.calls += 1
        if command:
            arguments = json.dumps({"command": command})
            item = {"type": "function_call", "id": "f%d" % self.calls, "call_id": "c%d" % self.calls,
                    "name": "shell_command", "arguments": arguments}
            http.event("response.output_item.added", output_index=0, item=item)
        else:
            text = {"type": "output_text", "text": ANSWER}
            item = {"type": "message", "role": "assistant", "id": "m%d" % self.calls, "content": [text]}
            http.event("response.output_item.added", output_index=0, item=dict(item, content=[]))
            http.event("response.output_text.delta", output_index=0, content_index=0, item_id=item["id"], delta=ANSWER)
        http.event("response.output_item.done", output_index=0, item=item)
        usage = {"input_tokens": 1, "input_tokens_details": None, "output_tokens": 1, "output_tokens_details": None,
                 "total_tokens": 2}
        http.event("response.completed", response={"id": "r", "output": [item], "usage": usage})

    # claude uses Anthropic's Messages API.
    def messages(self, http, body):
        last = (body.get("messages") or [{}])[-1]
        content = last.get("content") or ""
        parts = content if isinstance(content, list) else [{"type": "text", "text": content}]
        command = None
        offered = any(tool.get("name") == "Bash" for tool in body.get("tools") or [])
        if offered and not any(part.get("type") == "tool_result" for part in parts):
            command = self.choose(texts(parts))
        self.calls += 1
        usage = {"input_tokens": 1, "output_tokens": 1}
        if command:
            block = {"type": "tool_use", "id": "toolu_%d" % self.calls, "name": "Bash",
                     "input": {"command": command, "description": "as asked"}}
        else:
            block = {"type": "text", "text": ANSWER}
        reason = "tool_use" if command else "end_turn"
        message = {"id": "msg_%d" % self.calls, "type": "message", "role": "assistant", "model": body.get("model"),
                   "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        if not body.get("stream"):
            text = json.dumps(dict(message, content=[block], stop_reason=reason)).encode()
            http.send_response(200)
            http.send_header("content-type", "application/json")
            http.send_header("content-length", str(len(text)))
            http.end_headers()
            http.wfile.write(text)
            return
        http.stream()
        http.event("message_start", message=message)
        if command:
            http.event("content_block_start", index=0, content_block=dict(block, input={}))
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        else:
            http.event("content_block_start", index=0, content_block={"type": "text", "text": ""})
            delta = {"type": "text_delta", "text": ANSWER}
        http.event("content_block_delta", index=0, delta=delta)
        http.event("content_block_stop", index=0)
        http.event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=usage)
        http.event("message_stop")
