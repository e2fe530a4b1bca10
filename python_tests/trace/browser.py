"""Drives a headless Chromium through its chromedriver, with the few commands that tests need.

WebDriver is a small protocol of JSON over HTTP, so nothing but the browser has to be installed.
"""

from __future__ import annotations

import base64
import json
import shutil
import socket
import subprocess
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

ELEMENT = "element-6066-11e4-a52e-4f735466cecf"  # how WebDriver says that a value is an element
KEYS = {
    "left": "\ue012",
    "up": "\ue013",
    "right": "\ue014",
    "down": "\ue015",
    "home": "\ue011",
    "end": "\ue010",
    "space": " ",
}
_FLAGS = (
    "--headless",
    "--no-sandbox",  # which root may not use
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
)


def missing() -> str:
    """What is not there of what is needed; empty if all is."""
    if not _chromium():
        return "no chromium here (Debian: apt-get install chromium chromium-driver)"
    if not shutil.which("chromedriver"):
        return "no chromedriver here (Debian: apt-get install chromium-driver)"
    return ""


def _chromium() -> str | None:
    return shutil.which("chromium") or shutil.which("google-chrome")


class Browser:
    """A browser with one window; a context manager."""

    def __init__(self, width: int = 1280, height: int = 900) -> None:
        self._profile = tempfile.TemporaryDirectory(ignore_cleanup_errors=True)
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
        )
        self._address = f"http://127.0.0.1:{port}"
        try:
            self._wait_for_driver()
            flags = [*_FLAGS, f"--user-data-dir={self._profile.name}"]
            answer = self._ask(
                "POST",
                "/session",
                {
                    "capabilities": {
                        "alwaysMatch": {
                            "goog:chromeOptions": {"args": flags, "binary": _chromium()},
                            "goog:loggingPrefs": {"browser": "ALL", "performance": "ALL"},
                        }
                    }
                },
            )
        except BaseException:
            self._stop()
            raise
        self._address += f"/session/{answer['sessionId']}"
        self.resize(width, height)

    def __enter__(self) -> Browser:
        return self

    def __exit__(self, *_: object) -> None:
        try:
            self._ask("DELETE", "")
        finally:
            self._stop()

    def _stop(self) -> None:
        self._driver.terminate()
        self._driver.wait(timeout=10)
        self._profile.cleanup()

    def _wait_for_driver(self) -> None:
        for _ in range(200):
            try:
                if self._ask("GET", "/status")["ready"]:
                    return
            except OSError:
                pass
            time.sleep(0.05)
        raise RuntimeError("chromedriver does not answer")

    def _ask(self, method: str, path: str, content: object = None) -> Any:
        body = None if method in ("GET", "DELETE") else json.dumps(content or {}).encode()
        request = urllib.request.Request(self._address + path, body, method=method)
        request.add_header("Content-Type", "application/json")
        try:
            with urllib.request.urlopen(request, timeout=60) as response:
                return json.load(response)["value"]
        except urllib.error.HTTPError as error:
            raise RuntimeError(f"{path}: {error.read().decode()}") from None

    # What a test does

    def open(self, page: Path) -> None:
        """Load a file from disk."""
        self._ask("POST", "/url", {"url": page.resolve().as_uri()})

    def run(self, script: str, *arguments: object) -> Any:
        """Run the body of a function in the page."""
        return self._ask("POST", "/execute/sync", {"script": script, "args": list(arguments)})

    def text(self, selector: str) -> str:
        """What an element shows."""
        return str(self.run("return document.querySelector(arguments[0]).innerText", selector))

    def resize(self, width: int, height: int) -> None:
        """Let the page have exactly this size."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": False}
        self.devtools("Emulation.setDeviceMetricsOverride", size)

    def use_colors(self, scheme: str) -> None:
        """The emulated system preference: light or dark."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        self.devtools("Emulation.setEmulatedMedia", {"features": [feature]})

    def devtools(self, command: str, parameters: dict[str, object]) -> Any:
        """Send a command of the DevTools protocol."""
        return self._ask("POST", "/goog/cdp/execute", {"cmd": command, "params": parameters})

    def click(self, selector: str) -> None:
        """Click into the middle of an element."""
        element = self._ask("POST", "/element", {"using": "css selector", "value": selector})
        self._ask("POST", f"/element/{element[ELEMENT]}/click")

    def point(self, x: float, y: float, click: bool = False) -> None:
        """Move the mouse within the window."""
        actions: list[dict[str, object]] = [
            {"type": "pointerMove", "duration": 0, "x": int(x), "y": int(y)}
        ]
        if click:
            actions += [{"type": kind, "button": 0} for kind in ("pointerDown", "pointerUp")]
        mouse = {"type": "pointer", "id": "mouse", "actions": actions}
        self._ask("POST", "/actions", {"actions": [mouse]})

    def press(self, *keys: str) -> None:
        """Press keys one after the other, wherever the focus is."""
        actions = [
            {"type": kind, "value": KEYS.get(key, key)}
            for key in keys
            for kind in ("keyDown", "keyUp")
        ]
        self._ask(
            "POST", "/actions", {"actions": [{"type": "key", "id": "keys", "actions": actions}]}
        )

    def choose(self, selector: str, value: str) -> None:
        """Set a select, slider or number and notify the page."""
        self.run(
            "const e = document.querySelector(arguments[0]); e.value = arguments[1];"
            "e.dispatchEvent(new Event('input', {bubbles: true}));"
            "e.dispatchEvent(new Event('change', {bubbles: true}));",
            selector,
            value,
        )

    def wait(self, condition: str, seconds: float = 10) -> None:
        """Wait until a JavaScript expression holds."""
        end = time.monotonic() + seconds
        while not self.run(f"return Boolean({condition})"):
            if time.monotonic() > end:
                raise TimeoutError(condition)
            time.sleep(0.05)

    def picture(self, path: Path, whole: bool = True) -> None:
        """Take a picture of the page."""
        taken = self.devtools("Page.captureScreenshot", {"captureBeyondViewport": whole})
        path.write_bytes(base64.b64decode(taken["data"]))

    def console(self) -> list[str]:
        """What the browser complained of since the last call."""
        return [
            str(entry["message"]) for entry in self._ask("POST", "/se/log", {"type": "browser"})
        ]

    def requests(self) -> list[str]:
        """The addresses that were asked for since the last call."""
        entries = self._ask("POST", "/se/log", {"type": "performance"})
        events = [json.loads(entry["message"])["message"] for entry in entries]
        return [
            str(event["params"]["request"]["url"])
            for event in events
            if event["method"] == "Network.requestWillBeSent"
        ]
