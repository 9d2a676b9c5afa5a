"""Headless Chromium, driven through its debugging pipe: no driver, no port, no library."""

from __future__ import annotations

import base64
import json
import os
import shutil
import signal
import subprocess
from pathlib import Path
from types import TracebackType
from typing import Any

FLAGS = (
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-dev-shm-usage",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--remote-debugging-pipe",
)
TO_BROWSER, FROM_BROWSER = 3, 4
"""The file descriptors on which Chromium expects its pipe."""


class Browser:
    """A browser with one page. Fails, and says why, where Chromium is not installed."""

    def __init__(self, directory: Path, *, flags: tuple[str, ...] = ()) -> None:
        """`directory` is for its profile; fresh, so that nothing is left of another run."""
        program = shutil.which("chromium") or shutil.which("chromium-browser")
        assert program, "Chromium is needed to test the dashboard: scripts/setup dev installs it"
        commands, self._commands = os.pipe()
        self._answers, answers = os.pipe()

        def hand_over() -> None:
            # Out of the way first: either may lie on 3 or 4 already.
            reading, writing = os.dup(commands), os.dup(answers)
            os.dup2(reading, TO_BROWSER)
            os.dup2(writing, FROM_BROWSER)

        self.log = directory / "chromium.log"
        directory.mkdir(parents=True, exist_ok=True)
        with self.log.open("w") as log:
            self._process = subprocess.Popen(
                [program, *FLAGS, *flags, f"--user-data-dir={directory / 'profile'}"],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                preexec_fn=hand_over,
                pass_fds=(TO_BROWSER, FROM_BROWSER),
                start_new_session=True,
            )
        os.close(commands)
        os.close(answers)
        self._numbers = 0
        self._rest = b""
        self._trace: list[dict[str, Any]] = []
        self._is_traced = False
        self.console: list[str] = []
        """Errors and warnings of the page, its policy's breaches among them."""
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attach = {"targetId": target, "flatten": True}
        self._session = self._call("Target.attachToTarget", attach)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            self.call(f"{domain}.enable")

    def open(self, url: str, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """Goes to a page and returns when it is loaded."""
        self.look(width=width, height=height, dark=dark)
        self.call("Page.navigate", {"url": url})
        self.wait(f"location.href.startsWith({url!r}) && document.readyState === 'complete'")

    def look(self, *, width: int = 1280, height: int = 900, dark: bool = False) -> None:
        """The window's size, and the colours that the viewer prefers."""
        size = {"width": width, "height": height, "deviceScaleFactor": 1, "mobile": width < 700}
        self.call("Emulation.setDeviceMetricsOverride", size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", {"features": [scheme]})

    def evaluate(self, expression: str) -> Any:
        """The value of an expression in the page; a promise is waited for."""
        wanted = {"expression": expression, "awaitPromise": True, "returnByValue": True}
        answer = self.call("Runtime.evaluate", wanted)
        if "exceptionDetails" in answer:
            raise AssertionError(json.dumps(answer["exceptionDetails"], indent=1))
        return answer["result"].get("value")

    def wait(self, condition: str, seconds: float = 30) -> None:
        """Returns when an expression in the page is true, which is looked at each frame."""
        script = f"""new Promise((resolve, reject) => {{
            const end = performance.now() + {seconds * 1000};
            const look = () => {{
                let found = false;
                try {{ found = Boolean({condition}); }} catch {{ found = false; }}
                if (found) resolve(true);
                else if (performance.now() > end) resolve(false);
                else setTimeout(look, 20);
            }};
            look();
        }})"""
        if not self.evaluate(script):
            text = self.evaluate("document.body.innerText.slice(0, 2000)")
            raise AssertionError(f"this never came true: {condition}\n{self.console}\n{text}")

    def press(self, key: str) -> None:
        """A key, on what has the focus."""
        codes = {"Tab": 9, "Enter": 13, "ArrowDown": 40, "ArrowRight": 39}
        for kind in ("rawKeyDown", "char", "keyUp") if key == "Enter" else ("rawKeyDown", "keyUp"):
            event = {"type": kind, "key": key, "code": key, "windowsVirtualKeyCode": codes[key]}
            self.call("Input.dispatchKeyEvent", event | ({"text": "\r"} if kind == "char" else {}))

    def screenshot(self, file: Path, *, whole: bool = True) -> None:
        """A picture of the page."""
        wanted = {"format": "png", "captureBeyondViewport": whole}
        file.write_bytes(base64.b64decode(self.call("Page.captureScreenshot", wanted)["data"]))

    def call(self, method: str, parameters: dict[str, Any] | None = None) -> dict[str, Any]:
        """A command to the page; its result."""
        return self._call(method, parameters or {}, self._session)

    def start_trace(self, *categories: str) -> None:
        """Notes what the browser does, until `trace`."""
        self._trace = []
        config = {"includedCategories": list(categories), "recordMode": "recordUntilFull"}
        self._call("Tracing.start", {"transferMode": "ReportEvents", "traceConfig": config})

    def trace(self) -> list[dict[str, Any]]:
        """What it has done since `start_trace`, as trace events."""
        self._is_traced = False
        self._call("Tracing.end", {})
        while not self._is_traced:
            self._note(self._message())
        return self._trace

    def close(self) -> None:
        """Ends it with all of its processes."""
        os.close(self._commands)
        os.close(self._answers)
        try:
            self._process.wait(5)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def __enter__(self) -> Browser:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def _call(
        self, method: str, parameters: dict[str, Any], session: str | None = None
    ) -> dict[str, Any]:
        self._numbers += 1
        number = self._numbers
        command = {"id": number, "method": method, "params": parameters}
        if session is not None:
            command["sessionId"] = session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while True:
            message = self._message()
            if message.get("id") == number:
                assert "error" not in message, message
                result: dict[str, Any] = message["result"]
                return result
            self._note(message)

    def _message(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            data = os.read(self._answers, 1 << 16)
            assert data, f"Chromium has ended:\n{self.log.read_text()[-2000:]}"
            self._rest += data
        text, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(text)
        return message

    def _note(self, message: dict[str, Any]) -> None:
        match message.get("method"):
            case "Runtime.exceptionThrown":
                self.console.append(json.dumps(message["params"]["exceptionDetails"]))
            case "Tracing.dataCollected":
                self._trace += message["params"]["value"]
            case "Tracing.tracingComplete":
                self._is_traced = True
            case "Log.entryAdded":
                entry = message["params"]["entry"]
                self.console.append(f"{entry['level']}: {entry['text']} {entry.get('url', '')}")
