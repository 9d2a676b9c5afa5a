"""Real `gpuwire serve` processes for tests, each with a state directory and a log of its own."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import TracebackType


class ServerProcess:
    """A server of its own process, ready to be connected to when the constructor returns."""

    def __init__(self, directory: Path, *arguments: str, config: str | None = None) -> None:
        """`directory` is made if need be; `config` is the text of its gpuwire.toml."""
        directory.mkdir(parents=True, exist_ok=True)
        self.state_dir = directory / "state"
        self.log = directory / "log"
        ticket_file = directory / "ticket"
        command = [sys.executable, "-m", "gpuwire.cli", "serve"]
        command += ["--host", "127.0.0.1", "--port", "0", "--state-dir", str(self.state_dir)]
        command += ["--ticket-file", str(ticket_file), *arguments]
        if config is not None:
            file = directory / "gpuwire.toml"
            file.write_text(config)
            command += ["--config", str(file)]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(
                command,
                cwd=directory,
                env=clean_environment(),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
            )
        assert self.process.stdout is not None
        self.ticket = self.process.stdout.readline().strip()
        """Comes when the server is ready; the line is empty if it died first."""
        if not self.ticket:
            self.process.wait()
            raise AssertionError(f"the server did not start:\n{self.log.read_text()}")
        assert ticket_file.read_text().strip() == self.ticket

    def stop(self) -> int:
        """Ends it with SIGTERM, if it still runs, and gives its exit code."""
        if self.process.poll() is None:
            self.process.send_signal(signal.SIGTERM)
        try:
            return self.process.wait(timeout=30)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(
                f"the server did not stop:\n{self.log.read_text()[-4000:]}"
            ) from None
        finally:
            assert self.process.stdout is not None
            self.process.stdout.close()

    def kill(self) -> None:
        """Ends it as a power cut does, and waits until it is gone."""
        self.process.kill()
        self.process.wait()

    def host_pids(self) -> list[int]:
        """The process ids of its device hosts."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children")
        return [int(pid) for pid in children.read_text().split()]

    def __enter__(self) -> ServerProcess:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        killed = self.process.poll() == -signal.SIGKILL
        code = self.stop()
        if kind is None and not killed:
            assert code == 0, f"the server ended with {code}:\n{self.log.read_text()[-4000:]}"


def clean_environment(**extra: str) -> dict[str, str]:
    """This process's environment without the developer's own settings, and with `extra`."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GPUWIRE_")}
    return {**kept, **extra}
