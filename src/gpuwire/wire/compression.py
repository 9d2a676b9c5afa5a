"""Compressed bulk streams: a tensor's bytes in pieces, each as it is or compressed.

Such a stream has `BulkHeader.item_bytes` set. Then come pieces until the tensor is whole: a header
of nine bytes (kind, u8; raw length, u32; length of what follows, u32, both big-endian), and what
follows: the bytes themselves, or one frame of Zstandard (RFC 8878).

Bytes of numbers compress better grouped by their place in the element, all first bytes, all second
bytes …: exponents repeat, mantissas do not. On normally distributed float32 the groups take 88 %
of the bytes where plain Zstandard takes 92, on sampled waves 53 where it takes 91; on numbers of
which half are zero they take more. So both are tried (`try_out`).

What a peer sends cannot grow: a compressed piece is at most `CODED_PIECE_BYTES` once unpacked,
its header says how long, and no more than that is ever unpacked.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum

import numpy as np

from gpuwire.errors import LimitBreached, MalformedMessage
from gpuwire.wire.messages import Buffer

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

CODED_PIECE_BYTES = 256 * 1024
"""Each end holds one such piece of a stream, twice. Four times as much compresses 1 to 4 % better,
half of it up to 4 % worse."""
LEAST_BYTES = 64 * 1024
"""A shorter tensor is sent as it is."""
PIECE_HEADER_BYTES = 9
_PIECE_HEADER = struct.Struct(">BII")
_WINDOW_LOG = 18
"""2^18 is `CODED_PIECE_BYTES`: no frame may make the decoder keep more."""
_LEVEL = 1
"""Level 3 takes half as long again for 1 % of float32, level -1 is no faster on what compresses."""
_SAMPLE_PARTS = 4


class PieceKind(IntEnum):
    """What follows a piece's header."""

    STORED = 0
    ZSTD = 1
    GROUPED = 2
    """Zstandard, over bytes grouped by their place in the element."""


@dataclass(frozen=True, slots=True)
class PieceHeader:
    """What a piece is. Lengths in bytes."""

    kind: PieceKind
    raw: int
    coded: int


@dataclass(frozen=True, slots=True)
class Trial:
    """How a sample was compressed one way."""

    kind: PieceKind
    ratio: float
    """Bytes after over bytes before."""
    seconds_per_byte: float
    """Compressing and unpacking, on this machine: the other one is taken to be like it."""

    def cost(self, bytes_per_second: float) -> float:
        """Seconds for each byte of a tensor over a link of that rate. Compressing and sending
        overlap, but on the processors that sending keeps busy too; so both are counted whole."""
        return self.seconds_per_byte + self.ratio / bytes_per_second


def encode_piece(data: memoryview, kind: PieceKind, item_bytes: int) -> tuple[bytes, Buffer]:
    """The header of a piece and what follows it: compressed as `kind` says, or `data` itself where
    that is no longer. At most `CODED_PIECE_BYTES`, unless it is to be STORED. Grouping copies the
    bytes once."""
    if kind is not PieceKind.STORED:
        source = _grouped(data, item_bytes) if kind is PieceKind.GROUPED else data
        coded = zstd.compress(source, level=_LEVEL)
        if len(coded) < len(data):
            return _PIECE_HEADER.pack(kind, len(data), len(coded)), coded
    return _PIECE_HEADER.pack(PieceKind.STORED, len(data), len(data)), data


def decode_piece_header(data: bytes, left: int) -> PieceHeader:
    """The header in exactly `PIECE_HEADER_BYTES` of a stream of which `left` bytes of tensor are to
    come. `MalformedMessage` or `LimitBreached`, before anything is allocated for the piece."""
    code, raw, coded = _PIECE_HEADER.unpack(data)
    if code not in PieceKind._value2member_map_:
        raise MalformedMessage(f"{code} is no kind of piece", what="piece")
    kind = PieceKind(code)
    if not 1 <= raw <= left:
        raise MalformedMessage(f"a piece of {raw} bytes where {left} are to come", what="piece")
    if kind is PieceKind.STORED:
        if coded != raw:
            raise MalformedMessage(f"{coded} bytes stored for a piece of {raw}", what="piece")
    elif raw > CODED_PIECE_BYTES:
        raise LimitBreached(
            f"a compressed piece of {raw} bytes is announced; the most is {CODED_PIECE_BYTES}",
            what="piece bytes",
            value=raw,
            limit=CODED_PIECE_BYTES,
        )
    elif not 1 <= coded < raw:
        raise MalformedMessage(f"{coded} bytes compressed from {raw}", what="piece")
    return PieceHeader(kind, raw, coded)


def decode_piece(header: PieceHeader, data: Buffer, item_bytes: int, target: memoryview) -> None:
    """Fills `target`, of `header.raw` bytes, from what followed the header of a compressed piece;
    the bytes are copied once, out of what was unpacked. `MalformedMessage` where they are not what
    the header says."""
    options: dict[int, int] = {zstd.DecompressionParameter.window_log_max: _WINDOW_LOG}
    decoder = zstd.ZstdDecompressor(options=options)
    try:
        raw = decoder.decompress(data, max_length=header.raw)
    except zstd.ZstdError as error:
        raise MalformedMessage(f"a piece is no Zstandard: {error}", what="piece") from error
    if not decoder.eof or decoder.unused_data or len(raw) != header.raw:
        raise MalformedMessage(
            f"a compressed piece does not hold the {header.raw} bytes that it announces",
            what="piece",
        )
    if header.kind is PieceKind.GROUPED:
        _ungroup(raw, item_bytes, target)
    else:
        target[:] = raw


def try_out(data: memoryview, item_bytes: int, clock: Callable[[], float]) -> tuple[Trial, ...]:
    """Compresses a sample of a tensor, taken from `_SAMPLE_PARTS` places, in each way there is.
    `clock` gives seconds. Some milliseconds; copies the sample."""
    sample = _sample(data, item_bytes)
    kinds = (PieceKind.ZSTD, PieceKind.GROUPED) if item_bytes > 1 else (PieceKind.ZSTD,)
    return tuple([_tried(sample, kind, item_bytes, clock) for kind in kinds])


def _tried(
    sample: memoryview, kind: PieceKind, item_bytes: int, clock: Callable[[], float]
) -> Trial:
    began = clock()
    head, coded = encode_piece(sample, kind, item_bytes)
    header = decode_piece_header(head, len(sample))
    if header.kind is not PieceKind.STORED:
        decode_piece(header, coded, item_bytes, memoryview(bytearray(len(sample))))
    seconds = clock() - began
    return Trial(kind, header.coded / len(sample), seconds / len(sample))


def _sample(data: memoryview, item_bytes: int) -> memoryview:
    part = CODED_PIECE_BYTES // _SAMPLE_PARTS
    if len(data) <= CODED_PIECE_BYTES:
        return data
    step = (len(data) - part) // (_SAMPLE_PARTS - 1)
    starts = [i * step // item_bytes * item_bytes for i in range(_SAMPLE_PARTS)]
    return memoryview(b"".join([data[start : start + part] for start in starts]))


def _grouped(data: memoryview, item_bytes: int) -> Buffer:
    whole = len(data) // item_bytes * item_bytes
    table = np.frombuffer(data[:whole], np.uint8).reshape(-1, item_bytes)
    grouped = np.empty(len(data), np.uint8)
    grouped[:whole].reshape(item_bytes, -1)[:] = table.T
    grouped[whole:] = np.frombuffer(data[whole:], np.uint8)
    return grouped.data


def _ungroup(raw: bytes, item_bytes: int, target: memoryview) -> None:
    whole = len(raw) // item_bytes * item_bytes
    table = np.frombuffer(raw, np.uint8, whole).reshape(item_bytes, -1)
    np.frombuffer(target[:whole], np.uint8).reshape(-1, item_bytes)[:] = table.T
    target[whole:] = raw[whole:]
