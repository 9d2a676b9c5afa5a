"""Uploads kept on disk, one file each, for after a restart.

A file holds a tensor's bytes and nothing else. Its name is a hash of whose it is, its length and
the hash of its content, so the directory tells nothing of either. It is written under another name,
and renamed when it is whole. What else lies in the directory is left alone.
"""

from __future__ import annotations

import contextlib
import os
import re
import secrets
import threading
from collections.abc import Iterator
from pathlib import Path

from blake3 import blake3

READ_BYTES = 1024 * 1024
_WHOLE = re.compile(r"[0-9a-f]{64}\.upload")
_PARTIAL = re.compile(r"[0-9a-f]{64}\.[0-9a-f]{16}\.partial")


def file_name(owner: str, length: int, digest: bytes) -> str:
    """The name of the file for an owner's upload."""
    owned = owner.encode()
    head = len(owned).to_bytes(8, "big") + owned + length.to_bytes(8, "big")
    return blake3(head + digest).hexdigest() + ".upload"


def open_directory(directory: Path) -> list[tuple[str, int]]:
    """Makes the directory if need be, and lists its uploads with their sizes, the one used least
    lately first. What a process that ended was writing goes. On another thread. Raises OSError."""
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    found = []
    with os.scandir(directory) as entries:
        for entry in entries:
            if not entry.is_file(follow_symlinks=False):
                continue
            if _PARTIAL.fullmatch(entry.name):
                Path(entry.path).unlink(missing_ok=True)
            elif _WHOLE.fullmatch(entry.name):
                facts = entry.stat(follow_symlinks=False)
                found.append((facts.st_mtime_ns, entry.name, facts.st_size))
    return [(name, size) for _, name, size in sorted(found)]


class PartialFile:
    """An upload on its way to the disk. All of it on another thread; raises OSError."""

    def __init__(self, directory: Path, name: str) -> None:
        self._target = directory / name
        self._path = directory / f"{self._target.stem}.{secrets.token_hex(8)}.partial"
        self._descriptor: int | None = None

    def write(self, data: memoryview) -> None:
        """Appends; the file is made by the first bytes, readable by its owner alone."""
        if self._descriptor is None:
            flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
            self._descriptor = os.open(self._path, flags, 0o600)
        while data:
            data = data[os.write(self._descriptor, data) :]

    def commit(self) -> None:
        """Gives the file its name. What a power cut leaves of it is found out when it is read."""
        self._close()
        self._path.rename(self._target)

    def abandon(self) -> None:
        """Takes it away again; raises nothing."""
        with contextlib.suppress(OSError):
            self._close()
            self._path.unlink(missing_ok=True)

    def _close(self) -> None:
        if self._descriptor is not None:
            descriptor, self._descriptor = self._descriptor, None
            os.close(descriptor)


def open_sound(path: Path, length: int, digest: bytes) -> KeptFile | None:
    """The file, if its length and its hash are right: it is read whole. On another thread; raises
    OSError."""
    file = KeptFile(path, length, digest)
    try:
        is_sound = file.is_sound()
    except BaseException:
        file.close()
        raise
    if is_sound:
        return file
    file.close()
    return None


class KeptFile:
    """An upload on disk, open. Reading is for another thread; it raises OSError."""

    def __init__(self, path: Path, length: int, digest: bytes) -> None:
        self._length = length
        self._digest = digest
        self._descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW)
        self._reading = threading.Lock()
        self._is_closed = False

    def is_sound(self) -> bool:
        """Whether length and hash are right. Notes that the file is used."""
        if os.fstat(self._descriptor).st_size != self._length:
            return False
        hasher = blake3(max_threads=blake3.AUTO)
        for chunk in self._chunks(8 * READ_BYTES):
            hasher.update(chunk)
        os.utime(self._descriptor)
        return bool(hasher.digest() == self._digest)

    def chunks(self) -> Iterator[memoryview]:
        """Its bytes, `READ_BYTES` at a time, hashed once more. Ends early if somebody has changed
        them since: the last chunk comes only if all were right."""
        hasher, offset = blake3(), 0
        for chunk in self._chunks(READ_BYTES):
            hasher.update(chunk)
            offset += len(chunk)
            if offset == self._length and hasher.digest() != self._digest:
                return
            yield chunk

    def close(self) -> None:
        """From any thread: a read under way ends first, and is the last."""
        with self._reading:
            self._is_closed = True
            os.close(self._descriptor)

    def _chunks(self, size: int) -> Iterator[memoryview]:
        offset = 0
        while offset < self._length:
            chunk = memoryview(bytearray(min(size, self._length - offset)))
            with self._reading:
                if self._is_closed:
                    return
                count = os.preadv(self._descriptor, [chunk], offset)
            if not count:
                return
            offset += count
            yield chunk[:count]
