"""A headless Chromium, driven by the DevTools protocol over a pipe: no port, no other package."""

from __future__ import annotations

import base64
import json
import os
import select
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")
SECONDS = 60.0
FLAGS = (
    *("--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
    *("--no-first-run", "--disable-extensions", "--disable-background-networking"),
    *("--disable-component-update", "--hide-scrollbars", "--remote-debugging-pipe"),
)


def program() -> str | None:
    """The browser: RLHF_LAB_BROWSER, or one that is on the PATH; None if there is none."""
    named = os.environ.get("RLHF_LAB_BROWSER")
    return named or next((found for name in NAMES if (found := shutil.which(name))), None)


class Page:
    """One tab. errors: exceptions, console errors and refused loads so far."""

    def __init__(self, to_browser: int, from_browser: int) -> None:
        self._to, self._from = to_browser, from_browser
        self._number = 0
        self._rest = b""
        self._session = ""
        self.errors: list[str] = []
        self.requests: list[str] = []
        self._events: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        """One command and its result. Raises RuntimeError with the error of the browser."""
        self._number += 1
        request = {"id": self._number, "method": method, "params": parameters}
        session = {"sessionId": self._session} if self._session else {}
        os.write(self._to, json.dumps(request | session).encode() + b"\0")
        while (message := self._next()).get("id") != self._number:
            self._note(message)
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']}")
        result: dict[str, Any] = message["result"]
        return result

    def open(self, path: Path) -> None:
        """Load a file, to its last script."""
        self._events.clear()
        self.call("Page.navigate", url=path.resolve().as_uri())
        while "Page.loadEventFired" not in self._events:
            self._note(self._next())
        self.settle()

    def settle(self) -> None:
        """Wait until what was asked for is drawn."""
        self.run("new Promise(r => requestAnimationFrame(() => requestAnimationFrame(() => r(0))))")

    def run(self, script: str) -> Any:
        """The value of a JavaScript expression. Raises RuntimeError if it throws."""
        asked = {"returnByValue": True, "awaitPromise": True, "userGesture": True}
        found = self.call("Runtime.evaluate", expression=script, **asked)
        if "exceptionDetails" in found:
            raise RuntimeError(f"{script}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def size(self, width: int, height: int, is_phone: bool = False) -> None:
        self.call(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=height, deviceScaleFactor=1, mobile=is_phone,
        )  # fmt: skip
        self.settle()

    def prefer(self, scheme: str) -> None:
        """light or dark, as the system would say."""
        wanted = [{"name": "prefers-color-scheme", "value": scheme}]
        self.call("Emulation.setEmulatedMedia", features=wanted)
        self.settle()

    def press(self, key: str) -> None:
        for kind in ("keyDown", "keyUp"):
            self.call("Input.dispatchKeyEvent", type=kind, key=key, code=key)

    def point(self, x: float, y: float) -> None:
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)

    def picture(self, path: Path, is_whole: bool = False) -> None:
        """A screenshot; whole: of all of the page, not of the window."""
        found = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=is_whole)
        path.write_bytes(base64.b64decode(found["data"]))

    def _next(self) -> dict[str, Any]:
        end = time.monotonic() + SECONDS
        while b"\0" not in self._rest:
            ready, _, _ = select.select([self._from], [], [], max(0.0, end - time.monotonic()))
            if not ready:
                raise TimeoutError(f"the browser said nothing for {SECONDS:g} seconds")
            if not (read := os.read(self._from, 1 << 16)):
                raise RuntimeError("the browser ended")
            self._rest += read
        first, self._rest = self._rest.split(b"\0", 1)
        message: dict[str, Any] = json.loads(first)
        return message

    def _note(self, message: Mapping[str, Any]) -> None:
        method, params = message.get("method", ""), message.get("params", {})
        self._events.append(method)
        if method == "Runtime.exceptionThrown":
            self.errors.append(json.dumps(params["exceptionDetails"]))
        elif method == "Runtime.consoleAPICalled" and params["type"] in ("error", "assert"):
            self.errors.append(json.dumps(params["args"]))
        elif method == "Log.entryAdded" and params["entry"]["level"] == "error":
            self.errors.append(params["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(params["request"]["url"])


@contextmanager
def browser(chromium: str, profile: Path) -> Iterator[Page]:
    """A browser of its own, gone with all of its processes at the end."""
    command_read, command_write = os.pipe()
    answer_read, answer_write = os.pipe()
    # The browser reads its descriptor 3 and writes to 4; a shell puts the pipes there.
    place = f'exec "$@" 3<&{command_read} 4>&{answer_write}'
    process = subprocess.Popen(
        ["bash", "-c", place, "browser", chromium, *FLAGS, f"--user-data-dir={profile}"],
        pass_fds=(command_read, answer_write),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    os.close(command_read)
    os.close(answer_write)
    try:
        yield Page(command_write, answer_read)
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        os.close(command_write)
        os.close(answer_read)
