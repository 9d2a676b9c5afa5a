"""Kernels that reduce some dimensions of a strided operand.

An output is the reduction of `reduced` elements; a **part** of it is a run of `chunk` of those, or,
where parts are interleaved, as many in turns. Part p of output o is number `p * outputs + o`. With
one part for each output, a kernel writes results; with more, it writes partial ones, `parts` rows
of `outputs`, for a second kernel to reduce over the rows.

Two forms. In the lane form an invocation reduces a part by itself: right where neighbouring outputs
are neighbours in memory, or parts are short. In the group form a workgroup does, its lanes reading
neighbours, with a tree in workgroup memory at the end.

Float sums are never one long chain: in the lane form elements are added up in trees of eight, eight
trees to a chain, eight chains to a block; in the group form every lane has four sums, and the
planner bounds `chunk`. float16 is summed in f32.

What is reduced may be computed on the way in (a prologue), and each output may go through further
steps on its way out (an epilogue). Parameters, in words: outputs, reduced, chunk, parts; then as
`reduction_state.Words` has them.
"""

from __future__ import annotations

from gpuwire.ir import dtypes as dt
from gpuwire.ir.dtypes import DType, Kind
from gpuwire.kernels.expressions import convert
from gpuwire.kernels.kernel import Access, Kernel
from gpuwire.kernels.programs import LoadForm, Register, features_of, kept, name_of_steps, run_steps
from gpuwire.kernels.reduction_state import (
    CHUNK,
    OUTPUTS,
    PARTS,
    REDUCED,
    Reduction,
    State,
    Words,
    base_names,
    best_function,
    entering_steps,
    load_function,
)
from gpuwire.kernels.shader_types import QUAD, shader_type
from gpuwire.kernels.writing import KernelWriter, param, split_index, strided_index

LANE_WORKGROUP_SIZE = 64
CHAIN, BLOCK = 64, 512
"""Elements of a chain of additions in the lane form, and of a chain of chains: eight each."""
LANE_UNROLL = 8
"""Elements that an invocation of the lane form has on the way at once."""


def reduction_kernel(reduction: Reduction) -> Kernel:
    """The kernel of a reduction."""
    form = f"group{reduction.workgroup_size}" if reduction.workgroup_size else "lane"
    form += "_quads" if reduction.quads else ""
    form += f"_by{reduction.unroll}" if reduction.unroll != 4 else ""
    form += "_turns" if reduction.interleaved else ""
    stage = ("_partial" if reduction.partial else "") + (
        "_given" if reduction.indices_given else ""
    )
    name = (
        f"{reduction.operation}{stage}__{reduction.source.name}__{reduction.result.name}"
        f"__{form}{reduction.kept_rank}_{reduction.reduced_rank}"
    )
    before, after = name_of_steps(reduction.prologue), name_of_steps(reduction.epilogue)
    name = "_".join(part for part in (before, name, after) if part)
    size = reduction.workgroup_size or LANE_WORKGROUP_SIZE
    writer = KernelWriter(name, size)
    words = Words(reduction)
    _declare(writer, reduction, words)
    state = State(reduction)
    if reduction.is_arg:
        writer.function(best_function(reduction))
    if not reduction.quads or state.identity is None:
        writer.function(load_function(reduction, state, words))
    if reduction.workgroup_size:
        writer.workgroup_array("shared_state", state.type, size)
        writer.function(_group_function(reduction, state, words))
        writer.workgroup()
        worker, call = "group", "reduce_part({part}, lane)"
    else:
        writer.function(_lane_function(reduction, state, words))
        writer.write("let group = (wid.z * grid.y + wid.y) * grid.x + wid.x;")
        writer.write(f"let worker = group * {size}u + lane;")
        worker, call = "worker", "reduce_part({part})"
    _write_results(writer, reduction, words, worker, call)
    return writer.finish()


def _declare(writer: KernelWriter, reduction: Reduction, words: Words) -> None:
    accumulate, stored = shader_type(reduction.accumulate), shader_type(reduction.stored)
    loads = (*reduction.operands, *reduction.epilogue_loads)
    steps = (*reduction.prologue, *reduction.epilogue)
    writer.needs(
        features_of(
            [reduction.accumulate, reduction.result, *(load.dtype for load in loads)]
            + [dtype for step in steps for dtype in (step.compute, step.result)]
        )
    )
    writer.words(words.count)
    for number, load in enumerate(reduction.operands):
        if load.form is not LoadForm.SCALAR:
            types = shader_type(load.dtype)
            element = types.quad_storage if load.form is LoadForm.QUAD else types.storage
            writer.buffer(f"source{number}", element, Access.READ)
    if reduction.indices_given:
        writer.buffer("source_index", "u32", Access.READ)
    for number, load in enumerate(reduction.epilogue_loads):
        if load.form is not LoadForm.SCALAR:
            writer.buffer(f"other{number}", shader_type(load.dtype).storage, Access.READ)
    if not reduction.partial:
        writer.buffer("result", stored.storage, Access.WRITE)
        return
    writer.buffer("partial", accumulate.storage, Access.WRITE)
    if reduction.is_arg:
        writer.buffer("partial_index", "u32", Access.WRITE)


def _part_preamble(reduction: Reduction, state: State, words: Words) -> list[str]:
    """Statements that bind `base0` and so on, `first` and `last` (one past) of a part, `start`."""
    lines, indices = split_index("output", words.kept, reduction.kept_rank, "k")
    for number, (load, place) in enumerate(zip(reduction.operands, words.loads, strict=True)):
        if load.form is not LoadForm.SCALAR:
            lines.append(f"let base{number} = {strided_index(place, place + 1, indices)};")
    if reduction.interleaved:
        width = reduction.workgroup_size * (QUAD if reduction.quads else 1)
        bounds = [
            f"let first = (part / {param(OUTPUTS)}) * {width}u;",
            f"let last = {param(REDUCED)};",
        ]
    else:
        bounds = [
            f"let first = (part / {param(OUTPUTS)}) * {param(CHUNK)};",
            f"let last = min(first + {param(CHUNK)}, {param(REDUCED)});",
        ]
    return [
        f"let output = part % {param(OUTPUTS)};",
        *lines,
        *bounds,
        f"let start = {state.identity or _loading(reduction, 'first')};",
    ]


def _loading(reduction: Reduction, n: str) -> str:
    return f"load_state({', '.join([*base_names(reduction), n])})"


def _lane_function(reduction: Reduction, state: State, words: Words) -> str:
    elements = [_loading(reduction, f"n + {k}u") for k in range(LANE_UNROLL)]
    lines = [
        *_part_preamble(reduction, state, words),
        "var total = start;",
        "var n = first;",
        "while n < last {",
        f"    let block_end = min(n + {BLOCK}u, last);",
        "    var block = start;",
        "    while n < block_end {",
        f"        let end = min(n + {CHAIN}u, block_end);",
        "        var chain = start;",
        f"        while n + {LANE_UNROLL - 1}u < end {{",
        *(f"            let e{k} = {element};" for k, element in enumerate(elements)),
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
        f"            let element = {_loading(reduction, 'n')};",
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


def _group_function(reduction: Reduction, state: State, words: Words) -> str:
    size, unroll = reduction.workgroup_size, reduction.unroll
    totals = QUAD if reduction.quads else unroll
    lines = [*_part_preamble(reduction, state, words)]
    lines += [f"var total{k} = start;" for k in range(totals)]
    turns = f"{param(PARTS)} * " if reduction.interleaved else ""
    lines.append(f"let apart = {turns}{size}u;")
    if reduction.quads:
        lines += ["let end = last >> 2u;", "var n = (first >> 2u) + lane;"]
    else:
        lines += ["let end = last;", "var n = first + lane;"]
    lines.append(f"while n + {unroll - 1}u * apart < end {{")
    steps = [_taking_in(reduction, state, words, f"n + {k}u * apart", k) for k in range(unroll)]
    lines += [f"    {line}" for loads, _ in steps for line in loads]
    lines += [f"    {line}" for _, additions in steps for line in additions]
    lines += [f"    n = n + {unroll}u * apart;", "}"]
    for k in range(unroll - 1):
        loads, additions = _taking_in(reduction, state, words, "n", k)
        lines += ["if n < end {"]
        lines += [f"    {line}" for line in (*loads, *additions, "n = n + apart;")]
        lines += ["}"]
    step = 1
    while step < totals:
        for k in range(0, totals, 2 * step):
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
    reduction: Reduction, state: State, words: Words, n: str, number: int
) -> tuple[list[str], list[str]]:
    """Statements that load the element or quad `n`, and those that add it to the totals: an element
    to the total of that number, a quad's to one each."""
    if not reduction.quads:
        loads = [f"let element{number} = {_loading(reduction, n)};"]
        total = f"total{number}"
        return loads, [f"{total} = {state.combine(total, f'element{number}')};"]
    loads, columns = _quad_columns(reduction, words, n, number)
    additions = []
    for place in range(QUAD):
        name, total = f"element{number}_{place}", f"total{place}"
        loaded: list[Register] = [
            (column[place], load.dtype)
            for column, load in zip(columns, reduction.operands, strict=True)
        ]
        statements, element = entering_steps(reduction, loaded, f"p{number}_{place}")
        if reduction.is_arg:
            element = f"Best({element}, ({n}) * 4u + {place}u)"
        loads += [*statements, f"let {name} = {element};"]
        additions.append(f"{total} = {state.combine(total, name)};")
    return loads, additions


def _quad_columns(
    reduction: Reduction, words: Words, n: str, number: int
) -> tuple[list[str], list[list[str]]]:
    """Statements that read quad `n` of every operand, and its four values for each."""
    lines: list[str] = []
    columns: list[list[str]] = []
    for i, (load, place) in enumerate(zip(reduction.operands, words.loads, strict=True)):
        types = shader_type(load.dtype)
        if load.form is LoadForm.QUAD:
            group = f"(base{i} >> 2u) + {n}"
            statements, values = types.load_quad(f"source{i}", group, f"q{number}_{i}")
            lines += statements
            columns.append(values)
            continue
        scalar = load.form is LoadForm.SCALAR
        value = types.parameter(place) if scalar else types.load(f"source{i}", f"base{i}")
        lines.append(f"let u{number}_{i} = {value};")
        columns.append([f"u{number}_{i}"] * QUAD)
    return lines, columns


def _write_results(
    writer: KernelWriter, reduction: Reduction, words: Words, worker: str, call: str
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
        each, types = reduction.outputs_per_worker, shader_type(reduction.stored)
        writer.write(f"if {worker} * {each}u >= {outputs} {{ return; }}")
        if each == 1:
            writer.write(f"let state = {call.format(part=worker)};")
            write = [*_leaving(reduction, words, worker), f"result[{worker}] = value;"]
        else:  # The last word may reach past the end.
            writer.write(
                "var word = 0u;",
                f"for (var k = 0u; k < {each}u; k = k + 1u) {{",
                f"    let part = min({worker} * {each}u + k, {outputs} - 1u);",
                f"    let state = {call.format(part='part')};",
                *(f"    {line}" for line in _leaving(reduction, words, "part")),
                f"    word = word | ({types.part_of_word('value', 'k')});",
                "}",
            )
            write = [f"result[{worker}] = word;"]
    if reduction.workgroup_size:
        write = ["if lane == 0u {", *(f"    {line}" for line in write), "}"]
    writer.write(*write)


def _leaving(reduction: Reduction, words: Words, output: str) -> list[str]:
    """Statements that bind `value` to the result of a finished `state`, epilogue and all."""
    reduced = finished(
        "state", reduction.operation, reduction.accumulate, reduction.result, words.divisor
    )
    if not reduction.epilogue:
        return [f"let value = {reduced};"]
    if reduction.result is dt.float16:
        reduced = f"round_to_f16({reduced})"
    lines, indices = split_index(output, words.kept, reduction.kept_rank, "o")
    lines += [f"let exact = {reduced};", f"let reduced = {kept('exact', reduction.result)};"]
    loaded: list[Register] = [("reduced", reduction.result)]
    for number, load in enumerate(reduction.epilogue_loads):
        types, place = shader_type(load.dtype), words.epilogue[number]
        if load.form is LoadForm.SCALAR:
            value = types.parameter(place)
        else:
            lines.append(f"let other_at{number} = {strided_index(place, place + 1, indices)};")
            value = types.load(f"other{number}", f"other_at{number}")
        lines.append(f"let y{number} = {value};")
        loaded.append((f"y{number}", load.dtype))
    statements, registers = run_steps(reduction.epilogue, loaded, "f")
    return [*lines, *statements, f"let value = {registers[-1][0]};"]


def finished(
    state: str, operation: str, accumulate: DType, result: DType, divisor_word: int
) -> str:
    """A reduction's result from its finished state. `divisor_word`: of a mean, where the number of
    elements lies among the parameters."""
    if operation in ("argmin", "argmax"):
        return convert(f"{state}.index", dt.uint32, result)
    if operation == "mean":
        part = dt.real_of(accumulate)
        count = shader_type(part).parameter(divisor_word)
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
