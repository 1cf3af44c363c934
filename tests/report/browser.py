"""Debian's Chromium without a screen, driven over its own debugging pipe.

Messages are JSON, each ended by a NUL byte; the browser reads from descriptor 3 and writes to 4
(https://chromedevtools.github.io/devtools-protocol/).
"""

import base64
import json
import os
import select
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

SECONDS = 120.0
OPTIONS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-extensions",
    "--disable-sync", "--hide-scrollbars", "--remote-debugging-pipe",
)  # fmt: skip


class Browser:
    """One page, and everything it said or asked for since it was opened."""

    def __init__(self, write: int, read: int) -> None:
        self._write, self._read = write, read
        self._buffer = b""
        self._number = 0
        self._session = ""
        self.events: list[dict[str, Any]] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        self._session = self.call("Target.attachToTarget", targetId=target, flatten=True)[
            "sessionId"
        ]
        for domain in ("Page", "Runtime", "Network", "Log", "DOM"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Call a method and wait for its answer."""
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            message["sessionId"] = self._session
        os.write(self._write, json.dumps(message).encode() + b"\0")
        while True:
            answer = self._next()
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return dict(answer["result"])
            self.events.append(answer)

    def _next(self) -> dict[str, Any]:
        deadline = time.monotonic() + SECONDS
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self._read], [], [], max(0.0, deadline - time.monotonic()))
            data = os.read(self._read, 1 << 16) if ready else b""
            assert data, "the browser says nothing"
            self._buffer += data
        line, _, self._buffer = self._buffer.partition(b"\0")
        return dict(json.loads(line))

    def open(self, page: Path, fragment: str = "") -> None:
        """Load a file anew and wait until it has loaded; what came before is forgotten."""
        # from the same file to a part of it a browser would not load again
        self._load("about:blank")
        self._load(f"{page.absolute().as_uri()}{fragment}")

    def _load(self, address: str) -> None:
        self.events = []
        self.call("Page.navigate", url=address)
        while not any(event.get("method") == "Page.loadEventFired" for event in self.events):
            self.events.append(self._next())

    def run(self, script: str) -> Any:
        """Value of an expression in the page; an exception of it is an error."""
        answer = self.call(
            "Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True
        )
        assert "exceptionDetails" not in answer, answer
        return answer["result"].get("value")

    def press(self, key: str, code: int) -> None:
        """Press and let go of a key."""
        text = {"text": "\r"} if key == "Enter" else {}
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent", type=kind, key=key, code=key,
                windowsVirtualKeyCode=code, **(text if kind == "keyDown" else {}),
            )  # fmt: skip

    def resize(self, width: int, height: int, mobile: bool = False) -> None:
        """Size of the window, in CSS pixels."""
        self.call(
            "Emulation.setDeviceMetricsOverride", width=width, height=height,
            deviceScaleFactor=1, mobile=mobile,
        )  # fmt: skip

    def media(self, scheme: str, kind: str = "") -> None:
        """``light`` or ``dark``; ``print`` or the screen."""
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", media=kind, features=features)

    def picture(self, path: Path, whole: bool = True) -> None:
        """Write a PNG of the page."""
        answer = self.call("Page.captureScreenshot", captureBeyondViewport=whole)
        path.write_bytes(base64.b64decode(answer["data"]))

    def faults(self) -> list[str]:
        """Console errors, exceptions and log entries since the page was opened."""
        found = []
        for event in self.events:
            method, told = event.get("method"), event.get("params", {})
            if method == "Runtime.exceptionThrown":
                found.append(str(told["exceptionDetails"]))
            if method == "Runtime.consoleAPICalled" and told["type"] in ("error", "warning"):
                found.append(str(told["args"]))
            if method == "Log.entryAdded" and told["entry"]["level"] in ("error", "warning"):
                found.append(str(told["entry"]))
        return found

    def requests(self) -> list[str]:
        """Addresses that were asked for since the page was opened."""
        sent = "Network.requestWillBeSent"
        return [
            event["params"]["request"]["url"]
            for event in self.events
            if event.get("method") == sent
        ]


@contextmanager
def browser(folder: Path) -> Iterator[Browser]:
    """A browser with a fresh profile in ``folder``, ended afterwards."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()
    home = {"HOME": str(folder), "XDG_CONFIG_HOME": str(folder), "PATH": os.environ["PATH"]}
    # the shell puts our pipes where the browser looks for them
    command = 'exec chromium "$@" 3<&"$IN" 4>&"$OUT"'
    process = subprocess.Popen(
        ["bash", "-c", command, "chromium", *OPTIONS, f"--user-data-dir={folder / 'profile'}"],
        env={**home, "IN": str(to_read), "OUT": str(from_write)},
        pass_fds=(to_read, from_write), start_new_session=True,
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(to_read)
    os.close(from_write)
    try:
        chosen = Browser(to_write, from_read)
        yield chosen
    finally:
        os.close(to_write)
        os.close(from_read)
        process.kill()
        process.wait()
