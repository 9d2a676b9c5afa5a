"""Operations that only say where elements lie, as steps on a layout.

A view of an elementwise result is the same operation on views of its operands: so a group of
fused nodes pushes the views inside it out to what it loads, where they are strides.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import NO_ATTRIBUTES, Attributes, PermuteAttributes, SliceAttributes
from gpuwire.ir.graphs import Node
from gpuwire.ir.tensors import Shape, TensorType, row_major_strides
from gpuwire.lowering.layouts import Placed, Strides, broadcast_strides, reshaped_strides

VIEWS = frozenset({"reshape", "broadcast_to", "permute_dims", "slice", "full"})
"""The operations that are views; `full` is its one element, broadcast."""


@dataclass(frozen=True, slots=True)
class View:
    """One step: the operation, the shape that it gives."""

    operation: str
    shape: Shape
    attributes: Attributes = NO_ATTRIBUTES

    @classmethod
    def of(cls, node: Node) -> View:
        """The step that a node is."""
        name = node.definition.name
        return cls("broadcast_to" if name == "full" else name, node.type.shape, node.attributes)

    def seen(self, placed: Placed) -> Placed | None:
        """A tensor through this view; None where no strides can say it (some reshapes)."""
        shape, strides, offset = self.shape, placed.strides, placed.offset
        match self.operation:
            case "broadcast_to":
                strides = broadcast_strides(placed, shape)
            case "reshape":
                reshaped = reshaped_strides(placed.shape, strides, shape)
                if reshaped is None:
                    return None
                strides = reshaped
            case "permute_dims":
                assert isinstance(self.attributes, PermuteAttributes)
                strides = tuple(strides[axis] for axis in self.attributes.axes)
            case "slice":
                slices = self.attributes
                assert isinstance(slices, SliceAttributes)
                if placed.type.size and 0 not in shape:
                    offset += sum(
                        start * stride for start, stride in zip(slices.starts, strides, strict=True)
                    )
                strides = tuple(
                    step * stride for step, stride in zip(slices.steps, strides, strict=True)
                )
        return placed.viewed(shape, strides, offset)


Chain = tuple[View, ...]
"""Views one after the other, the first next to memory."""


def broadcast_after(shape: Shape, wanted: Shape, chain: Chain) -> Chain:
    """A chain that begins with what an operation does to an operand of another shape."""
    return chain if shape == wanted else (View("broadcast_to", wanted), *chain)


def seen_through(placed: Placed, chain: Chain) -> Placed | None:
    """A tensor through all views of a chain; None where no strides can say it."""
    for view in chain:
        found = view.seen(placed)
        if found is None:
            return None
        placed = found
    return placed


def per_row(kept: Shape, shape: Shape, axes: tuple[int, ...]) -> Chain:
    """The chain from a value for each row of a tensor of `shape` to that shape: a row is what lies
    along `axes`, `kept` the shape of a reduction's result, with or without those axes."""
    aligned = tuple(1 if axis in axes else length for axis, length in enumerate(shape))
    chain = broadcast_after(aligned, shape, ())
    return chain if kept == aligned else (View("reshape", aligned), *chain)


def is_each_element(shape: Shape, chain: Chain) -> bool:
    """Whether a contiguous tensor of `shape` is itself, seen through a chain."""
    return _walks(shape, chain, row_major_strides(chain[-1].shape if chain else shape))


def is_each_row(kept: Shape, chain: Chain, shape: Shape, axes: tuple[int, ...]) -> bool:
    """Whether a contiguous tensor of `kept`, one element for each row of `shape`, is seen through a
    chain so that each row of `shape` has its own element."""
    placed = _fake(kept)
    wanted = seen_through(placed, per_row(kept, shape, axes))
    assert wanted is not None
    return _walks(kept, chain, wanted.strides)


def _walks(shape: Shape, chain: Chain, wanted: Strides) -> bool:
    found = seen_through(_fake(shape), chain)
    if found is None or found.offset or len(found.strides) != len(wanted):
        return False
    return all(
        length == 1 or own == other
        for length, own, other in zip(found.shape, found.strides, wanted, strict=True)
    )


def _fake(shape: Shape) -> Placed:
    return Placed(0, TensorType(dt.float32, shape), row_major_strides(shape), 0)
