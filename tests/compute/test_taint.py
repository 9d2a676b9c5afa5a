"""The oracle: a read returns bytes if and only if every byte was last written by work that
succeeded. Pure marks first, then a whole server under random interleavings."""

from __future__ import annotations

import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from gpuwire.compute import Handle, LaunchArguments, WgpuServer
from gpuwire.compute.sequences import BufferRange, LaunchSequence, SequenceLaunch
from gpuwire.compute.taint import Failure, first_failure, marked
from gpuwire.errors import CaptureError, GpuwireError, InvalidHandle, KernelCompileError
from gpuwire.kernels.kernel import Access, Kernel

SIZE = 24
FAILURES = [Failure(order, GpuwireError(str(order))) for order in range(4)]
ranges = (
    st.tuples(st.integers(0, SIZE), st.integers(0, SIZE)).map(sorted).filter(lambda r: r[0] < r[1])
)


@settings(derandomize=True, deadline=None, max_examples=150)
@given(st.lists(st.tuples(ranges, st.sampled_from([None, *FAILURES])), max_size=12), ranges)
def test_marks_say_of_every_byte_what_the_last_change_said(changes, asked):
    marks, model = None, [None] * SIZE
    for (start, end), failure in changes:
        marks = marked(marks, start, end, failure)
        model[start:end] = [failure] * (end - start)
        covered = [None] * SIZE
        for first, last, why in marks or ():
            assert covered[first:last] == [None] * (last - first)
            covered[first:last] = [why] * (last - first)
        assert covered == model
    start, end = asked
    wanted = [failure for failure in model[start:end] if failure is not None]
    found = first_failure(marks or (), start, end)
    assert found is (min(wanted, key=lambda failure: failure.order) if wanted else None)


def test_reading_what_was_never_written_is_an_error(work):
    with pytest.raises(InvalidHandle, match="before anything was written"):
        work.get(work.empty(4))


def test_bytes_written_piece_by_piece_are_there_once_all_are(work):
    handle = work.empty(8)
    work.server.write([(work.descriptor(handle, 4, 4), b"abcd")])
    assert bytes(work.server.read([work.descriptor(handle, 4, 4)]).wait(60)[0]) == b"abcd"
    with pytest.raises(InvalidHandle):
        work.get(handle)
    work.server.write([(work.descriptor(handle, 4), b"efgh")])
    assert work.get(handle).tobytes() == b"efghabcd"


def test_the_first_cause_is_passed_on(work):
    source, bad, middle, target = (work.words(number) for number in range(4))
    work.fail(source, bad)
    other = Kernel("other broken", "nonsense", (Access.READ_WRITE,), (1, 1, 1))
    later = work.words(5)
    work.server.launch(other, 1, work.arguments((later,)))
    work.add(bad, middle, 1)
    both = Kernel("copy", work.add_kernel.source, (Access.READ, Access.READ_WRITE), (64, 1, 1), 2)
    arguments = work.arguments((middle, later), (1, 1))
    work.server.launch(both, 1, arguments)
    work.add(later, target, 1)
    for handle in (middle, later, target):
        with pytest.raises(KernelCompileError) as raised:
            work.get(handle)
        assert raised.value.kernel == "broken"


def test_an_exception_in_the_body_leaves_the_claim_standing(fresh_work, monkeypatch):
    work = fresh_work
    source, target = work.words(1), work.words(2)

    def interrupted(*_):
        raise ZeroDivisionError

    monkeypatch.setattr(work.server._launcher, "group", interrupted)
    with pytest.raises(ZeroDivisionError):
        work.add(source, target, 1)
    monkeypatch.undo()
    assert work.server.write_streams() == (0,)
    assert [used for used, _, _ in work.server.write_set()[0][1]] == [target.slice]
    with pytest.raises(InvalidHandle, match="interrupted"):
        work.get(target)
    work.server.write([(work.descriptor(target, 4), b"\x05\0\0\0")])
    assert work.get_words(target) == [5]


def test_a_batch_that_the_driver_refuses_taints_all_it_wrote(fresh_work):
    from gpuwire.compute.native import lib

    work = fresh_work
    source, target, later = work.words(1), work.words(2), work.words(0)
    work.server.flush()
    work.add(source, target, 1)
    stream = work.server._scheduler.stream(0)
    lib.wgpuCommandEncoderCopyBufferToBuffer(
        stream.copying(), source.slice.page.buffer, 0, source.slice.page.buffer, 0, 3
    )
    with pytest.raises(GpuwireError, match="refused a batch"):
        work.server.flush()
    with pytest.raises(GpuwireError, match="refused a batch"):
        work.get(target)
    work.add(target, later, 1)
    with pytest.raises(GpuwireError, match="refused a batch"):
        work.get(later)
    assert work.get_words(source) == [1]


HANDLES = 4
WORDS = 4
handles = st.integers(0, HANDLES - 1)
streams = st.integers(0, 2)
words = st.integers(0, 3)


class TaintOracle(RuleBasedStateMachine):
    """A few buffers under everything that can befall them. The model holds, of each word, its
    value or the name of what took it away."""

    server: WgpuServer
    kernels: dict[str, Kernel]

    def __init__(self) -> None:
        super().__init__()
        self.handles = [Handle() for _ in range(HANDLES)]
        for handle in self.handles:
            self.server.initialize_memory(handle, WORDS * 4, 0)
        self.model: list[list[int | str]] = [["never"] * WORDS for _ in self.handles]
        self.window: int | None = None
        self.recorded: list[tuple[int, int]] = []
        self.doomed = False
        self.graphs: list[tuple[int, list[tuple[int, int]]]] = []
        self.failures = 0

    def teardown(self) -> None:
        if self.window is not None:
            self._end()
        for graph, _ in self.graphs:
            self.server.graph_destroy(graph)
        for stream in range(3):
            self.server.sync((), stream).wait(60)
            stream_failures = self.server._scheduler.stream(stream).failures
            stream_failures.clear()

    @rule(to=handles, start=words, length=st.integers(1, 4), value=words, stream=streams)
    def write(self, to, start, length, value, stream):
        end = min(start + length, WORDS)
        data = struct.pack(f"<{end - start}I", *[value] * (end - start))
        descriptor = self._descriptor(to, start * 4, len(data))
        if stream == self.window:
            with pytest.raises(CaptureError):
                self.server.write([(descriptor, data)], stream)
            self.doomed = True
            return
        self.server.write([(descriptor, data)], stream)
        self.model[to][start:end] = [value] * (end - start)

    @rule(source=handles, to=handles, stream=streams)
    def launch(self, source, to, stream):
        if source == to:
            return
        self._launch("good", source, to, stream)
        if stream == self.window:
            self.recorded.append((source, to))
        else:
            self._run_in_model(source, to)

    @rule(source=handles, to=handles, stream=streams)
    def launch_a_failing_kernel(self, source, to, stream):
        self.failures += 1
        name = f"broken {self.failures}"
        self.kernels[name] = Kernel(name, "broken", (Access.READ, Access.READ_WRITE), (1, 1, 1))
        self._launch(name, source, to, stream)
        if stream == self.window:
            self.doomed = True
        else:
            self.model[to] = [name] * WORDS

    @rule(source=handles, to=handles, stream=streams)
    def launch_a_sequence(self, source, to, stream):
        """What it makes takes the handle's place, unless it is to be launched one by one."""
        if to == source or stream == self.window or any(to in pair for pair in self.recorded):
            return
        slots = [self.handles[source], None, None]
        ran = self.server.launch_sequence(self.sequence, slots, (), stream)
        assert ran == (self._cause([source], []) is None)
        if ran:
            self.graphs = [one for one in self.graphs if not self._drop_graph_over(one, to)]
            self.handles[to] = slots[2]
            self.model[to] = [int(value) + 2 for value in self.model[source]]

    @rule(to=handles, stream=streams)
    def read(self, to, stream):
        if stream == self.window:
            with pytest.raises(CaptureError):
                self.server.read([self._descriptor(to, 0, WORDS * 4)], stream)
            self.doomed = True
            return
        completion = self.server.read([self._descriptor(to, 0, WORDS * 4)], stream)
        self._compare(to, completion)

    @rule(to=handles)
    def replace(self, to):
        """The handle is dropped and a fresh one takes its place, maybe on the same memory."""
        self.handles[to] = Handle()
        self.server.initialize_memory(self.handles[to], WORDS * 4, 0)
        self.model[to] = ["never"] * WORDS
        self.graphs = [graph for graph in self.graphs if not self._drop_graph_over(graph, to)]
        if any(to in pair for pair in self.recorded):
            self.doomed = True
            self.server._captures.doom(self.window, GpuwireError("its buffer was replaced"))

    @rule(stream=streams)
    def flush_and_clean_up(self, stream):
        self.server._scheduler.stream(stream).submit()
        self.server.memory_cleanup(stream)

    @precondition(lambda self: self.window is None)
    @rule(stream=streams)
    def begin(self, stream):
        self.server.graph_prepare(stream)
        self.server.begin_capture(stream)
        self.window, self.recorded, self.doomed = stream, [], False

    @precondition(lambda self: self.window is not None)
    @rule()
    def end(self):
        self._end()

    @precondition(lambda self: bool(self.graphs))
    @rule(number=st.integers(0, 100), stream=streams)
    def replay(self, number, stream):
        graph, pairs = self.graphs[number % len(self.graphs)]
        if stream == self.window:
            with pytest.raises(CaptureError):
                self.server.replay(graph, stream)
            self.doomed = True
            return
        self.server.replay(graph, stream)
        self._replay_in_model(pairs)

    @invariant()
    def no_claim_is_left(self):
        assert self.server.write_set() == []

    def _end(self) -> None:
        window, self.window = self.window, None
        if self.doomed:
            with pytest.raises(CaptureError):
                self.server.end_capture(window)
        else:
            self.graphs.append((self.server.end_capture(window), self.recorded))
        self.recorded = []

    def _launch(self, kernel, source, target, stream):
        bindings = tuple(
            self._descriptor(number, 0, WORDS * 4).binding for number in (source, target)
        )
        params = struct.pack("<2I", WORDS, 1) if kernel == "good" else b""
        arguments = LaunchArguments(bindings, params)
        self.server.launch(self.kernels[kernel], 1, arguments, stream)

    def _run_in_model(self, source, target):
        cause = self._cause([source], [target])
        self.model[target] = (
            [cause] * WORDS if cause else [int(value) + 1 for value in self.model[source]]
        )

    def _replay_in_model(self, pairs):
        written: set[int] = set()
        reads, updates = [], []
        for source, target in pairs:
            reads += [source] if source not in written else []
            updates += [target] if target not in written else []
            written.add(target)
        cause = self._cause(reads, updates)
        if cause:
            for target in written:
                self.model[target] = [cause] * WORDS
            return
        for source, target in pairs:
            self.model[target] = [int(value) + 1 for value in self.model[source]]

    def _cause(self, reads, updates) -> str | None:
        causes = [word for number in reads for word in self.model[number] if isinstance(word, str)]
        causes += [
            word
            for number in updates
            for word in self.model[number]
            if isinstance(word, str) and word != "never"
        ]
        return min(causes, key=_order) if causes else None

    def _compare(self, target, completion):
        cause = self._cause([target], [])
        if cause is None:
            (data,) = completion.wait(60)
            assert np.frombuffer(data, np.uint32).tolist() == self.model[target]
            return
        with pytest.raises(GpuwireError) as raised:
            completion.wait(60)
        if cause == "never":
            assert isinstance(raised.value, InvalidHandle)
        else:
            assert raised.value.kernel == cause

    def _descriptor(self, number, offset, size):
        from gpuwire.compute import Binding, CopyDescriptor

        return CopyDescriptor(Binding(self.handles[number], offset, size), (size,), (1,), 1)

    def _drop_graph_over(self, graph, target) -> bool:
        if any(target in pair for pair in graph[1]):
            self.server.graph_destroy(graph[0])
            return True
        return False


def _order(cause: str) -> int:
    return 1 << 30 if cause == "never" else int(cause.split()[1])


def test_the_oracle(work):
    TaintOracle.server = work.server
    TaintOracle.kernels = {"good": work.add_kernel}
    launches = [
        SequenceLaunch(
            work.add_kernel,
            1,
            (BufferRange(slot, 0, WORDS * 4), BufferRange(slot + 1, 0, WORDS * 4)),
            struct.pack("<2I", WORDS, 1),
        )
        for slot in (0, 1)
    ]
    made = ((1, WORDS * 4), (2, WORDS * 4))
    TaintOracle.sequence = LaunchSequence.of(launches, made)
    case = TaintOracle.TestCase
    case.settings = settings(
        derandomize=True, deadline=None, max_examples=60, stateful_step_count=40
    )
    case("runTest").runTest()
