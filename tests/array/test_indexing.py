"""Keys as slices, against NumPy: what a selection says is carried out here with NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gpuwire.array.indexing import IndexArray, Selection, select, value_shape
from gpuwire.errors import IndexingError, NotSupported
from gpuwire.ir.tensors import Shape

shapes = st.lists(st.integers(0, 4), min_size=0, max_size=4).map(tuple)
bounds = st.none() | st.integers(-6, 6)
slices = st.builds(slice, bounds, bounds, st.none() | st.integers(-3, 3).filter(bool))


@st.composite
def basic_keys(draw: st.DrawFn) -> tuple[Shape, tuple[Any, ...]]:
    """A shape, and a key of integers, slices, None and at most one Ellipsis that it allows."""
    shape = draw(shapes)
    named = draw(st.integers(0, len(shape)))
    items: list[Any] = []
    for length in shape[:named]:
        integers = st.integers(-length, length - 1) if length else st.nothing()
        items.append(draw(slices | integers))
    if draw(st.booleans()):
        place = draw(st.integers(0, len(items)))
        # What follows an Ellipsis names the last dimensions: only slices fit any length.
        tail = [draw(slices) for _ in items[place:]]
        items = [*items[:place], Ellipsis, *tail]
    for _ in range(draw(st.integers(0, 2))):
        items.insert(draw(st.integers(0, len(items))), None)
    return shape, tuple(items)


def numbered(shape: Shape) -> np.ndarray[Any, Any]:
    return np.arange(int(np.prod(shape))).reshape(shape)


def sliced(array: np.ndarray[Any, Any], selection: Selection) -> np.ndarray[Any, Any]:
    parts = selection.slices
    for axis, (start, step, length) in enumerate(
        zip(parts.starts, parts.steps, parts.lengths, strict=True)
    ):
        array = np.take(array, [start + i * step for i in range(length)], axis)
    return array


@given(basic_keys())
@settings(derandomize=True, deadline=None, max_examples=250)
def test_basic_keys_select_what_numpy_s_do(case: tuple[Shape, tuple[Any, ...]]) -> None:
    shape, key = case
    array = numbered(shape)
    selection = select(key, shape)
    wanted = array[key]
    assert selection.shape == wanted.shape
    np.testing.assert_array_equal(sliced(array, selection).reshape(selection.shape), wanted)
    if selection.whole:
        np.testing.assert_array_equal(array.reshape(selection.shape), wanted)


@given(basic_keys(), st.data())
@settings(derandomize=True, deadline=None, max_examples=150)
def test_values_are_laid_out_for_their_slices_as_numpy_does(
    case: tuple[Shape, tuple[Any, ...]], data: st.DataObject
) -> None:
    shape, key = case
    array = numbered(shape)
    selection = select(key, shape)
    value = numbered(data.draw(shapes))
    try:
        array[key] = value
    except ValueError:
        if value.size == 1:  # into zero dimensions NumPy takes no array with dimensions; we do
            return
        with pytest.raises(IndexingError, match="does not broadcast"):
            value_shape(selection, value.shape)
        return
    laid_out = value.reshape(value_shape(selection, value.shape))
    np.testing.assert_array_equal(
        np.broadcast_to(laid_out, selection.slices.lengths), sliced(array, selection)
    )


# Shapes of index arrays that broadcast.
FORMS = [((2,), (1,)), ((3,), (3,)), ((2, 2), (2,)), ((), ()), ((0,), ())]


@st.composite
def gathering_keys(draw: st.DrawFn) -> tuple[Shape, tuple[Any, ...]]:
    """A shape without zeros, and a key with neighbouring index arrays, integers among them."""
    shape = draw(st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple))
    first = draw(st.integers(0, len(shape) - 1))
    last = draw(st.integers(first + 1, len(shape)))
    forms = draw(
        st.sampled_from([((2,), (1,)), ((3,), (3,)), ((2, 2), (2,)), ((), ()), ((0,), ())])
    )
    items: list[Any] = [draw(slices) for _ in shape[:first]]
    for length in shape[first:last]:
        indices = st.integers(0, length - 1)
        if draw(st.booleans()):
            items.append(draw(indices))
        else:
            form = draw(st.sampled_from(forms))
            count = int(np.prod(form))
            drawn = draw(st.lists(indices, min_size=count, max_size=count))
            items.append(np.array(drawn, np.int64).reshape(form))
    assume(any(isinstance(item, np.ndarray) for item in items))
    items += draw(st.sampled_from([[], [Ellipsis], [None], [slice(None, None, -1)]]))
    assume(sum(item is not None and item is not Ellipsis for item in items) <= len(shape))
    return shape, tuple(items)


@given(gathering_keys())
@settings(derandomize=True, deadline=None, max_examples=250)
def test_index_arrays_gather_what_numpy_s_do(case: tuple[Shape, tuple[Any, ...]]) -> None:
    shape, key = case
    array = numbered(shape)
    arrays = [item for item in key if isinstance(item, np.ndarray)]
    index_shape = np.broadcast_shapes(*(item.shape for item in arrays))
    items = tuple(IndexArray() if isinstance(item, np.ndarray) else item for item in key)
    selection = select(items, shape, index_shape)
    gather = selection.gather
    assert gather is not None
    assert len(gather.lengths) == len(arrays)
    part = sliced(array, selection)
    merged = (
        part.reshape((*part.shape[: gather.first], -1, *part.shape[gather.last :]))
        if (part.size)
        else np.zeros((*part.shape[: gather.first], 1, *part.shape[gather.last :]))
    )
    places = sum(item * stride for item, stride in zip(arrays, gather.strides, strict=True))
    places = np.broadcast_to(places, gather.shape).reshape(-1)
    wanted = array[key]
    assert selection.shape == wanted.shape
    if wanted.size:
        found = np.take(merged, places, gather.first).reshape(selection.shape)
        np.testing.assert_array_equal(found, wanted)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ((slice(1, 2),), (slice(1, 2, 3), Ellipsis)),
        ((slice(3, 1),), (slice(9, None, 2), slice(None))),
        ((-1,), (4, slice(None))),
        ((Ellipsis, 2), (slice(None), -1)),
    ],
)
def test_equal_selections_are_equal_slices(one: tuple[Any, ...], other: tuple[Any, ...]) -> None:
    """Equal work must be an equal graph, however the key was written."""
    assert select(one, (5, 3)).slices == select(other, (5, 3)).slices


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ((5,), r"index 5 is out of bounds for dimension 0 with length 5"),
        ((0, -4), r"index -4 is out of bounds for dimension 1 with length 3"),
        ((0, 0, 0), r"3 indices for an array of 2 dimensions"),
        ((Ellipsis, Ellipsis), r"only one Ellipsis"),
        ((slice(None, None, 0),), r"step cannot be 0"),
        ((slice(0.5, None),), r"slice bounds must be integers"),
        ((1.0,), r"an index is an integer, .* not float"),
        (("a",), r"not str"),
        ((IndexArray(mask_length=4),), r"a mask of length 4 along dimension 0, which has length 5"),
    ],
)
def test_keys_that_cannot_be_are_refused(key: tuple[Any, ...], message: str) -> None:
    with pytest.raises(IndexingError, match=message) as caught:
        select(key, (5, 3))
    assert isinstance(caught.value, IndexError)


@pytest.mark.parametrize(
    "key",
    [
        (IndexArray(), slice(None), IndexArray()),
        (0, slice(None), IndexArray()),
        (IndexArray(), None, 0),
        (IndexArray(), Ellipsis, IndexArray()),
        (True,),
    ],
)
def test_keys_whose_meaning_would_differ_from_numpy_s_are_refused(key: tuple[Any, ...]) -> None:
    with pytest.raises(NotSupported):
        select(key, (5, 3, 2), (2,))
