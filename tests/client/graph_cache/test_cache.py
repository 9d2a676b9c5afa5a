"""The op-graph cache against a server of integers: any program gives what it gives op by op."""

from __future__ import annotations

import gc
import itertools
from dataclasses import dataclass, field
from types import SimpleNamespace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from client.graph_cache.replaying import OTHER, VECTOR, IntegerServer, Program, counted
from gpuwire.client.graph_cache.known import KnownGraphs
from gpuwire.client.graph_cache.stream import SEGMENT_OPS
from gpuwire.client.tensor import Tensor
from gpuwire.errors import ArgumentError
from gpuwire.ids import KernelId, StreamId, TensorId
from gpuwire.ir import dtypes as dt
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.wire.codec import encode_task
from gpuwire.wire.device_tasks import LaunchKernel, SetAllocationMode
from gpuwire.wire.messages import DefineGraph, DropTensors, RegisterTensor, RunGraph, RunOperation

ONE = Scalar(1, dt.int32)

# --- Random programs -------------------------------------------------------------------------


@dataclass(frozen=True)
class Op:
    name: str
    target: int
    operands: tuple[int, ...]
    """Numbers of variables; a negative one is a scalar."""
    every: int = 1
    """Only when the innermost loop's count divides by it."""
    turn: int = 1000
    """From this count of the innermost loop on, the variables are others: the same line, another
    flow of data."""


@dataclass(frozen=True)
class Other:
    what: str
    variable: int
    seconds: float = 0.0
    every: int = 1


@dataclass(frozen=True)
class Loop:
    times: int
    body: tuple[Op | Other | Loop, ...]
    stream: int = 0


Statement = Op | Other | Loop
VARIABLES = 6
variables = st.integers(0, VARIABLES - 1)
operands = st.integers(-2, VARIABLES - 1)
every = st.sampled_from([1, 1, 1, 1, 2, 5])
turns = st.sampled_from([1000, 1000, 1000, 3, 9, 20])
ops = st.one_of(
    st.builds(Op, st.just("negative"), variables, st.tuples(variables), every, turns),
    st.builds(
        Op,
        st.sampled_from(["add", "multiply"]),
        variables,
        st.tuples(variables, operands),
        every,
        turns,
    ),
)
others = st.builds(
    Other,
    st.sampled_from(["delete", "upload", "read", "idle", "flush", "sync", "graph", "other graph"]),
    variables,
    st.sampled_from([0.0004, 0.002, 0.03, 0.2]),
    st.sampled_from([1, 3, 7]),
)
statements = st.lists(st.one_of(ops, ops, ops, others), min_size=1, max_size=10).map(tuple)
streams = st.sampled_from([0, 0, 0, 1, 2])
inner_loops = st.builds(Loop, st.integers(1, 30), statements, streams)
bodies = st.lists(st.one_of(ops, ops, others, inner_loops), min_size=1, max_size=8).map(tuple)
programs = st.lists(
    st.builds(Loop, st.integers(1, 25), bodies | statements, streams), min_size=1, max_size=4
)


@dataclass
class Interpreter:
    program: Program
    most_ops: int = 1500
    variables: dict[int, Tensor] = field(default_factory=dict)

    def run(self, statements: tuple[Statement, ...], stream: int, count: int, line: int) -> None:
        for number, statement in enumerate(statements):
            own_line = line * 16 + number
            if isinstance(statement, Loop):
                for turn in range(statement.times):
                    self.run(statement.body, statement.stream, turn, own_line)
            elif count % statement.every == 0 and self.most_ops > 0:
                self.most_ops -= 1
                if isinstance(statement, Op):
                    self.op(statement, stream, own_line, int(count >= statement.turn))
                else:
                    self.other(statement, stream)

    def op(self, op: Op, stream: int, line: int, turned: int) -> None:
        taken = [
            Scalar(self.most_ops % 3, dt.int32)
            if number < 0
            else self.variable((number + turned) % VARIABLES)
            for number in op.operands
        ]
        self.variables[op.target] = self.program.op(op.name, *taken, stream=stream, line=line)

    def other(self, other: Other, stream: int) -> None:
        match other.what:
            case "delete":
                self.variables.pop(other.variable, None)
            case "upload":
                self.variables[other.variable] = self.program.upload(stream=stream)
            case "read":
                self.program.read(self.variable(other.variable), stream=stream)
            case "idle":
                self.program.idle(other.seconds)
            case "flush":
                self.program.flush()
            case "graph" | "other graph":
                first, second = (other.variable + 1) % VARIABLES, (other.variable + 2) % VARIABLES
                self.variables[first], self.variables[second] = self.program.run(
                    "add" if other.what == "graph" else "multiply",
                    self.variable(other.variable),
                    self.variable(first),
                    Scalar(self.most_ops % 3, dt.int32),
                    stream=stream,
                )
            case "sync":
                self.program.recorder.sync(self.program.recorder.request())

    def variable(self, number: int) -> Tensor:
        if number not in self.variables:
            self.variables[number] = self.program.upload()
        return self.variables[number]


@settings(derandomize=True, deadline=None, max_examples=100)
@given(programs, st.sampled_from([1 << 30, 1, 3]), st.sampled_from([1024, 2]))
def test_any_program_gives_what_it_gives_op_by_op(
    loops: list[Loop], server_graphs: int, client_graphs: int
) -> None:
    program = Program(IntegerServer(server_graphs), KnownGraphs(max_graphs=client_graphs))
    interpreter = Interpreter(program)
    interpreter.run(tuple(loops), 0, 0, 1)
    alive = list({tensor.id: tensor for tensor in interpreter.variables.values()}.values())
    program.check_end(alive)


# --- Settling --------------------------------------------------------------------------------


def body(program: Program, carried: Tensor, weight: Tensor, ops: int, *, inner: int = 0) -> Tensor:
    """`ops` ops on a line each, from a value to its successor; `inner` of them a loop of 5 over
    lines of its own, as far as they go."""
    h = carried
    done = 0
    while done < inner:
        h = program.op("add", h, weight, line=10_000 + done % 5)
        done += 1
    for number in range(done, ops):
        name = "multiply" if number % 3 else "add"
        h = program.op(name, h, weight if number % 2 else carried, line=20_000 + number)
    return h


def settled_tasks(program: Program, ops: int, iterations: int, **settings: int) -> list[int]:
    """Runs a loop, and says of each iteration into how many tasks its ops went."""
    weight, h = program.upload(), program.upload()
    made: list[int] = []
    for _ in range(iterations):
        before = h
        h = body(program, h, weight, ops, **settings)
        made.append(h.id)
        del before
    program.check_end([weight, h])
    starts = sorted(
        [base for base, _ in program.server.runs]
        + [t.operation.output for t in program.server.tasks if isinstance(t, RunOperation)]
    )
    firsts = [last - ops + 1 for last in made]
    return [
        len([start for start in starts if first <= start <= last])
        for first, last in zip(firsts, made, strict=True)
    ]


@pytest.mark.parametrize("ops", [2, 3, 17, 100, 700, 2000])
def test_a_loop_settles_to_a_task_an_iteration_within_three(ops: int) -> None:
    tasks = settled_tasks(Program(), ops, 8)
    assert max(tasks[3:]) <= 1, tasks


@settings(derandomize=True, deadline=None, max_examples=25)
@given(
    st.integers(2, 600)
    | st.sampled_from([127, 128, 129, 255, 256, 257, 511, 512, 513, 1023, 1024, 1300, 2000]),
    st.integers(0, 2 * SEGMENT_OPS),
    st.lists(st.integers(0, 3000), max_size=3),
)
def test_a_loop_settles_however_it_lies_against_the_cap(
    ops: int, before: int, cuts: list[int]
) -> None:
    """Other ops come before it, and the thread is idle somewhere in the first rounds."""
    program = Program()
    weight, h = program.upload(), program.upload()
    for number in range(before):
        h = program.op("negative", h, line=50_000 + number)
    made = []
    for turn in range(9):
        for number in range(ops):
            h = program.op("add", h, weight if number % 2 else h, line=20_000 + number)
            if turn < 2 and turn * ops + number in cuts:
                program.idle(1.0)
        made.append(h.id)
    program.check_end([weight, h])
    starts = [base for base, _ in program.server.runs]
    starts += [t.operation.output for t in program.server.tasks if isinstance(t, RunOperation)]
    tasks = [len([s for s in starts if last - ops < s <= last]) for last in made]
    assert max(tasks[3:-1]) <= 1, tasks


@pytest.mark.parametrize(("ops", "inner"), [(40, 30), (100, 83), (700, 600), (2000, 60)])
def test_a_loop_with_a_loop_inside_settles_too(ops: int, inner: int) -> None:
    tasks = settled_tasks(Program(), ops, 9, inner=inner)
    assert max(tasks[4:-1]) <= 1, tasks


def test_many_iterations_of_a_short_loop_share_a_task() -> None:
    program = Program()
    tasks = settled_tasks(program, 2, 640)
    assert sum(tasks[40:]) <= 600 * 2 / 30
    assert len({task.graph for task in program.graph_tasks()}) <= 4


@pytest.mark.parametrize("ops", [17, 100, 700])
def test_a_loop_cut_by_idleness_settles_again(ops: int) -> None:
    program = Program()
    weight, h = program.upload(), program.upload()
    count = 0
    last = 0
    for iteration in range(12):
        for number in range(ops):
            h = program.op("add", h, weight, line=100 + number)
            program.now += 1e-6
            count += 1
            if iteration < 5 and count % 61 == 0:
                program.idle(1.0)
        if iteration == 8:
            last = program.run_count()
    assert program.run_count() - last <= 3
    program.check_end([weight, h])


def test_weights_made_by_ops_just_before_do_not_keep_a_loop_from_settling() -> None:
    program = Program()
    seed = program.upload()
    weights = [program.op("negative", seed, line=n) for n in range(5)]
    h = seed
    for _ in range(6):
        for number in range(40):
            h = program.op("add", h, weights[number % 5], line=100 + number)
    program.flush()
    assert len(program.server.runs) <= 6
    assert program.savings.registered <= 3
    program.check_end([seed, *weights, h])


def test_a_body_that_differs_now_and_then_costs_an_odd_segment_and_no_more() -> None:
    program = Program()
    weight, h = program.upload(), program.upload()
    runs = []
    for iteration in range(40):
        before = program.run_count()
        for number in range(60):
            h = program.op("add", h, weight, line=100 + number)
        if iteration % 10 == 9:
            h = program.op("negative", h, line=500)
        runs.append(program.run_count() - before)
    assert sum(runs[20:]) <= 20 + 2
    assert program.savings.registered <= 6
    program.check_end([weight, h])


def test_a_loop_that_reads_runs_one_graph_an_iteration() -> None:
    program = Program()
    weight, h = program.upload(), program.upload()
    for _ in range(10):
        for number in range(20):
            h = program.op("add", h, weight, line=100 + number)
        program.read(h)
    assert program.savings.registered <= 2
    assert len(program.server.runs) == 10
    program.check_end([weight, h])


def test_a_step_function_keeps_none_of_its_locals() -> None:
    program = Program()

    def step(w: Tensor, x: Tensor) -> Tensor:
        a = program.op("multiply", w, x, line=101)
        b = program.op("add", a, a, line=102)
        c = program.op("multiply", b, a, line=103)
        gradient = program.op("add", c, b, line=104)
        for number in range(30):
            gradient = program.op("multiply", gradient, a, line=105 + number)
        return program.op("add", w, gradient, line=200)

    w, x = program.upload(), program.upload()
    for _ in range(10):
        w = step(w, x)
    program.flush()
    settled = program.graph_tasks()[5:]
    assert len({task.graph for task in settled}) == 1
    assert {(task.inputs, task.outputs) for task in settled[1:]} == {(None, None)}
    assert [t for t in program.server.tasks if isinstance(t, DropTensors)] == []
    program.check_end([w, x])


def test_a_changed_scalar_is_no_new_graph() -> None:
    program = Program()
    w = program.upload()
    for iteration in range(12):
        for number in range(40):
            rate = Scalar(iteration if number == 7 else 1, dt.int32)
            w = program.op("add", w, rate, line=100 + number)
    program.flush()
    assert program.savings.registered <= 3
    assert [len(task.scalars) for task in program.graph_tasks()[-7:]] == [1] * 7
    program.check_end([w])


@pytest.mark.parametrize("turned", ["a value of this round", "a weight", "one for two", "older"])
def test_a_known_unit_over_another_flow_of_data_is_another_graph(turned: str) -> None:
    """Same lines, same operations, same types: only what flows where is otherwise."""
    program = Program()
    weight, other, h = program.upload(), program.upload(), program.upload()
    once = program.upload()
    for count in range(9):
        first = h
        for number in range(40):
            left, right = h, weight if number % 2 else other
            if number == 20:
                right = once
            if count == 7 and number == (21 if turned == "a weight" else 20):
                match turned:
                    case "a value of this round":
                        right = h
                    case "a weight":
                        right = other
                    case "one for two":
                        left = other
                    case "older":
                        left = first
            h = program.op("add", left, right, line=100 + number)
    del first, left, right
    program.check_end([weight, other, once, h])


# --- Tensors that die ------------------------------------------------------------------------


def test_a_temporary_never_exists_on_the_server() -> None:
    program = Program()
    x = program.upload()
    y = program.op("add", program.op("multiply", x, x), x)
    program.flush()
    assert set(program.server.values) == {x.id, y.id}
    assert not [task for task in program.server.tasks if isinstance(task, DropTensors)]


def test_a_drop_does_not_overtake_the_segment_that_uses_the_tensor() -> None:
    program = Program()
    x = program.upload()
    y = program.op("add", program.op("negative", x), x)
    del x
    gc.collect()
    program.read(y)
    program.check_end([y])


def test_work_whose_results_are_all_dead_is_not_sent() -> None:
    program = Program()
    x = program.upload()
    y = program.op("add", program.op("negative", x), x)
    del y
    assert counted(program, lambda: None) == 0
    program.check_end([x])


def test_what_a_thread_uses_of_another_exists_by_then() -> None:
    program = Program()
    x = program.upload()
    y = program.op("add", x, x, stream=1)
    z = program.op("negative", y, stream=2)
    del y
    program.read(z, stream=2)
    program.check_end([x, z])


def test_a_read_closes_what_it_needs_and_no_other_thread() -> None:
    program = Program()
    x = program.upload()
    own = program.op("negative", program.op("add", x, x, stream=1), stream=1)
    other = program.op("negative", program.op("add", x, x, stream=2), stream=2)
    program.read(own, stream=1)
    assert other.id not in program.server.values
    program.check_end([x, own, other])


def test_a_drop_does_not_wait_for_segments_that_do_not_use_the_tensor() -> None:
    program = Program()
    x, y = program.upload(), program.upload()
    used = program.op("negative", program.op("add", x, y, stream=1), stream=1)
    program.upload()
    program.read(y, stream=2)
    program.flush()
    open_ = program.op("negative", y, stream=1)
    name = x.id
    del x
    program.read(program.op("add", y, y, stream=2), stream=2)
    program.batches.close()
    program.serve()
    assert name not in program.server.values
    assert open_.id not in program.server.values
    program.check_end([y, used, open_])


def test_an_upload_goes_at_once_and_before_the_segment_that_uses_it() -> None:
    program = Program()
    x = program.upload()
    y = program.op("add", x, x)
    late = program.upload()
    z = program.op("add", y, late)
    program.flush()
    kinds = [type(task) for task in program.server.tasks]
    assert kinds == [RegisterTensor, RegisterTensor, RunGraph]
    program.check_end([x, y, late, z])


def test_a_kernels_launch_and_a_mode_come_after_what_every_thread_recorded_before() -> None:
    program = Program()
    x = program.upload()
    y = program.op("add", program.op("negative", x), x)
    z = program.op("add", program.op("negative", x, stream=1), y, stream=1)
    recorder = program.recorder
    kernel = recorder.new_id()
    read, written = SimpleNamespace(_tensor=y), SimpleNamespace(_tensor=z)
    recorder.launch(StreamId(0), KernelId(kernel), (1, 1, 1), [read, written], [False, True], b"")
    del written
    recorder.drop(TensorId(kernel))
    w = program.op("negative", z)
    recorder.add(SetAllocationMode(StreamId(0), True))
    program.server.values |= {TensorId(kernel): 0, TensorId(kernel + 1): 0}
    program.flush()
    tasks = [task for task in program.server.tasks if not isinstance(task, RegisterTensor)]
    assert [type(task) for task in tasks] == [
        *(RunGraph, RunGraph, LaunchKernel, RunOperation, SetAllocationMode, DropTensors)
    ]
    assert tasks[-1] == DropTensors((TensorId(kernel), TensorId(kernel + 1)))
    del w


# --- Closing ---------------------------------------------------------------------------------


@pytest.mark.parametrize("what", ["a read", "a sync", "a flush"])
def test_ops_are_recorded_until_something_closes_their_segment(what: str) -> None:
    program = Program()
    x = program.upload()
    y = program.op("add", program.op("negative", x), x)
    program.batches.close()
    program.serve()
    assert y.id not in program.server.values
    if what == "a read":
        program.read(y)
    elif what == "a sync":
        program.recorder.sync(program.recorder.request())
    else:
        program.flush()
    program.serve()
    assert y.id in program.server.values
    program.check_end([x, y])


def test_a_graph_is_told_with_its_first_run_and_then_called_by_its_id() -> None:
    program = Program()
    x = program.upload()
    for _ in range(4):
        program.read(program.op("add", program.op("negative", x), x))
    runs = program.graph_tasks()
    assert [run.definition is not None for run in runs] == [True, False, False, False]
    assert len({run.graph for run in runs}) == 1
    assert not [task for task in program.server.tasks if isinstance(task, DefineGraph)]


def test_other_shapes_and_types_at_the_same_line_are_other_graphs() -> None:
    program = Program()
    kinds = (VECTOR, OTHER, TensorType(dt.float32, (2,)))
    inputs = [program.upload(type=type_) for type_ in kinds]
    for _ in range(3):
        for x in inputs:
            program.read(program.op("add", program.op("negative", x), x))
    program.flush()
    assert program.savings.registered == 3
    assert program.savings.executions == 9


def test_one_op_by_itself_is_no_graph() -> None:
    program = Program()
    x = program.upload()
    y = program.op("add", x, x)
    program.flush()
    assert isinstance(program.server.tasks[-1], RunOperation)
    program.check_end([x, y])


def test_without_repetition_the_device_begins_early() -> None:
    program = Program()
    h = program.upload()
    for number in range(300):
        h = program.op("negative", h, line=number)
    assert program.run_count(), "the size closes a segment"
    program.check_end([h])


def test_a_unit_that_binds_more_than_an_item_holds_is_cut() -> None:
    """After a day of work, when ids are long: 4,000 inputs and as many numbers."""
    program = Program()
    inputs = [program.upload() for _ in range(4000)]
    program.recorder._tensor_ids = itertools.count(1 << 40)
    for turn in range(4):
        made = []
        for number, x in enumerate(inputs):
            rate = Scalar(turn * 4000 + number, dt.int32)
            made.append(program.op("multiply", x, rate, line=100 + number))
    program.check_end([*inputs, *made, x])


def test_idle_ops_go_within_a_millisecond_or_so() -> None:
    program = Program()
    x = program.upload()
    y = program.op("add", program.op("negative", x), x)
    program.idle(0.0)
    assert y.id not in program.server.values
    program.idle(0.0025)
    assert y.id in program.server.values
    program.check_end([x, y])


def test_in_a_loop_the_rest_of_the_unit_is_waited_for_but_not_for_long() -> None:
    program = Program()
    weight, h = program.upload(), program.upload()
    for _ in range(6):
        for number in range(50):
            program.now += 0.0001
            h = program.op("add", h, weight, line=100 + number)
    for number in range(20):
        h = program.op("add", h, weight, line=100 + number)
    program.idle(0.004)
    assert h.id not in program.server.values, "an iteration takes 5 ms"
    program.idle(0.02)
    assert h.id in program.server.values
    program.check_end([weight, h])


def test_a_scalar_that_does_not_fit_is_refused_where_it_is_recorded() -> None:
    program = Program()
    x = program.upload()
    with pytest.raises(ArgumentError):
        program.op("add", x, Scalar(1 << 40, dt.int32))
    y = program.op("add", x, ONE)
    program.check_end([x, y])


# --- The server's cache ----------------------------------------------------------------------


def test_a_graph_that_the_server_gave_up_is_told_again_and_nothing_is_lost() -> None:
    program = Program(IntegerServer(graphs=1))
    x = program.upload()
    kept = []
    for _ in range(5):
        for name in ("add", "multiply"):
            y = program.op(name, program.op("negative", x), x)
            program.read(y)
            kept.append(y)
    assert program.savings.registered == 2
    assert program.savings.misses >= 7
    program.check_end([x, *kept])


def test_a_recorded_graph_is_told_once_and_a_run_is_a_small_task() -> None:
    program = Program()
    x = program.upload()
    for number in range(20):
        x, y = program.run("add", x, x, Scalar(number, dt.int32))
    program.flush()
    runs = program.graph_tasks()
    assert [run.definition is not None for run in runs] == [True, *[False] * 19]
    assert {len(encode_task(run)) for run in runs[3:]} <= set(range(30))
    assert program.savings.executions == 20
    assert program.savings.registered == 1
    program.check_end([x, y])


def test_without_the_cache_a_recorded_graph_runs_op_by_op() -> None:
    program = Program(cached=False)
    x = program.upload()
    for number in range(3):
        x, y = program.run("add", x, x, Scalar(number, dt.int32))
    program.check_end([x, y])
    assert not program.graph_tasks()


def test_a_recorded_graph_comes_after_the_ops_that_make_its_inputs() -> None:
    program = Program()
    x = program.upload()
    here = program.op("negative", x)
    there = program.op("add", x, ONE, stream=1)
    y, z = program.run("add", here, there, ONE, stream=2)
    program.read(y, stream=2)
    program.check_end([x, here, there, y, z])


def test_reads_of_what_waits_for_a_definition_are_answered() -> None:
    program = Program(IntegerServer(graphs=1), KnownGraphs(max_graphs=1))
    x = program.upload()
    y = program.op("add", program.op("negative", x), x)
    z = program.op("multiply", program.op("negative", x), y, stream=1)
    program.read(z, stream=1)
    program.check_end([x, y, z])


@pytest.mark.parametrize(("layers", "ops"), [(2, 50), (12, 20), (5, 7)])
def test_layers_in_a_loop_without_anything_between_settle_to_a_task_a_round(
    layers: int, ops: int
) -> None:
    program = Program()
    weights = [program.upload() for _ in range(layers)]
    h = program.upload()
    runs = []
    for _ in range(30):
        before = program.run_count()
        for weight in weights:
            h = body(program, h, weight, ops)
        runs.append(program.run_count() - before)
    assert max(runs[20:]) <= 1
    program.flush()
    assert {(t.inputs, t.outputs, t.base) for t in program.graph_tasks()[-3:-1]} == {
        (None, None, None)
    }
    program.check_end([*weights, h])
