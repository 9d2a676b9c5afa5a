"""Kernels that go through the rows of a tensor: reductions along the row, and elementwise steps
before, between and after them. Softmax and layer norm are one kernel each.

A row has `length` elements, numbered over the reduced dimensions; there is one row for each element
of the kept dimensions. A workgroup handles a row, its lanes reading neighbours; in the lane form an
invocation handles a row by itself.

Two forms. Held: every lane reads its elements once and keeps them, and all that is computed of
them, in registers, written out by this generator (an array indexed by a loop variable would live
in memory). Looped: the row is gone through as often as reductions depend on one another, and once
more for the results; what lies between is computed again.

Sums are trees over what a lane holds, or chains of 64 in the looped form, and trees over lanes.

Parameters, in words: rows, length; lengths of the kept, then of the reduced dimensions; for each
tensor that is loaded its offset, its kept strides and, unless it is the same all along a row
(UNIFORM), its reduced strides; for each result that is not one for each row its kept and reduced
strides; for each mean the divisor; the scalars.
"""

from __future__ import annotations

from gpuwire.ir import dtypes as dt
from gpuwire.kernels.expressions import convert
from gpuwire.kernels.kernel import Access, Kernel
from gpuwire.kernels.programs import (
    LoadForm,
    Register,
    Result,
    Step,
    features_of,
    kept,
    run_step,
    value_of,
)
from gpuwire.kernels.reduction import finished
from gpuwire.kernels.reduction_state import entering
from gpuwire.kernels.row_programs import RowForm, RowProgram, RowReduction
from gpuwire.kernels.row_reducing import (
    DIVISION,
    OPAQUE,
    as_reduction,
    extreme,
    identity,
    lanes_function,
    lanes_name,
    state_of,
    tree,
)
from gpuwire.kernels.shader_types import QUAD, shader_type
from gpuwire.kernels.writing import KernelWriter, param, split_index, strided_index

LANE_WORKGROUP_SIZE = 64
CHAIN = 64
"""Elements or quads that are added up one after the other in the looped form."""
ROWS, LENGTH, SHAPES = 0, 1, 2


def row_kernel(program: RowProgram, form: RowForm) -> Kernel:
    """The kernel of a row program."""
    return _RowKernel(program, form).kernel()


class _RowKernel:
    def __init__(self, program: RowProgram, form: RowForm) -> None:
        self._program = program
        self._form = form
        how = f"held{form.held}" if form.held else "looped"
        how += ("_quads" if form.quads else "") + ("_exact" if form.exact else "")
        size = form.workgroup_size
        self._writer = KernelWriter(
            f"rows_{program.name}__{how}{size}_{form.kept_rank}_{form.reduced_rank}",
            LANE_WORKGROUP_SIZE if size == 1 else size,
        )
        self._registers: dict[tuple[int, str], str] = {}
        """Names of registers; those that differ along the row by element too."""
        self._reciprocals: dict[int, str] = {}
        """Names of divisors with their reciprocals, by register."""
        self._lanes_functions: set[str] = set()
        """Functions and arrays for reducing over lanes that are written already."""
        self._each = QUAD if form.quads else 1
        self._levels = self._per_row_levels()
        self._computed_with = {
            operand
            for instruction in program.instructions
            if isinstance(instruction, Step) and instruction.operation not in OPAQUE
            for operand in instruction.operands
        }
        self._declare()

    def kernel(self) -> Kernel:
        writer, form = self._writer, self._form
        if form.workgroup_size == 1:
            writer.item(param(ROWS))
            writer.write("let row = item;")
        else:
            writer.workgroup()
            writer.write(f"if group >= {param(ROWS)} {{ return; }}", "let row = group;")
        lines, indices = split_index("row", SHAPES, form.kept_rank, "k")
        writer.write(*lines)
        for number, place in self._places.items():
            writer.write(f"let base{number} = {strided_index(place, place + 1, indices)};")
        for number, place in self._result_places.items():
            writer.write(f"let target{number} = {strided_index(None, place, indices)};")
        if form.held:
            self._write_held()
        else:
            self._write_looped()
        self._store_rows()
        return writer.finish()

    # --- Declarations ---

    def _per_row_levels(self) -> list[bool]:
        """Of each register, whether it is the same all along a row."""
        levels = [load.form in (LoadForm.UNIFORM, LoadForm.SCALAR) for load in self._program.loads]
        for instruction in self._program.instructions:
            if isinstance(instruction, RowReduction):
                levels.append(True)
            else:
                levels.append(all(levels[operand] for operand in instruction.operands))
        return levels

    def _declare(self) -> None:
        writer, program, form = self._writer, self._program, self._form
        dtypes = [load.dtype for load in program.loads]
        for instruction in program.instructions:
            if isinstance(instruction, RowReduction):
                dtypes += [instruction.accumulate, instruction.result]
            else:
                dtypes += [instruction.compute, instruction.result]
        writer.needs(features_of(dtypes))
        writer.words(SHAPES + form.kept_rank + form.reduced_rank)
        self._places: dict[int, int] = {}
        for number, load in enumerate(program.loads):
            if load.form is not LoadForm.SCALAR:
                types = shader_type(load.dtype)
                quad = load.form is LoadForm.QUAD
                element = types.quad_storage if quad else types.storage
                writer.buffer(f"source{number}", element, Access.READ)
                reduced = 0 if load.form is LoadForm.UNIFORM else form.reduced_rank
                self._places[number] = writer.words(1 + form.kept_rank + reduced)
        self._result_places: dict[int, int] = {}
        for number, (result, per_row) in enumerate(
            zip(program.results, program.row_results, strict=True)
        ):
            types = shader_type(result.dtype)
            quad = form.quads and not per_row
            element = types.quad_storage if quad else types.storage
            writer.buffer(f"result{number}", element, Access.WRITE)
            if not per_row:
                self._result_places[number] = writer.words(form.kept_rank + form.reduced_rank)
        self._divisors: dict[int, int] = {}
        for number, instruction in enumerate(program.instructions):
            if isinstance(instruction, RowReduction) and instruction.operation == "mean":
                part = shader_type(dt.real_of(instruction.accumulate))
                self._divisors[number] = writer.words(part.parameter_words)
        self._scalars = {
            number: writer.words(shader_type(load.dtype).parameter_words)
            for number, load in enumerate(program.loads)
            if load.form is LoadForm.SCALAR
        }

    # --- Registers ---

    def _register(self, number: int, element: str, lines: list[str]) -> Register:
        """A register's name and type, for an element; adds the statements that make it."""
        program = self._program
        loads = len(program.loads)
        element = "row" if self._levels[number] else element
        dtype = (
            program.loads[number].dtype
            if number < loads
            else program.instructions[number - loads].result
        )
        known = self._registers.get((number, element))
        if known is not None:
            return known, dtype
        name = f"v{number}_{element}"
        if number < loads:
            lines.append(f"let {name} = {self._row_load(number)};")
        else:
            step = program.instructions[number - loads]
            assert isinstance(step, Step)  # Reductions are there before anything reads them.
            operands = [self._register(operand, element, lines) for operand in step.operands]
            if element != "row" and self._divides_by_row(step):
                lines += self._division(step, operands, name)
            else:
                inner = number in self._computed_with or dtype is dt.float16
                lines += run_step(step, operands, name, inner=inner)
        self._registers[number, element] = name
        return name, dtype

    def _divides_by_row(self, step: Step) -> bool:
        """Whether a division's divisor is the same all along a row: one reciprocal serves all."""
        return (
            self._form.has_fma
            and step.operation == "divide"
            and step.compute is step.result is dt.float32
            and self._levels[step.operands[1]]
        )

    def _division(self, step: Step, operands: list[Register], name: str) -> list[str]:
        """Statements of a quotient by the divisor's reciprocal."""
        dividend, dtype = operands[0]
        divisor = self._reciprocals[step.operands[1]]
        value = convert(dividend, dtype, dt.float32)
        return [f"let {name} = divide_by_row({value}, {divisor});"]

    def _row_load(self, number: int) -> str:
        load = self._program.loads[number]
        types = shader_type(load.dtype)
        if load.form is LoadForm.SCALAR:
            return types.parameter(self._scalars[number])
        assert load.form is LoadForm.UNIFORM
        return types.load(f"source{number}", f"base{number}")

    def _load_unit(self, unit: str, at: str) -> list[str]:
        """Statements that load element or quad number `at` of all that differs along the row."""
        form, program = self._form, self._program
        varying = [
            number
            for number, load in enumerate(program.loads)
            if load.form in (LoadForm.QUAD, LoadForm.STRIDED)
        ]
        lines: list[str] = []
        if not form.quads:
            reduced = SHAPES + form.kept_rank
            split, indices = split_index(at, reduced, form.reduced_rank, f"r{unit}_")
            lines += split
        for number in varying:
            types, place = shader_type(program.loads[number].dtype), self._places[number]
            if form.quads:
                group = f"(base{number} >> 2u) + {at}"
                statements, values = types.load_quad(f"source{number}", group, f"q{number}_{unit}")
                lines += statements
            else:
                strides = place + 1 + form.kept_rank
                index = f"base{number} + {strided_index(None, strides, indices)}"
                lines.append(f"let at{number}_{unit} = {index};")
                values = [types.load(f"source{number}", f"at{number}_{unit}")]
            for k, value in enumerate(values):
                name = f"v{number}_{unit}_{k}"
                lines.append(f"let {name} = {value};")
                self._registers[number, f"{unit}_{k}"] = name
        return lines

    # --- The two forms ---

    def _write_held(self) -> None:
        writer, form = self._writer, self._form
        size = form.workgroup_size
        lane = "lane" if size > 1 else "0u"
        units = f"({param(LENGTH)} / {self._each}u)"
        for unit in range(form.held):
            writer.write(f"let n{unit} = {lane} + {unit * size}u;")
            at = f"n{unit}"
            if not form.exact:
                writer.write(f"let inside{unit} = n{unit} < {units};")
                writer.write(f"let m{unit} = min(n{unit}, {units} - 1u);")
                at = f"m{unit}"
            writer.write(*self._load_unit(str(unit), at))
        loads = len(self._program.loads)
        for number, reduction in enumerate(self._program.instructions):
            if not isinstance(reduction, RowReduction):
                continue
            state = state_of(reduction)
            values: list[str] = []
            for unit in range(form.held):
                for k in range(self._each):
                    value = self._entering(reduction, f"{unit}_{k}", writer.lines)
                    if not form.exact:
                        value = f"select({identity(reduction)}, {value}, inside{unit})"
                    name = f"c{number}_{unit}_{k}"
                    writer.write(f"let {name} = {value};")
                    values.append(name)
            if reduction.operation in ("min", "max") and reduction.accumulate is dt.float32:
                total = extreme(reduction, values, f"t{number}_", writer.lines)
            else:
                total = tree(state, values, f"t{number}_", writer.lines)
            self._finish_reduction(loads + number, reduction, total)
        self._make_row_registers_of_results()
        for unit in range(form.held):
            lines: list[str] = []
            self._store_unit(str(unit), f"n{unit}", lines)
            if form.exact:
                writer.write(*lines)
            else:
                writer.write(f"if inside{unit} {{", *lines, "}")

    def _write_looped(self) -> None:
        writer, program = self._writer, self._program
        loads = len(program.loads)
        for number, passes in enumerate(self._passes()):
            reductions = [
                (place, reduction)
                for place, reduction in enumerate(program.instructions)
                if place in passes and isinstance(reduction, RowReduction)
            ]
            # What is the same all along a row is made outside the loop.
            for _, reduction in reductions:
                self._make_row_registers(reduction.operand)
            body = self._load_unit(f"p{number}", "n")
            for place, reduction in reductions:
                writer.write(f"var total{place} = {identity(reduction)};")
                values = []
                for k in range(self._each):
                    value = self._entering(reduction, f"p{number}_{k}", body)
                    body.append(f"let c{place}_{k} = {value};")
                    values.append(f"c{place}_{k}")
                state = state_of(reduction)
                unit = tree(state, values, f"u{place}_", body)
                body.append(f"block{place} = {state.combine(f'block{place}', unit)};")
            self._write_loop(body, reductions)
            for place, reduction in reductions:
                self._finish_reduction(loads + place, reduction, f"total{place}")
        if self._result_places:
            self._make_row_registers_of_results()
            body = self._load_unit("last", "n")
            self._store_unit("last", "n", body)
            self._write_loop(body, [])

    def _write_loop(self, body: list[str], reductions: list[tuple[int, RowReduction]]) -> None:
        size = self._form.workgroup_size
        units = f"({param(LENGTH)} / {self._each}u)"
        first = "lane" if size > 1 else "0u"
        self._writer.write(
            "{",
            f"    var n = {first};",
            f"    while n < {units} {{",
            f"        let stop = min(n + {CHAIN * size}u, {units});",
            *(f"        var block{place} = {identity(r)};" for place, r in reductions),
            "        while n < stop {",
            *(f"            {line}" for line in body),
            f"            n = n + {size}u;",
            "        }",
            *(
                f"        total{place} = {state_of(r).combine(f'total{place}', f'block{place}')};"
                for place, r in reductions
            ),
            "    }",
            "}",
        )

    def _passes(self) -> list[set[int]]:
        """Instruction numbers of the reductions of each pass: those that need no later one."""
        program = self._program
        loads = len(program.loads)
        depths = [0] * (loads + len(program.instructions))
        passes: list[set[int]] = []
        for number, instruction in enumerate(program.instructions):
            if isinstance(instruction, RowReduction):
                depth = depths[instruction.operand]
                while len(passes) <= depth:
                    passes.append(set())
                passes[depth].add(number)
                depths[loads + number] = depth + 1
            else:
                depths[loads + number] = max(depths[o] for o in instruction.operands)
        return passes

    def _make_row_registers(self, register: int) -> None:
        """Make, here, whatever a register needs that is the same all along a row: what is made in
        a block or a loop ends with it."""
        loads = len(self._program.loads)
        open_ = [register]
        while open_:
            register = open_.pop()
            if self._levels[register]:
                self._register(register, "row", self._writer.lines)
            elif register >= loads:
                step = self._program.instructions[register - loads]
                assert isinstance(step, Step)
                open_ += step.operands
                if self._divides_by_row(step):
                    self._make_reciprocal(step.operands[1])

    def _make_reciprocal(self, register: int) -> None:
        if register in self._reciprocals:
            return
        if not self._reciprocals:
            self._writer.function(DIVISION)
        divisor, dtype = self._register(register, "row", self._writer.lines)
        name = self._reciprocals[register] = f"divisor{register}"
        self._writer.write(f"let {name} = row_divisor({convert(divisor, dtype, dt.float32)});")

    def _make_row_registers_of_results(self) -> None:
        for result in self._program.results:
            self._make_row_registers(result.register)

    # --- Reducing and storing ---

    def _entering(self, reduction: RowReduction, element: str, lines: list[str]) -> str:
        value, _ = self._register(reduction.operand, element, lines)
        return entering(value, as_reduction(reduction))

    def _finish_reduction(self, register: int, reduction: RowReduction, total: str) -> None:
        """Reduce over lanes, and bind the result's register."""
        size = self._form.workgroup_size
        number = register - len(self._program.loads)
        if size > 1:
            self._add_lanes_function(reduction)
            total = f"{lanes_name(reduction)}({total}, lane)"
        divisor = self._divisors.get(number, 0)
        self._writer.write(f"let whole{number} = {total};")
        value = finished(
            f"whole{number}",
            reduction.operation,
            reduction.accumulate,
            reduction.result,
            divisor,
        )
        if reduction.result is dt.float16:
            value = f"round_to_f16({value})"
        name = f"v{register}_row"
        self._writer.write(f"let {name}_raw = {value};")
        self._writer.write(f"let {name} = {kept(f'{name}_raw', reduction.result)};")
        self._registers[register, "row"] = name

    def _add_lanes_function(self, reduction: RowReduction) -> None:
        """Declare what reduces over the lanes of a workgroup, and the memory it takes."""
        name = lanes_name(reduction)
        if name in self._lanes_functions:
            return
        types = shader_type(reduction.accumulate)
        shared = f"shared_{types.suffix}"
        if shared not in self._lanes_functions:
            self._writer.workgroup_array(shared, types.value, self._form.workgroup_size)
        self._lanes_functions |= {name, shared}
        self._writer.function(lanes_function(reduction, shared, self._form.workgroup_size))

    def _store_unit(self, unit: str, at: str, lines: list[str]) -> None:
        """Statements that store an element or quad of every result that has one for each."""
        form, program = self._form, self._program
        if self._result_places and not form.quads:
            reduced = SHAPES + form.kept_rank
            split, indices = split_index(at, reduced, form.reduced_rank, f"w{unit}_")
            lines += split
        for number, place in self._result_places.items():
            result = program.results[number]
            types = shader_type(result.dtype)
            values = []
            for k in range(self._each):
                register = self._register(result.register, f"{unit}_{k}", lines)
                values.append(value_of([register], Result(0, result.dtype)))
            if form.quads:
                group = f"(target{number} >> 2u) + {at}"
                lines += types.store_quad(f"result{number}", group, values)
            else:
                index = strided_index(None, place + form.kept_rank, indices)
                lines.append(f"result{number}[target{number} + {index}] = {values[0]};")

    def _store_rows(self) -> None:
        """Store the results of which there is one for each row."""
        lines: list[str] = []
        for number, (result, per_row) in enumerate(
            zip(self._program.results, self._program.row_results, strict=True)
        ):
            if per_row:
                register = self._register(result.register, "row", self._writer.lines)
                value = value_of([register], Result(0, result.dtype))
                lines.append(f"result{number}[row] = {value};")
        if lines and self._form.workgroup_size > 1:
            lines = ["if lane == 0u {", *(f"    {line}" for line in lines), "}"]
        self._writer.write(*lines)
