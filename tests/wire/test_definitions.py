"""Definitions of graphs: they round-trip, and what is none is refused before it is built."""

from __future__ import annotations

from dataclasses import replace

import msgpack
import pytest
from hypothesis import given, settings

from gpuwire.errors import LimitBreached, MalformedMessage
from gpuwire.wire.codec import decode_definition, encode_definition
from gpuwire.wire.definitions import GraphDefinition
from gpuwire.wire.limits import DEFAULT_LIMITS
from gpuwire.wire.operations import Plain
from gpuwire.wire.packing import pack_integers
from wire import strategies
from wire.golden import DEFINITION

INPUT: Plain = (11, (2,))
ADD: Plain = (50, 5, (1, 1))
"""add of input 0 and itself, recorded at 5."""


def packed(*rows: object) -> bytes:
    return b"".join(msgpack.packb(row) for row in rows)


def head(inputs: object, nodes: object, *outputs: int) -> Plain:
    return (inputs, nodes, pack_integers(outputs))


@settings(derandomize=True, deadline=None, max_examples=100)
@given(strategies.definitions())
def test_definitions_round_trip(definition: GraphDefinition) -> None:
    assert decode_definition(encode_definition(definition), DEFAULT_LIMITS) == definition


def test_a_definition_tells_whether_it_recurs() -> None:
    recurring = replace(DEFINITION, recurs=True)
    encoded = encode_definition(recurring)
    assert decode_definition(encoded, DEFAULT_LIMITS) == recurring
    assert len(encoded) == len(encode_definition(DEFINITION)) + 1


def test_an_op_costs_a_few_bytes() -> None:
    assert len(encode_definition(DEFINITION)) < 60


@pytest.mark.parametrize(
    "rows",
    [
        (),
        (head(1, 1, 0),),
        (head(1, 1, 0), INPUT),
        (head(1, 1, 0), INPUT, ADD, ADD),
        (head(1, 1), INPUT, ADD),
        (head(0, 0, 0),),
        (head(1, 1, 1), INPUT, ADD),
        ((*head(1, 1, 0), False), INPUT, ADD),
        ((*head(1, 1, 0), 1), INPUT, ADD),
        ((*head(1, 1, 0), True, True), INPUT, ADD),
        (head(1, 1, -1), INPUT, ADD),
        (head(1, 1, 0, 0), INPUT, ADD),
        (head(None, 1, 0), INPUT, ADD),
        ((1, 1), INPUT, ADD),
        ((1, 1, (0,)), INPUT, ADD),
        (head(1, 1, 0), (11,), ADD),
        (head(1, 1, 0), (99, (2,)), ADD),
        (head(1, 1, 0), INPUT, (50, 5)),
        (head(1, 1, 0), INPUT, (49, 5, (1, 1))),
        (head(1, 1, 0), INPUT, (50, -1, (1, 1))),
        (head(1, 1, 0), INPUT, (50, 5, (1,))),
        (head(1, 1, 0), INPUT, (50, 5, (1, 1), 0)),
        (head(1, 1, 0), INPUT, (50, 5, (1, 5))),  # input 1 of 1
        (head(1, 1, 0), INPUT, (50, 5, (1, 0))),  # itself
        (head(1, 1, 0), INPUT, (50, 5, (1, 4))),  # a node before the first
        (head(1, 2, 0), INPUT, ADD, (50, 5, (4, 8))),  # the same from the second
        (head(1, 1, 0), INPUT, (50, 5, (1, 3))),  # no kind of operand
        (head(1, 1, 0), INPUT, (50, 5, (1, 99 << 2 | 2))),  # no data type
        (head(1, 1, 0), INPUT, (50, 5, (1, -4))),
        (head(1, 1, 0), INPUT, 50),
    ],
)
def test_a_wrong_definition_is_malformed(rows: tuple[object, ...]) -> None:
    with pytest.raises(MalformedMessage):
        decode_definition(packed(*rows), DEFAULT_LIMITS)


def test_definitions_are_limited() -> None:
    for rows in ((head(4097, 1, 0),), (head(0, 4097, 0),)):
        with pytest.raises(LimitBreached, match="graph"):
            decode_definition(packed(*rows), DEFAULT_LIMITS)
    with pytest.raises(LimitBreached, match="graph outputs"):
        decode_definition(packed((0, 1, bytes(4097))), DEFAULT_LIMITS)
