"""Where pages come from: wgpu buffers, counted against what the device has."""

from __future__ import annotations

import os
from collections.abc import Callable

from gpuwire.compute.memory.pages import Page
from gpuwire.compute.native import ErrorKind, NativeDevice, Pointer, Usage, ffi, lib
from gpuwire.errors import OutOfMemory
from gpuwire.telemetry.logs import Logger

STORAGE_USAGE = Usage.STORAGE | Usage.COPY_SRC | Usage.COPY_DST


class Storage:
    """Makes and ends wgpu buffers; every byte that the server reserves on the device is its.

    `limit` in bytes: what all buffers together may take, None where only the driver knows.
    """

    def __init__(
        self, device: NativeDevice, max_buffer: int, limit: int | None, logger: Logger
    ) -> None:
        self.reserved = 0
        self._device = device
        self._max_buffer = max_buffer & ~255
        self._limit = limit
        self._logger = logger
        self._numbers = 0
        self._live: dict[int, Pointer] = {}
        """Every buffer that goes with the storage, by address."""
        self._on_pressure: list[Callable[[], int]] = []
        self._in_use: Callable[[], int] = int

    def on_pressure(self, give_back: Callable[[], int]) -> None:
        """Call `give_back` when memory runs out; it returns the bytes it gave back."""
        self._on_pressure.append(give_back)

    def count_in_use(self, in_use: Callable[[], int]) -> None:
        """Ask `in_use` for the bytes that handles hold, when an error is to tell."""
        self._in_use = in_use

    def pages(self, usage: Usage) -> BufferPages:
        """A source of pages for pools."""
        return BufferPages(self, usage)

    def close(self) -> None:
        """Let go of every buffer."""
        live, self._live = self._live, {}
        for buffer in live.values():
            lib.wgpuBufferRelease(buffer)
        self.reserved = 0

    def create(self, size: int, usage: Usage) -> Pointer:
        """A buffer that goes with the storage, if not before. Raises OutOfMemory once giving back
        what nothing holds did not help."""
        buffer = self.create_free(size, usage, mapped=False)
        self._live[_address(buffer)] = buffer
        return buffer

    def create_free(self, size: int, usage: Usage, *, mapped: bool) -> Pointer:
        """A buffer that may outlive the storage: whoever made it releases it."""
        if size > self._max_buffer:
            raise self._out_of_memory(size, f"one buffer holds at most {self._max_buffer} bytes")
        buffer = self._try(size, usage, mapped)
        if buffer is None:
            for give_back in self._on_pressure:
                give_back()
            buffer = self._try(size, usage, mapped)
        if buffer is None:
            error = self._device.take_error()
            raise self._out_of_memory(size, error.message if error else "the limit is reached")
        self.reserved += size
        return buffer

    def destroy(self, buffer: Pointer, size: int) -> None:
        """Let go of a buffer; the driver frees it when the work that uses it has ended."""
        if self._live.pop(_address(buffer), None) is not None:
            self.destroy_free(buffer, size)

    def destroy_free(self, buffer: Pointer, size: int) -> None:
        """The same for one that `create_free` made."""
        self.reserved -= size
        lib.wgpuBufferRelease(buffer)

    def next_number(self) -> int:
        """A number for a page; never given twice."""
        self._numbers += 1
        return self._numbers

    def _try(self, size: int, usage: Usage, mapped: bool) -> Pointer | None:
        if self._limit is not None and self.reserved + size > self._limit:
            return None
        self._device.take_error()
        buffer = self._device.create_buffer(size, usage, mapped=mapped)
        if buffer is not None:
            self._logger.basic(f"made a buffer of {size} bytes; {self.reserved + size} reserved")
        elif self._device.errors[0].kind is not ErrorKind.OUT_OF_MEMORY:
            self._logger.basic(
                f"a buffer of {size} bytes refused: {self._device.errors[0].message}"
            )
        return buffer

    def _out_of_memory(self, size: int, why: str) -> OutOfMemory:
        in_use = self._in_use()
        return OutOfMemory(
            f"out of device memory: {size} bytes wanted, {in_use} in use, {self.reserved} in the "
            f"pools: {why}",
            wanted=size,
            in_use=in_use,
            reserved=self.reserved,
            limit=self._limit,
        )


class BufferPages:
    """A `PageSource` over the storage."""

    def __init__(self, storage: Storage, usage: Usage) -> None:
        self._storage = storage
        self._usage = usage

    def create(self, size: int) -> Page:
        """A page of `size` bytes. Raises OutOfMemory."""
        buffer = self._storage.create(size, self._usage)
        return Page(self._storage.next_number(), size, buffer, self._storage)

    def destroy(self, page: Page) -> None:
        """Gives the page back, after every cached bind group over it."""
        for binder, key in tuple(page.groups):
            binder.forget(key)
        self._storage.destroy(page.buffer, page.size)
        page.buffer = None


class OwnBuffer:
    """A small buffer that goes with the object that holds it."""

    __slots__ = ("_size", "_storage", "pointer")

    def __init__(self, storage: Storage, size: int, usage: Usage) -> None:
        self._storage = storage
        self._size = size
        self.pointer = storage.create(size, usage)

    def __del__(self) -> None:
        if hasattr(self, "pointer"):
            self._storage.destroy(self.pointer, self._size)


def _address(buffer: Pointer) -> int:
    return int(ffi.cast("uintptr_t", buffer))


def host_memory() -> int:
    """Bytes of this machine's memory: what a software adapter's buffers come from. Its driver
    grants more than there is, and the kernel would end the process that touches it."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
