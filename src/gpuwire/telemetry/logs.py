"""Log lines for people: three levels, four kinds of sink, one line a fact.

A line is `2026-01-31T09:30:00.125Z <name> <text>`, UTC, and is written by one call, so that lines
of several threads, loggers and processes never mix. A disabled logger costs one attribute test;
where making the text costs more, ask `wants_basic` or `wants_full` first.
"""

from __future__ import annotations

import logging
import os
import sys
import weakref
from datetime import UTC, datetime
from pathlib import Path
from typing import Protocol

from gpuwire.config.models import LoggerConfig, LogLevel
from gpuwire.errors import LogFileError


class Sink(Protocol):
    """Where lines go."""

    def write(self, line: str, text: str) -> None:
        """`line` carries the time and the logger's name, `text` neither."""


class Logger:
    """Writes what its level asks for to all of its sinks. Safe to use from any thread."""

    __slots__ = ("_sinks", "level", "name", "wants_basic", "wants_full")

    def __init__(self, name: str, level: LogLevel, sinks: tuple[Sink, ...]) -> None:
        self.name = name
        self.level: LogLevel = level
        self.wants_basic = level != "disabled"
        self.wants_full = level == "full"
        self._sinks = sinks

    def basic(self, text: str) -> None:
        """Log what an operator wants to see. `text` becomes one line whatever is in it."""
        if self.wants_basic:
            self._write(text)

    def full(self, text: str) -> None:
        """Log what a developer wants to see."""
        if self.wants_full:
            self._write(text)

    def also_to(self, sink: Sink) -> Logger:
        """The same logger with one sink more."""
        return Logger(self.name, self.level, (*self._sinks, sink))

    def _write(self, text: str) -> None:
        now = datetime.now(UTC).isoformat(timespec="milliseconds").removesuffix("+00:00")
        text = _on_one_line(text)
        line = f"{now}Z {self.name} {text}\n"
        for sink in self._sinks:
            sink.write(line, text)


def open_logger(config: LoggerConfig, name: str) -> Logger:
    """The logger that `config` describes; with a level but no sink it writes to stderr.

    A disabled logger opens nothing. Loggers that name one file, by whatever path and in whatever
    process, share it. Raises LogFileError if the file cannot be opened.
    """
    if config.level == "disabled":
        return Logger(name, "disabled", ())
    sinks: list[Sink] = []
    if config.file is not None:
        sinks.append(FileSink(config.file, append=config.append))
    if config.stdout:
        sinks.append(StandardSink("stdout"))
    if config.stderr:
        sinks.append(StandardSink("stderr"))
    if config.log is not None:
        sinks.append(LoggingSink(name, config.log))
    return Logger(name, config.level, tuple(sinks) or (StandardSink("stderr"),))


def disabled_logger(name: str) -> Logger:
    """A logger for whoever was given none."""
    return Logger(name, "disabled", ())


class FileSink:
    """Lines at the end of a file.

    The operating system does the sharing: each line is one write to a descriptor opened for
    appending, which lands whole and at the end however many others have the file open. `append`
    False empties the file only if no other sink has it open, told by a lock that a sink holds
    while it lives; so two loggers of one file do not wipe out each other's lines.
    """

    __slots__ = ("__weakref__", "_broken", "_descriptor", "path")

    def __init__(self, path: Path, *, append: bool) -> None:
        self.path = path
        self._broken = False
        try:
            self._descriptor = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o640)
        except OSError as error:
            reason = error.strerror or type(error).__name__
            message = (
                f"log file {path} cannot be opened: {reason}; name another or make it writable"
            )
            raise LogFileError(message, file=str(path)) from error
        weakref.finalize(self, os.close, self._descriptor)
        if _has_file_alone(self._descriptor) and not append:
            os.ftruncate(self._descriptor, 0)
        _share_file(self._descriptor)

    def write(self, line: str, text: str) -> None:
        if self._broken:
            return
        try:
            os.write(self._descriptor, line.encode("utf-8", "backslashreplace"))
        except OSError as error:
            # A full disk must not end the work that was being logged; it is said once.
            self._broken = True
            sys.stderr.write(f"gpuwire: log file {self.path} given up: {error.strerror}\n")


class StandardSink:
    """Lines on stdout or stderr, as they are when the line is written."""

    __slots__ = ("_stream_name",)

    def __init__(self, stream_name: str) -> None:
        self._stream_name = stream_name

    def write(self, line: str, text: str) -> None:
        stream = getattr(sys, self._stream_name)
        if stream is None or stream.closed:  # a windowed program, or an interpreter that is ending
            return
        stream.write(line)
        stream.flush()


class LoggingSink:
    """Lines handed to Python's `logging`, which adds time and place itself."""

    __slots__ = ("_level", "_logger")

    def __init__(self, name: str, level: str) -> None:
        self._logger = logging.getLogger(f"gpuwire.{name}")
        self._level = logging.getLevelNamesMapping()[level.upper()]

    def write(self, line: str, text: str) -> None:
        self._logger.log(self._level, "%s", text)


if sys.platform == "win32":

    def _has_file_alone(descriptor: int) -> bool:
        return True

    def _share_file(descriptor: int) -> None:
        """There is no advisory lock to share: the last logger that asks for it empties the file."""

else:
    import fcntl

    def _has_file_alone(descriptor: int) -> bool:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks
            return True
        return True

    def _share_file(descriptor: int) -> None:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_SH)
        except OSError:
            return


def _on_one_line(text: str) -> str:
    """Text from a peer can neither start a line of its own nor move the terminal's cursor."""
    if text.isprintable():
        return text
    return "".join(
        letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii")
        for letter in text
    )
