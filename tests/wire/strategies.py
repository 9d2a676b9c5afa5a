"""Hypothesis strategies for everything that travels."""

from __future__ import annotations

import math
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

from hypothesis import strategies as st

from gpuwire.errors import error_classes
from gpuwire.ids import (
    CaptureId,
    GraphId,
    KernelId,
    LocationId,
    RequestId,
    SessionId,
    StreamId,
    TensorId,
)
from gpuwire.ir.attributes import Attributes
from gpuwire.ir.dtypes import ALL_DTYPES, DType, Kind
from gpuwire.ir.graphs import InputRef, NodeRef, NodeSource, ScalarRef, ValueRef
from gpuwire.ir.operations import OPERATIONS, OpClass, OpDef, Operation
from gpuwire.ir.tensors import MAX_RANK, Scalar, TensorType
from gpuwire.wire.codec import encode_definition
from gpuwire.wire.definitions import GraphDefinition
from gpuwire.wire.device_tasks import (
    AskMemory,
    BeginCapture,
    CaptureLaunch,
    CleanMemory,
    DescribeGraph,
    DeviceAnswer,
    DeviceTask,
    EndCapture,
    EndProfile,
    GraphDescribed,
    LaunchKernel,
    MemoryFreed,
    MemoryReport,
    MemoryReported,
    PoolReport,
    ProfileTime,
    RegisterKernel,
    ReplayCapture,
    SetAllocationMode,
    StartProfile,
)
from gpuwire.wire.messages import (
    RESUME_KEY_BYTES,
    Acknowledge,
    AnnounceUpload,
    Close,
    DefineGraph,
    DeviceInfo,
    Done,
    DropTensors,
    ErrorRecord,
    Facts,
    Failed,
    GraphMissing,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Message,
    ReadTensor,
    RegisterTensor,
    Reply,
    ReplyFrame,
    Resume,
    Resumed,
    RunGraph,
    RunOperation,
    SessionLimits,
    SyncStream,
    Task,
    TaskFrame,
    TensorData,
    UploadFound,
    Watch,
    Welcome,
    WorkCounts,
)

I64 = (1 << 63) - 1
U32 = (1 << 32) - 1

ids = st.integers(1, I64) | st.integers(1, 300)
counts = st.integers(0, I64) | st.integers(0, 300)
signed = st.integers(-I64 - 1, I64) | st.integers(-300, 300)
streams = st.integers(0, U32).map(StreamId)
tensors = ids.map(TensorId)
requests = ids.map(RequestId)
texts = st.text(max_size=40)
dtypes = st.sampled_from(ALL_DTYPES)
shapes = st.lists(st.integers(0, 300), max_size=6).map(tuple) | st.lists(
    st.integers(0, 2), max_size=MAX_RANK
).map(tuple)
types = st.builds(TensorType, dtypes, shapes)


@st.composite
def scalars(draw: st.DrawFn) -> Scalar:
    dtype = draw(dtypes)
    width = 8 * dtype.itemsize
    match dtype.kind:
        case Kind.BOOL:
            return Scalar(draw(st.booleans()), dtype)
        case Kind.UNSIGNED:
            return Scalar(draw(st.integers(0, (1 << width) - 1)), dtype)
        case Kind.SIGNED:
            return Scalar(draw(st.integers(-(1 << width - 1), (1 << width - 1) - 1)), dtype)
        case Kind.FLOAT:
            return Scalar(draw(st.floats()), dtype)
        case Kind.COMPLEX:
            return Scalar(draw(st.complex_numbers()), dtype)


def _field(name: str, kind: object) -> st.SearchStrategy[Any]:
    if name in ("shape", "lengths"):
        return shapes
    element = signed if name in ("starts", "steps") else counts
    if kind is DType:
        return dtypes
    if kind is bool:
        return st.booleans()
    if kind is int:
        return element
    assert kind == tuple[int, ...], kind
    return st.lists(element, max_size=8).map(tuple)


def attributes_of(form: type[Attributes]) -> st.SearchStrategy[Attributes]:
    """Any attributes of that form, sensible or not: sense is for the operation's rule."""
    hints = get_type_hints(form)
    assert is_dataclass(form)
    return st.builds(form, *[_field(field.name, hints[field.name]) for field in fields(form)])


attributes = st.one_of([attributes_of(form) for form in get_args(Attributes)])


@st.composite
def operations(draw: st.DrawFn) -> Operation:
    definition: OpDef = draw(st.sampled_from(list(OPERATIONS.values())))
    count = definition.arity or draw(st.integers(0, 5))
    operand = tensors | scalars()
    return Operation(
        definition,
        tuple(draw(st.lists(operand, min_size=count, max_size=count))),
        draw(tensors),
        draw(attributes_of(definition.attributes)),
        LocationId(draw(counts)),
    )


@st.composite
def typed_data(draw: st.DrawFn) -> tuple[TensorType, bytes | None]:
    type_ = draw(types)
    if type_.nbytes > 4096 or draw(st.booleans()):
        return type_, None
    seed = draw(st.binary(min_size=1, max_size=8))
    return type_, (seed * math.ceil(type_.nbytes / len(seed)))[: type_.nbytes]


@st.composite
def registrations(draw: st.DrawFn) -> RegisterTensor:
    type_, data = draw(typed_data())
    return RegisterTensor(draw(streams), draw(requests), draw(tensors), type_, data)


@st.composite
def tensor_data(draw: st.DrawFn) -> TensorData:
    type_, data = draw(typed_data())
    return TensorData(draw(requests), type_, data)


@st.composite
def definitions(draw: st.DrawFn) -> GraphDefinition:
    """Any definition that the wire takes; whether its operations fit is for their rules."""
    inputs = tuple(draw(st.lists(types, max_size=4)))
    nodes: list[NodeSource] = []
    scalar_count = 0
    for place in range(draw(st.integers(1, 6))):
        operation: OpDef = draw(st.sampled_from(list(OPERATIONS.values())))
        operands: list[ValueRef] = []
        for _ in range(operation.arity or draw(st.integers(0, 4))):
            kinds = ["scalar"] + ["input"] * bool(inputs) + ["node"] * bool(place)
            match draw(st.sampled_from(kinds)):
                case "scalar":
                    operands.append(ScalarRef(scalar_count, draw(dtypes)))
                    scalar_count += 1
                case "input":
                    operands.append(InputRef(draw(st.integers(0, len(inputs) - 1))))
                case _:
                    operands.append(NodeRef(draw(st.integers(0, place - 1))))
        form = draw(attributes_of(operation.attributes))
        nodes.append(NodeSource(operation, tuple(operands), form))
    outputs = draw(st.sets(st.integers(0, len(nodes) - 1), min_size=1))
    locations = tuple([LocationId(draw(counts)) for _ in nodes])
    return GraphDefinition(inputs, tuple(nodes), tuple(sorted(outputs)), locations)


graphs = ids.map(GraphId)
encoded_definitions = st.none() | definitions().map(encode_definition)
codes = st.none() | st.lists(signed, max_size=6).map(tuple)
runs = st.builds(
    RunGraph,
    streams,
    graphs,
    st.dictionaries(st.integers(0, 4095), scalars(), max_size=3).map(
        lambda bound: tuple(sorted(bound.items(), key=lambda one: one[0]))
    ),
    st.none() | tensors,
    codes,
    codes,
    codes,
    encoded_definitions,
)

kernels = ids.map(KernelId)
captures = ids.map(CaptureId)
locations = counts.map(LocationId)
grids = st.tuples(*[st.integers(1, U32)] * 3)
tensor_rows = st.lists(tensors, max_size=6).map(tuple)
params = st.binary(max_size=40)
pairs = st.lists(st.tuples(st.integers(0, 256), tensors), max_size=6).map(tuple)

device_tasks: st.SearchStrategy[DeviceTask] = st.one_of(
    st.builds(
        RegisterKernel,
        kernels,
        texts,
        texts,
        texts,
        grids,
        st.lists(st.booleans(), max_size=6).map(tuple),
        st.integers(0, 1024),
    ),
    st.builds(
        LaunchKernel,
        *(streams, kernels, grids, tensor_rows, tensor_rows, params, locations),
        st.integers(0, 7),
    ),
    st.builds(BeginCapture, captures),
    st.builds(
        CaptureLaunch,
        captures,
        kernels,
        grids,
        st.lists(st.integers(0, 256), max_size=6).map(tuple),
        params,
        locations,
    ),
    st.builds(EndCapture, streams, requests, captures, st.lists(types, max_size=5).map(tuple)),
    st.builds(ReplayCapture, streams, captures, pairs, pairs, locations),
    st.builds(SetAllocationMode, streams, st.booleans()),
    st.builds(AskMemory, streams, requests),
    st.builds(CleanMemory, requests),
    st.builds(StartProfile, streams, requests),
    st.builds(EndProfile, streams, requests),
    st.builds(DescribeGraph, requests, definitions().map(encode_definition)),
)

tasks: st.SearchStrategy[Task] = st.one_of(
    device_tasks,
    st.builds(RunOperation, streams, operations()),
    registrations(),
    st.builds(ReadTensor, streams, requests, tensors),
    st.builds(SyncStream, st.none() | streams, requests),
    st.builds(DropTensors, st.lists(tensors, max_size=20).map(tuple)),
    runs,
    st.builds(DefineGraph, graphs, encoded_definitions),
)

error_values = st.none() | texts | signed | st.floats() | st.booleans() | st.binary(max_size=20)
_flat_errors = st.builds(
    ErrorRecord,
    st.sampled_from(sorted(error_classes())) | st.integers(0, U32),
    texts,
    st.lists(st.tuples(texts, error_values), max_size=4).map(tuple),
)


@st.composite
def error_records(draw: st.DrawFn) -> ErrorRecord:
    chain = draw(st.lists(_flat_errors, min_size=1, max_size=4))
    record = None
    for link in chain:
        record = ErrorRecord(link.code, link.message, link.fields, record)
    assert record is not None
    return record


pools = st.builds(PoolReport, texts, texts, *[counts] * 9)
device_answers: st.SearchStrategy[DeviceAnswer] = st.one_of(
    st.builds(
        MemoryReported,
        requests,
        st.builds(MemoryReport, st.lists(pools, max_size=4).map(tuple), *[counts] * 4),
    ),
    st.builds(MemoryFreed, requests, counts),
    st.builds(GraphDescribed, requests, texts),
    st.builds(
        ProfileTime,
        requests,
        st.floats(0, allow_infinity=False, allow_nan=False),
        st.booleans(),
    ),
)

replies: st.SearchStrategy[Reply] = st.one_of(
    device_answers,
    tensor_data(),
    st.builds(Done, requests),
    st.builds(Failed, requests, error_records(), counts),
    st.builds(GraphMissing, graphs),
    st.builds(
        WorkCounts,
        st.lists(counts, min_size=2 * len(OpClass), max_size=2 * len(OpClass)).map(tuple),
        counts,
        counts,
        counts,
    ),
)

devices = st.builds(
    DeviceInfo,
    st.integers(0, 100),
    texts,
    texts,
    texts,
    texts,
    st.lists(st.sampled_from([dtype.name for dtype in ALL_DTYPES]), max_size=14).map(tuple),
    st.lists(texts, max_size=5).map(tuple),
    counts,
    counts,
    counts,
    counts,
)
session_limits = st.builds(
    SessionLimits,
    counts,
    counts,
    counts,
    st.floats(0, allow_infinity=False, allow_nan=False),
)
versions = st.lists(st.integers(1, U32), max_size=5).map(tuple)
sessions = st.binary(min_size=16, max_size=16).map(SessionId)
keys = st.binary(min_size=RESUME_KEY_BYTES, max_size=RESUME_KEY_BYTES)
progress = st.lists(st.tuples(requests, counts), max_size=8).map(tuple)
control_messages: st.SearchStrategy[Message] = st.one_of(
    st.builds(Hello, versions, texts, st.none() | st.integers(0, U32), texts),
    st.builds(
        Hello,
        versions,
        texts,
        st.integers(0, U32),
        texts,
        st.builds(Resume, sessions, keys, counts, progress),
    ),
    st.builds(
        Welcome,
        st.integers(1, U32),
        st.none() | sessions,
        st.lists(devices, max_size=3).map(tuple),
        session_limits,
        texts,
    ),
    st.builds(
        Welcome,
        st.integers(1, U32),
        sessions,
        st.lists(devices, max_size=3).map(tuple),
        session_limits,
        texts,
        st.none() | keys,
        st.none() | st.builds(Resumed, counts, progress),
    ),
    st.builds(Acknowledge, counts),
    st.builds(Heartbeat, counts),
    st.builds(HeartbeatReply, counts),
    st.builds(
        AnnounceUpload, requests, st.integers(0, 1 << 46), st.binary(min_size=32, max_size=32)
    ),
    st.builds(UploadFound, requests, st.booleans()),
    st.builds(Watch, counts, st.booleans()),
    st.builds(Facts, counts, counts, counts, st.binary(max_size=300)),
    st.builds(Close, st.none() | error_records()),
)


@st.composite
def frames(draw: st.DrawFn) -> TaskFrame | ReplyFrame:
    """A frame around any body: whether it decodes is not the frame's business."""
    body = draw(st.binary(min_size=2, max_size=200))
    count = draw(st.integers(1, len(body) // 2))
    if draw(st.booleans()):
        return ReplyFrame(draw(ids), draw(counts), count, body)
    return TaskFrame(draw(ids), draw(counts), count, body, draw(st.text(max_size=32)))


messages = control_messages | frames()


@st.composite
def cuts(draw: st.DrawFn, data: bytes) -> list[bytes]:
    """The data in pieces, cut anywhere."""
    places = sorted(draw(st.lists(st.integers(0, len(data)), max_size=12)))
    return [data[a:b] for a, b in zip([0, *places], [*places, len(data)], strict=True)]
