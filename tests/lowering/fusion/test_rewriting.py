"""What need not be computed goes, and nothing else does."""

from __future__ import annotations

from building_graphs import GraphBuilder, matrix, scalar
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import (
    CastAttributes,
    PermuteAttributes,
    ShapeAttributes,
    SliceAttributes,
)
from gpuwire.ir.graphs import InputRef, NodeRef, ScalarRef
from gpuwire.ir.tensors import TensorType
from gpuwire.lowering.fusion.rewriting import Flow, rewritten


def _names(flow: Flow) -> list[str]:
    return [node.definition.name for node in flow.nodes]


def test_what_no_output_needs_goes() -> None:
    make = GraphBuilder(matrix(4, 4))
    kept = make.op("exp", InputRef(0))
    make.op("sqrt", make.op("abs", kept))
    flow = rewritten(make.graph(kept))
    assert _names(flow) == ["exp"]
    assert flow.origins == (0,)


def test_the_same_operation_on_the_same_operands_is_done_once() -> None:
    make = GraphBuilder(matrix(4, 4))
    first, second = make.op("exp", InputRef(0)), make.op("exp", InputRef(0))
    total = make.op("add", make.op("square", first), make.op("square", second))
    flow = rewritten(make.graph(total, second))
    assert _names(flow) == ["exp", "square", "add"]
    assert flow.nodes[2].operands == (NodeRef(1), NodeRef(1))
    assert flow.outputs == (NodeRef(2), NodeRef(0))


def test_scalars_and_attributes_tell_operations_apart() -> None:
    make = GraphBuilder(matrix(4))
    sums = [make.op("add", InputRef(0), scalar(number)) for number in range(2)]
    casts = [
        make.op("cast", InputRef(0), by=CastAttributes(dtype)) for dtype in (dt.int8, dt.int16)
    ]
    assert len(rewritten(make.graph(*sums, *casts)).nodes) == 4


def test_operations_that_change_nothing_go() -> None:
    make = GraphBuilder(matrix(2, 3), TensorType(dt.int32, (3,)))
    x = make.op("reshape", InputRef(0), by=ShapeAttributes((2, 3)))
    x = make.op("permute_dims", x, by=PermuteAttributes((0, 1)))
    x = make.op("slice", x, by=SliceAttributes((0, 0), (1, 1), (2, 3)))
    x = make.op("cast", make.op("positive", x), by=CastAttributes(dt.float32))
    whole = make.op("floor", InputRef(1))
    flow = rewritten(make.graph(x, whole))
    assert not flow.nodes
    assert flow.outputs == (InputRef(0), InputRef(1))


def test_operations_that_change_something_stay() -> None:
    make = GraphBuilder(matrix(2, 2), TensorType(dt.complex64, (2, 2)))
    kept = (
        make.op("floor", InputRef(0)),
        make.op("permute_dims", InputRef(0), by=PermuteAttributes((1, 0))),
        make.op("slice", InputRef(0), by=SliceAttributes((1, 0), (-1, 1), (2, 2))),
        make.op("conj", InputRef(1)),
        make.op("real", InputRef(1)),
    )
    assert len(rewritten(make.graph(*kept)).nodes) == len(kept)


def test_a_reshape_of_a_reshape_is_one() -> None:
    make = GraphBuilder(matrix(2, 6))
    x = make.op("reshape", InputRef(0), by=ShapeAttributes((12,)))
    x = make.op("reshape", x, by=ShapeAttributes((3, 4)))
    flow = rewritten(make.graph(x))
    assert _names(flow) == ["reshape"]
    assert flow.nodes[0].operands == (InputRef(0),)
    back = make.op("reshape", x, by=ShapeAttributes((2, 6)))
    assert rewritten(make.graph(back)).outputs == (InputRef(0),)


def test_an_output_may_become_a_scalar() -> None:
    make = GraphBuilder(matrix(1))
    flow = rewritten(make.graph(make.op("positive", scalar(0))))
    assert flow.outputs == (ScalarRef(0, dt.float32),)
