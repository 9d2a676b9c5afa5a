"""Tasks and replies of the device's own face as plain values; `items` says how, and which numbers
are whose."""

from __future__ import annotations

from collections.abc import Callable

from gpuwire.errors import MalformedMessage
from gpuwire.ids import CaptureId, KernelId, LocationId, RequestId, StreamId, TensorId
from gpuwire.ir.tensors import TensorType
from gpuwire.wire import fields as check
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
    Grid,
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
from gpuwire.wire.limits import WireLimits
from gpuwire.wire.operations import Plain, checked_type
from gpuwire.wire.packing import pack_integers, unpack_integers

_POOL_FIELDS = 11


def plain_device_task(task: DeviceTask) -> Plain:
    """A task's plain form."""
    match task:
        case RegisterKernel():
            source = task.source.encode("utf-8", "backslashreplace")
            names = (task.name, source, task.entry_point)
            return (32, task.kernel, *names, task.workgroup_size, task.written, task.params_words)
        case LaunchKernel():
            tensors = (task.tensors, task.outputs)
            spent = (task.spent,) if task.spent else ()
            ends = (task.params, task.location, *spent)
            return (33, task.stream, task.kernel, task.grid, *tensors, *ends)
        case BeginCapture():
            return (34, task.graph)
        case CaptureLaunch():
            launch = (task.kernel, task.grid, task.slots, task.params, task.location)
            return (35, task.graph, *launch)
        case EndCapture():
            types = [part for type_ in task.types for part in (type_.dtype.code, type_.shape)]
            return (36, task.stream, task.request, task.graph, types)
        case ReplayCapture():
            bound = (_packed_pairs(task.inputs), _packed_pairs(task.outputs))
            return (37, task.stream, task.graph, *bound, task.location)
        case SetAllocationMode():
            return (38, task.stream, task.persistent)
        case AskMemory():
            return (39, task.stream, task.request)
        case CleanMemory():
            return (40, task.request)
        case StartProfile():
            return (41, task.stream, task.request)
        case EndProfile():
            return (42, task.stream, task.request)
        case DescribeGraph():
            return (43, task.request, task.definition)


def plain_device_answer(answer: DeviceAnswer) -> Plain:
    """A reply's plain form."""
    match answer:
        case MemoryReported(request, report):
            totals = (report.bytes_in_use, report.bytes_reserved)
            session = (report.session_bytes, report.session_limit)
            return (80, request, [_plain_pool(pool) for pool in report.pools], *totals, *session)
        case MemoryFreed():
            return (81, answer.request, answer.size)
        case ProfileTime():
            return (82, answer.request, answer.seconds, answer.by_device)
        case GraphDescribed():
            return (83, answer.request, answer.text.encode())


# --- Kernels ---------------------------------------------------------------------------------


def _register_kernel(item: Plain, limits: WireLimits) -> RegisterKernel:
    check.exactly(item, 8, "RegisterKernel")
    packed = check.octets(item[3], "kernel source", limits.max_kernel_bytes)
    try:
        source = packed.decode()
    except UnicodeDecodeError as error:
        raise MalformedMessage("kernel source: wanted UTF-8", what="kernel source") from error
    most_words = limits.max_params_bytes // 4
    buffers = check.array(item[6], "kernel buffers", limits.max_kernel_buffers)
    return RegisterKernel(
        _checked_kernel(item[1]),
        check.text(item[2], "kernel name"),
        source,
        check.text(item[4], "entry point"),
        _checked_grid(item[5], "workgroup size"),
        tuple([check.boolean(written, "kernel buffers") for written in buffers]),
        check.integer(item[7], "kernel parameters", 0, most_words),
    )


def _launch_kernel(item: Plain, limits: WireLimits) -> LaunchKernel:
    check.exactly(item, 9 if len(item) == 9 else 8, "LaunchKernel")
    most = limits.max_kernel_buffers
    return LaunchKernel(
        _checked_stream(item[1]),
        _checked_kernel(item[2]),
        _checked_grid(item[3], "grid"),
        _checked_tensors(item[4], "kernel arguments", most),
        _checked_tensors(item[5], "kernel results", most),
        _checked_params(item[6], limits),
        _checked_location(item[7]),
        check.integer(item[8], "spent tensors", 1, (1 << most) - 1) if len(item) == 9 else 0,
    )


# --- Captured graphs -------------------------------------------------------------------------


def _begin_capture(item: Plain, limits: WireLimits) -> BeginCapture:
    check.exactly(item, 2, "BeginCapture")
    return BeginCapture(_checked_capture(item[1]))


def _capture_launch(item: Plain, limits: WireLimits) -> CaptureLaunch:
    check.exactly(item, 7, "CaptureLaunch")
    return CaptureLaunch(
        _checked_capture(item[1]),
        _checked_kernel(item[2]),
        _checked_grid(item[3], "grid"),
        check.integers(
            item[4], "captured arguments", limits.max_kernel_buffers, 0, limits.max_capture_arrays
        ),
        _checked_params(item[5], limits),
        _checked_location(item[6]),
    )


def _end_capture(item: Plain, limits: WireLimits) -> EndCapture:
    check.exactly(item, 5, "EndCapture")
    parts = check.array(item[4], "captured arrays", 2 * limits.max_capture_arrays)
    if len(parts) % 2:
        raise MalformedMessage("captured arrays: wanted types", what="captured arrays")
    types: tuple[TensorType, ...] = tuple(
        [checked_type(dtype, shape) for dtype, shape in zip(parts[::2], parts[1::2], strict=True)]
    )
    return EndCapture(
        _checked_stream(item[1]), _checked_request(item[2]), _checked_capture(item[3]), types
    )


def _replay_capture(item: Plain, limits: WireLimits) -> ReplayCapture:
    check.exactly(item, 6, "ReplayCapture")
    return ReplayCapture(
        _checked_stream(item[1]),
        _checked_capture(item[2]),
        _checked_pairs(item[3], "replayed inputs", limits),
        _checked_pairs(item[4], "replayed outputs", limits),
        _checked_location(item[5]),
    )


def _packed_pairs(pairs: tuple[tuple[int, TensorId], ...]) -> bytes:
    return pack_integers([number for pair in pairs for number in pair])


def _checked_pairs(
    value: object, what: str, limits: WireLimits
) -> tuple[tuple[int, TensorId], ...]:
    most = limits.max_capture_arrays
    numbers = unpack_integers(value, what, 2 * most)
    if len(numbers) % 2:
        raise MalformedMessage(f"{what}: wanted pairs", what=what)
    return tuple(
        [
            (check.integer(slot, what, 0, most), TensorId(check.identity(tensor, what)))
            for slot, tensor in zip(numbers[::2], numbers[1::2], strict=True)
        ]
    )


# --- Memory, time and plans ------------------------------------------------------------------


def _set_allocation_mode(item: Plain, limits: WireLimits) -> SetAllocationMode:
    check.exactly(item, 3, "SetAllocationMode")
    return SetAllocationMode(_checked_stream(item[1]), check.boolean(item[2], "persistent"))


def _ask_memory(item: Plain, limits: WireLimits) -> AskMemory:
    check.exactly(item, 3, "AskMemory")
    return AskMemory(_checked_stream(item[1]), _checked_request(item[2]))


def _clean_memory(item: Plain, limits: WireLimits) -> CleanMemory:
    check.exactly(item, 2, "CleanMemory")
    return CleanMemory(_checked_request(item[1]))


def _start_profile(item: Plain, limits: WireLimits) -> StartProfile:
    check.exactly(item, 3, "StartProfile")
    return StartProfile(_checked_stream(item[1]), _checked_request(item[2]))


def _end_profile(item: Plain, limits: WireLimits) -> EndProfile:
    check.exactly(item, 3, "EndProfile")
    return EndProfile(_checked_stream(item[1]), _checked_request(item[2]))


def _memory_reported(item: Plain, limits: WireLimits) -> MemoryReported:
    check.exactly(item, 7, "MemoryReported")
    pools = check.array(item[2], "memory pools", limits.max_array_length)
    totals = [check.integer(number, "memory report") for number in item[3:]]
    report = MemoryReport(tuple([_checked_pool(pool) for pool in pools]), *totals)
    return MemoryReported(_checked_request(item[1]), report)


def _memory_freed(item: Plain, limits: WireLimits) -> MemoryFreed:
    check.exactly(item, 3, "MemoryFreed")
    return MemoryFreed(_checked_request(item[1]), check.integer(item[2], "memory freed"))


def _profile_time(item: Plain, limits: WireLimits) -> ProfileTime:
    check.exactly(item, 4, "ProfileTime")
    return ProfileTime(
        _checked_request(item[1]),
        check.seconds(item[2], "profiled time"),
        check.boolean(item[3], "by device"),
    )


def _describe_graph(item: Plain, limits: WireLimits) -> DescribeGraph:
    check.exactly(item, 3, "DescribeGraph")
    definition = check.octets(item[2], "graph definition", limits.max_graph_bytes)
    return DescribeGraph(_checked_request(item[1]), definition)


def _graph_described(item: Plain, limits: WireLimits) -> GraphDescribed:
    check.exactly(item, 3, "GraphDescribed")
    packed = check.octets(item[2], "plan", limits.max_facts_bytes)
    try:
        text = packed.decode()
    except UnicodeDecodeError as error:
        raise MalformedMessage("plan: wanted UTF-8", what="plan") from error
    return GraphDescribed(_checked_request(item[1]), text)


def _plain_pool(pool: PoolReport) -> Plain:
    return (
        *(pool.name, pool.kind, pool.page_bytes, pool.max_slice_bytes, pool.pages, pool.slices),
        *(pool.bytes_in_use, pool.bytes_reserved, pool.bytes_padding),
        *(pool.high_water_in_use, pool.high_water_reserved),
    )


def _checked_pool(value: object) -> PoolReport:
    parts = check.array(value, "memory pool")
    check.exactly(parts, _POOL_FIELDS, "memory pool")
    name, kind = check.text(parts[0], "pool name"), check.text(parts[1], "pool kind")
    return PoolReport(name, kind, *[check.integer(part, "memory pool") for part in parts[2:]])


# --- What they share -------------------------------------------------------------------------


def _checked_stream(value: object) -> StreamId:
    return StreamId(check.integer(value, "stream", 0, check.U32_HIGHEST))


def _checked_request(value: object) -> RequestId:
    return RequestId(check.identity(value, "request"))


def _checked_kernel(value: object) -> KernelId:
    return KernelId(check.identity(value, "kernel"))


def _checked_capture(value: object) -> CaptureId:
    return CaptureId(check.identity(value, "captured graph"))


def _checked_location(value: object) -> LocationId:
    return LocationId(check.integer(value, "location"))


def _checked_tensors(value: object, what: str, limit: int) -> tuple[TensorId, ...]:
    found = check.array(value, what, limit)
    return tuple([TensorId(check.identity(tensor, what)) for tensor in found])


def _checked_params(value: object, limits: WireLimits) -> bytes:
    return check.octets(value, "kernel parameters", limits.max_params_bytes)


def _checked_grid(value: object, what: str) -> Grid:
    grid = check.integers(value, what, 3, 1, check.U32_HIGHEST)
    if len(grid) != 3:
        raise MalformedMessage(f"{what}: wanted three numbers, found {len(grid)}", what=what)
    return grid[0], grid[1], grid[2]


DEVICE_TASKS: dict[int, Callable[[Plain, WireLimits], DeviceTask]] = {
    32: _register_kernel,
    33: _launch_kernel,
    34: _begin_capture,
    35: _capture_launch,
    36: _end_capture,
    37: _replay_capture,
    38: _set_allocation_mode,
    39: _ask_memory,
    40: _clean_memory,
    41: _start_profile,
    42: _end_profile,
    43: _describe_graph,
}
DEVICE_ANSWERS: dict[int, Callable[[Plain, WireLimits], DeviceAnswer]] = {
    80: _memory_reported,
    81: _memory_freed,
    82: _profile_time,
    83: _graph_described,
}
