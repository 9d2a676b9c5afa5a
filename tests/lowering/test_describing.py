"""Plans as text."""

from __future__ import annotations

from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import NO_ATTRIBUTES
from gpuwire.ir.graphs import InputRef, NodeRef, NodeSource, ScalarRef, typed_graph
from gpuwire.ir.operations import OPERATIONS
from gpuwire.ir.tensors import TensorType
from lowered import Machine

MATRIX = TensorType(dt.float32, (8, 8))


def test_a_plan_names_its_kernels_and_what_they_bind(machine: Machine) -> None:
    product = NodeSource(OPERATIONS["matmul"], (InputRef(0), InputRef(1)), NO_ATTRIBUTES)
    scaled = NodeSource(
        OPERATIONS["multiply"], (NodeRef(0), ScalarRef(0, dt.float32)), NO_ATTRIBUTES
    )
    graph = typed_graph((MATRIX, MATRIX), (product, scaled), (1,))
    lowering = machine.lowering
    head, *rows, last = lowering.describe(graph).splitlines()
    launches, allocations = (int(part.split()[0]) for part in head.split(", "))
    assert launches == len(rows)
    assert "matmul" in rows[0]
    assert {"a0,", "a1,"} <= set(rows[0].split())
    assert 256 <= int(head.split()[-2]) == 256 * allocations
    assert last.startswith("gives m")
    assert last.split()[1] in rows[-1].split()
    assert lowering.describe(graph) == "\n".join([head, *rows, last])
