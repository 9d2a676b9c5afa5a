"""Every code block of README.md does what it says, in the order in which a reader meets them.

One server runs for all of them: the one that README's own `gpuwire serve` block starts. Blocks that
need a ticket find it in GPUWIRE_URL, as the text tells its reader to arrange.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from gpuwire.config import Config, load_config
from gpuwire.config.explaining import key_names
from servers import clean_environment

ROOT = Path(__file__).parents[1]
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
SERVE = "gpuwire serve"


@dataclass(frozen=True, slots=True)
class Block:
    number: int
    language: str
    text: str

    def __str__(self) -> str:
        return f"{self.number}-{self.language}-{self.text.split()[0]}"


def blocks() -> list[Block]:
    text = (ROOT / "README.md").read_text()
    found = [
        Block(number, language, body)
        for number, (language, body) in enumerate(FENCE.findall(text), start=1)
    ]
    assert len(found) == text.count("\n```") / 2, "a fence without a language, or not closed"
    return found


def of(*languages: str) -> list[Block]:
    return [block for block in blocks() if block.language in languages]


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of someone who follows the text: our command on the path, own state."""
    home = tmp_path_factory.mktemp("reader")
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    return clean_environment(PATH=path, XDG_STATE_HOME=str(home), HOME=str(home))


@pytest.fixture(scope="module")
def ticket(reader: dict[str, str]) -> Iterator[str]:
    """What README's `gpuwire serve` prints. Only the port differs: 4433 may be taken here."""
    (block,) = (block for block in blocks() if block.text.strip() == SERVE)
    environment = {**reader, "GPUWIRE_SERVER__PORT": "0", "GPUWIRE_SERVER__HOST": "127.0.0.1"}
    server = subprocess.Popen(
        ["bash", "-c", f"exec {block.text}"],
        env=environment,
        cwd=reader["HOME"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert server.stdout is not None
    try:
        yield server.stdout.readline().strip()
    finally:
        server.send_signal(signal.SIGINT)
        rest, _ = server.communicate(timeout=30)
    assert server.returncode == 0
    assert rest == "", "one line was promised"


def run(command: list[str], environment: dict[str, str], directory: str | Path) -> str:
    done = subprocess.run(
        command,
        env=environment,
        cwd=directory,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=110,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_serve_prints_a_ticket(ticket: str) -> None:
    assert re.fullmatch(r"gpuwire://127\.0\.0\.1:\d+\?fp=[\w-]{43}&token=[\w-]{43}", ticket)


@pytest.mark.parametrize("block", of("bash"), ids=str)
def test_shell(block: Block, reader: dict[str, str], request: pytest.FixtureRequest) -> None:
    if block.text.strip() == SERVE:
        request.getfixturevalue("ticket")  # it runs now, and is judged where the fixture ends
        return
    if block.text.startswith("scripts/"):  # from a clone, without a server or a ticket
        output = run(["bash", "-euo", "pipefail", "-c", block.text], reader, ROOT)
    else:
        environment = {**reader, "GPUWIRE_URL": request.getfixturevalue("ticket")}
        shell = ["bash", "-euo", "pipefail", "-c", block.text]
        output = run(shell, environment, reader["HOME"])
    assert output.strip()


@pytest.mark.parametrize("block", of("python"), ids=str)
def test_python(block: Block, reader: dict[str, str], ticket: str) -> None:
    environment = {**reader, "GPUWIRE_URL": ticket}
    run([sys.executable, "-c", block.text], environment, reader["HOME"])


@pytest.mark.parametrize("block", of("toml"), ids=str)
def test_configuration_lists_the_defaults(block: Block, tmp_path: Path) -> None:
    file = tmp_path / "gpuwire.toml"
    file.write_text(block.text)
    assert load_config(file) == Config()
    optional = re.sub(r"^# (?=\w+ = )", "", block.text, flags=re.MULTILINE)
    file.write_text(optional)
    assert load_config(file).server.advertise == "gpu-box.example"
    shown = set(re.findall(r"^(\w+) = ", optional, re.MULTILINE))
    keys = {key.rpartition(".")[2] for key in key_names(Config)}
    assert shown == keys, "keys that are not shown, or do not exist"


def test_every_language_is_run() -> None:
    assert {block.language for block in blocks()} == {"bash", "python", "toml"}
