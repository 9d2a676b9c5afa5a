"""Signatures: everything about an op but its tensors, its numbers and its line."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwire.ir.attributes import Attributes
from gpuwire.ir.operations import OpDef
from gpuwire.ir.tensors import TensorType


@dataclass(frozen=True, slots=True, eq=False)
class Signature:
    """An operation with its attributes and types. The recorder keeps one for equal ones, as a rule,
    so that comparing ops is comparing numbers."""

    number: int
    """Handed out by the session's recorder, never again for another signature."""
    definition: OpDef
    attributes: Attributes
    operands: tuple[TensorType, ...]
    """A scalar counts as a tensor without dimensions."""
    result: TensorType
