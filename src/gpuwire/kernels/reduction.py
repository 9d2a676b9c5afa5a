"""Kernels that reduce some dimensions of a strided operand.

An output is the reduction of `reduced` elements; a **part** of it is a run of `chunk` of those.
Part p of output o is number `p * outputs + o`. With one part for each output, a kernel writes
results; with more, it writes partial ones, `parts` rows of `outputs`, for a second kernel to reduce
over the rows.

Two forms. In the lane form an invocation reduces a part by itself: right where neighbouring outputs
are neighbours in memory, or parts are short. In the group form a workgroup does, its lanes reading
neighbours, with a tree in workgroup memory at the end.

Float sums are never one long chain: in the lane form elements are added up in trees of eight, eight
trees to a chain, eight chains to a block; in the group form every lane has four sums, and the
planner bounds `chunk`. float16 is summed in f32.

Parameters, in words: outputs, reduced, chunk, parts; the offset; lengths, then strides of the kept
dimensions; lengths, then strides of the reduced ones; for `mean` the divisor.
"""

from __future__ import annotations

from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import DType, Kind
from gpuwire.kernels.expressions import convert
from gpuwire.kernels.kernel import Access, Kernel
from gpuwire.kernels.reduction_state import (
    CHUNK,
    OFFSET,
    OUTPUTS,
    PARTS,
    REDUCED,
    SHAPES,
    Reduction,
    State,
    best_function,
    entering,
    load_function,
)
from gpuwire.kernels.shader_types import shader_type
from gpuwire.kernels.writing import KernelWriter, param, split_index, strided_index

LANE_WORKGROUP_SIZE = 64
CHAIN, BLOCK = 64, 512
"""Elements of a chain of additions in the lane form, and of a chain of chains: eight each."""
LANE_UNROLL = 8
"""Elements that an invocation of the lane form has on the way at once."""
UNROLL = 4
"""Accumulators of a lane in the group form."""


def reduction_kernel(reduction: Reduction) -> Kernel:
    """The kernel of a reduction."""
    form = f"group{reduction.workgroup_size}" if reduction.workgroup_size else "lane"
    form += "_quads" if reduction.quads else ""
    stage = ("_partial" if reduction.partial else "") + (
        "_given" if reduction.indices_given else ""
    )
    name = (
        f"{reduction.operation}{stage}__{reduction.source.name}__{reduction.result.name}"
        f"__{form}{reduction.kept_rank}_{reduction.reduced_rank}"
    )
    size = reduction.workgroup_size or LANE_WORKGROUP_SIZE
    writer = KernelWriter(name, size)
    _declare(writer, reduction)
    state = State(reduction)
    if reduction.is_arg:
        writer.function(best_function(reduction))
    if not reduction.quads or state.identity is None:
        writer.function(load_function(reduction, state))
    if reduction.workgroup_size:
        writer.workgroup_array("shared_state", state.type, size)
        writer.function(_group_function(reduction, state))
        writer.workgroup()
        worker, call = "group", "reduce_part({part}, lane)"
    else:
        writer.function(_lane_function(reduction, state))
        writer.write("let group = (wid.z * grid.y + wid.y) * grid.x + wid.x;")
        writer.write(f"let worker = group * {size}u + lane;")
        worker, call = "worker", "reduce_part({part})"
    _write_results(writer, reduction, state, worker, call)
    return writer.finish()


def _declare(writer: KernelWriter, reduction: Reduction) -> None:
    source, accumulate = shader_type(reduction.source), shader_type(reduction.accumulate)
    result = shader_type(reduction.result)
    writer.needs(source.features | accumulate.features | result.features)
    writer.words(SHAPES + 2 * (reduction.kept_rank + reduction.reduced_rank))
    if reduction.operation == "mean" and not reduction.partial:
        writer.words(shader_type(_part_type(reduction.accumulate)).parameter_words)
    element = source.quad_storage if reduction.quads else source.storage
    writer.buffer("source", element, Access.READ)
    if reduction.indices_given:
        writer.buffer("source_index", "u32", Access.READ)
    if not reduction.partial:
        writer.buffer("result", result.storage, Access.WRITE)
        return
    writer.buffer("partial", accumulate.storage, Access.WRITE)
    if reduction.is_arg:
        writer.buffer("partial_index", "u32", Access.WRITE)


def _part_preamble(reduction: Reduction, state: State) -> list[str]:
    """Statements that bind `base`, `first` and `last` (one past) of a part, and `state`."""
    kept_word = SHAPES
    lines, indices = split_index("output", kept_word, reduction.kept_rank, "k")
    stride = kept_word + reduction.kept_rank
    return [
        f"let output = part % {param(OUTPUTS)};",
        *lines,
        f"let base = {strided_index(OFFSET, stride, indices)};",
        f"let first = (part / {param(OUTPUTS)}) * {param(CHUNK)};",
        f"let last = min(first + {param(CHUNK)}, {param(REDUCED)});",
        f"let start = {state.identity or 'load_state(base, first)'};",
    ]


def _lane_function(reduction: Reduction, state: State) -> str:
    lines = [
        *_part_preamble(reduction, state),
        "var total = start;",
        "var n = first;",
        "while n < last {",
        f"    let block_end = min(n + {BLOCK}u, last);",
        "    var block = start;",
        "    while n < block_end {",
        f"        let end = min(n + {CHAIN}u, block_end);",
        "        var chain = start;",
        f"        while n + {LANE_UNROLL - 1}u < end {{",
        *(f"            let e{k} = load_state(base, n + {k}u);" for k in range(LANE_UNROLL)),
        *(
            f"            let {_tree(step, k)} = "
            f"{state.combine(_tree(step // 2, k), _tree(step // 2, k + step // 2))};"
            for step in (2, 4, LANE_UNROLL)
            for k in range(0, LANE_UNROLL, step)
        ),
        f"            chain = {state.combine('chain', _tree(LANE_UNROLL, 0))};",
        f"            n = n + {LANE_UNROLL}u;",
        "        }",
        "        while n < end {",
        "            let element = load_state(base, n);",
        f"            chain = {state.combine('chain', 'element')};",
        "            n = n + 1u;",
        "        }",
        f"        block = {state.combine('block', 'chain')};",
        "    }",
        f"    total = {state.combine('total', 'block')};",
        "}",
        "return total;",
    ]
    body = "\n".join(f"    {line}" for line in lines)
    return f"fn reduce_part(part: u32) -> {state.type} {{\n{body}\n}}"


def _tree(size: int, first: int) -> str:
    """The name of the state of `size` elements of a run of eight, beginning with `first`."""
    return f"e{first}" if size == 1 else f"t{size}_{first}"


def _group_function(reduction: Reduction, state: State) -> str:
    size = reduction.workgroup_size
    lines = [*_part_preamble(reduction, state)]
    lines += [f"var total{k} = start;" for k in range(UNROLL)]
    if reduction.quads:
        lines += ["let end = last >> 2u;", "var n = (first >> 2u) + lane;"]
    else:
        lines += ["let end = last;", "var n = first + lane;"]
    lines.append(f"while n + {(UNROLL - 1) * size}u < end {{")
    steps = [_taking_in(reduction, state, f"n + {k * size}u", k) for k in range(UNROLL)]
    lines += [f"    {line}" for loads, _ in steps for line in loads]
    lines += [f"    {line}" for _, additions in steps for line in additions]
    lines += [f"    n = n + {UNROLL * size}u;", "}"]
    for k in range(UNROLL - 1):
        loads, additions = _taking_in(reduction, state, "n", k)
        lines += ["if n < end {"]
        lines += [f"    {line}" for line in (*loads, *additions, f"n = n + {size}u;")]
        lines += ["}"]
    step = 1
    while step < UNROLL:
        for k in range(0, UNROLL, 2 * step):
            lines.append(f"total{k} = {state.combine(f'total{k}', f'total{k + step}')};")
        step *= 2
    lines += ["shared_state[lane] = total0;", "workgroupBarrier();"]
    half = size // 2
    while half:
        lines += [
            f"if lane < {half}u {{",
            "    let mine = shared_state[lane];",
            f"    let other = shared_state[lane + {half}u];",
            f"    shared_state[lane] = {state.combine('mine', 'other')};",
            "}",
            "workgroupBarrier();",
        ]
        half //= 2
    lines += ["let whole = shared_state[0];", "workgroupBarrier();", "return whole;"]
    body = "\n".join(f"    {line}" for line in lines)
    return f"fn reduce_part(part: u32, lane: u32) -> {state.type} {{\n{body}\n}}"


def _taking_in(
    reduction: Reduction, state: State, n: str, number: int
) -> tuple[list[str], list[str]]:
    """Statements that load the element or quad `n`, and those that add it to the totals: an element
    to the total of that number, a quad's to one each."""
    if not reduction.quads:
        loads = [f"let element{number} = load_state(base, {n});"]
        total = f"total{number}"
        return loads, [f"{total} = {state.combine(total, f'element{number}')};"]
    types = shader_type(reduction.source)
    loads, values = types.load_quad("source", f"(base >> 2u) + {n}", f"q{number}")
    additions = []
    for place, value in enumerate(values):
        name, total = f"element{number}_{place}", f"total{place}"
        element = entering(value, reduction)
        if reduction.is_arg:
            element = f"Best({element}, ({n}) * 4u + {place}u)"
        loads.append(f"let {name} = {element};")
        additions.append(f"{total} = {state.combine(total, name)};")
    return loads, additions


def _write_results(
    writer: KernelWriter, reduction: Reduction, state: State, worker: str, call: str
) -> None:
    """Reduce what the worker has, and write it."""
    outputs = param(OUTPUTS)
    write = []
    if reduction.partial:
        writer.write(f"if {worker} >= {outputs} * {param(PARTS)} {{ return; }}")
        writer.write(f"let state = {call.format(part=worker)};")
        if reduction.is_arg:
            write = [f"partial[{worker}] = state.value;", f"partial_index[{worker}] = state.index;"]
        else:
            write = [f"partial[{worker}] = state;"]
    else:
        each, types = reduction.outputs_per_worker, shader_type(reduction.result)
        writer.write(f"if {worker} * {each}u >= {outputs} {{ return; }}")
        leaving = f"let value = {_leaving('state', reduction)};"
        if each == 1:
            writer.write(f"let state = {call.format(part=worker)};", leaving)
            write = [f"result[{worker}] = value;"]
        else:  # The last word may reach past the end.
            part = f"min({worker} * {each}u + k, {outputs} - 1u)"
            writer.write(
                "var word = 0u;",
                f"for (var k = 0u; k < {each}u; k = k + 1u) {{",
                f"    let state = {call.format(part=part)};",
                f"    {leaving}",
                f"    word = word | ({types.part_of_word('value', 'k')});",
                "}",
            )
            write = [f"result[{worker}] = word;"]
    if reduction.workgroup_size:
        write = ["if lane == 0u {", *(f"    {line}" for line in write), "}"]
    writer.write(*write)


def _leaving(state: str, reduction: Reduction) -> str:
    """A result from a finished state."""
    accumulate, result = reduction.accumulate, reduction.result
    if reduction.is_arg:
        return convert(f"{state}.index", dt.uint32, result)
    if reduction.operation == "mean":
        part = _part_type(accumulate)
        count = shader_type(part).parameter(
            SHAPES + 2 * (reduction.kept_rank + reduction.reduced_rank)
        )
        suffix = shader_type(part).suffix
        if accumulate.kind is Kind.COMPLEX:
            value = (
                f"{shader_type(accumulate).value}(divide_{suffix}({state}.x, {count}), "
                f"divide_{suffix}({state}.y, {count}))"
            )
        else:
            value = f"divide_{suffix}({state}, {count})"
        return convert(value, accumulate, result)
    return convert(state, accumulate, result)


def _part_type(dtype: DType) -> DType:
    return dt.real_of(dtype)
