"""Operations from a peer: every field checked."""

from __future__ import annotations

from typing import get_args

import pytest
from hypothesis import given, settings

from gpuwire.errors import LimitBreached, MalformedMessage
from gpuwire.ir.attributes import Attributes
from gpuwire.wire.limits import DEFAULT_LIMITS
from gpuwire.wire.operations import (
    Plain,
    checked_attributes,
    checked_operation,
    checked_scalar,
    checked_shape,
    checked_type,
    plain_attributes,
)
from wire import strategies

ADD: Plain = (50, 900, 5, (1, 2))


@settings(derandomize=True, deadline=None, max_examples=200)
@given(strategies.attributes)
def test_attributes_round_trip_by_their_fields(attributes: Attributes) -> None:
    plain = plain_attributes(attributes)
    assert checked_attributes(type(attributes), plain, DEFAULT_LIMITS) == attributes


def test_every_form_of_attributes_has_its_way_onto_the_wire() -> None:
    for form in get_args(Attributes):
        with pytest.raises(MalformedMessage):
            checked_attributes(form, (1,) * 9, DEFAULT_LIMITS)


def test_an_operation_is_what_its_fields_say() -> None:
    operation = checked_operation(ADD, DEFAULT_LIMITS)
    assert operation.definition.name == "add"
    assert (operation.inputs, operation.output, operation.location) == ((1, 2), 900, 5)


@pytest.mark.parametrize(
    "plain",
    [
        (),
        ADD[:3],
        (*ADD, 1),
        (49, 900, 5, (1, 2)),
        ("add", 900, 5, (1, 2)),
        (True, 900, 5, (1, 2)),
        (50, 0, 5, (1, 2)),
        (50, 1 << 63, 5, (1, 2)),
        (50, -1, 5, (1, 2)),
        (50, 900, -1, (1, 2)),
        (50, 900, None, (1, 2)),
        (50, 900, 5, (1,)),
        (50, 900, 5, (1, 2, 3)),
        (50, 900, 5, 1),
        (50, 900, 5, b"12"),
        (50, 900, 5, (1, 0)),
        (50, 900, 5, (1, None)),
        (50, 900, 5, (1, 2.0)),
        (50, 900, 5, (1, True)),
        (50, 900, 5, (1, ())),
        (39, 900, 5, (1,)),
        (39, 900, 5, (1,), 99),
        (100, 900, 5, (1,), (0,), 1, 12),
        (100, 900, 5, (1,), (-1,), True, 12),
        (107, 900, 5, (1,), 0.0, True, 5),
        (130, 900, 5, (1,), (2, -3)),
        (133, 900, 5, (1,), (0,), (1,), (-1,)),
        (151, 900, 5, (1, 2), -1),
    ],
)
def test_a_wrong_operation_is_malformed(plain: Plain) -> None:
    with pytest.raises(MalformedMessage):
        checked_operation(plain, DEFAULT_LIMITS)


def test_slices_may_start_and_step_backwards() -> None:
    assert checked_operation((133, 900, 5, (1,), (-1,), (-2,), (0,)), DEFAULT_LIMITS)


@pytest.mark.parametrize(
    "plain",
    [
        (),
        (1,),
        (99, 1),
        (1, 1),
        (1, True, 1),
        (2, 128),
        (2, True),
        (6, -1),
        (6, 256),
        (9, 1.0),
        (11, 1),
        (11, None),
        (13, 1.0),
        (13, 1.0, 1),
        (13, 1.0, 1.0, 1.0),
    ],
)
def test_a_wrong_scalar_is_malformed(plain: Plain) -> None:
    with pytest.raises(MalformedMessage):
        checked_scalar(plain)


def test_shapes_and_types_are_limited() -> None:
    assert checked_shape((0,) * 32) == (0,) * 32
    with pytest.raises(LimitBreached, match="shape"):
        checked_shape((1,) * 33)
    with pytest.raises(LimitBreached, match="elements"):
        checked_shape((1 << 62, 2))
    assert checked_type(2, (1 << 62,)).size == 1 << 62
    with pytest.raises(LimitBreached, match="bytes of a tensor"):
        checked_type(5, (1 << 62,))
