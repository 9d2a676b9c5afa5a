"""The ops of one stream: those that are open, and those before, in which repetition is sought."""

from __future__ import annotations

from bisect import bisect_left

from gpuwire.client.signatures import Signature
from gpuwire.ids import LocationId, TensorId
from gpuwire.ir.operations import Operand
from gpuwire.ir.tensors import Scalar

HISTORY_OPS = 8192
"""Closed ops that are kept: two of the longest periods."""
_TRIM_OPS = 4096
LOCATION_BITS = 21
"""A token's lower bits are its op's location; `locations` hands out fewer."""
_LOCATION_MASK = (1 << LOCATION_BITS) - 1


class StreamOps:
    """Ops in parallel lists, addressed by their place in them; `trim` moves all places.

    Ids of outputs rise along a stream, so a tensor is found by bisection.
    """

    __slots__ = ("_used", "_used_end", "open", "operands", "outputs", "signatures", "tokens")

    def __init__(self) -> None:
        self.tokens: list[int] = []
        """One number for operation, attributes, types and line."""
        self.operands: list[tuple[Operand, ...]] = []
        self.outputs: list[TensorId] = []
        self.signatures: list[Signature] = []
        self.open = 0
        """The place of the first open op."""
        self._used: set[Operand] = set()
        self._used_end = 0

    def __len__(self) -> int:
        return len(self.tokens)

    @property
    def open_count(self) -> int:
        return len(self.tokens) - self.open

    def append(
        self,
        signature: Signature,
        operands: tuple[Operand, ...],
        output: TensorId,
        location: LocationId,
    ) -> int:
        """Adds an open op; its token."""
        token = signature.number << LOCATION_BITS | location
        self.signatures.append(signature)
        self.operands.append(operands)
        self.outputs.append(output)
        self.tokens.append(token)
        return token

    def location(self, place: int) -> LocationId:
        """The line that recorded an op."""
        return LocationId(self.tokens[place] & _LOCATION_MASK)

    def find(self, tensor: TensorId, first: int = 0) -> int:
        """The place of the op that makes a tensor, from `first` on; -1 if there is none."""
        place = bisect_left(self.outputs, tensor, first)
        return place if place < len(self.outputs) and self.outputs[place] == tensor else -1

    def uses(self, tensor: TensorId) -> bool:
        """Whether an open op takes a tensor."""
        if self._used_end < len(self.tokens):
            for operands in self.operands[max(self._used_end, self.open) :]:
                self._used.update([x for x in operands if x.__class__ is not Scalar])
            self._used_end = len(self.tokens)
        return tensor in self._used

    def close(self, end: int) -> None:
        """The open ops before `end` are open no longer."""
        self.open = end
        self._used = set()
        self._used_end = end

    def trim(self) -> int:
        """Forgets old ops if there are many; by how much all places have moved down."""
        surplus = min(self.open, len(self.tokens) - HISTORY_OPS)
        if surplus < _TRIM_OPS:
            return 0
        for column in (self.tokens, self.operands, self.outputs, self.signatures):
            del column[:surplus]
        self.open -= surplus
        self._used_end = self.open
        self._used = set()
        return surplus

    def mend(self) -> None:
        """Takes back an op that was interrupted while it was added."""
        columns = (self.tokens, self.operands, self.outputs, self.signatures)
        length = min([len(column) for column in columns])
        for column in columns:
            del column[length:]
        self._used = set()
        self._used_end = self.open
