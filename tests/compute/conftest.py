"""One compute server on the best adapter there is, and the little work that tests give it."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence

import numpy as np
import pytest

from gpuwire.compute import (
    Binding,
    CopyDescriptor,
    Handle,
    LaunchArguments,
    WgpuServer,
    WorkgroupCount,
)
from gpuwire.kernels.kernel import Access, Kernel

ADD = """\
@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> target_: array<u32>;
@compute @workgroup_size(64)
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {
    let i = ((wid.z * count.y + wid.y) * count.x + wid.x) * 64u + lane;
    if (i < params[0].x) { target_[i] = source[i] + params[0].y; }
}
"""
BROKEN = """\
@group(0) @binding(0) var<storage, read> source: array<u32>;
@group(0) @binding(1) var<storage, read_write> target_: array<u32>;
@compute @workgroup_size(64)
fn main() { target_[0] = sauce[0]; }
"""
SOURCE_AND_TARGET = (Access.READ, Access.READ_WRITE)


class Work:
    """A server and words of device memory, said briefly."""

    def __init__(self, server: WgpuServer) -> None:
        self.server = server
        self.add_kernel = Kernel("add", ADD, SOURCE_AND_TARGET, (64, 1, 1), 2)
        self.broken_kernel = Kernel("broken", BROKEN, SOURCE_AND_TARGET, (64, 1, 1))

    def empty(self, nbytes: int, stream: int = 0) -> Handle:
        handle = Handle()
        self.server.initialize_memory(handle, nbytes, stream)
        return handle

    def put(self, values: np.ndarray, stream: int = 0) -> Handle:
        handle = self.empty(values.nbytes, stream)
        self.server.write([(self.descriptor(handle, values.nbytes), values.tobytes())], stream)
        return handle

    def words(self, *values: int, stream: int = 0) -> Handle:
        return self.put(np.array(values, np.uint32), stream)

    def get(self, handle: Handle, stream: int = 0) -> np.ndarray:
        assert handle.slice is not None
        descriptor = self.descriptor(handle, handle.slice.size)
        (data,) = self.server.read([descriptor], stream).wait(60)
        return np.frombuffer(data, np.uint8)

    def get_words(self, handle: Handle, stream: int = 0) -> list[int]:
        return self.get(handle, stream).view(np.uint32).tolist()

    def add(
        self,
        source: Handle,
        target: Handle,
        number: int,
        stream: int = 0,
        count: WorkgroupCount | None = None,
    ) -> None:
        assert target.slice is not None
        length = target.slice.size // 4
        arguments = self.arguments((source, target), (length, number))
        self.server.launch(self.add_kernel, count or -(-length // 64), arguments, stream)

    def fail(self, source: Handle, target: Handle, stream: int = 0) -> None:
        self.server.launch(self.broken_kernel, 1, self.arguments((source, target)), stream)

    def arguments(self, handles: Sequence[Handle], params: Sequence[int] = ()) -> LaunchArguments:
        packed = struct.pack(f"<{len(params)}I", *params)
        return LaunchArguments(tuple(self.binding(handle) for handle in handles), packed)

    @staticmethod
    def binding(handle: Handle) -> Binding:
        assert handle.slice is not None
        return Binding(handle, 0, handle.slice.size)

    @staticmethod
    def descriptor(handle: Handle, nbytes: int, offset: int = 0) -> CopyDescriptor:
        return CopyDescriptor(Binding(handle, offset, nbytes), (nbytes,), (1,), 1)


@pytest.fixture(scope="session")
def session_server(runtime_directory: None) -> Iterator[WgpuServer]:
    server = WgpuServer.init(0)
    yield server
    server.close()


@pytest.fixture
def work(session_server: WgpuServer) -> Iterator[Work]:
    yield Work(session_server)
    for stream_id in session_server.stream_ids():
        session_server.sync((), stream_id).wait(60)
        try:
            session_server.flush(stream_id)
        except Exception:  # noqa: BLE001 - a test's own failures are no later test's
            continue


@pytest.fixture(scope="session")
def work_class() -> type[Work]:
    """To make work for a server that a test sets up itself."""
    return Work


@pytest.fixture
def fresh_work(runtime_directory: None) -> Iterator[Work]:
    """A server of the test's own."""
    server = WgpuServer.init(0)
    yield Work(server)
    server.close()
