"""Copies of values on the device, word by word: what a tensor keeps while a kernel writes on."""

from __future__ import annotations

import struct

from gpuwire.compute.handles import Binding
from gpuwire.compute.launches import LaunchArguments
from gpuwire.host.device import Device
from gpuwire.kernels.kernel import Access, Kernel
from gpuwire.lowering import Value

_BYTES = 16
"""Moved by one invocation. All memory is a multiple of it, whatever was asked for."""
_INVOCATIONS = 256

_COPY = Kernel(
    "copy for a kernel",
    f"""\
@group(0) @binding(0) var<storage, read> source: array<vec4<u32>>;
@group(0) @binding(1) var<storage, read_write> copied: array<vec4<u32>>;
@compute @workgroup_size({_INVOCATIONS})
fn main(@builtin(workgroup_id) wid: vec3<u32>, @builtin(num_workgroups) count: vec3<u32>,
        @builtin(local_invocation_index) lane: u32) {{
    let i = ((wid.z * count.y + wid.y) * count.x + wid.x) * {_INVOCATIONS}u + lane;
    if (i < params[0].x) {{ copied[i] = source[i]; }}
}}
""",
    (Access.READ, Access.WRITE),
    (_INVOCATIONS, 1, 1),
    params_words=1,
    trusted=True,
)


def own_copy(device: Device, value: Value, stream: int) -> Value:
    """A contiguous copy of a value, in memory that nothing else is in. At most what one binding
    holds, and not empty. Raises `OutOfMemory`."""
    contiguous = device.lowering.contiguous(value, stream)
    if contiguous.handle is not value.handle:
        return contiguous
    copied = device.lowering.allocate(value.type, stream)
    copy_into(device, contiguous, copied, stream)
    return copied


def copy_into(device: Device, value: Value, target: Value, stream: int) -> None:
    """The elements of a value into `target`, which fills its memory and is of the same type."""
    contiguous = device.lowering.contiguous(value, stream)
    words = -(-value.type.nbytes // _BYTES)
    bindings = [Binding(one.handle, 0, words * _BYTES) for one in (contiguous, target)]
    arguments = LaunchArguments(bindings, struct.pack("<I", words))
    device.server.launch(_COPY, -(-words // _INVOCATIONS), arguments, stream)
