"""Handles and bindings: how callers of the compute server name device memory.

A caller makes a `Handle` first and has the server bind it to memory afterwards
(`WgpuServer.initialize_memory`), so that work can be described before memory exists. The memory
returns to its pool when the last reference to the handle is gone and the device work that uses it
has ended; nobody frees by hand.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuwire.compute.memory.slices import Slice


class Handle:
    """A piece of device memory, or the promise of one."""

    __slots__ = ("__weakref__", "slice")

    def __init__(self) -> None:
        self.slice: Slice | None = None
        """Where it lies; None until the server has initialised it."""


@dataclass(frozen=True, slots=True)
class Binding:
    """A range of a handle's memory, in bytes. `offset` is a multiple of 4."""

    handle: Handle
    offset: int
    size: int


@dataclass(frozen=True, slots=True)
class CopyDescriptor:
    """A tensor in device memory as `read` and `write` see it. Strides are in elements; only
    row-major contiguous ones are accepted."""

    binding: Binding
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    itemsize: int
    """Bytes of one element."""
