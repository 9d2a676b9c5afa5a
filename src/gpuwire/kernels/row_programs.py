"""What row kernels are generated for: the program, and how a row is gone through."""

from __future__ import annotations

from dataclasses import dataclass

from gpuwire.ir.dtypes import DType
from gpuwire.kernels.programs import Load, Result, Step, name_of_steps


@dataclass(frozen=True, slots=True)
class RowReduction:
    """A reduction along the row of one register."""

    operation: str
    operand: int
    source: DType
    accumulate: DType
    result: DType


Instruction = Step | RowReduction


@dataclass(frozen=True, slots=True)
class RowProgram:
    """Registers: the loads, then the instructions. Loads are QUAD or STRIDED where they differ
    along the row, else UNIFORM or SCALAR. `row_results`: for each result whether there is one for
    each row, not for each element."""

    loads: tuple[Load, ...]
    instructions: tuple[Instruction, ...]
    results: tuple[Result, ...]
    row_results: tuple[bool, ...]

    @property
    def name(self) -> str:
        """The operations and types, for errors and profiles."""
        types = "_".join(load.dtype.name + load.form.value for load in self.loads)
        stored = "_".join(result.dtype.name for result in self.results)
        return f"{name_of_steps(self.instructions)}__{types}__{stored}"


@dataclass(frozen=True, slots=True)
class RowForm:
    """How a kernel goes through a row."""

    kept_rank: int
    reduced_rank: int
    workgroup_size: int
    """1 for the lane form."""
    held: int
    """Elements, or quads, that each lane holds; 0 for the looped form."""
    exact: bool
    """All lanes' held elements together are the row, without a rest."""
    quads: bool
    """Elements are read and written in fours: the one reduced dimension is contiguous in all that
    varies along it; offsets, kept strides and the length are multiples of four."""
    has_fma: bool
    """Whether `fma` rounds once and is quick."""
