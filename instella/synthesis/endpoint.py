"""Teacher ``endpoint``: a language model that is asked over HTTP, or whose replies are read.

Where the model stands is placement: ``INSTELLA_TEACHER_URL`` is the server's base address,
or ``file:FOLDER``, the results folder of an earlier run, whose transcripts then answer.
``INSTELLA_TEACHER_KEY`` is its key, ``INSTELLA_TEACHER_CONNECTIONS`` the number of requests
under way at once (16). What is asked (model, temperature, seed, tokens) is identity.
"""

import hashlib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from instella.artifacts.job import Job
from instella.canonical import json_bytes, sha256_bytes
from instella.errors import BadUse
from instella.recipe.settings import Teacher
from instella.synthesis import prompts
from instella.synthesis.client import Client
from instella.synthesis.replies import Rejected, Row
from instella.synthesis.transcript import FILE, Transcript

URL = "INSTELLA_TEACHER_URL"
KEY = "INSTELLA_TEACHER_KEY"
CONNECTIONS = "INSTELLA_TEACHER_CONNECTIONS"
DEFAULT_CONNECTIONS = 16
REPLAY = "file:"


class Endpoint:
    """Asks for a job; each reply is in ``scratch`` before it is used."""

    def __init__(self, job: Job, environment: Mapping[str, str] = os.environ) -> None:
        self._settings: Teacher = job.settings["teacher"]
        self._seed: int = job.settings["seed"]
        self._client: Client | None = None
        url = environment.get(URL, "")
        if not url:
            raise BadUse(
                f"{job.stage}: no teacher; set {URL} to the address of a server with "
                f"{self._settings.model}, such as http://HOST:8000/v1"
            )
        if url.startswith(REPLAY):
            path = Path(url.removeprefix(REPLAY)) / job.stage / FILE
            self.transcript = Transcript(path, writable=False)
        else:
            self._client = Client(url, environment.get(KEY, ""), job.report.say)
            self.transcript = Transcript(job.scratch / FILE, writable=True)
        self.connections = _connections(environment)

    def close(self) -> None:
        """Close the transcript."""
        self.transcript.close()

    def abstract(self, problem: Row, attempt: int, temperature: float, log: list[str]) -> str:
        """Template and parameters of ``problem["question"]``."""
        messages = prompts.abstract(problem["question"])
        return self._ask(messages, f"abstract {problem['key']} {attempt}", temperature, log)

    def program(self, problem: Row, attempt: int, temperature: float, log: list[str]) -> str:
        """The function ``solve``."""
        messages = prompts.program(problem["template"], problem["parameters"])
        return self._ask(messages, f"program {problem['key']} {attempt}", temperature, log)

    def values(
        self, problem: Row, count: int, attempt: int, temperature: float, log: list[str]
    ) -> str:
        """New value sets."""
        messages = prompts.values(problem["template"], problem["parameters"], count)
        return self._ask(messages, f"values {problem['key']} {attempt}", temperature, log)

    def reword(self, problem: Row, values: Row, temperature: float, log: list[str]) -> str:
        """The question with new values."""
        messages = prompts.reword(problem["question"], problem["template"], values)
        name = f"reword {problem['key']} {sha256_bytes(json_bytes(values))}"
        return self._ask(messages, name, temperature, log)

    def solve(
        self, item: Row, problem: Row, attempt: int, temperature: float, log: list[str]
    ) -> str:
        """A worked solution of ``item["question"]``; ``problem`` is not shown."""
        messages = prompts.solve(item["question"])
        return self._ask(messages, f"solve {item['key']} {attempt}", temperature, log)

    def _ask(
        self, messages: list[prompts.Message], name: str, temperature: float, log: list[str]
    ) -> str:
        body = {
            "model": self._settings.model,
            "messages": messages,
            "temperature": temperature,
            "max_tokens": self._settings.max_tokens,
            "seed": request_seed(self._seed, name),
        }
        request = sha256_bytes(json_bytes(body))
        entry = self.transcript.get(request) or self._fetch(request, body, name)
        log.append(request)
        if entry["finish_reason"] == "length":
            raise Rejected("the reply was cut at max_tokens")
        return str(entry["reply"])

    def _fetch(self, request: str, body: dict[str, Any], name: str) -> dict[str, Any]:
        if self._client is None:
            raise BadUse(
                f"the transcript has no reply to '{name}'; it belongs to other settings or data"
            )
        reply, finish_reason = self._client.complete(body)
        self.transcript.add(request, reply, finish_reason)
        return {"reply": reply, "finish_reason": finish_reason}


def request_seed(seed: int, name: str) -> int:
    """31 bits from the recipe's seed and what is asked for, so that no two tries agree."""
    digest = hashlib.sha256(f"{seed}\0{name}".encode()).digest()
    return int.from_bytes(digest[:4], "big") >> 1


def _connections(environment: Mapping[str, str]) -> int:
    text = environment.get(CONNECTIONS, str(DEFAULT_CONNECTIONS))
    if not text.isascii() or not text.isdigit() or not 1 <= int(text) <= 4096:
        raise BadUse(f"{CONNECTIONS} is {text!r}; write a whole number from 1 to 4096")
    return int(text)
