"""A stand-in for a model, on loopback: the four APIs of models that coding agents call.

The agents are real; only the model is not. What it does is planned by the caller: each request of a turn takes the next
step of the plan, and waits, if the step says so, until the caller releases it or the agent gives up. Other requests (a
title for the session, say) get a short text. So the caller knows from the wire what an agent is really doing."""
import http.server
import json
import queue
import re
import select
import socket
import threading

TURN = "corpus:"
PROMPT = re.compile(r"^\s*" + TURN, re.M)
SAID = "hello from the stand-in"


class Step:
    """What the model answers to one request: `say` (a text), `tool` (a function that chooses a call among the tools
    that the agent offers), or `fail` (a status and a message)."""

    def __init__(self, kind, *values, held=True):
        self.kind, self.values, self.held = kind, values, held


def texts(value):
    """Every text in a message's content, in any of the APIs."""
    if isinstance(value, str):
        return [value] if value else []
    if isinstance(value, list):
        return [text for part in value for text in texts(part)]
    if isinstance(value, dict):
        return [text for name in ("text", "content", "parts", "output") for text in texts(value.get(name))]
    return []


def tools_of(body):
    """The tools that a request offers: the arguments of each by its name."""
    tools = {}
    for tool in body.get("tools") or []:
        for one in tool.get("functionDeclarations") or [tool.get("function") or tool]:
            schema = one.get("parameters") or one.get("input_schema") or one.get("parametersJsonSchema") or {}
            if one.get("name"):
                tools[one["name"]] = schema.get("properties") or {}
    return tools


class Model:
    """`seen` has an event for each request of a turn: `asked`, then `gone` if the agent gave up, else `answered`."""

    def __init__(self, log=None):
        self.plan, self.seen, self.released = queue.Queue(), queue.Queue(), queue.Queue()
        self.log, self.calls, self.over = log, 0, threading.Event()
        # The step of all further requests of a turn, until it is taken back: agents try again after an error.
        self.always = None
        # Whether the agent offered the last tool that was to be called.
        self.called = False
        # The number of requests that wait to be released.
        self.open = 0
        model = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_):
                pass

            def do_HEAD(self):
                self.empty(200)

            def do_GET(self):
                if self.path.split("?")[0].endswith("/models"):
                    return self.whole(200, {"object": "list", "data": [{"id": "stand-in", "object": "model"}]})
                self.empty(404)

            def empty(self, status):
                self.send_response(status)
                self.send_header("content-length", "0")
                self.end_headers()

            def whole(self, status, value):
                text = json.dumps(value).encode()
                self.send_response(status)
                self.send_header("content-type", "application/json")
                self.send_header("content-length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def stream(self):
                self.send_response(200)
                self.send_header("content-type", "text/event-stream")
                self.send_header("connection", "close")
                self.end_headers()
                self.close_connection = True

            def data(self, value, kind=None):
                head = "event: %s\n" % kind if kind else ""
                text = value if isinstance(value, str) else json.dumps(value)
                self.wfile.write(("%sdata: %s\n\n" % (head, text)).encode())
                self.wfile.flush()

            def do_POST(self):
                length = int(self.headers.get("content-length", 0))
                body = json.loads(self.rfile.read(length) or b"{}")
                path = self.path.split("?")[0]
                if model.log:
                    with open(model.log, "a") as file:
                        file.write("%s %s\n" % (self.path, json.dumps(body)))
                apis = {"/responses": model.responses, "/messages": model.messages,
                        "/chat/completions": model.chat, ":streamGenerateContent": model.gemini,
                        ":generateContent": model.gemini}
                api = next((api for end, api in apis.items() if path.endswith(end)), None)
                try:
                    if path.endswith((":countTokens", "/count_tokens")):
                        self.whole(200, {"totalTokens": 1, "input_tokens": 1})
                    elif api:
                        model.serve(self, api, path, body)
                    else:
                        self.empty(404)
                except (BrokenPipeError, ConnectionResetError):
                    pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.port = self.server.server_address[1]
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def stop(self):
        self.over.set()
        self.server.shutdown()

    def is_turn(self, body):
        """Whether a request belongs to a turn: it offers tools, and a person's last message is the caller's prompt.
        Agents add notes of their own in angle brackets, and ask the model for other things in between."""
        if not body.get("tools"):
            return False
        for item in reversed(body.get("messages") or body.get("contents") or body.get("input") or []):
            if item.get("role") != "user" or "tool_result" in str(item) or "functionResponse" in str(item):
                continue
            said = [(bool(PROMPT.search(text)), text.lstrip().startswith("<")) for text in texts(item)]
            if not all(is_note and not is_prompt for is_prompt, is_note in said):
                return any(is_prompt for is_prompt, _ in said)
        return False

    def next_step(self, body):
        """What to do with this request."""
        if self.is_turn(body):
            return self.always or self.plan.get(timeout=60)
        return Step("say", SAID, held=False)

    def serve(self, http, api, path, body):
        self.calls += 1
        step = self.next_step(body)
        if step.held:
            self.open += 1
            self.seen.put("asked")
            if not self.hold(http):
                self.open -= 1
                http.close_connection = True
                self.seen.put("gone")
                return
        held = step.held
        if step.kind == "tool":
            call = step.values[0](tools_of(body))
            step = Step("tool", *call) if call else Step("say", SAID)
            self.called = bool(call)
        if step.kind == "fail":
            self.always = Step("fail", *step.values, held=False)
            error = {"type": "invalid_request_error", "message": step.values[1], "code": "invalid", "status": "INVALID"}
            http.whole(step.values[0], {"type": "error", "error": error})
        else:
            api(http, body, step, path)
        if held:
            self.open -= 1
            self.seen.put("answered")

    def hold(self, http):
        """Waits until the caller releases the request. Returns False if the agent has closed its connection."""
        poll = select.poll()
        poll.register(http.connection, select.POLLIN | select.POLLHUP | select.POLLERR)
        while not self.over.is_set():
            try:
                self.released.get(timeout=0.02)
                return True
            except queue.Empty:
                pass
            if poll.poll(0):
                try:
                    if not http.connection.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT):
                        return False
                except BlockingIOError:
                    pass
                except OSError:
                    return False
        return False

    def release(self):
        self.released.put(True)

    # OpenAI's Responses.
    def responses(self, http, body, step, _):
        usage = {"input_tokens": 1, "input_tokens_details": {"cached_tokens": 0}, "output_tokens": 1,
                 "output_tokens_details": {"reasoning_tokens": 0}, "total_tokens": 2}
        if step.kind == "tool":
            item = {"type": "function_call", "id": "fc_%d" % self.calls, "call_id": "call_%d" % self.calls,
                    "status": "completed", "name": step.values[0], "arguments": json.dumps(step.values[1])}
            # The namespace of a tool of an MCP server.
            item.update(*step.values[2:])
        else:
            text = {"type": "output_text", "text": step.values[0], "annotations": []}
            item = {"type": "message", "role": "assistant", "id": "msg_%d" % self.calls, "status": "completed",
                    "content": [text]}
        whole = {"id": "resp_%d" % self.calls, "object": "response", "created_at": 1, "status": "completed",
                 "model": body.get("model"), "output": [item], "usage": usage, "error": None,
                 "incomplete_details": None, "tools": [], "parallel_tool_calls": False}
        if not body.get("stream"):
            return http.whole(200, whole)
        http.stream()
        number = iter(range(100))

        def event(kind, **fields):
            http.data(dict(fields, type=kind, sequence_number=next(number)), kind)

        event("response.created", response=dict(whole, output=[], status="in_progress", usage=None))
        if step.kind == "tool":
            event("response.output_item.added", output_index=0, item=dict(item, arguments="", status="in_progress"))
            event("response.function_call_arguments.delta", output_index=0, item_id=item["id"], delta=item["arguments"])
            event("response.function_call_arguments.done", output_index=0, item_id=item["id"],
                  arguments=item["arguments"])
        else:
            event("response.output_item.added", output_index=0, item=dict(item, content=[], status="in_progress"))
            event("response.content_part.added", output_index=0, content_index=0, item_id=item["id"],
                  part=dict(item["content"][0], text=""))
            event("response.output_text.delta", output_index=0, content_index=0, item_id=item["id"],
                  delta=step.values[0], logprobs=[])
            event("response.output_text.done", output_index=0, content_index=0, item_id=item["id"],
                  text=step.values[0], logprobs=[])
            event("response.content_part.done", output_index=0, content_index=0, item_id=item["id"],
                  part=item["content"][0])
        event("response.output_item.done", output_index=0, item=item)
        event("response.completed", response=whole)

    # Anthropic's Messages.
    def messages(self, http, body, step, _):
        usage = {"input_tokens": 1, "output_tokens": 1}
        if step.kind == "tool":
            block = {"type": "tool_use", "id": "toolu_%d" % self.calls, "name": step.values[0], "input": step.values[1]}
        else:
            block = {"type": "text", "text": step.values[0]}
        reason = "tool_use" if step.kind == "tool" else "end_turn"
        message = {"id": "msg_%d" % self.calls, "type": "message", "role": "assistant", "model": body.get("model"),
                   "content": [], "stop_reason": None, "stop_sequence": None, "usage": usage}
        if not body.get("stream"):
            return http.whole(200, dict(message, content=[block], stop_reason=reason))
        http.stream()

        def event(kind, **fields):
            http.data(dict(fields, type=kind), kind)

        event("message_start", message=message)
        if step.kind == "tool":
            event("content_block_start", index=0, content_block=dict(block, input={}))
            delta = {"type": "input_json_delta", "partial_json": json.dumps(block["input"])}
        else:
            event("content_block_start", index=0, content_block={"type": "text", "text": ""})
            delta = {"type": "text_delta", "text": step.values[0]}
        event("content_block_delta", index=0, delta=delta)
        event("content_block_stop", index=0)
        event("message_delta", delta={"stop_reason": reason, "stop_sequence": None}, usage=usage)
        event("message_stop")

    # OpenAI's chat completions.
    def chat(self, http, body, step, _):
        if step.kind == "tool":
            call = {"id": "call_%d" % self.calls, "type": "function",
                    "function": {"name": step.values[0], "arguments": json.dumps(step.values[1])}}
            message, reason = {"role": "assistant", "content": None, "tool_calls": [call]}, "tool_calls"
        else:
            message, reason = {"role": "assistant", "content": step.values[0]}, "stop"
        usage = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}
        head = {"id": "chatcmpl-%d" % self.calls, "created": 1, "model": body.get("model")}
        if not body.get("stream"):
            choice = {"index": 0, "message": message, "finish_reason": reason}
            return http.whole(200, dict(head, object="chat.completion", choices=[choice], usage=usage))
        http.stream()
        delta = dict(message)
        if step.kind == "tool":
            delta["tool_calls"] = [dict(message["tool_calls"][0], index=0)]
        for delta, reason in ((delta, None), ({}, reason)):
            choice = {"index": 0, "delta": delta, "finish_reason": reason}
            http.data(dict(head, object="chat.completion.chunk", choices=[choice]))
        http.data(dict(head, object="chat.completion.chunk", choices=[], usage=usage))
        http.data("[DONE]")

    # Google's generateContent.
    def gemini(self, http, body, step, path):
        if step.kind == "tool":
            part = {"functionCall": {"name": step.values[0], "args": step.values[1]}}
        else:
            part = {"text": step.values[0]}
        candidate = {"content": {"role": "model", "parts": [part]}, "finishReason": "STOP", "index": 0}
        usage = {"promptTokenCount": 1, "candidatesTokenCount": 1, "totalTokenCount": 2}
        answer = {"candidates": [candidate], "usageMetadata": usage, "modelVersion": "stand-in"}
        if not path.endswith(":streamGenerateContent"):
            return http.whole(200, answer)
        http.stream()
        http.data(answer)
