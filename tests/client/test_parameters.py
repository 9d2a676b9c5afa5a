"""Numbers as words of a kernel's parameters."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from gpuwire.client.parameters import parameter_words
from gpuwire.errors import DTypeError, ScalarOutOfRange


@pytest.mark.parametrize(
    ("value", "form", "word"),
    [
        (5, "i", 5),
        (-5, "i", -5),
        (-(1 << 31), "i", -(1 << 31)),
        ((1 << 32) - 1, "I", (1 << 32) - 1),
        (True, "I", 1),
        (np.False_, "I", 0),
        (0.1, "f", 0.1),
        (float("inf"), "f", float("inf")),
        (np.float64(2.5), "f", 2.5),
        (np.float32(2.5), "f", 2.5),
        (np.float16(2.5), "f", 2.5),
        (np.int8(-3), "i", -3),
        (np.uint16(65535), "I", 65535),
        (np.int32(-7), "i", -7),
        (np.uint32(1 << 31), "I", 1 << 31),
    ],
)
def test_a_number_is_one_word(value: object, form: str, word: object) -> None:
    assert parameter_words([value]) == struct.pack("<" + form, word)


def test_words_follow_each_other() -> None:
    assert parameter_words([1, 2.0, True]) == struct.pack("<ifI", 1, 2.0, 1)
    assert parameter_words([]) == b""


@pytest.mark.parametrize("value", [1 << 32, -(1 << 31) - 1, 1e39, -1e39])
def test_a_number_that_no_word_holds(value: float) -> None:
    with pytest.raises(ScalarOutOfRange):
        parameter_words([value])


@pytest.mark.parametrize("value", [np.int64(1), np.uint64(1), 1j, "1", None, np.zeros(3), [1]])
def test_what_is_no_word(value: Any) -> None:
    with pytest.raises(DTypeError):
        parameter_words([value])
