"""A kernel: one WGSL program with its workgroup shape.

Conventions between a kernel's source and the compute server:

- Buffer i of a launch is `@group(0) @binding(i)`, declared by the source.
- Parameters (shapes, strides, scalars) are 32-bit words. The source reads word i as
  `params[i / 4][i % 4]` and does not declare `params`: the server does, as an immediate block where
  the adapter has those, else as a uniform.
- A count of workgroups is linear; the server folds more than 65,535 of them over y and z. A
  source numbers its workgroup `(wid.z * count.y + wid.y) * count.x + wid.x`, with
  `wid` the `workgroup_id` and `count` the `num_workgroups` builtin, and checks the bound itself.
- All loops of one invocation together run at most 65,535 rounds: llvmpipe ends them there,
  silently. Its counter is one for the whole invocation, so nesting does not help: 300 times 300
  rounds are 65,101 there. What takes more is split over invocations or launches.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum


class Access(Enum):
    """How a kernel uses one of its buffers."""

    READ = "read"
    READ_WRITE = "read_write"
    """What it held before may be read, so a tainted buffer stays tainted. (Bytes that were never
    written count as there, for kernels that fill a fresh buffer piece by piece.)"""
    WRITE = "write"
    """Every byte of the range is written before the kernel reads it: what it held does not matter.
    The source declares it `read_write`, WGSL has nothing narrower."""


@dataclass(frozen=True, slots=True, eq=False)
class Kernel:
    """One program. Compared by identity: whoever generates kernels keeps one object for each, and
    the compute server compiles each object once."""

    name: str
    """For errors, logs and profiles; says the operation and the types."""
    source: str
    access: tuple[Access, ...]
    """One for each buffer, in binding order."""
    workgroup_size: tuple[int, int, int]
    params_words: int = 0
    """Number of 32-bit parameter words."""
    entry_point: str = "main"
    features: frozenset[str] = field(default_factory=frozenset)
    """wgpu features that the source needs, such as `shader-f16`."""
    trusted: bool = False
    """Whether every index is known to be in bounds and every loop to end, so that the compiler's
    checks may be left out. Never set it for a source that a user wrote."""
