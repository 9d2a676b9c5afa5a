"""Tasks and replies as plain values: `(kind, field, …)`.

`device_items` has those of kernels, captured graphs, memory and time. A kind's number is part of
the protocol: it is never used again for something else. Messages have 1 to 15, tasks 16 to 63,
replies 64 to 127, so that one taken for another is noticed.
"""

from __future__ import annotations

import struct
from collections.abc import Callable

from gpuwire.errors import ArgumentError, MalformedMessage
from gpuwire.ids import GraphId, RequestId, StreamId, TensorId
from gpuwire.ir.operations import OpClass
from gpuwire.ir.tensors import TensorType
from gpuwire.wire import fields as check
from gpuwire.wire.device_items import (
    DEVICE_ANSWERS,
    DEVICE_TASKS,
    plain_device_answer,
    plain_device_task,
)
from gpuwire.wire.limits import DEFAULT_LIMITS, WireLimits
from gpuwire.wire.messages import (
    DefineGraph,
    Done,
    DropTensors,
    ErrorRecord,
    Failed,
    GraphMissing,
    ReadTensor,
    RegisterTensor,
    Reply,
    RunGraph,
    RunOperation,
    SyncStream,
    Task,
    TensorData,
    WorkCounts,
)
from gpuwire.wire.operations import (
    Plain,
    checked_operation,
    checked_type,
    plain_operation,
)
from gpuwire.wire.packing import pack_integers, pack_scalars, unpack_integers, unpack_scalars

_MAX_DROPPED = DEFAULT_LIMITS.max_dropped_tensors
_COUNTS = 3 + 2 * len(OpClass)
"""In one `WorkCounts`."""


def plain_task(task: Task) -> Plain:
    """A task's plain form. `ArgumentError` for what the wire does not carry."""
    match task:
        case RunOperation():
            return (16, task.stream, *plain_operation(task.operation))
        case RegisterTensor():
            return (17, task.stream, task.request, task.tensor, *_plain_type(task.type), task.data)
        case ReadTensor():
            return (18, task.stream, task.request, task.tensor)
        case SyncStream():
            return (19, task.stream, task.request)
        case DropTensors():
            return (20, _plain_tensors(task.tensors))
        case RunGraph():
            return _plain_run(task)
        case DefineGraph():
            return (22, task.graph, task.definition)
        case _:
            return plain_device_task(task)


def checked_task(item: Plain, limits: WireLimits) -> Task:
    """The task of a plain one. `MalformedMessage` or `LimitBreached`."""
    decode = _TASKS.get(_kind(item))
    if decode is None:
        raise check.malformed("task", "a known kind", _kind(item))
    return decode(item, limits)


def plain_reply(reply: Reply) -> Plain:
    """A reply's plain form."""
    match reply:
        case TensorData():
            return (64, reply.request, *_plain_type(reply.type), reply.data)
        case Done():
            return (65, reply.request)
        case Failed():
            return (66, reply.request, plain_error(reply.error), reply.location)
        case GraphMissing():
            return (67, reply.graph)
        case WorkCounts():
            cache = (reply.graph_hits, reply.graph_misses, reply.graph_evictions)
            return (68, pack_integers((*cache, *reply.operations)))
        case _:
            return plain_device_answer(reply)


def checked_reply(item: Plain, limits: WireLimits) -> Reply:
    """The reply of a plain one. `MalformedMessage` or `LimitBreached`."""
    decode = _REPLIES.get(_kind(item))
    if decode is None:
        raise check.malformed("reply", "a known kind", _kind(item))
    return decode(item, limits)


def plain_error(error: ErrorRecord | None) -> Plain:
    """The chain, first error first: `((code, message, name, value, name, value, …), …)`. No
    error is the empty chain. Flat, so that no chain nests deeper than another."""
    chain: list[Plain] = []
    while error is not None and len(chain) <= DEFAULT_LIMITS.max_causes:
        named = [part for field in error.fields for part in field]
        chain.append((error.code, error.message, *named))
        error = error.cause
    return tuple(chain)


def checked_error(value: object, limits: WireLimits) -> ErrorRecord | None:
    """The error of a plain chain; None of an empty one."""
    chain = check.array(value, "error")
    if len(chain) > limits.max_causes + 1:
        raise check.breached("causes of an error", len(chain) - 1, limits.max_causes)
    error: ErrorRecord | None = None
    for link in reversed(chain):
        error = _checked_link(link, error, limits)
    return error


# --- What the two share ----------------------------------------------------------------------


def _kind(item: Plain) -> int:
    return check.integer(item[0] if item else None, "kind")


def _plain_type(type_: TensorType) -> Plain:
    return (type_.dtype.code, type_.shape)


def _checked_request(value: object) -> RequestId:
    return RequestId(check.identity(value, "request"))


def _checked_data(value: object, type_: TensorType, limits: WireLimits) -> bytes | None:
    """A tensor's bytes, exactly as many as its type has; None where they come in bulk."""
    if value is None:
        return None
    data = check.octets(value, "inline tensor", limits.max_inline_bytes)
    if len(data) != type_.nbytes:
        raise MalformedMessage(
            f"inline tensor: {type_} has {type_.nbytes} bytes, found {len(data)}",
            what="inline tensor",
        )
    return data


def _checked_link(value: object, cause: ErrorRecord | None, limits: WireLimits) -> ErrorRecord:
    link = check.array(value, "error")
    if len(link) < 2 or len(link) % 2:
        raise MalformedMessage("error: wanted code, message and named fields", what="error")
    named = tuple(
        (check.text(name, "error field"), _checked_error_value(field, limits))
        for name, field in zip(link[2::2], link[3::2], strict=True)
    )
    code = check.integer(link[0], "error code", 0, check.U32_HIGHEST)
    return ErrorRecord(code, check.text(link[1], "error message"), named, cause)


def _checked_error_value(
    value: object, limits: WireLimits
) -> str | int | float | bool | bytes | None:
    if isinstance(value, bytes):
        return check.octets(value, "error field", limits.max_inline_bytes)
    if value is None or isinstance(value, str | int | float):
        return value
    raise check.malformed("error field", "a plain value", value)


# --- Tasks -----------------------------------------------------------------------------------


def _checked_stream(value: object) -> StreamId:
    return StreamId(check.integer(value, "stream", 0, check.U32_HIGHEST))


def _checked_tensor(value: object) -> TensorId:
    return TensorId(check.identity(value, "tensor"))


def _run_operation(item: Plain, limits: WireLimits) -> RunOperation:
    if len(item) < 2:
        raise MalformedMessage("RunOperation: wanted a stream", what="RunOperation")
    return RunOperation(_checked_stream(item[1]), checked_operation(item[2:], limits))


def _register_tensor(item: Plain, limits: WireLimits) -> RegisterTensor:
    check.exactly(item, 7, "RegisterTensor")
    type_ = checked_type(item[4], item[5])
    return RegisterTensor(
        _checked_stream(item[1]),
        _checked_request(item[2]),
        _checked_tensor(item[3]),
        type_,
        _checked_data(item[6], type_, limits),
    )


def _read_tensor(item: Plain, limits: WireLimits) -> ReadTensor:
    check.exactly(item, 4, "ReadTensor")
    return ReadTensor(_checked_stream(item[1]), _checked_request(item[2]), _checked_tensor(item[3]))


def _sync_stream(item: Plain, limits: WireLimits) -> SyncStream:
    check.exactly(item, 3, "SyncStream")
    stream = None if item[1] is None else _checked_stream(item[1])
    return SyncStream(stream, _checked_request(item[2]))


def _plain_tensors(tensors: tuple[TensorId, ...]) -> bytes:
    """Ids as big-endian u64 in one piece: an array of this length would let a peer nest arrays of
    it, each allocated in full before it is refused."""
    if len(tensors) > _MAX_DROPPED:
        raise ArgumentError(
            f"one task drops at most {_MAX_DROPPED} tensors, not {len(tensors)}; send several"
        )
    return struct.pack(f">{len(tensors)}Q", *tensors)


def _drop_tensors(item: Plain, limits: WireLimits) -> DropTensors:
    check.exactly(item, 2, "DropTensors")
    packed = check.octets(item[1], "tensors dropped", 8 * limits.max_dropped_tensors)
    count, odd = divmod(len(packed), 8)
    tensors = struct.unpack(f">{count}Q", packed) if not odd else ()
    if odd or (tensors and not (min(tensors) >= 1 and max(tensors) <= check.I64_HIGHEST)):
        raise MalformedMessage("tensors dropped: wanted tensor ids", what="tensors dropped")
    return DropTensors(tuple([TensorId(tensor) for tensor in tensors]))


def _plain_run(run: RunGraph) -> Plain:
    """A run's fields up to the last that says something: what is left out at the end is None."""
    plain: list[object] = [21, run.stream, run.graph]
    fields = (
        pack_scalars(run.scalars) if run.scalars else None,
        run.base,
        None if run.dropped is None else pack_integers(run.dropped),
        None if run.inputs is None else pack_integers(run.inputs),
        None if run.outputs is None else pack_integers(run.outputs),
        run.definition,
    )
    said = len(fields)
    while said and fields[said - 1] is None:
        said -= 1
    plain.extend(fields[:said])
    return tuple(plain)


def _run_graph(item: Plain, limits: WireLimits) -> RunGraph:
    if not 3 <= len(item) <= 9:
        raise MalformedMessage(
            f"RunGraph: wanted 3 to 9 fields, found {len(item)}", what="RunGraph"
        )
    if len(item) == 3:
        return RunGraph(_checked_stream(item[1]), _checked_graph(item[2]))
    said = item[3:] + (None,) * (9 - len(item))
    scalars, base, dropped, inputs, outputs, definition = said
    most = limits.max_graph_nodes
    return RunGraph(
        _checked_stream(item[1]),
        _checked_graph(item[2]),
        () if scalars is None else unpack_scalars(scalars, "graph scalars", most),
        None if base is None else _checked_tensor(base),
        None if dropped is None else unpack_integers(dropped, "tensors dropped by a run", most),
        None if inputs is None else unpack_integers(inputs, "graph inputs", most),
        None if outputs is None else unpack_integers(outputs, "graph outputs", most),
        _checked_definition(definition, limits),
    )


def _define_graph(item: Plain, limits: WireLimits) -> DefineGraph:
    check.exactly(item, 3, "DefineGraph")
    return DefineGraph(_checked_graph(item[1]), _checked_definition(item[2], limits))


def _checked_graph(value: object) -> GraphId:
    return GraphId(check.identity(value, "graph"))


def _checked_definition(value: object, limits: WireLimits) -> bytes | None:
    """A definition still encoded: `codec.decode_definition` looks inside."""
    if value is None:
        return None
    return check.octets(value, "graph definition", limits.max_graph_bytes)


_TASKS: dict[int, Callable[[Plain, WireLimits], Task]] = {
    16: _run_operation,
    17: _register_tensor,
    18: _read_tensor,
    19: _sync_stream,
    20: _drop_tensors,
    21: _run_graph,
    22: _define_graph,
    **DEVICE_TASKS,
}


# --- Replies ---------------------------------------------------------------------------------


def _tensor_data(item: Plain, limits: WireLimits) -> TensorData:
    check.exactly(item, 5, "TensorData")
    type_ = checked_type(item[2], item[3])
    return TensorData(_checked_request(item[1]), type_, _checked_data(item[4], type_, limits))


def _done(item: Plain, limits: WireLimits) -> Done:
    check.exactly(item, 2, "Done")
    return Done(_checked_request(item[1]))


def _failed(item: Plain, limits: WireLimits) -> Failed:
    check.exactly(item, 4, "Failed")
    error = checked_error(item[2], limits)
    if error is None:
        raise MalformedMessage("Failed: wanted an error", what="Failed")
    return Failed(_checked_request(item[1]), error, check.integer(item[3], "location"))


def _graph_missing(item: Plain, limits: WireLimits) -> GraphMissing:
    check.exactly(item, 2, "GraphMissing")
    return GraphMissing(_checked_graph(item[1]))


def _work_counts(item: Plain, limits: WireLimits) -> WorkCounts:
    check.exactly(item, 2, "WorkCounts")
    counts = unpack_integers(item[1], "work counts", _COUNTS)
    if len(counts) < _COUNTS or not (min(counts) >= 0 and max(counts) <= check.I64_HIGHEST):
        raise MalformedMessage(f"work counts: wanted {_COUNTS} counts", what="work counts")
    return WorkCounts(counts[3:], *counts[:3])


_REPLIES: dict[int, Callable[[Plain, WireLimits], Reply]] = {
    64: _tensor_data,
    65: _done,
    66: _failed,
    67: _graph_missing,
    68: _work_counts,
    **DEVICE_ANSWERS,
}
