"""Between the recorder and the batches: ops become segments, segments become runs of graphs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, repeat, starmap

from gpuwire.client.batch import Batches, BatchMark, Upload
from gpuwire.client.graph_cache.known import KnownGraph, KnownGraphs
from gpuwire.client.graph_cache.relative import SCALAR, Content, definition_of, relative_ops
from gpuwire.client.graph_cache.stream import Stream
from gpuwire.client.graph_cache.units import Match
from gpuwire.client.op_by_op import TIMER_SLACK, BatchTimer
from gpuwire.client.recorded_graphs import RecordedGraph
from gpuwire.client.signatures import Signature
from gpuwire.ids import GraphId, LocationId, StreamId, TensorId
from gpuwire.ir.operations import Operand, Operation
from gpuwire.ir.tensors import Scalar
from gpuwire.telemetry.savings import Savings
from gpuwire.wire.bindings import DROPS_MAX, Bindings, LastRun, most_run_bytes, run_of
from gpuwire.wire.codec import encode_definition, encode_task
from gpuwire.wire.limits import DEFAULT_LIMITS
from gpuwire.wire.messages import (
    DefineGraph,
    ReadTensor,
    RegisterTensor,
    RunOperation,
    Task,
)
from gpuwire.wire.packing import pack_value

_STREAMS_MAX = 16
"""Streams whose past is kept."""


@dataclass(frozen=True, slots=True)
class _Closing:
    """A segment that is being closed. Everything is known before anything is changed, so that an
    interrupted closing is either undone or done."""

    stream: Stream
    end: int
    match: Match | None
    """The unit that it is."""
    dead: set[TensorId]
    """What remains dead and not told."""
    drops: tuple[TensorId, ...]
    """What is dropped by itself."""
    unclaimed: frozenset[TensorId] = frozenset()
    """What a run of a recorded graph has made so far, and nobody holds yet."""
    graph: KnownGraph | None = None
    last: LastRun | None = None


class GraphCache:
    """A `TaskSink` that sends repeated work once. Called under the session's lock.

    It takes over the tensors that have died: one that an open segment makes or uses is not dropped
    before that segment, and one that is made and dies inside a segment never exists on the server.
    """

    def __init__(
        self,
        batches: Batches,
        dropped: deque[TensorId],
        told: deque[TensorId],
        *,
        clock: Callable[[], float],
        savings: Savings,
        known: KnownGraphs | None = None,
    ) -> None:
        """`dropped` is filled by dying tensors and emptied here; `told` is where `batches` takes
        tensors to be dropped from."""
        self.savings = savings
        self._batches = batches
        self._dropped = dropped
        self._told = told
        self._clock = clock
        self._known = known or KnownGraphs()
        self._streams: dict[StreamId, Stream] = {}
        self._dead: set[TensorId] = set()
        self._unclaimed: frozenset[TensorId] = frozenset()
        self._closing: tuple[_Closing, BatchMark] | None = None
        self._timer = BatchTimer(batches)

    # --- What the recorder calls ---

    @property
    def has_open(self) -> bool:
        """Whether anything waits for more, or for time to pass."""
        return (
            self._batches.has_open
            or bool(self._dropped)
            or any(stream.ops.open_count for stream in self._streams.values())
        )

    def operation(
        self,
        stream_id: StreamId,
        signature: Signature,
        operands: tuple[Operand, ...],
        output: TensorId,
        location: LocationId,
    ) -> bool:
        """Takes an op; True if something is now ready to be sent. `ArgumentError` for a scalar that
        does not fit its type."""
        stream = self._streams.get(stream_id)
        if stream is None:
            stream = self._new_stream(stream_id)
        for operand in operands:
            # What cannot be sent is refused at the line that wrote it, not where its segment ends.
            if isinstance(operand, Scalar) and operand.value.__class__ is not float:
                pack_value(operand)
        ready = False
        if len(self._streams) > 1:
            ready = self._close_makers(stream, operands)
        if stream.complete is not None:
            ready |= self._close_all(stream)
        stream.take(signature, operands, output, location)
        end = stream.end_of_segment()
        if end:
            ready |= self._close(stream, end)
        return ready

    def run(
        self,
        stream_id: StreamId,
        graph: RecordedGraph,
        inputs: tuple[TensorId, ...],
        scalars: tuple[Scalar, ...],
        ids: Iterator[TensorId],
    ) -> tuple[tuple[TensorId, ...], bool]:
        """Takes a run of a whole graph: what came before it on its stream, or makes its inputs, is
        closed, and each of its parts is one task by itself."""
        stream = self._streams.get(stream_id)
        if stream is None:
            stream = self._new_stream(stream_id)
        ready = self._close_all(stream)
        if len(self._streams) > 1:
            ready |= self._close_makers(stream, inputs)
        self._drain()
        values = list(inputs)
        for number in range(len(graph.parts)):
            ready |= self._run_part(stream, graph, number, values, scalars, ids)
        self._unclaimed = frozenset()
        return tuple([values[result] for result in graph.results]), ready

    def add(self, task: Task, upload: Upload | None = None) -> bool:
        """Takes any other task; what must come before it is closed."""
        ready = False
        match task:
            case ReadTensor(stream_id, _, tensor):
                for stream in self._streams.values():
                    ops = stream.ops
                    if stream.number == stream_id or ops.find(tensor, ops.open) >= 0:
                        ready |= self._close_all(stream)
            case RegisterTensor():
                pass
            case _:
                ready = self._close_streams()
        return self._batches.add(task, upload) or ready

    def add_urgent(self, task: Task) -> None:
        """Takes a task whose reply is waited for, and makes it ready to be sent."""
        self.add(task)
        self._tell()
        self._batches.close()

    def close(self) -> bool:
        """Closes everything; False if there is nothing to be sent."""
        ready = self._close_streams()
        self._tell()
        return self._batches.close() or ready

    def idle(self, now: float) -> float | None:
        """Closes what has waited long enough by `now`, seconds on the clock; in how many seconds it
        wants to be asked again, None if nothing waits."""
        waits = []
        for stream in self._streams.values():
            if not stream.ops.open_count:
                continue
            seconds = stream.idle_seconds(now) + TIMER_SLACK
            end = stream.end_when_idle(seconds)
            if end == len(stream.ops):
                self._close_all(stream)
            elif end:
                self._close(stream, end)
            if stream.ops.open_count:
                waits.append(max(stream.idle_limit() - seconds, 0.0) + TIMER_SLACK)
        if not waits:
            self._tell()
        left = self._timer.idle(now)
        if left is not None:
            waits.append(left)
        return min(waits, default=None)

    def graph_missing(self, graph: GraphId) -> None:
        """The server has given a graph up that it was told to run: tells it the graph again."""
        definition = self._known.definition(graph)
        if definition is None:
            self.savings.missed(graph, "it was given up here too")
        else:
            self.savings.missed(graph, "its definition goes again")
            self.savings.told_again(definition)
        self._batches.add(DefineGraph(graph, definition))
        self._batches.close()

    def interrupted(self) -> None:
        """A call was left in the middle, by KeyboardInterrupt as a rule: what it had begun to close
        is closed or not, and nothing is half done."""
        if self._closing is not None:
            closing, mark = self._closing
            if self._batches.has_grown_since(mark):
                self._commit(closing)
            self._closing = None
        self._dead = self._dead | self._unclaimed
        self._unclaimed = frozenset()
        for stream in self._streams.values():
            stream.interrupted()

    # --- Closing segments ---

    def _run_part(
        self,
        stream: Stream,
        graph: RecordedGraph,
        number: int,
        values: list[TensorId],
        scalars: tuple[Scalar, ...],
        ids: Iterator[TensorId],
    ) -> bool:
        """Sends a run of one part, and adds what it makes to `values`."""
        part = graph.parts[number]
        # Ops have tokens above 0, so no segment has the content of a recorded graph.
        content: Content = ((-graph.number, number), ())
        known = self._known.find(content, 1)
        is_new = known is None
        if known is None:
            known = KnownGraph(self._known.new_id(), content, 1, part.nodes, part.definition)
        outputs = tuple(islice(ids, len(part.nodes)))
        end = len(stream.ops)
        kept, drops = self._sort_dead(self._dead, stream, end, frozenset())
        spent = tuple([values[value] for value in part.dropped])
        first, last = part.scalars
        bound = tuple([values[value] for value in part.inputs])
        bindings = Bindings(outputs[0], bound, outputs, (), scalars[first:last])
        unclaimed = self._unclaimed.difference(spent).union(outputs)
        closing = _Closing(stream, end, None, kept, drops + spent, unclaimed)
        ready = self._run(known, bindings, closing, part.end - part.start, is_new)
        values.extend(outputs)
        return ready

    def _close_streams(self) -> bool:
        ready = False
        for stream in self._streams.values():
            ready |= self._close_all(stream)
        return ready

    def _close_makers(self, own: Stream, operands: tuple[Operand, ...]) -> bool:
        """A tensor that another stream makes must exist before this stream's op."""
        ready = False
        for stream in self._streams.values():
            ops = stream.ops
            if stream is own or not ops.open_count:
                continue
            first = ops.outputs[ops.open]
            for operand in operands:
                if (
                    operand.__class__ is not Scalar
                    and operand >= first  # type: ignore[operator]
                    and ops.find(operand, ops.open) >= 0  # type: ignore[arg-type]
                ):
                    ready |= self._close_all(stream)
                    break
        return ready

    def _close_all(self, stream: Stream) -> bool:
        """Closes all open ops of a stream."""
        ops = stream.ops
        match = stream.complete
        ready = False
        if match is not None and match.start > ops.open:
            ready = self._close(stream, match.start)
            stream.complete = match
        if ops.open_count:
            ready |= self._close(stream, len(ops), match)
        return ready

    def _close(self, stream: Stream, end: int, match: Match | None = None) -> bool:
        """Closes the open ops before `end`, which are the unit of `match` if there is one; True if
        a batch is now ready to be sent."""
        self._drain()
        ops = stream.ops
        start = ops.open
        rest = len(ops) > end
        needed = self._used_after(stream, end) if rest else frozenset[Operand]()
        dead = self._dead
        made = ops.outputs[start:end]
        outputs = [
            number
            for number, tensor in enumerate(made)
            if tensor not in dead or (rest and tensor in needed)
        ]
        if not outputs:
            self._commit(_Closing(stream, end, match, dead.difference(made), ()))
            return False
        if end - start == 1:
            return self._close_op(stream, match, needed)
        return self._close_graph(stream, end, match, outputs, needed)

    def _close_op(self, stream: Stream, match: Match | None, needed: frozenset[Operand]) -> bool:
        """One op by itself is not worth a graph."""
        ops = stream.ops
        place = ops.open
        signature = ops.signatures[place]
        operation = Operation(
            signature.definition,
            ops.operands[place],
            ops.outputs[place],
            signature.attributes,
            ops.location(place),
        )
        kept, drops = self._sort_dead(self._dead, stream, place + 1, needed)
        closing = _Closing(stream, place + 1, match, kept, drops)
        return self._send(encode_task(RunOperation(stream.number, operation)), closing)

    def _close_graph(
        self,
        stream: Stream,
        end: int,
        match: Match | None,
        outputs: list[int],
        needed: frozenset[Operand],
    ) -> bool:
        ops = stream.ops
        start = ops.open
        if match is not None:
            content = match.unit.content
            inputs, scalars = match.inputs, match.unit.scalars_of(ops, start)
        else:
            relative = relative_ops(ops, start, end)
            content, inputs, scalars = relative.content, relative.inputs, relative.scalars
        mask = 0
        for number in outputs:
            mask |= 1 << number
        known = self._known.find(content, mask)
        is_new = known is None
        if known is None:
            known = self._new_graph(stream, content, mask)
            if known is None:
                middle = (start + end) // 2
                ready = self._close(stream, middle)
                return self._close(stream, end) or ready
        made = ops.outputs[start:end]
        exist = [made[number] for number in known.outputs]
        # What no output is never exists on the server, and is not dropped there.
        dead = self._dead.difference(made).union(self._dead.intersection(exist))
        kept, drops = self._sort_dead(dead, stream, end, needed)
        bindings = Bindings(made[0], inputs, tuple(exist), (), scalars)
        closing = _Closing(stream, end, match, kept, drops)
        return self._run(known, bindings, closing, end - start, is_new)

    def _run(
        self, known: KnownGraph, bindings: Bindings, closing: _Closing, ops: int, is_new: bool
    ) -> bool:
        """Sends a run of so many ops, which takes along what `closing` drops if it has room."""
        # Spelled out: replace() takes 3 µs, of the 60 that a call of a compiled function has.
        drops = closing.drops
        along, alone = (drops, ()) if len(drops) <= DROPS_MAX else ((), drops)
        base, scalars = bindings.base, bindings.scalars
        bindings = Bindings(base, bindings.inputs, bindings.outputs, along, scalars)
        definition = known.definition if is_new else None
        run, last = run_of(closing.stream.number, known.id, bindings, known.last, definition)
        encoded = encode_task(run)
        if is_new:
            known.bound_bytes = len(encoded) - len(known.definition)
        full = len(known.definition) + known.bound_bytes
        stream, end, match = closing.stream, closing.end, closing.match
        dead, unclaimed = closing.dead, closing.unclaimed
        closing = _Closing(stream, end, match, dead, alone, unclaimed, known, last)
        ready = self._send(encoded, closing)
        self.savings.ran(known.id, ops, full, len(encoded), is_new=is_new)
        return ready

    def _new_graph(self, stream: Stream, content: Content, mask: int) -> KnownGraph | None:
        """A graph that the server does not know; None if it is too large to be told."""
        mask = self._known.mask_to_register(content, mask)
        length = len(content[0])
        if length > DEFAULT_LIMITS.max_graph_nodes:
            return None
        outputs = tuple([number for number in range(length) if mask >> number & 1])
        definition = definition_of(stream.ops, stream.ops.open, content, outputs)
        if len(definition.inputs) > DEFAULT_LIMITS.max_graph_nodes:
            return None
        encoded = encode_definition(definition)
        # Definition and bindings travel in one item.
        run = most_run_bytes(len(definition.inputs), len(outputs), content[1].count(SCALAR))
        limits = DEFAULT_LIMITS
        if len(encoded) > min(limits.max_graph_bytes, limits.max_item_bytes - run):
            return None
        return KnownGraph(self._known.new_id(), content, mask, outputs, encoded)

    def _send(self, encoded: bytes, closing: _Closing) -> bool:
        self._closing = closing, self._batches.mark()
        ready = self._batches.add_encoded(encoded)
        self._commit(closing)
        self._closing = None
        return ready

    def _commit(self, closing: _Closing) -> None:
        """Makes a closing so. Doing it twice does no harm."""
        stream = closing.stream
        if closing.match is not None:
            stream.completed(closing.match, self._clock())
        stream.closed(closing.end)
        self._dead = closing.dead
        self._unclaimed = closing.unclaimed
        if closing.graph is not None:
            closing.graph.last = closing.last
            self._known.ran(closing.graph)
            self.savings.evictions = self._known.evictions
        self._told.extend(closing.drops)

    # --- Dead tensors ---

    def _drain(self) -> None:
        if self._dropped:
            # One call into C: nothing comes between a pop and its add.
            self._dead.update(starmap(self._dropped.popleft, repeat((), len(self._dropped))))

    def _tell(self) -> None:
        """Dead tensors that no open op needs go to the batches."""
        self._drain()
        if self._dead:
            self._dead, drops = self._sort_dead(self._dead, None, 0, frozenset())
            self._told.extend(drops)

    def _sort_dead(
        self, dead: set[TensorId], closing: Stream | None, end: int, needed: frozenset[Operand]
    ) -> tuple[set[TensorId], tuple[TensorId, ...]]:
        """The dead tensors that ops still open make or use, and the others. Of the stream that is
        `closing`, the ops before `end` are open no longer, and the others use `needed`."""
        others = [s for s in self._streams.values() if s is not closing and s.ops.open_count]
        is_whole = closing is None or end == len(closing.ops)
        if is_whole and not others:
            return set(), tuple(sorted(dead))
        kept = set()
        for tensor in dead:
            if (
                not is_whole
                and closing is not None
                and (tensor in needed or closing.ops.find(tensor, end) >= 0)
            ) or any(s.ops.uses(tensor) or s.ops.find(tensor, s.ops.open) >= 0 for s in others):
                kept.add(tensor)
        return kept, tuple(sorted(dead - kept))

    def _used_after(self, stream: Stream, end: int) -> frozenset[Operand]:
        return frozenset(
            [x for row in stream.ops.operands[end:] for x in row if x.__class__ is not Scalar]
        )

    # --- Streams ---

    def _new_stream(self, number: StreamId) -> Stream:
        """Threads come and go, and each has a stream: the past of the oldest is forgotten."""
        surplus = len(self._streams) + 1 - _STREAMS_MAX
        if surplus > 0:
            closed = [s.number for s in self._streams.values() if not s.ops.open_count]
            for old in closed[:surplus]:
                del self._streams[old]
        stream = self._streams[number] = Stream(number)
        return stream
