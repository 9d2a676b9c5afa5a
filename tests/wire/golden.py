"""One record of every kind. Their bytes are in `golden.json`, and may not change within one
protocol version: another version's peer reads them."""

from __future__ import annotations

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
from gpuwire.ir.graphs import InputRef, NodeRef, NodeSource, ScalarRef
from gpuwire.ir.operations import OPERATIONS, Operand, Operation
from gpuwire.ir.tensors import Scalar, TensorType
from gpuwire.wire.codec import encode_definition
from gpuwire.wire.definitions import GraphDefinition
from gpuwire.wire.device_tasks import (
    AskMemory,
    BeginCapture,
    CaptureLaunch,
    CleanMemory,
    DescribeGraph,
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


def run(
    name: str, *inputs: int | Scalar, attributes: Attributes = NO_ATTRIBUTES, stream: int = 3
) -> RunOperation:
    """A task that runs that operation into tensor 900, recorded at location 5."""
    operands: tuple[Operand, ...] = tuple(
        operand if isinstance(operand, Scalar) else TensorId(operand) for operand in inputs
    )
    operation = Operation(OPERATIONS[name], operands, TensorId(900), attributes, LocationId(5))
    return RunOperation(StreamId(stream), operation)


_MATRIX = TensorType(dt.float32, (2, 3))
_ERROR = ErrorRecord(
    100,
    "add failed",
    (("operation", "add"), ("place", 7), ("location", None)),
    ErrorRecord(102, "no memory", (("wanted", 1 << 33),)),
)
_DEVICE = DeviceInfo(
    0,
    "llvmpipe",
    "Vulkan",
    "cpu",
    "Mesa",
    ("float32", "int32"),
    ("shader-f16",),
    1 << 28,
    1 << 27,
    1024,
    32768,
)

DEFINITION = GraphDefinition(
    (_MATRIX, TensorType(dt.float32, (3, 70_000))),
    (
        NodeSource(OPERATIONS["matmul"], (InputRef(0), InputRef(1)), NO_ATTRIBUTES),
        NodeSource(OPERATIONS["multiply"], (NodeRef(0), ScalarRef(0, dt.float32)), NO_ATTRIBUTES),
        NodeSource(OPERATIONS["sum"], (NodeRef(1),), ReduceAttributes((0, 1), False, dt.float32)),
    ),
    (0, 2),
    (LocationId(5), LocationId(6), LocationId(300)),
)
_STEP = (StreamId(3), GraphId(7))
_KERNEL, _CAPTURE = KernelId(31), CaptureId(32)
_SIZES = (1 << 20, 1 << 16, 2, 3, 1000, 1 << 21, 24, 1 << 33, 1 << 34)
_MEMORY = MemoryReport(
    (PoolReport("small", "sliced", *_SIZES), PoolReport("direct", "direct", *_SIZES)), 5, 6, 7, 0
)

TASKS: dict[str, Task] = {
    "run add": run("add", 1, 300),
    "run add, largest ids": run("add", (1 << 63) - 1, 1, stream=(1 << 32) - 1),
    "run multiply by float": run("multiply", 1, Scalar(0.1, dt.float32)),
    "run multiply by bool": run("multiply", 1, Scalar(True, dt.bool_)),
    "run multiply by int": run("multiply", 1, Scalar(-129, dt.int16)),
    "run multiply by largest int": run("multiply", 1, Scalar((1 << 64) - 1, dt.uint64)),
    "run multiply by complex": run("multiply", 1, Scalar(1 - 2j, dt.complex64)),
    "run maximum of -inf": run("maximum", 1, Scalar(float("-inf"), dt.float64)),
    "run where": run("where", 1, 2, 3),
    "run cast": run("cast", 1, attributes=CastAttributes(dt.int8)),
    "run sum": run("sum", 1, attributes=ReduceAttributes((0, 1), True, dt.float64)),
    "run argmax": run("argmax", 1, attributes=ArgReduceAttributes(1, False, dt.int64)),
    "run reshape": run("reshape", 1, attributes=ShapeAttributes((3, 0, 70_000))),
    "run permute": run("permute_dims", 1, attributes=PermuteAttributes((1, 0))),
    "run slice": run("slice", 1, attributes=SliceAttributes((9, 0), (-2, 1), (3, 4))),
    "run concat": run("concat", 1, 2, 3, attributes=AxisAttributes(0)),
    "run arange": run(
        "arange", Scalar(0, dt.int32), Scalar(1, dt.int32), attributes=LengthAttributes(10)
    ),
    "register, inline": RegisterTensor(
        StreamId(0), RequestId(8), TensorId(9), _MATRIX, bytes(range(24))
    ),
    "register, bulk": RegisterTensor(StreamId(0), RequestId(8), TensorId(9), _MATRIX, None),
    "read": ReadTensor(StreamId(1), RequestId(8), TensorId(9)),
    "sync one stream": SyncStream(StreamId(1), RequestId(8)),
    "sync all streams": SyncStream(None, RequestId(8)),
    "run graph, as before": RunGraph(*_STEP),
    "run graph, another scalar": RunGraph(*_STEP, ((1, Scalar(0.1, dt.float32)),)),
    "run graph, scalars of every kind": RunGraph(
        *_STEP,
        (
            (0, Scalar(True, dt.bool_)),
            (1, Scalar(-129, dt.int16)),
            (2, Scalar((1 << 64) - 1, dt.uint64)),
            (4095, Scalar(1 - 2j, dt.complex64)),
        ),
    ),
    "run graph, bound anew": RunGraph(
        *_STEP, base=TensorId(900), dropped=(), inputs=(2, 401, -3), outputs=(0, 2)
    ),
    "register and run graph": RunGraph(
        *_STEP,
        ((0, Scalar(0.5, dt.float32)),),
        TensorId(900),
        None,
        (2, 401),
        (0, 2),
        encode_definition(DEFINITION),
    ),
    "define graph": DefineGraph(GraphId(7), encode_definition(DEFINITION)),
    "define graph, gone": DefineGraph(GraphId(7), None),
    "drop": DropTensors((TensorId(1), TensorId((1 << 63) - 1))),
    "register kernel": RegisterKernel(
        _KERNEL, "saxpy", "fn main() {} // ≤", "main", (64, 2, 1), (False, True), 3
    ),
    "launch kernel": LaunchKernel(
        StreamId(3),
        _KERNEL,
        (300, 1, 70_000),
        (TensorId(8), TensorId(9)),
        (TensorId(10),),
        bytes(range(12)),
        LocationId(5),
    ),
    "begin capture": BeginCapture(_CAPTURE),
    "capture launch": CaptureLaunch(_CAPTURE, _KERNEL, (1, 2, 3), (0, 1), b"", LocationId(5)),
    "end capture": EndCapture(
        StreamId(3), RequestId(8), _CAPTURE, (_MATRIX, TensorType(dt.uint8, ()))
    ),
    "replay capture": ReplayCapture(
        StreamId(3),
        _CAPTURE,
        ((0, TensorId(9)),),
        ((0, TensorId(900)), (1, TensorId((1 << 63) - 1))),
        LocationId(5),
    ),
    "set allocation mode": SetAllocationMode(StreamId(3), True),
    "ask memory": AskMemory(StreamId(3), RequestId(8)),
    "clean memory": CleanMemory(RequestId(8)),
    "start profile": StartProfile(StreamId(3), RequestId(8)),
    "end profile": EndProfile(StreamId(3), RequestId(8)),
    "describe graph": DescribeGraph(RequestId(8), b"\x93\x01"),
}

REPLIES: dict[str, Reply] = {
    "tensor, inline": TensorData(RequestId(8), _MATRIX, bytes(range(24))),
    "tensor, bulk": TensorData(RequestId(8), _MATRIX, None),
    "done": Done(RequestId(8)),
    "failed": Failed(RequestId(8), _ERROR, 5),
    "graph missing": GraphMissing(GraphId(7)),
    "work counts": WorkCounts((0, 64, 2, 0, 0, 0, 1, 0, 300, 0, 0, 0), 5, 1, 0),
    "memory reported": MemoryReported(RequestId(8), _MEMORY),
    "memory freed": MemoryFreed(RequestId(8), 1 << 33),
    "profile time": ProfileTime(RequestId(8), 0.25, True),
    "graph described": GraphDescribed(RequestId(8), "1 launch of 8×8"),
}

MESSAGES: dict[str, Message] = {
    "hello": Hello((2, 1), "secret", 0, "laptop"),
    "hello, list": Hello((1,), "", None, "laptop"),
    "hello, resume": Hello(
        (1,),
        "secret",
        0,
        "laptop",
        Resume(
            SessionId(bytes(range(16))),
            bytes(range(32)),
            300,
            ((RequestId(8), 1 << 33), (RequestId((1 << 63) - 1), 0)),
        ),
    ),
    "welcome": Welcome(
        1,
        SessionId(bytes(range(16))),
        (_DEVICE,),
        SessionLimits(1 << 23, 1 << 32, 0, 60.0),
        "gpu-box",
    ),
    "welcome, list": Welcome(1, None, (), SessionLimits(1, 2, 3, 0.5), "gpu-box"),
    "welcome, key": Welcome(
        1, SessionId(bytes(16)), (), SessionLimits(1, 2, 3, 60.0), "gpu-box", bytes(range(32))
    ),
    "welcome back": Welcome(
        1,
        SessionId(bytes(16)),
        (),
        SessionLimits(1, 2, 3, 60.0),
        "gpu-box",
        None,
        Resumed(299, ((RequestId(9), 1 << 20),)),
    ),
    "tasks": TaskFrame(1, 0, 1, b"\x94\x12\x01\x08\x09"),
    "tasks, traced": TaskFrame(
        2,
        1,
        1,
        b"\x94\x12\x01\x08\x09",
        "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    ),
    "tasks, largest": TaskFrame((1 << 63) - 1, (1 << 63) - 1, 2, b"\x92\x41\x08" * 2),
    "replies": ReplyFrame(300, 299, 1, b"\x92\x41\x08"),
    "acknowledge": Acknowledge(70_000),
    "heartbeat": Heartbeat(1),
    "heartbeat reply": HeartbeatReply(1),
    "announce upload": AnnounceUpload(RequestId(300), 1 << 33, bytes(range(32))),
    "upload found": UploadFound(RequestId(300), True),
    "watch": Watch(300),
    "watch, closely": Watch(300, closely=True),
    "facts": Facts(300, 1 << 50, (1 << 50) + 7, b'{"moment":1.5}'),
    "close": Close(None),
    "close, error": Close(_ERROR),
}
