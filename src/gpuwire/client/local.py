"""A server of this machine's own, for a program that names none."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import threading
from collections import deque
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import IO, Any

from gpuwire.client.forking import call_in_forked_child
from gpuwire.client.waiting import ThreadReply
from gpuwire.config import Config
from gpuwire.config.environment import variable_name
from gpuwire.errors import ServerStartError

_START_SECONDS = 60.0
_STOP_SECONDS = 10.0
_LAST_WORDS = 20
"""Lines of its log that a server which does not start is quoted with."""

_SERVER_SECTIONS = ("memory", "streaming", "compute", "server")


def start_local_server(config: Config | None = None) -> LocalServer:
    """Starts `gpuwire serve` as a child process on the loopback address and returns when it is
    ready.

    `config` None leaves it to find its own; else what the given one sets for servers counts there.
    Raises `ServerStartError` with what the child said last.
    """
    return LocalServer(_settings(config))


class LocalServer:
    """The child process: ready when made, gone when stopped, and never there without us."""

    ticket: str
    """What opens sessions there."""

    def __init__(self, settings: Mapping[str, str]) -> None:
        """Starts it. `settings` are environment variables."""
        self._process_id = os.getpid()
        self._state = tempfile.mkdtemp(prefix="gpuwire-")
        self._log: deque[str] = deque(maxlen=_LAST_WORDS)
        ready = ThreadReply()
        try:
            self._child = _spawn(Path(self._state), settings)
            call_in_forked_child(self._let_go)
            self._listeners = (
                threading.Thread(target=self._listen, args=(ready,), daemon=True),
                threading.Thread(target=self._keep_log, daemon=True),
            )
            for listener in self._listeners:
                listener.start()
            self.ticket = ready.wait(_START_SECONDS)
        except TimeoutError as error:
            self.stop()
            raise ServerStartError(
                f"the local server was not ready within {_START_SECONDS:g} s{self._quoted()}",
                reason="timeout",
            ) from error
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """Ends the server and waits until it is gone. Does nothing in a forked child, and nothing
        the second time."""
        if os.getpid() != self._process_id:
            return
        child = getattr(self, "_child", None)
        if child is not None:
            assert child.stdin is not None
            child.stdin.close()
            try:
                child.wait(_STOP_SECONDS)
            except subprocess.TimeoutExpired:
                child.kill()
                child.wait()
        shutil.rmtree(self._state, ignore_errors=True)

    def _let_go(self) -> None:
        """In a forked child, which holds the pipe too and would keep the server alive after us."""
        if self._child.stdin is not None:
            self._child.stdin.close()

    def _listen(self, ready: ThreadReply) -> None:
        """The first line the child prints is its ticket; a child that ends before has failed."""
        assert self._child.stdout is not None
        line = self._child.stdout.readline().strip()
        if line:
            if not ready.done():
                ready.set_result(line)
            for _ in self._child.stdout:  # Read on, so that the child never waits for us.
                pass
            return
        code = self._child.wait()
        self._listeners[1].join()
        if not ready.done():
            ready.set_exception(
                ServerStartError(
                    f"the local server ended with exit code {code} before it was ready"
                    f"{self._quoted()}",
                    reason=f"exit code {code}",
                )
            )

    def _keep_log(self) -> None:
        log: IO[str] | None = self._child.stderr
        assert log is not None
        for line in log:
            self._log.append(line.rstrip())

    def _quoted(self) -> str:
        said = "\n".join(f"  {line}" for line in self._log if line)
        return f"; its last words:\n{said}" if said else "; it said nothing"


def _spawn(state: Path, settings: Mapping[str, str]) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "gpuwire.cli", "serve", "--host", "127.0.0.1", "--port", "0"]
    # Its end of this pipe closes with our process, however that ends, and then it stops.
    command += ["--state-dir", str(state), "--until-stdin-closes"]
    return subprocess.Popen(
        command,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        errors="replace",
        # A server on this machine whose link is lost is gone, and nobody starts it anew.
        env={**os.environ, **settings, variable_name("remote.resume_grace_seconds"): "0"},
        # A terminal sends Ctrl-C to the whole group: it is meant for the program, not the server.
        start_new_session=sys.platform != "win32",
        creationflags=getattr(subprocess, "CREATE_NEW_PROCESS_GROUP", 0),
    )


def _settings(config: Config | None) -> dict[str, str]:
    """What a configuration made in code sets for servers, as environment variables."""
    if config is None:
        return {}
    table = config.model_dump(mode="json", exclude_unset=True)
    servers = {section: table[section] for section in _SERVER_SECTIONS if section in table}
    for key in ("host", "port", "state_dir", "advertise"):
        servers.get("server", {}).pop(key, None)
    return {variable_name(key): value for key, value in _leaves(servers)}


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, str]]:
    for name, value in table.items():
        if isinstance(value, Mapping):
            yield from _leaves(value, f"{prefix}{name}.")
        elif isinstance(value, list):
            yield f"{prefix}{name}", ",".join(map(str, value))
        elif value is not None:
            yield f"{prefix}{name}", str(value)
