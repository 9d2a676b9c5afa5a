"""Random graphs, fused against one kernel for each operation, and against NumPy.

    python tests/property/sweep_fusion.py [--first SEED] [--count N] [--nodes N] [--as-gpu]
        [--json PATH]

Where only elementwise and exact operations lead to a result, fused and unfused must be the same to
the bit. `--as-gpu` plans for a GPU on whatever device there is. What it gave on the devices at hand
is in `results/`. Exit code 1 if anything is off.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from gpuwire.lowering import Lowering
from lowered import Machine
from random_graphs import assert_agree, largest, on_numpy, random_graph, seeded, trusts

MODERATE = 1e6
"""Results are held against NumPy where no number on the way is larger."""


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--count", type=int, default=500)
    parser.add_argument("--nodes", type=int, default=10)
    parser.add_argument("--as-gpu", action="store_true")
    parser.add_argument("--json", type=Path)
    arguments = parser.parse_args()
    machine = Machine()
    unfused = Machine(server=machine.server)
    unfused.lowering = Lowering(machine.server, fuse=False)
    if arguments.as_gpu:
        machine = machine.assuming(is_software=False)
    off: list[str] = []
    kernels = [0, 0]
    began = time.perf_counter()
    for seed in range(arguments.first, arguments.first + arguments.count):
        try:
            compare(machine, unfused, seed, arguments.nodes, kernels)
        except Exception as error:  # noqa: BLE001 - whatever it is, it is counted and told
            off.append(f"seed {seed}: {type(error).__name__}: {error}")
            print(off[-1])
    facts = {
        "device": machine.server.utilities().properties.name,
        "planned as": "a GPU" if arguments.as_gpu else "it is",
        "seeds": [arguments.first, arguments.first + arguments.count],
        "nodes at most": arguments.nodes,
        "launches fused": kernels[0],
        "launches unfused": kernels[1],
        "off": off,
        "seconds": round(time.perf_counter() - began, 1),
    }
    print(json.dumps(facts, indent=1))
    if arguments.json:
        arguments.json.parent.mkdir(parents=True, exist_ok=True)
        arguments.json.write_text(json.dumps(facts, indent=1) + "\n")
    return 1 if off else 0


def compare(machine: Machine, unfused: Machine, seed: int, nodes: int, kernels: list[int]) -> None:
    """Raise AssertionError if the two ways, or NumPy, do not agree."""
    case = random_graph(seeded(seed), nodes=nodes)
    graph = case.graph
    with np.errstate(all="ignore"):
        wanted = on_numpy(case)
        scale = largest([*case.inputs, *wanted])
    inputs = [machine.view(array) for array in case.inputs]
    layouts = [(value.strides, value.offset) for value in inputs]
    for number, each in enumerate((machine, unfused)):
        kernels[number] += int(each.lowering.describe(graph, layouts).split()[0])
    fused = machine.execute(graph, inputs, case.scalars)
    plain = unfused.execute(graph, inputs, case.scalars)
    same, near = trusts(graph, kernels=True), trusts(graph, kernels=False)
    for output, one, other in zip(graph.outputs, fused, plain, strict=True):
        got = machine.download(one)
        what = f"%{output.index} against unfused"
        assert_agree(got, unfused.download(other), same[output.index], scale=scale, what=what)
        if scale < MODERATE:
            what = f"%{output.index} against NumPy"
            assert_agree(got, wanted[output.index], near[output.index], scale=scale, what=what)


if __name__ == "__main__":
    sys.exit(main())
