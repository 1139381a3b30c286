"""A stub model server on 127.0.0.1: Anthropic's Messages API and OpenAI's Responses API, both streamed, by a script.

The script is JSON: iteration number (as text) to its replies, in order. A reply is one of

    {"sh": "command"}                    the agent's shell tool
    {"write": ["path", "content"]}       the agent's file tool (Claude only; the path is absolute)
    {"text": "words"}                    the end of the turn
    {"status": 429, "retry_after": "1"}  an HTTP error

The server keeps no conversation: it reads from the request which iteration it is (the prompt says `iteration N`) and how many
replies of its script were carried out already; errors it counts itself. Every request is written to the log as a line of JSON.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

Reply = dict[str, object]

INPUT_TOKENS, OUTPUT_TOKENS = 100, 20  # of every reply


class Script:
    """Which reply comes next."""

    def __init__(self, replies: dict[str, list[Reply]], log: Path) -> None:
        self._replies = replies
        self._log = log
        self._errors: dict[str, int] = {}
        self._lock = threading.Lock()

    def next(self, path: str, said: str, done: int) -> Reply:
        """`said`: all text of the request; `done`: how many tool calls it has results for."""
        found = re.findall(r"iteration (\d+)", said)
        iteration = found[0] if found else "1"
        with self._lock:
            replies = self._replies.get(iteration, [])
            position = done + self._errors.get(iteration, 0)
            reply: Reply = replies[position] if position < len(replies) else {"text": "There is nothing more to do."}
            if "status" in reply:
                self._errors[iteration] = self._errors.get(iteration, 0) + 1
            with self._log.open("a") as file:
                file.write(json.dumps({"path": path, "iteration": iteration, "done": done, "reply": reply}) + "\n")
        return reply


def texts(value: object) -> list[str]:
    """Every string below `value`."""
    if isinstance(value, str):
        return [value]
    if isinstance(value, dict):
        return [text for item in value.values() for text in texts(item)]
    return [text for item in value for text in texts(item)] if isinstance(value, list) else []


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    script: Script

    def log_message(self, format: str, *args: object) -> None:
        pass

    def do_GET(self) -> None:
        self._json(200, {"data": [], "models": []})

    def do_HEAD(self) -> None:
        self._json(200, {})

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers.get("content-length", "0"))) or b"{}")
        path = self.path.partition("?")[0]
        if path.endswith("/count_tokens"):
            self._json(200, {"input_tokens": INPUT_TOKENS})
        elif path.endswith("/messages"):
            self._messages(path, body)
        elif path.endswith("/responses"):
            self._responses(path, body)
        else:
            self._json(404, {"error": {"type": "not_found_error", "message": path}})

    def _json(self, status: int, value: object, headers: dict[str, str] | None = None) -> None:
        data = json.dumps(value).encode()
        self.send_response(status)
        for name, text in {"content-type": "application/json", "content-length": str(len(data)), **(headers or {})}.items():
            self.send_header(name, text)
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)

    def _error(self, reply: Reply) -> None:
        status = int(str(reply["status"]))
        kind = {429: "rate_limit_error", 529: "overloaded_error"}.get(status, "api_error")
        after = {"retry-after": str(reply["retry_after"])} if "retry_after" in reply else {}
        message = str(reply.get("message", "the stub says no"))
        self._json(status, {"type": "error", "error": {"type": kind, "message": message}}, after)

    def _stream(self, events: list[tuple[str, dict[str, object]]]) -> None:
        data = b"".join(f"event: {name}\ndata: {json.dumps(value)}\n\n".encode() for name, value in events)
        self.send_response(200)
        self.send_header("content-type", "text/event-stream")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    # ---------------------------------------------------------------- Anthropic

    def _messages(self, path: str, body: dict[str, object]) -> None:
        messages = body.get("messages")
        assert isinstance(messages, list)
        done = sum(
            item.get("type") == "tool_result"
            for message in messages
            if isinstance(message.get("content"), list)
            for item in message["content"]
        )
        reply: Reply = {"text": "ok"}  # a side request, such as for a title
        if body.get("tools"):
            reply = self.script.next(path, "\n".join(texts(messages)), done)
        if "status" in reply:
            self._error(reply)
            return
        block: dict[str, object]
        delta: dict[str, object]
        if "text" in reply:
            block, delta = {"type": "text", "text": ""}, {"type": "text_delta", "text": reply["text"]}
        else:
            if "sh" in reply:
                name, given = "Bash", {"command": reply["sh"], "description": "work"}
            else:
                words = texts(reply["write"])
                name, given = "Write", {"file_path": words[0], "content": words[1]}
            block = {"type": "tool_use", "id": f"toolu_{done}", "name": name, "input": {}}
            delta = {"type": "input_json_delta", "partial_json": json.dumps(given)}
        message = {
            "id": "msg_1",
            "type": "message",
            "role": "assistant",
            "model": body.get("model"),
            "content": [],
            "stop_reason": None,
            "stop_sequence": None,
            "usage": {"input_tokens": INPUT_TOKENS, "output_tokens": 1},
        }
        stop = "end_turn" if "text" in reply else "tool_use"
        self._stream(
            [
                ("message_start", {"type": "message_start", "message": message}),
                ("content_block_start", {"type": "content_block_start", "index": 0, "content_block": block}),
                ("content_block_delta", {"type": "content_block_delta", "index": 0, "delta": delta}),
                ("content_block_stop", {"type": "content_block_stop", "index": 0}),
                (
                    "message_delta",
                    {
                        "type": "message_delta",
                        "delta": {"stop_reason": stop, "stop_sequence": None},
                        "usage": {"output_tokens": OUTPUT_TOKENS},
                    },
                ),
                ("message_stop", {"type": "message_stop"}),
            ]
        )

    # ---------------------------------------------------------------- OpenAI

    def _responses(self, path: str, body: dict[str, object]) -> None:
        items = body.get("input")
        assert isinstance(items, list)
        done = sum(item.get("type") == "function_call_output" for item in items)
        reply = self.script.next(path, "\n".join(texts(items)), done)
        if "status" in reply:
            self._error(reply)
            return
        item: dict[str, object]
        if "text" in reply:
            item = {
                "type": "message",
                "role": "assistant",
                "id": "msg_1",
                "content": [{"type": "output_text", "text": reply["text"]}],
            }
        else:
            item = {
                "type": "function_call",
                "id": f"fc_{done}",
                "call_id": f"call_{done}",
                "name": "exec_command",
                "arguments": json.dumps({"cmd": reply["sh"]}),
            }
        usage = {
            "input_tokens": INPUT_TOKENS,
            "input_tokens_details": {"cached_tokens": 0},
            "output_tokens": OUTPUT_TOKENS,
            "output_tokens_details": {"reasoning_tokens": 0},
            "total_tokens": INPUT_TOKENS + OUTPUT_TOKENS,
        }
        self._stream(
            [
                ("response.created", {"type": "response.created", "response": {"id": "resp_1"}}),
                ("response.output_item.done", {"type": "response.output_item.done", "output_index": 0, "item": item}),
                ("response.completed", {"type": "response.completed", "response": {"id": "resp_1", "usage": usage}}),
            ]
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--port", type=int, default=0)
    parser.add_argument("--script", type=Path, required=True)
    parser.add_argument("--log", type=Path, required=True)
    options = parser.parse_args()
    Handler.script = Script(json.loads(options.script.read_text()), options.log)
    server = ThreadingHTTPServer(("127.0.0.1", options.port), Handler)
    print(server.server_address[1], flush=True)
    server.serve_forever()
    return 0


if __name__ == "__main__":
    sys.exit(main())
