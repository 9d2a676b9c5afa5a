"""Planning operations that move elements, or only say that they lie elsewhere.

permute_dims, slice and broadcast_to are views and cost nothing; so is a reshape wherever strides
can express it. concat, slice_assign, take, full and arange make new tensors.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import (
    AxisAttributes,
    LengthAttributes,
    PermuteAttributes,
    SliceAttributes,
)
from gpuwire.ir.dtypes import Kind
from gpuwire.ir.graphs import Node, ScalarRef
from gpuwire.ir.tensors import Scalar, TensorType, row_major_strides
from gpuwire.kernels.gathering import (
    arange_kernel,
    concat_kernel,
    slice_assign_kernel,
    take_kernel,
    workgroups,
)
from gpuwire.kernels.shader_types import encode_scalar
from gpuwire.lowering.builder import PlanBuilder
from gpuwire.lowering.layouts import Placed, broadcast_strides, reshaped_strides
from gpuwire.lowering.plan_elementwise import plan_copy
from gpuwire.lowering.steps import ScalarWords


def permuted(node: Node, operand: Placed) -> Placed:
    """permute_dims: a view."""
    assert isinstance(node.attributes, PermuteAttributes)
    axes = node.attributes.axes
    strides = tuple(operand.strides[axis] for axis in axes)
    return operand.viewed(node.type.shape, strides, operand.offset)


def broadcast(node: Node, operand: Placed) -> Placed:
    """broadcast_to: a view."""
    shape = node.type.shape
    return operand.viewed(shape, broadcast_strides(operand, shape), operand.offset)


def sliced(node: Node, operand: Placed) -> Placed:
    """slice: a view."""
    assert isinstance(node.attributes, SliceAttributes)
    slices = node.attributes
    offset = operand.offset
    if node.type.size:
        offset += sum(
            start * stride for start, stride in zip(slices.starts, operand.strides, strict=True)
        )
    strides = tuple(
        step * stride for step, stride in zip(slices.steps, operand.strides, strict=True)
    )
    return operand.viewed(node.type.shape, strides, offset)


def plan_reshape(builder: PlanBuilder, node: Node, operand: Placed) -> Placed:
    """reshape: a view where strides can express it, else a copy."""
    shape = node.type.shape
    strides = reshaped_strides(operand.shape, operand.strides, shape)
    if strides is not None:
        return operand.viewed(shape, strides, operand.offset)
    copy = plan_copy(builder, operand, operand.type)
    return copy.viewed(shape, row_major_strides(shape), 0)


def plan_concat(builder: PlanBuilder, node: Node, operands: Sequence[Placed]) -> Placed:
    """concat: one kernel over as many sources as it can bind, in a tree above that."""
    assert isinstance(node.attributes, AxisAttributes)
    axis = node.attributes.axis
    parts = [operand for operand in operands if operand.type.size]
    if not parts:
        return builder.allocate(node.type)
    most = max(2, min(builder.facts.max_buffers, 8) - 1)
    while len(parts) > most:
        parts = [
            _concat(builder, parts[i : i + most], axis, node.type)
            for i in range(0, len(parts), most)
        ]
    return _concat(builder, parts, axis, node.type)


def _concat(builder: PlanBuilder, parts: Sequence[Placed], axis: int, type_: TensorType) -> Placed:
    shape = list(type_.shape)
    shape[axis] = sum(part.shape[axis] for part in parts)
    target = TensorType(type_.dtype, tuple(shape))
    if len(parts) == 1:
        return plan_copy(builder, parts[0], target)
    result = builder.allocate(target)
    rank = len(shape)
    dtypes = tuple(part.dtype for part in parts)
    kernel = builder.kernels.kernel(
        ("concat", dtypes, target.dtype, rank, axis),
        lambda: concat_kernel(dtypes, target.dtype, rank, axis),
    )
    words = [target.size, *shape]
    buffers = []
    start = 0
    for part in parts:
        window = builder.window(part, part.shape, part.strides, part.offset, "concat")
        buffers.append(window.buffer)
        words += [start, window.offset, *part.strides]
        start += part.shape[axis]
    buffers.append(builder.whole(result, "concat"))
    builder.launch(kernel, workgroups(target.size, target.dtype), buffers, words)
    return result


def plan_slice_assign(builder: PlanBuilder, node: Node, old: Placed, value: Placed) -> Placed:
    """slice_assign: the whole new array."""
    assert isinstance(node.attributes, SliceAttributes)
    slices = node.attributes
    if not math.prod(slices.lengths) or not node.type.size:
        return plan_copy(builder, old, node.type)
    starts, steps = list(slices.starts), list(slices.steps)
    strides = list(broadcast_strides(value, slices.lengths))
    offset = value.offset
    for axis, (step, length) in enumerate(zip(steps, slices.lengths, strict=True)):
        if step < 0:  # The same elements the other way round.
            starts[axis] += (length - 1) * step
            steps[axis] = -step
            offset += (length - 1) * strides[axis]
            strides[axis] = -strides[axis]
    result = builder.allocate(node.type)
    rank = len(old.shape)
    kernel = builder.kernels.kernel(
        ("slice_assign", old.dtype, value.dtype, rank),
        lambda: slice_assign_kernel(old.dtype, value.dtype, rank),
    )
    old_window = builder.window(old, old.shape, old.strides, old.offset, "slice_assign")
    new_window = builder.window(value, slices.lengths, tuple(strides), offset, "slice_assign")
    words = [node.type.size, *node.type.shape, old_window.offset, *old.strides]
    words += [new_window.offset, *strides, *starts, *steps, *slices.lengths]
    buffers = [old_window.buffer, new_window.buffer, builder.whole(result, "slice_assign")]
    builder.launch(kernel, workgroups(node.type.size, node.type.dtype), buffers, words)
    return result


def plan_take(builder: PlanBuilder, node: Node, source: Placed, indices: Placed) -> Placed:
    """take: elements at indices along an axis."""
    assert isinstance(node.attributes, AxisAttributes)
    axis, type_ = node.attributes.axis, node.type
    result = builder.allocate(type_)
    if not type_.size:
        return result
    rank = len(type_.shape)
    kernel = builder.kernels.kernel(
        ("take", source.dtype, indices.dtype, rank, axis),
        lambda: take_kernel(source.dtype, indices.dtype, rank, axis),
    )
    window = builder.window(source, source.shape, source.strides, source.offset, "take")
    at = builder.window(indices, indices.shape, indices.strides, indices.offset, "take")
    words = [type_.size, *type_.shape, window.offset, *source.strides]
    words += [source.shape[axis], at.offset, *indices.strides]
    buffers = [window.buffer, at.buffer, builder.whole(result, "take")]
    builder.launch(kernel, workgroups(type_.size, type_.dtype), buffers, words)
    return result


def plan_arange(builder: PlanBuilder, node: Node, start: ScalarRef, step: ScalarRef) -> Placed:
    """arange, of scalars."""
    assert isinstance(node.attributes, LengthAttributes)
    type_ = node.type
    result = builder.allocate(type_)
    if not type_.size:
        return result
    kernel = builder.kernels.kernel(("arange", type_.dtype), lambda: arange_kernel(type_.dtype))
    buffers = [builder.whole(result, "arange")]
    groups = workgroups(type_.size, type_.dtype)
    words = [type_.size, type_.size]
    builder.launch(kernel, groups, buffers, words, [_arange_words(start, step)])
    return result


def _arange_words(start: ScalarRef, step: ScalarRef) -> ScalarWords:
    """Start and step as NumPy's `arange` has them: its step is the second element less the first,
    both rounded to the type."""
    dtype = start.dtype

    def words(scalars: Sequence[Scalar]) -> bytes:
        first, by = scalars[start.index].value, scalars[step.index].value
        if (
            dtype.kind is Kind.FLOAT
            and not isinstance(first, complex)
            and not isinstance(by, complex)
        ):
            with np.errstate(all="ignore"):
                rounded = np.asarray(first).astype(dtype.numpy)
                second = np.asarray(float(first) + float(by)).astype(dtype.numpy)
                wide = np.float32 if dtype is dt.float16 else dtype.numpy
                difference = second.astype(wide) - rounded.astype(wide)
            return encode_scalar(float(rounded), dtype) + _wide_scalar(float(difference), dtype)
        return encode_scalar(first, dtype) + encode_scalar(by, dtype)

    return words


def _wide_scalar(value: float, dtype: dt.DType) -> bytes:
    return encode_scalar(value, dt.float32 if dtype is dt.float16 else dtype)
