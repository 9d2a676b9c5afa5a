"""What matmul kernels are generated for, and where their parameters lie.

Parameters, in words: M, N, K, the number of slices, the tiles along M and along N, the batches;
offset, row stride and column stride of the left operand, then of the right; lengths of the batch
dimensions, then the left's batch strides, then the right's; the epilogue's.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import DType, Kind
from gpuwire.kernels.matmul_epilogue import MatmulEpilogue
from gpuwire.kernels.programs import name_of_steps

M, N, K, SLICES, TILES_M, TILES_N, BATCHES = 0, 1, 2, 3, 4, 5, 6
LEFT, RIGHT, BATCH = 7, 10, 13


@dataclass(frozen=True, slots=True)
class Tile:
    """How a workgroup divides its work: the tile's size, its depth along K, and the rows and
    columns that one invocation computes."""

    rows: int
    columns: int
    depth: int
    lane_rows: int
    lane_columns: int
    unroll: int = 1
    """Steps along K that are written out in the loop over a slice; `depth` is a multiple."""

    @property
    def workgroup_size(self) -> int:
        return (self.rows // self.lane_rows) * (self.columns // self.lane_columns)


@dataclass(frozen=True, slots=True)
class OperandForm:
    """How a product reads one operand. `along_k`: neighbours along K are neighbours in memory, else
    those along the other dimension. `quads`: they can be read four at a time, because offset,
    other strides and the length of that dimension are multiples of four."""

    dtype: DType
    along_k: bool
    quads: bool


@dataclass(frozen=True, slots=True)
class MatmulSpec:
    """What a matmul kernel is generated for."""

    left: OperandForm
    right: OperandForm
    accumulate: DType
    batch_rank: int
    tile: Tile
    epilogue: MatmulEpilogue | None = None


def matmul_accumulator(result: DType) -> DType:
    """The type a product is computed in."""
    if result is dt.float16:
        return dt.float32
    if result.itemsize < 4:
        return dt.int32 if result.kind is Kind.SIGNED else dt.uint32
    return result


def named_matmul(epilogue: MatmulEpilogue | None) -> str:
    """The operations, for errors and profiles."""
    after = name_of_steps(epilogue.steps) if epilogue else ""
    return f"matmul_{after}" if after else "matmul"


def in_fours(spec: MatmulSpec) -> bool:
    """Whether workgroup memory is read four neighbours at a time: right for words only."""
    tile = spec.tile
    fours = tile.lane_rows % 4 == 0 and tile.lane_columns % 4 == 0
    return fours and spec.accumulate.itemsize == 4
