"""Checks of single fields: what a refusal tells, and what it must not."""

from __future__ import annotations

import pytest

from gpuwire.errors import LimitBreached, MalformedMessage
from gpuwire.wire import fields as check


def test_a_refusal_names_the_field_and_what_was_wanted() -> None:
    with pytest.raises(
        MalformedMessage, match="stream: wanted an integer from 0 to 7, found 8"
    ) as e:
        check.integer(8, "stream", 0, 7)
    assert e.value.what == "stream"
    with pytest.raises(LimitBreached, match="name: 3 is above the limit of 2") as breach:
        check.array((1, 2, 3), "name", 2)
    assert (breach.value.value, breach.value.limit) == (3, 2)


def test_a_refusal_does_not_show_the_peers_bytes() -> None:
    with pytest.raises(MalformedMessage) as raised:
        check.text(b"secret" * 1000, "name")
    assert "secret" not in str(raised.value)
    assert len(str(raised.value)) < 100
