"""Plans: what running a graph comes to, with everything decided but the handles and the scalars.

A plan is a row of steps over numbered slots. The first slots are the graph's inputs; a step that
makes a tensor allocates its slot. Views are decided while planning and are no steps.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from gpuwire.compute.handles import Binding, CopyDescriptor, Handle
from gpuwire.compute.launches import LaunchArguments
from gpuwire.compute.sequences import BufferRange, LaunchSequence
from gpuwire.compute.server import WgpuServer
from gpuwire.ir.attributes import Attributes
from gpuwire.ir.operations import OpDef
from gpuwire.ir.tensors import Scalar, TensorType, row_major_strides
from gpuwire.kernels.kernel import Kernel
from gpuwire.lowering.counting import OperationCounts
from gpuwire.lowering.host_reference import Array, evaluate
from gpuwire.lowering.layouts import Placed
from gpuwire.lowering.values import Value

ScalarWords = Callable[[Sequence[Scalar]], bytes]
"""Parameter words made of a run's scalars."""


@dataclass(slots=True)
class Run:
    """One execution of a plan."""

    server: WgpuServer
    stream: int
    scalars: Sequence[Scalar]
    handles: list[Handle | None]

    def handle(self, slot: int) -> Handle:
        """The memory of a slot that has been made."""
        handle = self.handles[slot]
        assert handle is not None
        return handle


class Step(Protocol):
    """Something that queues device work, or an awaitable where the host computes."""

    def run(self, run: Run) -> Awaitable[None] | None:
        """Do it."""
        ...


@dataclass(frozen=True, slots=True)
class AllocateStep:
    """Give a slot fresh memory. `size` in bytes."""

    slot: int
    size: int

    def run(self, run: Run) -> None:
        """Allocate. Raises OutOfMemory."""
        handle = Handle()
        run.server.initialize_memory(handle, self.size, run.stream)
        run.handles[self.slot] = handle


@dataclass(frozen=True, slots=True)
class KernelStep:
    """One launch. The parameter words are `words`, then those made of the scalars."""

    kernel: Kernel
    workgroups: int
    buffers: tuple[BufferRange, ...]
    words: bytes
    scalars: tuple[ScalarWords, ...]
    nodes: tuple[int, ...] = ()
    """The graph's nodes that it computes, or helps to."""

    def run(self, run: Run) -> None:
        """Launch."""
        handles = run.handles
        params = self.words
        for make_words in self.scalars:
            params += make_words(run.scalars)
        bindings = [
            Binding(handles[part.slot], part.offset, part.size)  # type: ignore[arg-type]
            for part in self.buffers
        ]
        run.server.launch(
            self.kernel, self.workgroups, LaunchArguments(bindings, params), run.stream
        )


@dataclass(frozen=True, slots=True)
class ReleaseStep:
    """Let go of slots that no later step reads: their memory returns to the pool when the device
    is done with it."""

    slots: tuple[int, ...]

    def run(self, run: Run) -> None:
        """Forget the handles."""
        for slot in self.slots:
            run.handles[slot] = None


HostOperand = Placed | int
"""A contiguous tensor at offset 0 of its slot, or the number of a scalar."""


@dataclass(frozen=True, slots=True)
class HostStep:
    """One operation in NumPy: read the operands, compute, write the result. Costs a round trip to
    the device and keeps later steps of the run waiting."""

    definition: OpDef
    attributes: Attributes
    operands: tuple[HostOperand, ...]
    result: Placed
    nodes: tuple[int, ...] = ()
    """The graph's node that it is."""

    def run(self, run: Run) -> Awaitable[None]:
        """Queue the reads now; the rest happens when the result is awaited."""
        tensors = [operand for operand in self.operands if isinstance(operand, Placed)]
        read = run.server.read(
            [descriptor(run.handle(t.slot), t.type) for t in tensors], run.stream
        )
        return self._finish(run, read)

    async def _finish(self, run: Run, read: Awaitable[list[memoryview]]) -> None:
        buffers = iter(await read)
        arrays = [
            self._scalar(run.scalars[operand])
            if isinstance(operand, int)
            else _array(next(buffers), operand.type)
            for operand in self.operands
        ]
        result = evaluate(self.definition, arrays, self.attributes, self.result.type)
        target = descriptor(run.handle(self.result.slot), self.result.type)
        run.server.write([(target, result.reshape(-1).view(np.uint8).data)], run.stream)

    def _scalar(self, scalar: Scalar) -> Array:
        return np.asarray(scalar.value).astype(scalar.dtype.numpy)


def descriptor(handle: Handle, type_: TensorType) -> CopyDescriptor:
    """A contiguous tensor at the start of a handle, for the server to read or write."""
    binding = Binding(handle, 0, type_.nbytes)
    return CopyDescriptor(
        binding, type_.shape, row_major_strides(type_.shape), type_.dtype.itemsize
    )


def _array(data: memoryview, type_: TensorType) -> Array:
    return np.frombuffer(data, type_.dtype.numpy).reshape(type_.shape)


@dataclass(slots=True, eq=False)
class SequenceStep:
    """Steps on the device that stand side by side: queued in one call where the compute server
    takes them so, else each by itself."""

    steps: tuple[Step, ...]
    sequence: LaunchSequence | None
    scalars: tuple[tuple[ScalarWords, ...], ...]
    """For each launch that takes some of a run's scalars: what makes its parameter words."""
    released: tuple[int, ...]
    """Slots that nothing behind these steps needs."""
    _last: tuple[Scalar, ...] = ()
    _words: Sequence[bytes] = ()
    """Those of the last run: scalars that stay the same are the same tuple."""

    def run(self, run: Run) -> None:
        """Allocate and launch."""
        handles = run.handles
        sequence = self.sequence
        if sequence is not None:
            words = self._words_of(run.scalars) if self.scalars else ()
            if run.server.launch_sequence(sequence, handles, words, run.stream):
                for slot in self.released:
                    handles[slot] = None
                return
        for step in self.steps:
            step.run(run)

    def _words_of(self, scalars: Sequence[Scalar]) -> Sequence[bytes]:
        """What each launch is brought."""
        if scalars is self._last:
            return self._words
        words = [b"".join([make(scalars) for make in makers]) for makers in self.scalars]
        if isinstance(scalars, tuple):
            self._last, self._words = scalars, words
        return words


@dataclass(frozen=True, slots=True)
class Plan:
    """A graph for one layout of its inputs."""

    steps: tuple[Step, ...]
    parts: tuple[Step, ...]
    """The same steps, those on the device in sequences."""
    slots: int
    outputs: tuple[Placed, ...]
    waits: bool
    """Whether a step runs on the host."""
    counts: OperationCounts
    free: tuple[int, ...]
    """Nodes that no step computes: views, and what is not needed."""

    def run(
        self, server: WgpuServer, inputs: Sequence[Value], scalars: Sequence[Scalar], stream: int
    ) -> tuple[Value, ...] | Awaitable[tuple[Value, ...]]:
        """The graph's outputs; an awaitable of them if the plan waits."""
        handles: list[Handle | None] = [value.handle for value in inputs]
        handles.extend([None] * (self.slots - len(handles)))
        run = Run(server, stream, scalars, handles)
        if not self.waits:
            for part in self.parts:
                part.run(run)
            return self._values(run)
        return self._run_waiting(run, self._run_parts(run, 0))

    def _run_parts(self, run: Run, first: int) -> tuple[int, Awaitable[None] | None]:
        """Run from part `first` to the next host step; its number, and what it waits for."""
        for number in range(first, len(self.parts)):
            waiting = self.parts[number].run(run)
            if waiting is not None:
                return number, waiting
        return len(self.parts), None

    async def _run_waiting(
        self, run: Run, begun: tuple[int, Awaitable[None] | None]
    ) -> tuple[Value, ...]:
        number, waiting = begun
        while waiting is not None:
            await waiting
            number, waiting = self._run_parts(run, number + 1)
        return self._values(run)

    def _values(self, run: Run) -> tuple[Value, ...]:
        handles = run.handles  # What a plan gives back is there at its end.
        return tuple(
            [
                Value(handles[output.slot], output.type, output.strides, output.offset)  # type: ignore[arg-type]
                for output in self.outputs
            ]
        )
