"""Locations: the user's line is found, whatever stands between, and keeps its number."""

from __future__ import annotations

import types

from gpuwire.client.locations import UNKNOWN, LocationTable

PACKAGE = "/somewhere/package/"


def compiled(source: str, file: str) -> types.FunctionType:
    """The function `run` of a source text that claims to come from `file`."""
    names: dict[str, object] = {}
    exec(compile(source, file, "exec"), names)
    function = names["run"]
    assert isinstance(function, types.FunctionType)
    return function


def test_the_innermost_line_outside_the_package_is_found() -> None:
    table = LocationTable(PACKAGE)
    inner = compiled("def run(table):\n    return table.here()\n", f"{PACKAGE}inner.py")
    outer = compiled("def run(f, t):\n    return f(t)\n", f"{PACKAGE}operators.py")
    user = compiled("def run(g, f, t):\n\n\n    return g(f, t)\n", "/home/me/train.py")
    assert table.text(user(outer, inner, table)) == "/home/me/train.py:4"


def test_a_line_keeps_its_number_and_another_line_gets_another() -> None:
    table = LocationTable(PACKAGE)
    source = "def run(t, n):\n    if n:\n        return t.here()\n    return t.here()\n"
    user = compiled(source, "/home/me/a.py")
    first, second = user(table, 0), user(table, 1)
    assert first != second
    assert user(table, 0) == first
    assert table.text(first) == "/home/me/a.py:4"
    assert table.text(second) == "/home/me/a.py:3"


def test_two_calls_on_one_line_are_one_location() -> None:
    table = LocationTable(PACKAGE)
    user = compiled("def run(t):\n    return t.here(), t.here()\n", "/home/me/a.py")
    one, other = user(table)
    assert one == other


def test_code_that_is_gone_does_not_lend_its_line_to_new_code() -> None:
    table = LocationTable(PACKAGE)
    for number in range(2000):
        user = compiled("def run(t):\n    return t.here()\n", f"/home/me/{number}.py")
        assert table.text(user(table)) == f"/home/me/{number}.py:2"


def test_without_a_user_there_is_no_line() -> None:
    table = LocationTable("")  # Every file name begins with it: all frames are the package's.
    assert table.here() == UNKNOWN
    assert table.text(UNKNOWN) is None


def test_a_number_never_handed_out_has_no_text() -> None:
    assert LocationTable().text(99) is None
    assert LocationTable().text(-1) is None
