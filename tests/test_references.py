"""Who else holds an object."""

from __future__ import annotations

from gpuwire.references import sole_holders


class Thing:
    pass


def test_a_tuple_is_the_sole_holder_of_what_only_it_holds():
    things = (Thing(), Thing())
    assert sole_holders(things) == [True, True]
    named = things[1]
    assert sole_holders(things) == [True, False]
    del named
    assert sole_holders(things) == [True, True]
    held = [things[0]]
    assert sole_holders(things) == [False, True]
    assert sole_holders(things, holders=1) == [True, True]
    held.append(held[0])
    assert sole_holders(things, holders=1) == [False, True]


def test_what_stands_twice_has_two_holders():
    things = (Thing(),)
    assert sole_holders((*things, *things)) == [False, False]
