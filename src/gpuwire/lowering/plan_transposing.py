"""Planning copies of tensors whose memory runs along another dimension than their last."""

from __future__ import annotations

import math

from gpuwire.ir.tensors import row_major_strides
from gpuwire.kernels.shader_types import shader_type
from gpuwire.kernels.transposing import TILE, tile_length, transposing_kernel
from gpuwire.lowering.builder import PlanBuilder
from gpuwire.lowering.layouts import Placed, Strides, collapsed

FEWEST_ELEMENTS = 1 << 14
"""Below that a second launch costs more than it saves."""
FEWEST_ALONG = 8
"""Elements along both dimensions for tiles to be worth it."""


def runs_across(builder: PlanBuilder, tensor: Placed) -> bool:
    """Whether to copy a tensor through tiles before it is read in order. A CPU that plays a device
    has caches for that, and barriers that cost more."""
    if tensor.type.size < FEWEST_ELEMENTS or builder.facts.is_software:
        return False
    return _dimension(tensor) is not None


def _dimension(tensor: Placed) -> int | None:
    """The collapsed dimension along which memory runs, if it is not the last and tiles fit."""
    shape, (strides,) = collapsed(tensor.shape, [tensor.strides])
    if len(shape) < 2 or 0 in strides or abs(strides[-1]) < FEWEST_ALONG:
        return None
    along = [axis for axis, stride in enumerate(strides) if abs(stride) == 1]
    if not along or min(shape[along[0]], shape[-1]) < FEWEST_ALONG:
        return None
    if shape[-1] % shader_type(tensor.dtype).per_word:
        return None
    return along[0]


def plan_transposing(builder: PlanBuilder, tensor: Placed) -> Placed:
    """A contiguous copy of a tensor that `runs_across`."""
    axis = _dimension(tensor)
    assert axis is not None
    shape, (strides,) = collapsed(tensor.shape, [tensor.strides])
    result = builder.allocate(tensor.type)
    own = row_major_strides(shape)
    others = [other for other in range(len(shape) - 1) if other != axis]
    dtype = tensor.dtype
    kernel = builder.kernels.kernel(
        ("transpose", dtype, len(others)), lambda: transposing_kernel(dtype, len(others))
    )
    tiles = (-(-shape[axis] // TILE), -(-shape[-1] // tile_length(dtype)))
    window = builder.window(tensor, shape, strides, tensor.offset, "transpose")

    def of(each: Strides) -> list[int]:
        return [each[other] for other in others]

    planes = math.prod(of(shape))
    words = [*tiles, shape[axis], shape[-1], planes, window.offset]
    words += [strides[axis], strides[-1], own[axis]]
    words += [*of(shape), *of(strides), *of(own)]
    groups = tiles[0] * tiles[1] * planes
    builder.launch(kernel, groups, [window.buffer, builder.whole(result, "transpose")], words)
    return result
