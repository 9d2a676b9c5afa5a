"""Pieces of tensors, compressed and not: back to the same bytes, and never to more."""

from __future__ import annotations

import itertools
import tracemalloc

import numpy as np
import pytest
from backports import zstd
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwire.errors import LimitBreached, MalformedMessage
from gpuwire.wire.compression import (
    CODED_PIECE_BYTES,
    PieceHeader,
    PieceKind,
    Trial,
    decode_piece,
    decode_piece_header,
    encode_piece,
    try_out,
)

WAVE = np.sin(np.arange(8192, dtype=np.float32) / 100)


def view(data: bytes | np.ndarray) -> memoryview:
    return memoryview(data if isinstance(data, bytes) else data.tobytes())


def unpacked(data: memoryview, kind: PieceKind, item_bytes: int) -> bytes:
    head, coded = encode_piece(data, kind, item_bytes)
    header = decode_piece_header(head, len(data))
    assert (header.raw, header.coded) == (len(data), len(coded))
    if header.kind is PieceKind.STORED:
        return bytes(coded)
    target = bytearray(len(data))
    decode_piece(header, coded, item_bytes, memoryview(target))
    return bytes(target)


@settings(derandomize=True, deadline=None, max_examples=100)
@given(
    st.binary(min_size=1, max_size=50),
    st.integers(1, 200),
    st.sampled_from(PieceKind),
    st.sampled_from((1, 2, 4, 8, 16)),
)
def test_a_piece_comes_back_as_it_was(
    part: bytes, count: int, kind: PieceKind, item_bytes: int
) -> None:
    assert unpacked(memoryview(part * count), kind, item_bytes) == part * count


def test_what_does_not_get_smaller_is_not_copied() -> None:
    data = view(np.random.default_rng(0).bytes(4096))
    head, coded = encode_piece(data, PieceKind.GROUPED, 4)
    assert decode_piece_header(head, 4096).kind is PieceKind.STORED
    assert coded is data


def test_grouping_finds_what_floats_have_in_common() -> None:
    plain, grouped = try_out(view(WAVE), 4, itertools.count().__next__)
    assert (plain.kind, grouped.kind) == (PieceKind.ZSTD, PieceKind.GROUPED)
    assert grouped.ratio < 0.7 < plain.ratio


def test_a_sample_is_taken_from_all_of_a_tensor() -> None:
    noise = np.random.default_rng(1).bytes(CODED_PIECE_BYTES)
    (trial,) = try_out(memoryview(noise + bytes(3 * CODED_PIECE_BYTES)), 1, lambda: 0.0)
    assert 0.2 < trial.ratio < 0.3


def test_the_time_that_a_sample_takes_is_what_it_costs() -> None:
    times = iter((10.0, 10.5))
    (trial,) = try_out(memoryview(bytes(1000)), 1, lambda: next(times))
    assert trial.seconds_per_byte == pytest.approx(0.0005)
    assert Trial(PieceKind.ZSTD, 0.5, 1e-9).cost(1e6) == pytest.approx(0.501e-6)


@pytest.mark.parametrize(
    ("kind", "raw", "coded"),
    [
        (3, 10, 5),
        (0, 0, 0),
        (0, 10, 9),
        (0, 101, 101),
        (1, 101, 5),
        (1, 10, 0),
        (1, 10, 10),
        (2, 10, 11),
    ],
)
def test_a_wrong_header_is_malformed(kind: int, raw: int, coded: int) -> None:
    head = bytes([kind]) + raw.to_bytes(4, "big") + coded.to_bytes(4, "big")
    with pytest.raises(MalformedMessage):
        decode_piece_header(head, 100)


def test_a_compressed_piece_is_bounded_before_it_is_unpacked() -> None:
    most = CODED_PIECE_BYTES
    head = b"\x01" + (most + 1).to_bytes(4, "big") + (5).to_bytes(4, "big")
    with pytest.raises(LimitBreached) as raised:
        decode_piece_header(head, 1 << 40)
    assert (raised.value.value, raised.value.limit) == (most + 1, most)


FRAME = zstd.compress(bytes(1000))


@pytest.mark.parametrize(
    ("raw", "data"),
    [
        (1000, b"this is no Zstandard"),
        (1000, FRAME[:-1]),
        (1000, FRAME + b"more"),
        (1000, FRAME + FRAME),
        (999, FRAME),
        (1001, FRAME),
        (1000, b""),
    ],
    ids=["other bytes", "cut", "longer", "twice", "too much", "too little", "none"],
)
def test_what_is_not_the_announced_bytes_is_malformed(raw: int, data: bytes) -> None:
    header = PieceHeader(PieceKind.ZSTD, raw, len(data))
    with pytest.raises(MalformedMessage):
        decode_piece(header, data, 1, memoryview(bytearray(raw)))


def test_a_bomb_takes_no_memory() -> None:
    """64 MiB of zeros in 6 KB, and a frame that asks for a window of 128 MiB."""
    wide: dict[int, int] = {zstd.CompressionParameter.window_log: 27}
    compressor = zstd.ZstdCompressor(options=wide)
    windowed = compressor.compress(bytes(1000)) + compressor.flush()
    for raw, bomb in ((500, zstd.compress(bytes(1 << 26))), (1000, windowed)):
        target = memoryview(bytearray(raw))
        tracemalloc.start()
        try:
            with pytest.raises(MalformedMessage):
                decode_piece(PieceHeader(PieceKind.ZSTD, raw, len(bomb)), bomb, 1, target)
            assert tracemalloc.get_traced_memory()[1] < 1 << 20
        finally:
            tracemalloc.stop()
