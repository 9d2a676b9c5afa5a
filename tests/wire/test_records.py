"""Errors on their way: they arrive as what they were."""

from __future__ import annotations

import pytest

from gpuwire.errors import (
    ExecutionError,
    FieldValue,
    GpuwireError,
    OutOfMemory,
    UploadTooLarge,
    VersionMismatch,
    error_classes,
)
from gpuwire.wire.codec import decode_replies, encode_reply
from gpuwire.wire.limits import DEFAULT_LIMITS
from gpuwire.wire.messages import ErrorRecord, Failed
from gpuwire.wire.records import MAX_CAUSES, from_record, to_record


def travelled(error: BaseException) -> GpuwireError:
    """The error as the other end gets it."""
    encoded = encode_reply(Failed(1, to_record(error), 0))
    assert len(encoded) <= DEFAULT_LIMITS.max_item_bytes
    (reply,) = decode_replies(encoded, 1, DEFAULT_LIMITS)
    assert isinstance(reply, Failed)
    return from_record(reply.error)


@pytest.mark.parametrize("code", sorted(error_classes()))
def test_every_error_arrives_as_its_own_class_with_its_fields(code: int) -> None:
    error_class = error_classes()[code]
    given: dict[str, FieldValue] = {name: f"{name}…" for name in error_class.field_names}
    found = travelled(error_class("wanted this, found that", **given))
    assert type(found) is error_class
    assert str(found) == "wanted this, found that"
    if error_class is not VersionMismatch:
        assert found.fields == given


def test_a_version_mismatch_is_told_from_the_receivers_side() -> None:
    found = travelled(VersionMismatch("no common version", ours="2", theirs="1"))
    assert (found.fields["ours"], found.fields["theirs"]) == ("1", "2")


def test_causes_stay_chained() -> None:
    error = ExecutionError("add failed", operation="add")
    error.__cause__ = OutOfMemory("no memory", wanted=1 << 33)
    error.__cause__.__cause__ = ValueError("the driver says no")
    found = travelled(error)
    assert isinstance(found.__cause__, OutOfMemory)
    assert found.__cause__.wanted == 1 << 33
    assert type(found.__cause__.__cause__) is GpuwireError
    assert str(found.__cause__.__cause__) == "ValueError: the driver says no"


def test_a_long_or_circular_chain_ends() -> None:
    first, second = ValueError("first"), ValueError("second")
    first.__cause__, second.__cause__ = second, first
    found: BaseException | None = travelled(first)
    length = 0
    while found is not None:
        length += 1
        found = found.__cause__
    assert length == MAX_CAUSES + 1


def test_an_error_of_a_later_version_is_still_an_error() -> None:
    found = from_record(ErrorRecord(59_999, "something new", (("field", 1),)))
    assert type(found) is GpuwireError
    assert str(found) == "something new"
    found = from_record(ErrorRecord(UploadTooLarge.code, "too large", (("size", 1), ("new", 2))))
    assert isinstance(found, UploadTooLarge)
    assert found.size == 1


def test_a_class_without_a_code_of_its_own_travels_as_its_parent() -> None:
    class Special(UploadTooLarge):
        pass

    assert type(travelled(Special("too large", size=5))) is UploadTooLarge


def test_texts_of_any_size_and_kind_travel() -> None:
    error: BaseException = OutOfMemory("é" * 1_000_000, wanted=1 << 80, in_use=-(1 << 80))
    for _ in range(MAX_CAUSES):
        outer = ValueError("€" * 100_000)
        outer.__cause__ = error
        error = outer
    found = travelled(error)
    assert str(found).startswith("ValueError: €€€")
    assert str(found).endswith("[…]")
    assert str(travelled(OutOfMemory("lone \ud800"))) == "lone \\ud800"


def test_fields_outside_the_wires_range_are_brought_into_it() -> None:
    found = travelled(OutOfMemory("x", wanted=1 << 80, in_use=-(1 << 80), limit=5))
    assert isinstance(found, OutOfMemory)
    assert (found.wanted, found.in_use, found.limit) == ((1 << 63) - 1, -(1 << 63), 5)
