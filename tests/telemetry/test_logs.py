"""Loggers: levels, sinks, lines, and files that several of them share."""

from __future__ import annotations

import logging
import os
import re
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from gpuwire.config import LoggerConfig, LogLevel
from gpuwire.errors import LogFileError
from gpuwire.telemetry.logs import disabled_logger, open_logger

LINE = re.compile(r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z remote (.*)$")


def texts(file: Path) -> list[str]:
    matches = [LINE.match(line) for line in file.read_text().splitlines()]
    assert all(matches)
    return [match[1] for match in matches if match]


@pytest.mark.parametrize(
    ("level", "expected"),
    [("disabled", []), ("basic", ["a fact"]), ("full", ["a fact", "a detail"])],
)
def test_a_level_lets_through_what_it_names(
    tmp_path: Path, level: LogLevel, expected: list[str]
) -> None:
    file = tmp_path / "a.log"
    file.touch()
    logger = open_logger(LoggerConfig(file=file, level=level), "remote")
    logger.basic("a fact")
    logger.full("a detail")
    assert texts(file) == expected
    assert logger.level == level


def test_a_disabled_logger_makes_no_file(tmp_path: Path) -> None:
    open_logger(LoggerConfig(file=tmp_path / "a.log"), "remote").basic("nothing")
    disabled_logger("remote").full("nothing")
    assert not (tmp_path / "a.log").exists()


def test_append_keeps_what_was_there_and_its_absence_does_not(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    for text in ("first", "second"):
        open_logger(LoggerConfig(file=file, level="basic"), "remote").basic(text)
    assert texts(file) == ["first", "second"]
    open_logger(LoggerConfig(file=file, level="basic", append=False), "remote").basic("third")
    assert texts(file) == ["third"]


def test_loggers_of_one_file_share_it_by_whatever_path(tmp_path: Path) -> None:
    file, link = tmp_path / "a.log", tmp_path / "link.log"
    link.symlink_to(file)
    one = open_logger(LoggerConfig(file=file, level="basic", append=False), "remote")
    one.basic("one")
    two = open_logger(LoggerConfig(file=link, level="basic", append=False), "remote")
    two.basic("two")
    one.basic("one again")
    assert texts(file) == ["one", "two", "one again"]


def test_another_process_shares_the_file_too(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    config = LoggerConfig(file=file, level="basic", append=False)
    logger = open_logger(config, "remote")
    logger.basic("ours")
    program = (
        "import sys; from gpuwire.config import LoggerConfig; "
        "from gpuwire.telemetry.logs import open_logger; "
        "config = LoggerConfig(file=sys.argv[1], level='basic', append=False); "
        "open_logger(config, 'remote').basic('theirs')"
    )
    subprocess.run([sys.executable, "-c", program, str(file)], check=True)
    logger.basic("ours again")
    assert texts(file) == ["ours", "theirs", "ours again"]


def test_lines_of_many_threads_stay_whole(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    config = LoggerConfig(file=file, level="basic")

    def write(number: int) -> None:
        logger = open_logger(config, "remote")
        for count in range(200):
            logger.basic(f"{number} {count} " + "x" * 300)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = texts(file)
    for number in range(4):
        own = [text.split()[1] for text in found if text.startswith(f"{number} ")]
        assert own == [str(count) for count in range(200)]


def test_text_from_a_peer_stays_on_its_line(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    logger = open_logger(LoggerConfig(file=file, level="basic"), "remote")
    logger.basic("grün\n2026-01-01T00:00:00.000Z remote forged \x1b[2J")
    assert texts(file) == [r"grün\n2026-01-01T00:00:00.000Z remote forged \x1b[2J"]


def test_a_file_that_cannot_be_opened_is_named(tmp_path: Path) -> None:
    file = tmp_path / "absent" / "a.log"
    with pytest.raises(LogFileError, match="No such file or directory") as caught:
        open_logger(LoggerConfig(file=file, level="basic"), "remote")
    assert str(file) in str(caught.value)
    assert caught.value.file == str(file)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs Linux's /dev/full")  # noqa: PTH110
def test_a_full_disk_is_said_once_and_ends_no_work(capsys: pytest.CaptureFixture[str]) -> None:
    logger = open_logger(LoggerConfig(file=Path("/dev/full"), level="basic"), "remote")
    logger.basic("one")
    logger.basic("two")
    assert capsys.readouterr().err.count("/dev/full given up: No space left") == 1


def test_standard_streams(capsys: pytest.CaptureFixture[str]) -> None:
    open_logger(LoggerConfig(stdout=True, level="basic"), "remote").basic("to stdout")
    open_logger(LoggerConfig(stderr=True, level="basic"), "remote").basic("to stderr")
    open_logger(LoggerConfig(level="basic"), "remote").basic("no sink named")
    captured = capsys.readouterr()
    assert "remote to stdout\n" in captured.out
    assert "remote to stderr\n" in captured.err
    assert "remote no sink named\n" in captured.err


def test_pythons_logging_gets_the_text_at_the_level_named(
    caplog: pytest.LogCaptureFixture,
) -> None:
    with caplog.at_level(logging.WARNING):
        open_logger(LoggerConfig(log="warning", level="basic"), "remote").basic("100 % done")
        open_logger(LoggerConfig(log="info", level="basic"), "remote").basic("too low")
    assert caplog.record_tuples == [("gpuwire.remote", logging.WARNING, "100 % done")]
