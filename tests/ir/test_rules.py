"""The type rules: every operation's types against NumPy's, shapes against NumPy's, and errors."""

from __future__ import annotations

import itertools
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwire.errors import DTypeError, GpuwireError, ShapeError
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import (
    NO_ATTRIBUTES,
    ArgReduceAttributes,
    Attributes,
    AxisAttributes,
    CastAttributes,
    LengthAttributes,
    PermuteAttributes,
    ReduceAttributes,
    ShapeAttributes,
    SliceAttributes,
)
from gpuwire.ir.dtypes import ALL_DTYPES, DType, Kind
from gpuwire.ir.operations import OPERATIONS, OpClass, OpDef, operation_by_code
from gpuwire.ir.tensors import MAX_RANK, Shape, TensorType

ELEMENTWISE = [d for d in OPERATIONS.values() if d.op_class is OpClass.ELEMENTWISE]
UNARY = [d for d in ELEMENTWISE if d.arity == 1 and d.name != "cast"]
BINARY = [d for d in ELEMENTWISE if d.arity == 2]

# The kinds that each function takes (Array API 2023.12, "Element-wise functions").
NUMERIC = {Kind.UNSIGNED, Kind.SIGNED, Kind.FLOAT, Kind.COMPLEX}
REAL = NUMERIC - {Kind.COMPLEX}
INTEGERS = {Kind.UNSIGNED, Kind.SIGNED}
FLOATING = {Kind.FLOAT, Kind.COMPLEX}
TAKEN_BY = [
    ("acos acosh asin asinh atan atanh cos cosh exp expm1 log log10 log1p log2 sin sinh", FLOATING),
    ("sqrt tan tanh divide reciprocal", FLOATING),
    ("abs conj isfinite isinf isnan negative positive real round sign square", NUMERIC),
    ("add multiply pow subtract", NUMERIC),
    ("ceil floor trunc floor_divide remainder", REAL),
    ("greater greater_equal less less_equal maximum minimum", REAL | {Kind.BOOL}),
    ("atan2 copysign hypot logaddexp nextafter signbit", {Kind.FLOAT}),
    ("bitwise_and bitwise_or bitwise_xor bitwise_invert", INTEGERS | {Kind.BOOL}),
    ("bitwise_left_shift bitwise_right_shift", INTEGERS),
    ("equal not_equal logical_and logical_not logical_or logical_xor", set(Kind)),
    ("imag", {Kind.COMPLEX}),
]
TAKES = {name: kinds for names, kinds in TAKEN_BY for name in names.split()}


def tensor(dtype: DType, *shape: int) -> TensorType:
    return TensorType(dtype, shape)


def type_of(name: str, *inputs: TensorType, attributes: Attributes = NO_ATTRIBUTES) -> TensorType:
    return OPERATIONS[name].result_type(inputs, attributes)


@pytest.mark.parametrize("definition", [*UNARY, *BINARY], ids=lambda d: d.name)
def test_elementwise_types_are_the_standard_s_and_numpy_s(definition: OpDef) -> None:
    numpy_function = getattr(np, definition.name)
    for dtypes in itertools.product(ALL_DTYPES, repeat=definition.arity or 0):
        inputs = tuple(tensor(dtype, 2) for dtype in dtypes)
        try:
            promoted = dt.promote_all(dtypes)
        except DTypeError:
            with pytest.raises(DTypeError, match=definition.name):
                definition.result_type(inputs, NO_ATTRIBUTES)
            continue
        if promoted.kind not in TAKES[definition.name]:
            with pytest.raises(DTypeError, match=f"{definition.name} takes ") as caught:
                definition.result_type(inputs, NO_ATTRIBUTES)
            assert caught.value.fields["operation"] == definition.name
            continue
        with np.errstate(all="ignore"):
            wanted = numpy_function(*(np.ones(2, promoted.numpy) for _ in dtypes)).dtype
        assert definition.result_type(inputs, NO_ATTRIBUTES) == tensor(dt.dtype_of_numpy(wanted), 2)


def test_no_operation_is_forgotten_here() -> None:
    assert {d.name for d in (*UNARY, *BINARY)} == set(TAKES)


@pytest.mark.parametrize("definition", OPERATIONS.values(), ids=lambda d: d.name)
def test_codes_inputs_and_attributes_are_checked(definition: OpDef) -> None:
    assert operation_by_code(definition.code) is definition
    with pytest.raises(ShapeError, match=f"{definition.name} takes .* inputs, not 0"):
        definition.result_type((), NO_ATTRIBUTES)
    if definition.arity is not None:
        with pytest.raises(ShapeError, match="inputs, not 4"):
            definition.result_type((tensor(dt.float32),) * 4, NO_ATTRIBUTES)
    wrong = CastAttributes(dt.int8) if definition.name != "cast" else NO_ATTRIBUTES
    with pytest.raises(DTypeError, match="Attributes, not"):
        definition.result_type((tensor(dt.float32),) * (definition.arity or 1), wrong)


def test_an_unknown_code_is_none() -> None:
    assert operation_by_code(9999) is None


def test_the_rank_is_bounded() -> None:
    most = tensor(dt.int8, *[1] * MAX_RANK)
    assert type_of("negative", most) == most
    with pytest.raises(ShapeError, match="the most is 32"):
        type_of("reshape", most, attributes=ShapeAttributes((1,) * (MAX_RANK + 1)))


# --- Elementwise -----------------------------------------------------------------------------


def test_shapes_that_do_not_broadcast_name_the_operation() -> None:
    with pytest.raises(ShapeError, match=r"add: shapes \(2, 3\) and \(4,\) do not broadcast"):
        type_of("add", tensor(dt.int8, 2, 3), tensor(dt.int8, 4))


def test_where_wants_a_boolean_condition_and_broadcasts_all_three() -> None:
    condition, x = tensor(dt.bool_, 3, 1), tensor(dt.int16, 1, 4)
    assert type_of("where", condition, x, tensor(dt.float32)) == tensor(dt.float32, 3, 4)
    with pytest.raises(DTypeError, match="boolean condition, not int16"):
        type_of("where", x, x, x)


@pytest.mark.parametrize("source", ALL_DTYPES, ids=str)
def test_cast_goes_everywhere_but_from_complex_to_real(source: DType) -> None:
    for target in ALL_DTYPES:
        if source.kind is Kind.COMPLEX and target.kind is not Kind.COMPLEX:
            with pytest.raises(DTypeError, match="imaginary part"):
                type_of("cast", tensor(source, 2), attributes=CastAttributes(target))
        else:
            cast = type_of("cast", tensor(source, 2), attributes=CastAttributes(target))
            assert cast == tensor(target, 2)


# --- Reductions ------------------------------------------------------------------------------

lengths = st.integers(0, 3)
some_shapes = st.lists(lengths, max_size=4).map(tuple)


@given(some_shapes, st.data(), st.booleans())
@settings(derandomize=True, deadline=None)
def test_reduced_shapes_are_numpy_s(shape: Shape, data: st.DataObject, keepdims: bool) -> None:
    axes = tuple(
        sorted(data.draw(st.sets(st.sampled_from(range(len(shape)))) if shape else st.just(())))
    )
    wanted = np.sum(np.zeros(shape), axis=axes, keepdims=keepdims).shape
    attributes = ReduceAttributes(axes, keepdims, dt.float32)
    for name in ("sum", "prod", "mean"):
        found = type_of(name, tensor(dt.float32, *shape), attributes=attributes)
        assert found == tensor(dt.float32, *wanted)


@pytest.mark.parametrize("axes", [(2,), (-1,), (0, 0), (1, 0)])
def test_axes_are_sorted_and_inside(axes: tuple[int, ...]) -> None:
    with pytest.raises(ShapeError, match=r"sum over axes .* of an array of 2 dimensions"):
        type_of("sum", tensor(dt.int8, 2, 2), attributes=ReduceAttributes(axes, False, dt.int8))


@pytest.mark.parametrize("name", ["min", "max"])
def test_no_elements_have_no_extreme(name: str) -> None:
    attributes = ReduceAttributes((0,), False, dt.float32)
    with pytest.raises(ShapeError, match="no elements"):
        type_of(name, tensor(dt.float32, 0, 2), attributes=attributes)
    with pytest.raises(ShapeError, match="no elements"):
        type_of(
            f"arg{name}",
            tensor(dt.float32, 0, 2),
            attributes=ArgReduceAttributes(0, False, dt.int32),
        )
    beside = ReduceAttributes((1,), False, dt.float32)
    assert type_of(name, tensor(dt.float32, 0, 2), attributes=beside).shape == (0,)


@pytest.mark.parametrize(
    ("name", "source", "result"),
    [
        ("sum", dt.complex64, dt.float32),
        ("sum", dt.float32, dt.bool_),
        ("mean", dt.float32, dt.float64),
        ("max", dt.int32, dt.int64),
        ("any", dt.int32, dt.int32),
        ("all", dt.float32, dt.float32),
    ],
)
def test_result_types_that_a_reduction_cannot_give(name: str, source: DType, result: DType) -> None:
    with pytest.raises(DTypeError, match=f"{name} of {source} cannot give {result}"):
        type_of(name, tensor(source, 2), attributes=ReduceAttributes((0,), False, result))


@pytest.mark.parametrize(
    ("name", "dtype"),
    [("mean", dt.int32), ("min", dt.complex64), ("max", dt.complex128), ("mean", dt.bool_)],
)
def test_kinds_that_a_reduction_refuses(name: str, dtype: DType) -> None:
    with pytest.raises(DTypeError, match=f"{name} takes .* numbers, not {dtype}"):
        type_of(name, tensor(dtype, 2), attributes=ReduceAttributes((0,), False, dtype))


def test_argmax_gives_integers_along_one_axis() -> None:
    found = type_of(
        "argmax", tensor(dt.float32, 2, 3), attributes=ArgReduceAttributes(1, True, dt.int32)
    )
    assert found == tensor(dt.int32, 2, 1)
    for source, result in ((dt.complex64, dt.int32), (dt.float32, dt.float32)):
        with pytest.raises(DTypeError):
            type_of("argmax", tensor(source, 2), attributes=ArgReduceAttributes(0, False, result))
    with pytest.raises(ShapeError):
        type_of("argmax", tensor(dt.int8, 2), attributes=ArgReduceAttributes(1, False, dt.int32))


# --- Products --------------------------------------------------------------------------------

matrices = st.lists(st.integers(0, 2), min_size=2, max_size=4).map(tuple)


@given(matrices, matrices)
@settings(derandomize=True, deadline=None, max_examples=300)
def test_matmul_shapes_are_numpy_s(left: Shape, right: Shape) -> None:
    inputs = (tensor(dt.int16, *left), tensor(dt.float32, *right))
    try:
        wanted = (np.zeros(left) @ np.zeros(right)).shape
    except ValueError:
        with pytest.raises(ShapeError, match="matmul"):
            type_of("matmul", *inputs)
    else:
        assert type_of("matmul", *inputs) == tensor(dt.float32, *wanted)


def test_matmul_refuses_vectors_and_booleans() -> None:
    with pytest.raises(ShapeError, match="matmul of shapes"):
        type_of("matmul", tensor(dt.int8, 2), tensor(dt.int8, 2, 2))
    with pytest.raises(DTypeError, match="matmul takes numbers"):
        type_of("matmul", tensor(dt.bool_, 2, 2), tensor(dt.bool_, 2, 2))


# --- Shapes ----------------------------------------------------------------------------------


def checked(
    name: str, inputs: tuple[TensorType, ...], attributes: Attributes, numpy: Callable[[], Shape]
) -> None:
    """The rule's shape is NumPy's, and where NumPy refuses, so does the rule."""
    try:
        wanted = numpy()
    except ValueError:
        with pytest.raises(ShapeError, match=name):
            type_of(name, *inputs, attributes=attributes)
    else:
        assert type_of(name, *inputs, attributes=attributes).shape == wanted


@given(some_shapes, some_shapes)
@settings(derandomize=True, deadline=None, max_examples=300)
def test_reshape_and_broadcast_to_are_numpy_s(shape: Shape, wanted: Shape) -> None:
    array, inputs = np.zeros(shape), (tensor(dt.int8, *shape),)
    checked("reshape", inputs, ShapeAttributes(wanted), lambda: array.reshape(wanted).shape)
    checked(
        "broadcast_to",
        inputs,
        ShapeAttributes(wanted),
        lambda: np.broadcast_to(array, wanted).shape,
    )


@given(some_shapes, st.lists(st.integers(0, 3), max_size=4))
@settings(derandomize=True, deadline=None)
def test_permute_dims_is_numpy_s(shape: Shape, axes: list[int]) -> None:
    checked(
        "permute_dims",
        (tensor(dt.int8, *shape),),
        PermuteAttributes(tuple(axes)),
        lambda: np.transpose(np.zeros(shape), axes).shape,
    )


@given(st.lists(some_shapes, min_size=1, max_size=3), st.integers(0, 3))
@settings(derandomize=True, deadline=None, max_examples=300)
def test_concat_is_numpy_s(shapes: list[Shape], axis: int) -> None:
    checked(
        "concat",
        tuple(tensor(dt.int8, *shape) for shape in shapes),
        AxisAttributes(axis),
        lambda: np.concatenate([np.zeros(shape) for shape in shapes], axis).shape,
    )


@pytest.mark.parametrize("name", ["reshape", "broadcast_to", "full"])
def test_negative_lengths_are_refused(name: str) -> None:
    source = tensor(dt.int8) if name == "full" else tensor(dt.int8, 1)
    with pytest.raises(ShapeError, match="negative length"):
        type_of(name, source, attributes=ShapeAttributes((-1,)))


slices_of_five = st.tuples(st.integers(-6, 6), st.integers(-6, 6), st.integers(-2, 6))


@given(slices_of_five)
@settings(derandomize=True, deadline=None, max_examples=300)
def test_a_slice_stays_inside(part: tuple[int, int, int]) -> None:
    start, step, count = part
    reached = {start + i * step for i in range(count)}
    inside = count >= 0 and step != 0 and reached <= set(range(5))
    attributes = SliceAttributes((start,), (step,), (count,))
    old, value = tensor(dt.int8, 5), tensor(dt.int8)
    if inside or count == 0:
        assert type_of("slice", old, attributes=attributes).shape == (count,)
        assert type_of("slice_assign", old, value, attributes=attributes) == old
    else:
        for name, inputs in (("slice", (old,)), ("slice_assign", (old, value))):
            with pytest.raises(ShapeError, match="reaches outside"):
                type_of(name, *inputs, attributes=attributes)


def test_slices_name_every_dimension() -> None:
    with pytest.raises(ShapeError, match="reaches outside"):
        type_of("slice", tensor(dt.int8, 2, 2), attributes=SliceAttributes((0,), (1,), (1,)))


# --- Indexing and creation -------------------------------------------------------------------


def test_slice_assign_keeps_the_old_type_and_broadcasts_the_value() -> None:
    whole = SliceAttributes((0, 0), (1, 1), (2, 3))
    old = tensor(dt.int8, 2, 3)
    assert type_of("slice_assign", old, tensor(dt.float32, 3), attributes=whole) == old
    for value in (tensor(dt.int8, 2), tensor(dt.int8, 1, 2, 3)):
        with pytest.raises(ShapeError):
            type_of("slice_assign", old, value, attributes=whole)
    with pytest.raises(DTypeError, match="imaginary part"):
        type_of("slice_assign", old, tensor(dt.complex64), attributes=whole)


def test_take_wants_a_row_of_integers() -> None:
    x, axis = tensor(dt.float32, 2, 3), AxisAttributes(1)
    assert type_of("take", x, tensor(dt.uint8, 5), attributes=axis).shape == (2, 5)
    with pytest.raises(DTypeError, match="integer indices"):
        type_of("take", x, tensor(dt.float32, 5), attributes=axis)
    for indices, wrong in ((tensor(dt.int8, 1, 1), axis), (tensor(dt.int8, 1), AxisAttributes(2))):
        with pytest.raises(ShapeError, match="take along axis"):
            type_of("take", x, indices, attributes=wrong)
    with pytest.raises(ShapeError, match="length 0"):
        type_of("take", tensor(dt.int8, 0), tensor(dt.int8, 1), attributes=AxisAttributes(0))


def test_full_and_arange_take_single_values() -> None:
    assert type_of("full", tensor(dt.bool_), attributes=ShapeAttributes((2, 0))) == tensor(
        dt.bool_, 2, 0
    )
    with pytest.raises(ShapeError, match="one value"):
        type_of("full", tensor(dt.int8, 1), attributes=ShapeAttributes((1,)))
    one = tensor(dt.float32)
    assert type_of("arange", one, one, attributes=LengthAttributes(4)) == tensor(dt.float32, 4)
    wrong: list[tuple[TensorType, TensorType, int]] = [
        (one, tensor(dt.int32), 1),
        (tensor(dt.bool_), tensor(dt.bool_), 1),
        (tensor(dt.float32, 1), one, 1),
        (one, one, -1),
    ]
    for start, step, length in wrong:
        with pytest.raises(GpuwireError, match="arange"):
            type_of("arange", start, step, attributes=LengthAttributes(length))
