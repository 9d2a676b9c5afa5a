"""Uploads kept by their content, so that they need not be sent again.

A client announces an upload by its BLAKE3 hash. The server takes note of the bytes as they come,
hashes them itself, and keeps them if the hash is the announced one; so no client can have it keep
what it did not send. They are found again by the same owner only (a token, or whom an authorizer
names), by length and hash. In memory an entry is the very chunks that were received; on disk it is
a file that is hashed anew before it counts as found.

Both stores are bounded, what comes included, and what was used least lately goes first. The disk is
a help, never a need: what goes wrong there is a line in the log. Hashing, reading and writing are
done on other threads; the books are kept on the event loop's.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3

from gpuwire.server.kept_uploads import KeptInMemory, KeptOnDisk, KeptUpload
from gpuwire.server.ledger import Ledger
from gpuwire.server.upload_disk import KeptFile, PartialFile, file_name, open_directory, open_sound
from gpuwire.telemetry.logs import Logger


@dataclass(frozen=True, slots=True)
class UploadKey:
    """What an upload is found by."""

    owner: str
    """Whose it is: `Grant.owner`."""
    length: int
    digest: bytes


@dataclass(frozen=True, slots=True)
class OwnUploads:
    """The part of a cache that one owner sees."""

    cache: UploadCache
    owner: str
    """Whose uploads: `Grant.owner`."""

    def key(self, length: int, digest: bytes) -> UploadKey:
        """What an upload of this owner's is found by."""
        return UploadKey(self.owner, length, digest)


@dataclass(frozen=True, slots=True)
class UploadCacheFacts:
    """Counts since the server's start, and sizes now."""

    hits: int
    misses: int
    bytes_not_sent: int
    memory_bytes: int
    disk_bytes: int


class UploadCache:
    """The uploads that one server keeps."""

    def __init__(
        self, memory_bytes: int, directory: Path | None, disk_bytes: int, logger: Logger
    ) -> None:
        """At most `memory_bytes` and `disk_bytes` are kept; 0 is none. `open` it before use."""
        self._directory = directory
        self._logger = logger
        self._chunks: dict[UploadKey, tuple[memoryview, ...]] = {}
        self.memory: Ledger[UploadKey] = Ledger(memory_bytes, self._evict)
        self.disk: Ledger[str] = Ledger(disk_bytes if directory else 0, self._unlink)
        self._last_trouble = ""
        self._finishing: set[asyncio.Task[None]] = set()
        self._unlinking: dict[str, asyncio.Task[None]] = {}
        self._hits = self._misses = self._bytes_not_sent = 0

    async def open(self) -> None:
        """Finds what is on disk."""
        if self._directory is None:
            return
        try:
            found = await asyncio.to_thread(open_directory, self._directory)
        except OSError as error:
            self.disk.limit_bytes = 0
            self.file_failed(error)
            return
        for name, size in found:  # What was used least lately first: it goes if the bound is less.
            if self.disk.reserve(size):
                self.disk.add(name, size)
            else:
                self._unlink(name)

    async def close(self) -> None:
        """Waits until what was received is kept, and what was evicted gone."""
        while self._finishing:
            await asyncio.wait(self._finishing)
        await self.evicted()

    @property
    def facts(self) -> UploadCacheFacts:
        """How it stands."""
        return UploadCacheFacts(
            self._hits,
            self._misses,
            self._bytes_not_sent,
            self.memory.used_bytes,
            self.disk.used_bytes,
        )

    def may_have(self, key: UploadKey) -> bool:
        """False if it surely is not here; True is no promise."""
        return key in self.memory or _name(key) in self.disk

    async def find(self, key: UploadKey) -> KeptUpload | None:
        """What is kept under that key, to be released; None, and a miss, if nothing sound is."""
        found: KeptUpload | None = None
        if key in self.memory:
            self.memory.use(key)
            self.disk.use(_name(key))
            found = KeptInMemory(self.memory, key, self._chunks[key])
        elif _name(key) in self.disk:
            found = await self._find_on_disk(key)
        if found is None:
            self.missed()
        else:
            self._hits += 1
            self._bytes_not_sent += key.length
            place = "memory" if key in self.memory else "disk"
            self._logger.full(f"an upload of {key.length} bytes was found in {place}")
        return found

    def missed(self) -> None:
        """Counts an upload that `may_have` had not."""
        self._misses += 1

    def receive(self, key: UploadKey) -> Receiving | None:
        """Takes note of an upload that was announced and comes; None if it cannot be kept."""
        if not key.length:
            return None
        into_memory = key.length <= self.memory.limit_bytes and key not in self.memory
        onto_disk = key.length <= self.disk.limit_bytes and _name(key) not in self.disk
        if not into_memory and not onto_disk:
            return None
        file = None
        if onto_disk:
            assert self._directory is not None
            file = PartialFile(self._directory, _name(key))
        return Receiving(self, key, file, into_memory=into_memory)

    # --- For `Receiving` ---

    def keep(self, key: UploadKey, chunks: tuple[memoryview, ...]) -> None:
        """Enters chunks whose bytes were reserved."""
        if key in self.memory:
            self.memory.release(key.length)
            return
        self.memory.add(key, key.length)
        self._chunks[key] = chunks

    async def keep_file(self, key: UploadKey, file: PartialFile) -> None:
        """Enters a file whose bytes were reserved."""
        name = _name(key)
        try:
            await self.evicted()
            await asyncio.to_thread(file.commit)
            self._last_trouble = ""
        except OSError as error:
            self.file_failed(error)
            await asyncio.to_thread(file.abandon)
            self.disk.release(key.length)
            return
        if name in self.disk:
            # The same bytes came twice at a time: the second file has taken the first one's place.
            self.disk.release(key.length)
        else:
            self.disk.add(name, key.length)

    async def evicted(self) -> None:
        """Returns when files that have left the books are gone, and their room is free."""
        while self._unlinking:
            await asyncio.wait(tuple(self._unlinking.values()))

    def file_failed(self, error: OSError) -> None:
        """Says once what is wrong with the disk."""
        self._trouble(f"uploads are not kept in {self._directory}: {error.strerror or error}")

    def refuse(self, key: UploadKey) -> None:
        """Bytes came that are not what was announced."""
        self._logger.basic(
            f"an upload of {key.length} bytes was not what its hash had said, and is not kept"
        )

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Does the rest of an upload's work beside everything else."""
        task = asyncio.create_task(work)
        self._finishing.add(task)
        task.add_done_callback(self._finishing.discard)

    # --- The stores ---

    async def _find_on_disk(self, key: UploadKey) -> KeptUpload | None:
        assert self._directory is not None
        name = _name(key)
        self.disk.use(name)
        self.disk.pin(name)
        path = self._directory / name
        opening = asyncio.ensure_future(asyncio.to_thread(open_sound, path, key.length, key.digest))
        try:
            file = await asyncio.shield(opening)
        except OSError as error:
            self._trouble(f"kept uploads cannot be read: {error.strerror or error}")
            file = None
        except asyncio.CancelledError:
            opening.add_done_callback(_close_unwanted)
            self.disk.unpin(name)
            raise
        if file is not None:
            return KeptOnDisk(self.disk, name, file)
        self.disk.unpin(name)
        self._logger.basic(f"an upload that was kept on disk is damaged and goes: {name}")
        self.disk.remove(name)
        self._unlink(name)
        return None

    def _evict(self, key: UploadKey) -> None:
        del self._chunks[key]

    def _unlink(self, name: str) -> None:
        assert self._directory is not None
        task = asyncio.create_task(self._unlinked(self._directory / name))
        self._unlinking[name] = task
        task.add_done_callback(lambda _: self._unlinking.pop(name, None))

    async def _unlinked(self, path: Path) -> None:
        try:
            await asyncio.to_thread(path.unlink, missing_ok=True)
        except OSError as error:
            self._trouble(f"kept uploads cannot be removed: {error.strerror or error}")

    def _trouble(self, line: str) -> None:
        if line != self._last_trouble:
            self._last_trouble = line
            self._logger.basic(line)


class Receiving:
    """One upload that comes, to be kept if it is what was announced: `add` its bytes in order, then
    `finish` or `give_up`."""

    def __init__(
        self, cache: UploadCache, key: UploadKey, file: PartialFile | None, *, into_memory: bool
    ) -> None:
        self._cache = cache
        self._key = key
        self._hasher = blake3()
        self._chunks: list[memoryview] | None = [] if into_memory else None
        self._in_memory = 0
        self._file = file
        self._in_file = 0
        self.received_bytes = 0
        """How much was added."""
        self._work: asyncio.Future[OSError | None] | None = None

    async def add(self, chunk: memoryview) -> None:
        """Takes the next bytes, which must not change any more; they are not copied. Waits for what
        is still to be done about those before."""
        await self._worked()
        if self._chunks is not None:
            if self._cache.memory.reserve(len(chunk)):
                self._in_memory += len(chunk)
                self._chunks.append(chunk)
            else:
                self._leave_memory()
        if self._file is not None:
            if self._cache.disk.reserve(len(chunk)):
                self._in_file += len(chunk)
                await self._cache.evicted()
            else:
                await self._leave_disk()
        if self._chunks is not None or self._file is not None:
            self._work = asyncio.ensure_future(asyncio.to_thread(self._absorb, chunk))
        self.received_bytes += len(chunk)

    def finish(self) -> None:
        """All of it has come: it is kept once its last bytes are hashed, if it is what was
        announced."""
        self._cache.spawn(self._finished())

    def give_up(self) -> None:
        """No more of it comes."""
        self._cache.spawn(self._abandoned())

    async def _finished(self) -> None:
        await self._worked()
        if self._chunks is None and self._file is None:
            return
        if self._hasher.digest() != self._key.digest:
            self._cache.refuse(self._key)
            await self._abandoned()
            return
        if self._chunks is not None:
            self._cache.keep(self._key, tuple(self._chunks))
        if self._file is not None:
            await self._cache.keep_file(self._key, self._file)

    async def _abandoned(self) -> None:
        await self._worked()
        self._leave_memory()
        await self._leave_disk()

    def _absorb(self, chunk: memoryview) -> OSError | None:
        """On another thread."""
        self._hasher.update(chunk)
        if self._file is not None:
            try:
                self._file.write(chunk)
            except OSError as error:
                return error
        return None

    async def _worked(self) -> None:
        """Waits for the other thread; what it could not write ends the file."""
        work = self._work
        if work is None:
            return
        await asyncio.wait((work,))
        self._work = None
        error = work.result()
        if error is not None:
            self._cache.file_failed(error)
            await self._leave_disk()

    def _leave_memory(self) -> None:
        self._cache.memory.release(self._in_memory)
        self._in_memory, self._chunks = 0, None

    async def _leave_disk(self) -> None:
        file, self._file = self._file, None
        if file is not None:
            await asyncio.to_thread(file.abandon)
        self._cache.disk.release(self._in_file)
        self._in_file = 0


def _name(key: UploadKey) -> str:
    return file_name(key.owner, key.length, key.digest)


def _close_unwanted(opening: asyncio.Future[KeptFile | None]) -> None:
    file = None if opening.cancelled() or opening.exception() is not None else opening.result()
    if file is not None:
        file.close()
