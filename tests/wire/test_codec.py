"""Records to bytes and back: the bytes are what the protocol says, and nothing wrong gets in."""

from __future__ import annotations

import json
import math
import struct
import tracemalloc
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwire.errors import ArgumentError, LimitBreached, MalformedMessage
from gpuwire.ids import RequestId, StreamId, TensorId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.wire.codec import (
    decode_message,
    decode_replies,
    decode_tasks,
    encode_frame,
    encode_message,
    encode_reply,
    encode_task,
)
from gpuwire.wire.limits import DEFAULT_LIMITS, WireLimits
from gpuwire.wire.messages import (
    Done,
    DropTensors,
    Hello,
    Message,
    RegisterTensor,
    Reply,
    RunOperation,
    Task,
    TaskFrame,
    TensorData,
)
from wire import strategies
from wire.golden import MESSAGES, REPLIES, TASKS, run

GOLDEN: dict[str, dict[str, str]] = json.loads((Path(__file__).parent / "golden.json").read_text())
SETTINGS = settings(derandomize=True, deadline=None, max_examples=150)


def decode_task(data: bytes) -> Task:
    return decode_tasks(data, 1, DEFAULT_LIMITS)[0]


# --- The bytes are the protocol's ------------------------------------------------------------


def test_there_is_a_golden_vector_for_every_sample() -> None:
    assert GOLDEN["tasks"].keys() == TASKS.keys()
    assert GOLDEN["replies"].keys() == REPLIES.keys()
    assert GOLDEN["messages"].keys() == MESSAGES.keys()


@pytest.mark.parametrize("name", TASKS)
def test_golden_task(name: str) -> None:
    encoded = bytes.fromhex(GOLDEN["tasks"][name])
    assert encode_task(TASKS[name]) == encoded
    assert decode_task(encoded) == TASKS[name]


@pytest.mark.parametrize("name", REPLIES)
def test_golden_reply(name: str) -> None:
    encoded = bytes.fromhex(GOLDEN["replies"][name])
    assert encode_reply(REPLIES[name]) == encoded
    assert decode_replies(encoded, 1, DEFAULT_LIMITS) == [REPLIES[name]]


@pytest.mark.parametrize("name", MESSAGES)
def test_golden_message(name: str) -> None:
    encoded = bytes.fromhex(GOLDEN["messages"][name])
    assert encode_message(MESSAGES[name]) == encoded
    assert struct.unpack(">I", encoded[:4]) == (len(encoded) - 4,)
    assert decode_message(encoded[4:], DEFAULT_LIMITS) == MESSAGES[name]


# --- Round trips -----------------------------------------------------------------------------


@SETTINGS
@given(st.lists(strategies.tasks, min_size=1, max_size=6))
def test_tasks_round_trip(tasks: list[Task]) -> None:
    body = b"".join(map(encode_task, tasks))
    decoded = decode_tasks(body, len(tasks), DEFAULT_LIMITS)
    # A NaN equals nothing, so the bytes are compared too.
    assert b"".join(map(encode_task, decoded)) == body
    if "nan" not in repr(tasks):
        assert decoded == tasks


@SETTINGS
@given(st.lists(strategies.replies, min_size=1, max_size=6))
def test_replies_round_trip(replies: list[Reply]) -> None:
    body = b"".join(map(encode_reply, replies))
    decoded = decode_replies(body, len(replies), DEFAULT_LIMITS)
    assert b"".join(map(encode_reply, decoded)) == body
    if "nan" not in repr(replies):
        assert decoded == replies


@SETTINGS
@given(strategies.messages)
def test_messages_round_trip(message: Message) -> None:
    encoded = encode_message(message)
    decoded = decode_message(encoded[4:], DEFAULT_LIMITS)
    assert encode_message(decoded) == encoded
    if "nan" not in repr(message):
        assert decoded == message


@pytest.mark.parametrize("value", [math.inf, -math.inf, math.nan, -0.0, 5e-324])
def test_a_float_scalar_keeps_its_bits(value: float) -> None:
    task = decode_task(encode_task(run("multiply", 1, Scalar(value, dt.float64))))
    assert isinstance(task, RunOperation)
    scalar = task.operation.inputs[1]
    assert isinstance(scalar, Scalar)
    assert struct.pack("d", scalar.value) == struct.pack("d", value)


@pytest.mark.parametrize(
    ("value", "dtype"),
    [
        (1 << 64, dt.uint64),
        (-(1 << 63) - 1, dt.int64),
        (1 << 63, dt.int64),
        (-1, dt.uint64),
        (256, dt.uint8),
        (-129, dt.int8),
        (1.5, dt.int32),
        (1j, dt.float32),
    ],
)
def test_a_scalar_outside_its_type_is_refused_before_it_is_sent(
    value: complex, dtype: dt.DType
) -> None:
    with pytest.raises(ArgumentError):
        encode_task(run("multiply", 1, Scalar(value, dtype)))


def test_more_inputs_than_a_peer_takes_are_refused_before_they_are_sent() -> None:
    most = DEFAULT_LIMITS.max_array_length
    assert decode_task(encode_task(run("concat", *([1] * most), attributes=_axis())))
    with pytest.raises(ArgumentError, match=r"1025.*at most 1024"):
        encode_task(run("concat", *([1] * (most + 1)), attributes=_axis()))


def test_more_dropped_tensors_than_a_peer_takes_are_refused_before_they_are_sent() -> None:
    ids = tuple(map(TensorId, range(1, DEFAULT_LIMITS.max_dropped_tensors + 2)))
    assert decode_task(encode_task(DropTensors(ids[:-1]))) == DropTensors(ids[:-1])
    with pytest.raises(ArgumentError, match="at most 8192"):
        encode_task(DropTensors(ids))


def _axis() -> object:
    task = TASKS["run concat"]
    assert isinstance(task, RunOperation)
    return task.operation.attributes


# --- A frame's body is opaque and copied once ------------------------------------------------


def test_a_frame_is_taken_apart_without_decoding_or_copying_its_body() -> None:
    garbage = b"\xc1" * 100_000
    payload = encode_message(TaskFrame(1, 0, 2, garbage))[4:]
    frame = decode_message(payload, DEFAULT_LIMITS)
    assert isinstance(frame, TaskFrame)
    assert isinstance(frame.tasks, memoryview)
    assert frame.tasks.obj is payload
    assert frame.tasks == garbage


def test_a_frame_of_pieces_is_joined_in_one_copy() -> None:
    pieces = [memoryview(bytes(1 << 20)), bytes(1 << 20)]
    tracemalloc.start()
    try:
        data = encode_frame(TaskFrame, 1, 0, 2, pieces)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(data) > 2 << 20
    assert peak < len(data) + 16_384


# --- What is wrong is refused ----------------------------------------------------------------


def test_the_body_must_be_exactly_as_many_items_as_announced() -> None:
    body = encode_reply(Done(RequestId(1))) * 3
    assert len(decode_replies(body, 3, DEFAULT_LIMITS)) == 3
    with pytest.raises(MalformedMessage, match="ends inside"):
        decode_replies(body, 4, DEFAULT_LIMITS)
    with pytest.raises(MalformedMessage, match="3 bytes follow"):
        decode_replies(body, 2, DEFAULT_LIMITS)
    with pytest.raises(MalformedMessage, match="ends inside"):
        decode_replies(body[:-1], 3, DEFAULT_LIMITS)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\xc1",
        b"\x90",
        b"\x91\x7f",
        b"\x91\xc3",
        b"\x91\xff",
        b"\x01",
        b"\xa5hello",
        b"\x80",
        b"\xd4\x01\x01",
        b"\xc7\x00\x01",
        b"\x92\xa2\xff\xfe\x01",
        b"\x92\x06\x01\x00",
        b"\x92\x06",
    ],
)
def test_bytes_that_are_no_message_are_malformed(data: bytes) -> None:
    with pytest.raises((MalformedMessage, LimitBreached)):
        decode_message(data, DEFAULT_LIMITS)
    with pytest.raises((MalformedMessage, LimitBreached)):
        decode_tasks(data, 1, DEFAULT_LIMITS)


def test_a_reply_in_a_tasks_place_is_malformed() -> None:
    with pytest.raises(MalformedMessage, match="known kind"):
        decode_task(encode_reply(Done(RequestId(1))))
    with pytest.raises(MalformedMessage, match="known kind"):
        decode_replies(encode_task(TASKS["read"]), 1, DEFAULT_LIMITS)


@pytest.mark.parametrize(
    ("data", "what"),
    [
        (b"\x92\x10\xdd\x7f\xff\xff\xff", "array"),
        (b"\x92\x10\xdc\x04\x01", "array"),
        (b"\x92\x10\xdf\x7f\xff\xff\xff", "map"),
        (b"\x92\x10\x81\x01\x01", "map"),
        (b"\x92\x10\xd6\xff\x00\x00\x00\x01", "ext"),
        (b"\xdd" + (1 << 31).to_bytes(4, "big"), "array"),
    ],
)
def test_a_declared_length_above_the_limit_takes_no_memory(data: bytes, what: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(LimitBreached, match=f"length of one {what}") as raised:
            decode_task(data)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert raised.value.value > raised.value.limit
    assert peak < 64 * 1024


@pytest.mark.parametrize("header", [b"\xdb", b"\xc6"])
def test_a_long_text_or_blob_is_refused(header: bytes) -> None:
    length = 100_000
    data = b"\x92\x10" + header + length.to_bytes(4, "big") + bytes(length)
    with pytest.raises(LimitBreached):
        decode_task(data)


def test_deep_nesting_is_refused() -> None:
    with pytest.raises(LimitBreached, match="nested too deep"):
        decode_task(b"\x91" * 5000 + b"\x00")


def test_an_item_longer_than_its_limit_is_refused_however_it_lies_in_the_body() -> None:
    limits = replace(DEFAULT_LIMITS, max_item_bytes=1000)
    small, long = encode_task(TASKS["read"]), encode_task(_register(1200))
    for before in (0, 1, 150, 199, 200, 201):
        with pytest.raises(LimitBreached, match="bytes of an item"):
            decode_tasks(small * before + long, before + 1, limits)


def test_items_are_decoded_across_the_decoders_window() -> None:
    limits = replace(DEFAULT_LIMITS, max_item_bytes=300)
    tasks = [_register(size) for size in (0, 200, 280, 1, 3, 270, 280, 280, 0, 99)] * 5
    body = b"".join(map(encode_task, tasks))
    assert decode_tasks(body, len(tasks), limits) == tasks


def test_a_hostile_item_takes_bounded_memory() -> None:
    """The worst there is: arrays of one element, each a byte on the wire and 72 in memory."""
    chain = b"\x91" * 400 + b"\xc0"
    many = DEFAULT_LIMITS.max_array_length
    data = b"\xdc" + many.to_bytes(2, "big") + chain * many
    body = data * 10
    tracemalloc.start()
    try:
        with pytest.raises(LimitBreached):
            decode_tasks(body, 10, DEFAULT_LIMITS)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert len(body) > 4_000_000
    assert peak < 2 * 80 * DEFAULT_LIMITS.max_item_bytes


def test_a_control_message_may_not_be_as_long_as_a_frame() -> None:
    limits = replace(DEFAULT_LIMITS, max_message_bytes=100)
    hello = Hello((1,), "x" * 100, 0, "")
    with pytest.raises(LimitBreached, match="message bytes"):
        decode_message(encode_message(hello)[4:], limits)


def test_a_frame_may_not_announce_more_items_than_fit() -> None:
    with pytest.raises(LimitBreached, match="items of a frame"):
        decode_message(encode_message(TaskFrame(1, 0, 3, b"\x91\x00\x91\x00"))[4:], DEFAULT_LIMITS)
    limits = WireLimits(max_items_per_frame=1)
    body = encode_reply(Done(RequestId(1))) * 2
    with pytest.raises(LimitBreached, match="items of a frame"):
        decode_message(encode_message(TaskFrame(1, 0, 2, body))[4:], limits)
    with pytest.raises(LimitBreached, match="items of a frame"):
        decode_replies(body, 2, limits)


def test_inline_bytes_must_be_what_the_type_says() -> None:
    type_ = TensorType(dt.float32, (3,))
    for data in (bytes(11), bytes(13), b""):
        with pytest.raises(MalformedMessage, match="12 bytes"):
            decode_task(
                encode_task(RegisterTensor(StreamId(0), RequestId(1), TensorId(1), type_, data))
            )
        with pytest.raises(MalformedMessage, match="12 bytes"):
            decode_replies(encode_reply(TensorData(RequestId(1), type_, data)), 1, DEFAULT_LIMITS)


def _register(size: int) -> RegisterTensor:
    type_ = TensorType(dt.uint8, (size,))
    return RegisterTensor(StreamId(0), RequestId(1), TensorId(1), type_, bytes(size))
