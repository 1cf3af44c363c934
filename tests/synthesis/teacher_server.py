"""A server that speaks chat completions on the loopback and solves the shipped problems.

It thinks with the rules, so its replies are right; ``faults`` says what it does wrong on the
way, and ``nonce`` makes it say something else each time, as a real model may.
"""

import json
import threading
import time
from collections import Counter
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self

from synthesis_helpers import PROBLEMS

from instella.canonical import json_bytes, read_jsonl, sha256_bytes
from instella.synthesis import prompts
from instella.synthesis.replies import abstraction_in, fill
from instella.synthesis.rules import RulesTeacher

FAULTS = ("500", "429", "garbage", "cut", "slow", "closed", "other form", "half a pair", "nan")


class TeacherServer:
    """Use as a context manager; ``url`` is its address.

    Attributes:
        asked: how often each request (by hash) has been received.
        faults: what happens to the first tries of each request, in turn.
        headers: of the last request.
    """

    def __init__(self, faults: tuple[str, ...] = (), nonce: bool = False, delay: float = 0) -> None:
        self.asked: Counter[str] = Counter()
        self.faults = faults
        self.nonce = nonce
        self.delay = delay
        self.headers: dict[str, str] = {}
        self.busy = self.most_busy = 0
        self.lock = threading.Lock()
        self.rules = RulesTeacher(0)
        self.problems: dict[str, dict[str, Any]] = {}
        self.items: dict[str, dict[str, Any]] = {}
        for number, row in enumerate(read_jsonl(PROBLEMS)):
            problem = {"key": str(number), "question": row["question"], "solution": row["answer"]}
            reply = self.rules.abstract(problem, 0, 0.0, [])
            problem["template"], problem["parameters"] = abstraction_in(reply, row["question"])
            self.problems[row["question"]] = self.problems[problem["template"]] = problem
        self.server = ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self.server.daemon_threads = True
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}/v1"

    def __enter__(self) -> Self:
        threading.Thread(target=self.server.serve_forever, daemon=True).start()
        return self

    def __exit__(self, *error: object) -> None:
        self.server.shutdown()
        self.server.server_close()

    def reply(self, body: dict[str, Any]) -> str:
        """What the model says."""
        task, text = body["messages"][0]["content"], body["messages"][-1]["content"]
        lines = text.split("\n")
        if task == prompts._ABSTRACT:
            return self.rules.abstract(self.problems[text], 0, 0.0, [])
        if task == prompts._PROGRAM:
            return self.rules.program(self.problems[lines[0]], 0, 0.0, [])
        if task.startswith(prompts._VALUES.partition("{")[0]):
            teacher = RulesTeacher(body["seed"])
            return teacher.values(self.problems[lines[0]], 3, 0, 0.0, [])
        if task == prompts._REWORD:
            template = lines[1].removeprefix("Template: ")
            values = json.loads(lines[2].removeprefix("New values: "))
            question = fill(template, values)
            self.items[question] = {"problem": self.problems[template], "values": values}
            return question
        item = self.items[text]
        return self.rules.solve(item, item["problem"], 0, 0.0, []) or "I cannot say."

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        outer = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                with outer.lock:
                    outer.busy += 1
                    outer.most_busy = max(outer.most_busy, outer.busy)
                try:
                    outer.answer(self)
                finally:
                    with outer.lock:
                        outer.busy -= 1

            def log_message(self, *args: Any) -> None:
                pass

        return Handler

    def answer(self, handler: BaseHTTPRequestHandler) -> None:
        """One request: the fault that is due, or the reply."""
        body = json.loads(handler.rfile.read(int(handler.headers["Content-Length"])))
        self.headers = dict(handler.headers)
        name = sha256_bytes(json_bytes(body))
        with self.lock:
            tried = self.asked[name]
            self.asked[name] += 1
            number = sum(self.asked.values())
        time.sleep(self.delay)
        text = self.reply(body)
        if self.nonce and body["messages"][0]["content"] in (prompts._PROGRAM, prompts._SOLVE):
            text = f"Reply {number}:\n{text}"
        data = completion(text)
        fault = self.faults[tried] if tried < len(self.faults) else ""
        if fault == "slow":
            time.sleep(1.0)
        status, sent = {
            "500": (500, b"down"),
            "429": (429, b"busy"),
            "401": (401, b'{"error": "no\nsuch key"}'),
            "302": (302, b""),
            "garbage": (200, b"<html>not JSON</html>"),
            "cut": (200, data[: len(data) // 2]),
            "closed": (0, b""),
            "other form": (200, b'{"error": {"message": "overloaded"}}'),
            "nan": (200, b'{"choices": [NaN]}'),
            "half a pair": (200, completion("half \ud800")),
            "long": (200, completion(text, "length")),
        }.get(fault, (200, data))
        if status == 0:
            handler.close_connection = True
            return
        handler.send_response(status)
        length = len(data) if fault == "cut" else len(sent)
        handler.send_header("Content-Length", str(length))
        handler.send_header("Retry-After", "0")
        handler.send_header("Location", self.url + "/elsewhere")
        handler.end_headers()
        handler.wfile.write(sent)


def completion(text: str, ended: str = "stop") -> bytes:
    """The body of a chat completion."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": ended}
    return json.dumps({"object": "chat.completion", "choices": [choice]}).encode()
