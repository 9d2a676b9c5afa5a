"""What the planners of the operation classes write into: a plan in the making."""

from __future__ import annotations

import struct
from collections import OrderedDict
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

from gpuwire.compute.sequences import BufferRange
from gpuwire.errors import LaunchError, OutOfMemory
from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import DType
from gpuwire.ir.graphs import Node, ScalarRef
from gpuwire.ir.tensors import Scalar, Shape, TensorType
from gpuwire.kernels.kernel import Kernel
from gpuwire.kernels.shader_types import encode_scalar
from gpuwire.lowering.counting import counted
from gpuwire.lowering.facts import BINDING_ALIGNMENT, DeviceFacts
from gpuwire.lowering.layouts import Placed, Strides, extent, placed_contiguously
from gpuwire.lowering.memory_plan import moved, with_releases, with_shared_memory
from gpuwire.lowering.sequencing import sequenced
from gpuwire.lowering.steps import (
    AllocateStep,
    HostStep,
    KernelStep,
    Plan,
    ScalarWords,
    Step,
)

Operand = Placed | ScalarRef
"""A tensor of the plan, or a scalar that each run brings along."""


MAX_LAUNCHES = 4096
"""Of one operation, where it takes several: more would take seconds to plan."""
MAX_KERNELS = 8192
"""As many as the compute server keeps compiled."""


class KernelCache:
    """One kernel for each thing that kernels are generated for, made at its first use. Beyond
    `max_kernels` the one that was not asked for for longest goes; plans keep theirs."""

    def __init__(self, max_kernels: int = MAX_KERNELS) -> None:
        self._max_kernels = max_kernels
        self._kernels: OrderedDict[Hashable, Kernel] = OrderedDict()

    def kernel(self, key: Hashable, generate: Callable[[], Kernel]) -> Kernel:
        """The kernel of `key`, generated if it is new."""
        kernel = self._kernels.get(key)
        if kernel is None:
            if len(self._kernels) >= self._max_kernels:
                self._kernels.popitem(last=False)
            kernel = self._kernels[key] = generate()
        else:
            self._kernels.move_to_end(key)
        return kernel

    def __len__(self) -> int:
        return len(self._kernels)


@dataclass(frozen=True, slots=True)
class Window:
    """A range to bind, and an offset in elements from its beginning."""

    buffer: BufferRange
    offset: int


class PlanBuilder:
    """Collects steps and slots."""

    def __init__(self, kernels: KernelCache, facts: DeviceFacts, inputs: int) -> None:
        self.kernels = kernels
        self.facts = facts
        self.nodes: tuple[int, ...] = ()
        """The graph's nodes that are being planned: steps name them."""
        self._steps: list[Step] = []
        self._inputs = inputs
        self._slots = inputs
        self._waits = False

    def allocate(self, type_: TensorType) -> Placed:
        """A new contiguous tensor. Raises OutOfMemory for one that no buffer holds: allocating it
        would fail, but only when the launches that fill it are planned, and those may be many."""
        most = self.facts.max_tensor_bytes
        if type_.nbytes > most:
            raise OutOfMemory(
                f"out of device memory: {type_} takes {type_.nbytes} bytes, and one tensor holds "
                f"at most {most} on this device",
                wanted=type_.nbytes,
                limit=most,
            )
        placed = placed_contiguously(self._slots, type_)
        self._slots += 1
        # An empty tensor has memory too: nothing is ever bound with size 0.
        self._steps.append(AllocateStep(placed.slot, max(1, type_.nbytes)))
        return placed

    def launch(
        self,
        kernel: Kernel,
        workgroups: int,
        buffers: Sequence[BufferRange],
        words: Sequence[int],
        scalars: Sequence[ScalarWords] = (),
        constants: bytes = b"",
    ) -> None:
        """Add a launch. Words are taken modulo 2^32, which says negative ones; constants come
        between them and the scalars. Raises LaunchError for a word beyond 32 bits: kernels count no
        further."""
        if words and (max(words) > 0xFFFFFFFF or min(words) < -0xFFFFFFFF):
            raise LaunchError(
                f"{kernel.name} would count to {max(words, key=abs)}; kernels go through at most "
                f"{0xFFFFFFFF} elements. Work on slices of the array",
                kernel=kernel.name,
            )
        packed = struct.pack(f"<{len(words)}I", *(word & 0xFFFFFFFF for word in words))
        self._steps.append(
            KernelStep(
                kernel,
                workgroups,
                tuple(buffers),
                packed + constants,
                tuple(scalars),
                self.nodes,
            )
        )

    def host(self, step: HostStep) -> None:
        """Add an operation in NumPy."""
        self._steps.append(step)
        self._waits = True

    def require_launches(self, count: int, what: str) -> None:
        """Raises LaunchError for an operation that would take more than `MAX_LAUNCHES`."""
        if count > MAX_LAUNCHES:
            raise LaunchError(
                f"{what} would take {count} launches, more than {MAX_LAUNCHES}. Work on slices of "
                "the array",
                kernel=what,
            )

    def window(
        self, placed: Placed, shape: Shape, strides: Strides, offset: int, what: str
    ) -> Window:
        """What to bind to reach the elements of a non-empty view of `placed`'s slot; see
        `LaunchError` in `Lowering.execute`."""
        first, last = extent(shape, strides, offset)
        itemsize = placed.dtype.itemsize
        start = first * itemsize // BINDING_ALIGNMENT * BINDING_ALIGNMENT
        end = -(-last * itemsize // 16) * 16
        if start and end <= self.facts.max_binding_bytes:
            start = 0  # One range for all views of a slot: one bind group.
        if end - start > self.facts.max_binding_bytes:
            raise LaunchError(
                f"{what} reaches over {end - start} bytes of one tensor in a single launch; the "
                f"device binds {self.facts.max_binding_bytes} at once. Work on slices of it",
                kernel=what,
            )
        assert start % itemsize == 0
        return Window(BufferRange(placed.slot, start, end - start), offset - start // itemsize)

    def whole(self, placed: Placed, what: str) -> BufferRange:
        """A contiguous tensor at the beginning of its slot, to bind."""
        return self.window(placed, placed.shape, placed.strides, placed.offset, what).buffer

    def finish(self, outputs: Sequence[Placed], nodes: Sequence[Node] = ()) -> Plan:
        """The plan. `nodes`: those of the graph, to be counted."""
        kept = {output.slot for output in outputs}
        steps, places = with_shared_memory(self._steps, kept, self._inputs)
        working = [step for step in steps if isinstance(step, KernelStep | HostStep)]
        alone = {step.nodes[0] for step in working if len(step.nodes) == 1}
        busy = {node for step in working for node in step.nodes}
        lying = tuple(moved(output, places) for output in outputs)
        steps = with_releases(steps, {output.slot for output in lying})
        return Plan(
            steps,
            sequenced(steps, self.facts.max_immediate_bytes),
            self._slots,
            lying,
            self._waits,
            counted(nodes, alone),
            tuple(number for number in range(len(nodes)) if number not in busy),
        )


def scalar_words(ref: ScalarRef) -> ScalarWords:
    """The parameter words of one scalar."""
    index, dtype = ref.index, ref.dtype
    form = _PLAIN_FORMS.get(dtype)

    def words(scalars: Sequence[Scalar]) -> bytes:
        value = scalars[index].value
        if form is not None and type(value) is float:
            try:
                return form.pack(value)
            except OverflowError:
                pass  # Beyond the type's range: infinite, by the long way.
        return encode_scalar(value, dtype)

    return words


_PLAIN_FORMS = {dt.float32: struct.Struct("<f"), dt.float64: struct.Struct("<d")}
"""Scalars that most programs have, packed in a quarter of the time."""


def constant_words(value: float, dtype: DType) -> bytes:
    """The parameter words of a number that is part of the plan."""
    return encode_scalar(value, dtype)
