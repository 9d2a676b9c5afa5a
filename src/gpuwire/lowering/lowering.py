"""Lowering: op-graphs over values become kernel launches on a compute server.

`Lowering` is the face that a device host uses. A graph is planned once for each layout of its
inputs and then run from the plan: a row of steps, each an allocation, a launch, or an operation
that the device cannot do and NumPy does on the host.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Awaitable, Sequence
from contextlib import suppress

from gpuwire.compute.handles import Handle
from gpuwire.compute.server import WgpuServer
from gpuwire.errors import ArgumentError, OutOfMemory
from gpuwire.ir.dtypes import DType
from gpuwire.ir.graphs import OpGraph
from gpuwire.ir.tensors import Scalar, TensorType, row_major_strides
from gpuwire.lowering.builder import MAX_KERNELS, KernelCache
from gpuwire.lowering.counting import Tally
from gpuwire.lowering.describing import described
from gpuwire.lowering.facts import DeviceFacts, device_facts
from gpuwire.lowering.first_runs import FirstRuns
from gpuwire.lowering.plan_cache import Layouts, PlanCache
from gpuwire.lowering.planner import Layout, check_dtype, plan_contiguous, plan_graph
from gpuwire.lowering.steps import Plan
from gpuwire.lowering.values import Lie, Value, contiguous_value

MAX_GRAPHS = 4096
MAX_LAYOUTS = 256
"""Of one graph."""
MAX_COPIES = 4096
"""Plans of contiguous copies that are kept."""


class Lowering:
    """Plans and runs op-graphs on one compute server. Driven from the server's own thread.

    Not safe for use from several threads, as the server itself is not.
    """

    def __init__(
        self,
        server: WgpuServer,
        *,
        facts: DeviceFacts | None = None,
        max_graphs: int = MAX_GRAPHS,
        max_layouts: int = MAX_LAYOUTS,
        max_kernels: int = MAX_KERNELS,
        fuse: bool = True,
    ) -> None:
        """`facts`: what planning assumes of the device; its adapter's own properties unless given.
        `fuse`: whether the nodes of a graph may share kernels.
        `max_graphs`, `max_layouts`, `max_kernels`: how many plans and kernels are kept; the least
        recently used go."""
        self._server = server
        self._facts = facts or device_facts(server.utilities().properties)
        self._fuse = fuse
        self._kernels = KernelCache(max_kernels)
        self._plans = PlanCache(max_graphs, max_layouts)
        self._first_runs = FirstRuns(server.is_compiled, is_software=self._facts.is_software)
        self.operations = Tally()
        """Operations executed so far, by class: fused, and unfused."""
        self._copies: OrderedDict[Lie, Plan] = OrderedDict()
        """Plans of contiguous copies, by what is copied."""

    @property
    def dtypes(self) -> tuple[DType, ...]:
        """The data types that the device has; others are refused with `UnsupportedDType`."""
        return self._facts.dtypes

    @property
    def kernel_count(self) -> int:
        """Kernels that are kept."""
        return len(self._kernels)

    @property
    def plan_count(self) -> int:
        """Graphs of which plans are kept."""
        return len(self._plans)

    def allocate(self, type_: TensorType, stream: int) -> Value:
        """An uninitialised contiguous tensor. Raises `OutOfMemory`, `UnsupportedDType`."""
        check_dtype(self._facts, type_)
        handle = Handle()
        # An empty tensor has memory too: nothing is ever bound with size 0.
        self._server.initialize_memory(handle, max(1, type_.nbytes), stream)
        return contiguous_value(handle, type_)

    def contiguous(self, value: Value, stream: int) -> Value:
        """The value itself where it is contiguous at offset 0, else a copy that is: what `read`
        takes."""
        if value.offset == 0 and value.is_contiguous:
            return value
        lie = (value.type, value.strides, value.offset)
        plan = self._copies.get(lie)
        if plan is None:
            plan = plan_contiguous(value.type, lie[1:], self._kernels, self._facts)
            self._copies[lie] = plan
            if len(self._copies) > MAX_COPIES:
                self._copies.popitem(last=False)
        else:
            self._copies.move_to_end(lie)
        copies = plan.run(self._server, (value,), (), stream)
        assert isinstance(copies, tuple)
        return copies[0]

    def execute(
        self,
        graph: OpGraph,
        inputs: Sequence[Value],
        scalars: Sequence[Scalar],
        stream: int,
        tally: Tally | None = None,
        *,
        recurs: bool = True,
    ) -> tuple[Value, ...] | Awaitable[tuple[Value, ...]]:
        """Run a graph; its outputs in order. `tally` counts its operations, besides the lowering's
        own. `recurs`: whether the graph is known to run more than once; else its first run may be
        op by op, where that needs fewer new kernels (see `first_runs`). The results are the same.

        The result is a tuple unless a step runs on the host in NumPy: then it is an awaitable. Its
        launches before the first host step are queued at the call, the others when it is awaited;
        it must be awaited, once. Outputs may share memory with inputs (views).

        Errors of planning (`LaunchError` for an operation over more memory than the device binds
        at once and that cannot be split, `UnsupportedDType`, `OutOfMemory`) are raised at the
        call; those of device work taint the outputs, as the compute server's contract says.
        """
        lies = [(value.type, value.strides, value.offset) for value in inputs]
        plan = self._plans.again(graph, lies)
        if plan is None:
            found = tuple([value.type for value in inputs])
            if found != graph.inputs:
                wanted = _listed(graph.inputs)
                raise ArgumentError(f"the graph takes {wanted}, not {_listed(found)}")
            layouts = tuple([lie[1:] for lie in lies])
            plan = self._plans.find(graph, layouts)
            if plan is None and not recurs and self._fuse and len(graph.nodes) > 1:
                return self._run_first(graph, inputs, layouts, scalars, stream, tally)
            plan = plan or self._new_plan(graph, layouts)
            self._first_runs.ran_again(plan)
            self._plans.remember(graph, lies, plan)
        return self._run(plan, inputs, scalars, stream, tally)

    def _run(
        self,
        plan: Plan,
        inputs: Sequence[Value],
        scalars: Sequence[Scalar],
        stream: int,
        tally: Tally | None,
    ) -> tuple[Value, ...] | Awaitable[tuple[Value, ...]]:
        result = plan.run(self._server, inputs, scalars, stream)
        self.operations.add(plan.counts)
        if tally is not None:
            tally.add(plan.counts)
        return result

    def describe(self, graph: OpGraph, layouts: Sequence[Layout] | None = None) -> str:
        """The plan by which a graph runs, as text: its kernels with the operations in each and the
        bytes they move. `layouts`: strides and offset of each input, in elements; contiguous unless
        given. Raises what `execute` raises at the call."""
        if layouts is None:
            layouts = [(row_major_strides(type_.shape), 0) for type_ in graph.inputs]
        known = self._plans.find(graph, tuple(layouts))
        return described(graph, known or self._new_plan(graph, tuple(layouts)))

    def _new_plan(self, graph: OpGraph, layouts: Layouts) -> Plan:
        """The plan by which the graph runs from now on."""
        plan = plan_graph(graph, layouts, self._kernels, self._facts, fuse=self._fuse)
        self._plans.add(graph, layouts, plan)
        return plan

    def _run_first(
        self,
        graph: OpGraph,
        inputs: Sequence[Value],
        layouts: Layouts,
        scalars: Sequence[Scalar],
        stream: int,
        tally: Tally | None,
    ) -> tuple[Value, ...] | Awaitable[tuple[Value, ...]]:
        """A graph's first run, which may be the only one."""
        fused = self._new_plan(graph, layouts)
        plan = self._first_runs.chosen(
            fused, lambda: plan_graph(graph, layouts, self._kernels, self._facts, fuse=False)
        )
        if plan is not fused:
            # What the operations make one by one may not all fit where the fused ones' results do.
            with suppress(OutOfMemory):
                return self._run(plan, inputs, scalars, stream, tally)
        return self._run(fused, inputs, scalars, stream, tally)


def _listed(types: Sequence[TensorType]) -> str:
    return ", ".join(str(type_) for type_ in types) or "nothing"
