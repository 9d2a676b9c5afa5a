"""Uploads that were found in the cache, on their way to a device host."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from typing import Generic, Protocol

from gpuwire.server.ledger import Key, Ledger
from gpuwire.server.upload_disk import KeptFile


class KeptUpload(Protocol):
    """An upload that was found. It stays until it is released."""

    def chunks(self) -> AsyncIterator[memoryview]:
        """Its bytes in order. They end early if a file was changed since it was found, or cannot be
        read any more."""

    def release(self) -> None:
        """It may go."""


class KeptInMemory(Generic[Key]):
    """The chunks of an entry."""

    def __init__(self, memory: Ledger[Key], key: Key, chunks: tuple[memoryview, ...]) -> None:
        self._memory = memory
        self._key = key
        self._chunks = chunks
        memory.pin(key)

    async def chunks(self) -> AsyncIterator[memoryview]:
        for chunk in self._chunks:
            yield chunk

    def release(self) -> None:
        self._memory.unpin(self._key)


class KeptOnDisk:
    """A file that was sound when it was found."""

    def __init__(self, disk: Ledger[str], name: str, file: KeptFile) -> None:
        """The name is pinned already."""
        self._disk = disk
        self._name = name
        self._file = file

    async def chunks(self) -> AsyncIterator[memoryview]:
        chunks = self._file.chunks()
        while (chunk := await asyncio.to_thread(_next, chunks)) is not None:
            yield chunk

    def release(self) -> None:
        self._file.close()
        self._disk.unpin(self._name)


def _next(chunks: Iterator[memoryview]) -> memoryview | None:
    try:
        return next(chunks, None)
    except OSError:
        return None  # The end that comes too early says it.
