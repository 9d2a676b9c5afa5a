"""Every operation in every type that its rule allows and the device has, against NumPy.

    python tests/conformance/sweep_operations.py [--device N] [--json PATH]

What it gave on the devices at hand is in `results/`.

Elementwise operations are compared in a wider type; the table gives the worst result of each, in
units in the last place. Exit code 1 if one is off by more than `operation_cases.most_units` allows,
or if anything exact is not.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpuwire.errors import GpuwireError
from gpuwire.ir import dtypes as dt
from gpuwire.ir.attributes import (
    NO_ATTRIBUTES,
    ArgReduceAttributes,
    Attributes,
    AxisAttributes,
    CastAttributes,
    LengthAttributes,
    PermuteAttributes,
    ReduceAttributes,
    ShapeAttributes,
    SliceAttributes,
)
from gpuwire.ir.dtypes import DType, Kind
from gpuwire.ir.operations import OPERATIONS, OpDef
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.lowering.host_operations import runs_on_host
from gpuwire.lowering.host_reference import convert, evaluate
from lowered import Machine
from operation_cases import (
    castable,
    elementwise_pairs,
    expected,
    most_units,
    operands,
    result_type,
    units_off,
)


@dataclass(frozen=True)
class Outcome:
    """One operation in one type. `units` in the last place; infinite for a wrong special value,
    or for any difference where the result is exact."""

    operation: str
    dtype: str
    units: float
    allowed: float
    detail: str


def main() -> int:
    """Run the sweep; 1 if anything is off."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--device", type=int, default=0)
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    machine = Machine(arguments.device)
    properties = machine.server.utilities().properties
    begun = time.perf_counter()
    outcomes = [
        _elementwise(machine, definition, dtype)
        for definition, dtype in elementwise_pairs(machine.lowering.dtypes)
        if not runs_on_host(definition.name, dtype)
    ]
    outcomes += [
        _cast(machine, source, target)
        for source in machine.lowering.dtypes
        for target in machine.lowering.dtypes
        if target.kind is Kind.COMPLEX or source.kind is not Kind.COMPLEX
    ]
    for dtype in machine.lowering.dtypes:
        outcomes += _structural(machine, dtype)
    seconds = time.perf_counter() - begun
    off = [outcome for outcome in outcomes if outcome.units > outcome.allowed]
    print(f"{properties.name}: {len(outcomes)} operations and types in {seconds:.0f} s")
    for outcome in sorted(outcomes, key=lambda outcome: -outcome.units)[:25]:
        if outcome.units > 0:
            print(
                f"{outcome.operation:20} {outcome.dtype:22} {outcome.units:8.3g}  {outcome.detail}"
            )
    print(f"{len(off)} off")
    if arguments.json:
        arguments.json.write_text(json.dumps(_record(properties.name, outcomes), indent=1) + "\n")
    machine.server.close()
    return 1 if off else 0


def _record(device: str, outcomes: list[Outcome]) -> dict[str, object]:
    """What is kept of a run: how much was compared, and every operation that is not exact."""
    units: dict[str, dict[str, float]] = {}
    for outcome in outcomes:
        if outcome.units > 0:
            units.setdefault(outcome.operation, {})[outcome.dtype] = round(outcome.units, 2)
    return {
        "device": device,
        "compared": len(outcomes),
        "off": sum(outcome.units > outcome.allowed for outcome in outcomes),
        "units in the last place, where not 0": units,
    }


def _elementwise(machine: Machine, definition: OpDef, dtype: DType) -> Outcome:
    result = result_type(definition, dtype)
    arrays = operands(definition, dtype)
    allowed = most_units(definition.name, result)
    try:
        got = machine.run(definition.name, *arrays)
    except GpuwireError as error:
        return Outcome(definition.name, dtype.name, np.inf, allowed, str(error)[:300])
    want = expected(definition, arrays, result)
    if definition.name in ("maximum", "minimum", "nextafter") and result.is_floating:
        got, want = got + 0, want + 0
    off = units_off(got, want, result) if result.is_floating else np.where(got == want, 0, np.inf)
    worst = int(np.argmax(off))
    told = ", ".join(str(array[worst]) for array in arrays)
    detail = f"of {told}: {got[worst]}, not {want[worst]}" if off[worst] else ""
    return Outcome(definition.name, dtype.name, float(off[worst]), allowed, detail)


def _cast(machine: Machine, source: DType, target: DType) -> Outcome:
    values = castable(source)
    got = machine.run("cast", values, attributes=CastAttributes(target))
    with np.errstate(all="ignore"):
        want = convert(values, target)
    same = (got == want) | ((got != got) & (want != want))
    worst = int(np.argmin(same))
    detail = "" if same.all() else f"of {values[worst]}: {got[worst]}, not {want[worst]}"
    return Outcome("cast", f"{source} to {target}", 0.0 if same.all() else np.inf, 0.0, detail)


def _structural(machine: Machine, dtype: DType) -> list[Outcome]:
    """Every operation that is not elementwise, in one type. Sums and products of small whole
    numbers are exact in every type, and so are held to be."""
    numbers = np.arange(5 * 7 * 9).reshape(5, 7, 9) % (2 if dtype.kind is Kind.BOOL else 5)
    cube = numbers.astype(dtype.numpy)
    scalar = Scalar(cube[0, 0, 1].item(), dtype)
    index = np.array([2, 0, -1, 4], np.int32)
    cases: list[tuple[str, list[np.ndarray | Scalar], Attributes]] = [
        ("reshape", [cube[:, ::-1]], ShapeAttributes((63, 5))),
        ("broadcast_to", [cube[:1]], ShapeAttributes((3, 7, 9))),
        ("permute_dims", [cube], PermuteAttributes((2, 0, 1))),
        ("slice", [cube], SliceAttributes((4, 0, 1), (-2, 1, 3), (3, 7, 3))),
        ("concat", [cube, cube[::-1], cube[:, :, :]], AxisAttributes(1)),
        ("slice_assign", [cube, scalar], SliceAttributes((4, 0, 1), (-2, 1, 3), (3, 7, 3))),
        ("take", [cube, index], AxisAttributes(0)),
        ("full", [scalar], ShapeAttributes((3, 7))),
        ("where", [numbers > 1, cube, cube[::-1]], NO_ATTRIBUTES),
    ]
    if dtype.kind is not Kind.BOOL:
        cases.append(("matmul", [cube, cube[0].T], NO_ATTRIBUTES))
        if dtype.kind is not Kind.COMPLEX:
            cases.append(("arange", [scalar, scalar], LengthAttributes(37)))
    for name in ("sum", "prod", "mean", "min", "max", "any", "all", "argmin", "argmax"):
        for axis in range(3):
            found = _reduction(name, dtype, axis)
            if found is not None:
                cases.append((name, [cube], found))
    outcomes = []
    for name, inputs, attributes in cases:
        definition = OPERATIONS[name]
        arrays = [
            np.asarray(each.value).astype(each.dtype.numpy) if isinstance(each, Scalar) else each
            for each in inputs
        ]
        types = [TensorType(dt.dtype_of_numpy(array.dtype), array.shape) for array in arrays]
        result = definition.result_type(tuple(types), attributes)
        want = evaluate(definition, arrays, attributes, result)
        got = machine.run(name, *inputs, attributes=attributes)
        same = np.array_equal(got, want) and got.dtype == want.dtype
        outcomes.append(Outcome(name, dtype.name, 0.0 if same else np.inf, 0.0, str(attributes)))
    return outcomes


def _reduction(name: str, dtype: DType, axis: int) -> Attributes | None:
    """The reduction's attributes in that type, if it has one and gives whole numbers."""
    if name.startswith("arg"):
        return None if dtype.kind is Kind.COMPLEX else ArgReduceAttributes(axis, True, dt.int32)
    if name in ("any", "all"):
        return ReduceAttributes((axis,), True, dt.bool_)
    if name in ("min", "max") and dtype.kind is Kind.COMPLEX:
        return None
    if name == "mean":
        return ReduceAttributes((0,), True, dtype) if dtype.is_floating else None
    result = dt.int32 if dtype.kind is Kind.BOOL and name in ("sum", "prod") else dtype
    return ReduceAttributes((axis,), True, result)


if __name__ == "__main__":
    sys.exit(main())
