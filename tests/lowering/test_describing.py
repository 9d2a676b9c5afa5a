"""Plans as text."""

from __future__ import annotations

from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import NO_ATTRIBUTES, PermuteAttributes
from gpuwire.ir.graphs import InputRef, NodeRef, NodeSource, ScalarRef, typed_graph
from gpuwire.ir.operations import OPERATIONS
from gpuwire.ir.tensors import TensorType
from lowered import Machine

MATRIX = TensorType(dt.float32, (8, 8))


def test_a_plan_names_its_kernels_what_they_bind_and_what_they_compute(machine: Machine) -> None:
    product = NodeSource(OPERATIONS["matmul"], (InputRef(0), InputRef(1)), NO_ATTRIBUTES)
    scaled = NodeSource(
        OPERATIONS["multiply"], (NodeRef(0), ScalarRef(0, dt.float32)), NO_ATTRIBUTES
    )
    turned = NodeSource(OPERATIONS["permute_dims"], (NodeRef(1),), PermuteAttributes((1, 0)))
    graph = typed_graph((MATRIX, MATRIX), (product, scaled, turned), (2,))
    lines = machine.lowering.describe(graph).splitlines()
    head, launch, first, second, without, view, last = lines
    assert head == "1 launches, 1 allocations of 256 bytes"
    assert launch.startswith("launch matmul_multiply__")
    assert launch.endswith("on a0, a1, m0; reads 512 bytes, writes 256")
    assert [first, second, view] == [
        "    %0 matmul float32[8, 8]",
        "    %1 multiply float32[8, 8]",
        "    %2 permute_dims float32[8, 8]",
    ]
    assert (without, last) == ("without a launch", "gives m0")
    across = machine.lowering.describe(graph, [((1, 8), 0), ((8, 1), 0)])
    assert across.splitlines()[0] == head
