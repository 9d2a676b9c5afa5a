"""WgpuServer: the compute server's front, one for each device.

Driven from one thread. Every method states what it does; the work is in the files beside this one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from gpuwire.compute.handles import Binding, CopyDescriptor, Handle
from gpuwire.compute.launches import LaunchArguments, LaunchMode, WorkgroupCount
from gpuwire.kernels.kernel import Kernel

if TYPE_CHECKING:
    from gpuwire.compute.completion import Completion


class WgpuServer:
    """One wgpu device with its kernels, buffers and streams."""

    @classmethod
    def init(cls, device_id: int = 0) -> WgpuServer:
        """The server of the adapter with that index in `adapters.adapters()`. Raises NoAdapter."""
        raise NotImplementedError

    def initialize_memory(self, memory: Handle, size: int, stream_id: int = 0) -> None:
        """Bind `memory` to a fresh slice of `size` bytes, padded to 16, its contents undefined.

        Raises ArgumentError for a size below 1, OutOfMemory where there is no room.
        """
        raise NotImplementedError

    def write(
        self, writes: Sequence[tuple[CopyDescriptor, bytes | memoryview]], stream_id: int = 0
    ) -> None:
        """Queue bytes into device memory, in order with the stream's launches; `data` may be
        changed or freed at return."""
        raise NotImplementedError

    def read(
        self, reads: Sequence[CopyDescriptor], stream_id: int = 0
    ) -> Completion[list[memoryview]]:
        """The bytes of device memory as of now; await it, or `.wait()` for it.

        A tainted buffer's first cause is raised by the awaitable.
        """
        raise NotImplementedError

    def check(self, bindings: Sequence[Binding], stream_id: int = 0) -> None:
        """Raise what a `read` of these would raise for reasons known now; waits for nothing."""
        raise NotImplementedError

    def launch(
        self,
        kernel: Kernel,
        count: WorkgroupCount,
        args: LaunchArguments,
        stream_id: int = 0,
        mode: LaunchMode = LaunchMode.NORMAL,
    ) -> None:
        """Queue one dispatch. A kernel that does not compile, or an input that is tainted, taints
        the outputs (every READ_WRITE buffer) and raises nothing here: reads, `check`, `sync` of
        them and `flush` do. Raises LaunchError or InvalidHandle for arguments that cannot be."""
        raise NotImplementedError

    def compile_queued(self) -> None:
        """Compile and run what was launched in queue mode, in its order."""
        raise NotImplementedError

    def flush(self, stream_id: int = 0) -> None:
        """Submit what is encoded; raises the first failure at enqueue since the last flush."""
        raise NotImplementedError

    def sync(self, handles: Sequence[Handle] = (), stream_id: int = 0) -> Completion[None]:
        """Ends when the stream's work so far has ended on the device; raises if one of `handles`
        is tainted. Await it, or `.wait()` for it."""
        raise NotImplementedError
