"""Tensor descriptions, against NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwire.errors import ShapeError
from gpuwire.ir import dtypes as dt
from gpuwire.ir.tensors import (
    Scalar,
    Shape,
    TensorType,
    broadcast_shapes,
    row_major_strides,
    scalar,
)

shapes = st.lists(st.sampled_from([0, 1, 1, 2, 3]), max_size=4).map(tuple)


@given(st.lists(shapes, min_size=1, max_size=4))
@settings(derandomize=True, deadline=None, max_examples=500)
def test_broadcasting_is_numpy_s(several: list[Shape]) -> None:
    try:
        wanted = np.broadcast_shapes(*several)
    except ValueError:
        with pytest.raises(ShapeError, match="do not broadcast"):
            broadcast_shapes(*several)
    else:
        assert broadcast_shapes(*several) == wanted


@given(shapes)
@settings(derandomize=True, deadline=None)
def test_sizes_and_strides_are_numpy_s(shape: Shape) -> None:
    array = np.empty(shape, np.int16)
    type_ = TensorType(dt.int16, shape)
    assert (type_.size, type_.nbytes) == (array.size, array.nbytes)
    if array.size:
        assert row_major_strides(shape) == tuple(stride // 2 for stride in array.strides)


def test_a_type_reads_well_in_errors() -> None:
    assert str(TensorType(dt.float32, (2, 3))) == "float32[2, 3]"


@pytest.mark.parametrize(
    ("value", "dtype", "wanted"),
    [(1, dt.bool_, True), (2.9, dt.int8, 2), (3, dt.float32, 3.0), (1, dt.complex64, 1 + 0j)],
)
def test_a_scalar_has_its_type_s_python_class(
    value: float, dtype: dt.DType, wanted: complex
) -> None:
    made = scalar(value, dtype)
    assert made == Scalar(wanted, dtype)
    assert type(made.value) is type(wanted)
    assert made.type == TensorType(dtype, ())
