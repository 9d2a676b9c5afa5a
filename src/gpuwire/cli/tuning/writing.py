"""Putting a setting into `gpuwire.toml`, and leaving everything else of it as it is."""

from __future__ import annotations

import os
import stat
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gpuwire.cli.tuning.candidates import Candidate, Value
from gpuwire.config import RemoteConfig
from gpuwire.errors import ArgumentError, ConfigError

if TYPE_CHECKING:
    from tomlkit import TOMLDocument


def require_writable(file: Path) -> None:
    """Raises, before anything is measured, what `write_setting` would raise in the end."""
    _tomlkit()
    if file.exists():
        _read(file)
    # The file is replaced, which takes a directory that may be written to; but a file that its
    # owner protected from writing is not to be replaced either.
    for place in (file, file.absolute().parent):
        if (place.exists() or place != file) and not _is_writable(place):
            raise ConfigError(
                f"{file}: cannot be written: {place} is read-only; nothing was measured",
                file=str(file),
            )


def require_directory(file: Path) -> None:
    """Raises, before anything is measured, if a result could not be written to `file`."""
    directory = file.absolute().parent
    if not directory.is_dir() or not os.access(directory, os.W_OK) or file.is_dir():
        raise ArgumentError(f"{file}: cannot be written: {directory} is no directory to write to")


def write_setting(file: Path, candidate: Candidate) -> tuple[str, ...]:
    """Makes the file say what `candidate` says, and tells which keys that changed.

    A key that is not there and whose default is right is left out. Comments, order and spacing
    stay. The file is replaced in one step and keeps its mode. Raises `ConfigError`.
    """
    tomlkit = _tomlkit()
    document = _read(file) if file.exists() else tomlkit.document()
    remote = document.get("remote")
    if remote is None:
        remote = tomlkit.table()
    defaults = Candidate.of(RemoteConfig()).settings()
    changed = []
    for key, value in candidate.settings().items():
        if remote.get(key, defaults[key]) == value:
            continue
        changed.append(key)
        if value is None:
            del remote[key]
        elif key in remote:
            remote[key] = value
        else:
            _add(remote, key, value)
    if not changed:
        return ()
    if "remote" not in document:
        document["remote"] = remote
    _replace(file, tomlkit.dumps(document))
    return tuple(changed)


def _add(table: Any, key: str, value: Value) -> None:
    """tomlkit puts a new key behind the comment that stands before the next table. It belongs
    before that, behind the table's last key."""
    from tomlkit.items import Table

    if not isinstance(table, Table):
        table[key] = value
        return
    body = table.value.body
    indents = [(inner, inner.trivia.indent) for _, inner in body if isinstance(inner, Table)]
    table[key] = value
    place = next(place for place, (name, _) in enumerate(body) if name and name.key == key)
    start = place
    while start and body[start - 1][0] is None:
        start -= 1
    if 0 < start < place:
        for inner, indent in indents:
            inner.trivia.indent = indent
        body[place][1].trivia.trail = "\n"
        body[start : place + 1] = [body[place], *body[start:place]]


def _tomlkit() -> ModuleType:
    try:
        import tomlkit
    except ImportError:
        raise ArgumentError(
            "--write needs tomlkit: pip install 'gpuwire[tune]', or copy the setting by hand"
        ) from None
    return tomlkit


def _read(file: Path) -> TOMLDocument:
    from tomlkit.exceptions import TOMLKitError

    try:
        document: TOMLDocument = _tomlkit().parse(file.read_bytes().decode("utf-8"))
        return document
    except OSError as error:
        raise ConfigError(f"{file}: cannot be read: {error.strerror}", file=str(file)) from error
    except (TOMLKitError, UnicodeDecodeError) as error:
        raise ConfigError(f"{file}: not valid TOML: {error}", file=str(file)) from error


def _replace(file: Path, text: str) -> None:
    target = file.resolve()  # a link stays a link
    beside = target.with_name(f".{target.name}.{os.getpid()}")
    try:
        beside.write_bytes(text.encode("utf-8"))
        if target.exists():
            beside.chmod(stat.S_IMODE(target.stat().st_mode))
        beside.replace(target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise ConfigError(f"{file}: cannot be written: {error.strerror}", file=str(file)) from error


def _is_writable(place: Path) -> bool:
    """Root may write anywhere, and still should not to what is marked as read-only."""
    return os.access(place, os.W_OK) and bool(place.stat().st_mode & 0o222)
