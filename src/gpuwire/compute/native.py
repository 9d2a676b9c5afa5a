"""The edge to wgpu-native: one device, by direct calls into its C interface.

Everything above sees pointers as opaque. The calls go around wgpu's Python objects because those
cost 5 to 60 times the call they wrap. An error the library reports comes through one callback,
on the thread of the call that caused it; whoever makes a call that can fail asks `take_error`
after it.
"""

from __future__ import annotations

import weakref
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, IntFlag
from typing import Any

import wgpu
from wgpu.backends import wgpu_native
from wgpu.backends.wgpu_native._api import from_c_string_view, to_c_string_view
from wgpu.backends.wgpu_native._helpers import get_wgpu_instance
from wgpu.backends.wgpu_native._mappings import enum_str2int, enummap

ffi: Any = wgpu_native.ffi
lib: Any = wgpu_native.lib

Pointer = Any
"""A C pointer of wgpu-native."""

NULL: Pointer = ffi.NULL

_LOST = "Parent device is lost"


class Usage(IntFlag):
    """What a buffer may be used for (WebGPU, GPUBufferUsage)."""

    MAP_READ = 1
    MAP_WRITE = 2
    COPY_SRC = 4
    COPY_DST = 8
    UNIFORM = 64
    STORAGE = 128
    INDIRECT = 256
    QUERY_RESOLVE = 512


class BufferBinding(Enum):
    """What a bind group's entry is to the kernel."""

    UNIFORM = "uniform"
    STORAGE = "storage"


class ErrorKind(Enum):
    """What the library says went wrong."""

    VALIDATION = "validation"
    OUT_OF_MEMORY = "out of memory"
    INTERNAL = "internal"
    LOST = "device lost"


@dataclass(frozen=True, slots=True)
class NativeError:
    """One error that the library reported."""

    kind: ErrorKind
    message: str


class NativeDevice:
    """One wgpu device and its queue. Released when the object goes, after all that it made."""

    def __init__(
        self, adapter: wgpu.GPUAdapter, features: Iterable[str], limits: dict[str, int]
    ) -> None:
        """Opens the device; raises RuntimeError with the library's text if it refuses."""
        self.errors: list[NativeError] = []
        self.lost: NativeError | None = None
        self._error_callback = _error_callback(self)
        self._lost_callback = _lost_callback(self)
        self.pointer = _request_device(
            adapter, sorted(features), limits, self._error_callback, self._lost_callback
        )
        self.queue: Pointer = lib.wgpuDeviceGetQueue(self.pointer)

    def __del__(self) -> None:
        if hasattr(self, "queue"):
            lib.wgpuQueueRelease(self.queue)
            lib.wgpuDeviceRelease(self.pointer)

    def take_error(self) -> NativeError | None:
        """The first error since the last call of this, if any."""
        if not self.errors:
            return None
        first = self.errors[0]
        self.errors.clear()
        return first

    def create_buffer(self, size: int, usage: Usage, *, mapped: bool = False) -> Pointer | None:
        """A buffer, or None where the library refuses; `take_error` then says why."""
        descriptor = ffi.new("WGPUBufferDescriptor *")
        descriptor.size = size
        descriptor.usage = int(usage)
        descriptor.mappedAtCreation = mapped
        buffer = lib.wgpuDeviceCreateBuffer(self.pointer, descriptor)
        if not self.errors:
            return buffer
        if buffer != NULL:
            lib.wgpuBufferRelease(buffer)
        return None

    def create_shader(self, source: str, name: str, *, checked: bool = True) -> Pointer | None:
        """A shader module, or None with an error to take. Unchecked modules index out of bounds
        at their own peril."""
        wgsl = ffi.new("WGPUShaderSourceWGSL *")
        code, label = to_c_string_view(source), to_c_string_view(name)
        wgsl.code = code
        wgsl.chain.sType = lib.WGPUSType_ShaderSourceWGSL
        descriptor = ffi.new("WGPUShaderModuleDescriptor *")
        descriptor.nextInChain = ffi.cast("WGPUChainedStruct *", wgsl)
        descriptor.label = label
        if checked:
            module = lib.wgpuDeviceCreateShaderModule(self.pointer, descriptor)
        else:
            module = lib.wgpuDeviceCreateShaderModuleTrusted(self.pointer, descriptor, 0)
        if not self.errors:
            return module
        if module != NULL:
            lib.wgpuShaderModuleRelease(module)
        return None

    def create_group_layout(self, entries: Sequence[BufferBinding]) -> Pointer:
        """A bind group layout of buffers at bindings 0, 1, …; a uniform has a dynamic offset."""
        array = ffi.new("WGPUBindGroupLayoutEntry[]", max(1, len(entries)))
        for index, entry in enumerate(entries):
            array[index].binding = index
            array[index].visibility = lib.WGPUShaderStage_Compute
            array[index].buffer.type = (
                lib.WGPUBufferBindingType_Uniform
                if entry is BufferBinding.UNIFORM
                else lib.WGPUBufferBindingType_Storage
            )
            array[index].buffer.hasDynamicOffset = entry is BufferBinding.UNIFORM
        descriptor = ffi.new("WGPUBindGroupLayoutDescriptor *")
        descriptor.entryCount = len(entries)
        descriptor.entries = array
        return lib.wgpuDeviceCreateBindGroupLayout(self.pointer, descriptor)

    def create_pipeline(
        self,
        module: Pointer,
        entry_point: str,
        group_layout: Pointer,
        immediate_bytes: int,
        name: str,
    ) -> Pointer | None:
        """A compute pipeline with one bind group, or None with an error to take."""
        layouts = ffi.new("WGPUBindGroupLayout[]", [group_layout])
        layout_descriptor = ffi.new("WGPUPipelineLayoutDescriptor *")
        layout_descriptor.bindGroupLayoutCount = 1
        layout_descriptor.bindGroupLayouts = layouts
        layout_descriptor.immediateSize = immediate_bytes
        layout = lib.wgpuDeviceCreatePipelineLayout(self.pointer, layout_descriptor)
        descriptor = ffi.new("WGPUComputePipelineDescriptor *")
        label, entry = to_c_string_view(name), to_c_string_view(entry_point)
        descriptor.label = label
        descriptor.layout = layout
        descriptor.compute.module = module
        descriptor.compute.entryPoint = entry
        pipeline = lib.wgpuDeviceCreateComputePipeline(self.pointer, descriptor)
        lib.wgpuPipelineLayoutRelease(layout)
        if not self.errors:
            return pipeline
        if pipeline != NULL:
            lib.wgpuComputePipelineRelease(pipeline)
        return None

    def create_bind_group(
        self, layout: Pointer, entries: Sequence[tuple[Pointer, int, int]]
    ) -> Pointer:
        """A bind group of (buffer, offset, size) at bindings 0, 1, …

        A size of 0 makes the library abort the process: callers have refused it before.
        """
        array = ffi.new("WGPUBindGroupEntry[]", max(1, len(entries)))
        for index, (buffer, offset, size) in enumerate(entries):
            assert size > 0
            entry = array[index]
            entry.binding = index
            entry.buffer = buffer
            entry.offset = offset
            entry.size = size
        descriptor = ffi.new("WGPUBindGroupDescriptor *")
        descriptor.layout = layout
        descriptor.entryCount = len(entries)
        descriptor.entries = array
        return lib.wgpuDeviceCreateBindGroup(self.pointer, descriptor)

    def create_timestamps(self, count: int) -> Pointer:
        """A query set of `count` timestamps."""
        descriptor = ffi.new("WGPUQuerySetDescriptor *")
        descriptor.type = lib.WGPUQueryType_Timestamp
        descriptor.count = count
        return lib.wgpuDeviceCreateQuerySet(self.pointer, descriptor)


def enumerate_adapters() -> list[wgpu.GPUAdapter]:
    """Every adapter of this machine, in wgpu's own order."""
    return list(wgpu.gpu.enumerate_adapters_sync())


def live_objects() -> dict[str, int]:
    """How many objects of each kind the library keeps for this process; for leak tests."""
    report = ffi.new("WGPUGlobalReport *")
    lib.wgpuGenerateReport(get_wgpu_instance(), report)
    return {kind: getattr(report.hub, kind).numKeptFromUser for kind in dir(report.hub)}


def _request_device(
    adapter: wgpu.GPUAdapter,
    features: list[str],
    limits: dict[str, int],
    on_error: Pointer,
    on_lost: Pointer,
) -> Pointer:
    outcome: list[tuple[int, Pointer, str]] = []

    def arrived(status: int, device: Pointer, message: Any, _one: Any, _two: Any) -> None:
        outcome.append((status, device, from_c_string_view(message)))

    descriptor = ffi.new("WGPUDeviceDescriptor *")
    codes = ffi.new("WGPUFeatureName[]", [_feature_code(name) for name in features] or [0])
    native_limits, required = _required_limits(limits)
    descriptor.requiredFeatureCount = len(features)
    descriptor.requiredFeatures = codes
    descriptor.requiredLimits = required
    descriptor.deviceLostCallbackInfo.mode = lib.WGPUCallbackMode_AllowSpontaneous
    descriptor.deviceLostCallbackInfo.callback = on_lost
    descriptor.uncapturedErrorCallbackInfo.callback = on_error
    info = ffi.new("WGPURequestDeviceCallbackInfo *")
    info.mode = lib.WGPUCallbackMode_AllowSpontaneous
    signature = "void(WGPURequestDeviceStatus, WGPUDevice, WGPUStringView, void *, void *)"
    callback = ffi.callback(signature, arrived)
    info.callback = callback
    lib.wgpuAdapterRequestDevice(adapter._internal, descriptor, info[0])
    if not outcome:
        lib.wgpuInstanceProcessEvents(get_wgpu_instance())
    del native_limits
    if not outcome:
        raise RuntimeError("the adapter gave no answer")
    status, device, message = outcome[0]
    if status != lib.WGPURequestDeviceStatus_Success:
        raise RuntimeError(message)
    return device


def _required_limits(limits: dict[str, int]) -> tuple[Pointer, Pointer]:
    """The limits struct, and the struct that it points to and that must live as long."""
    native = ffi.new("WGPUNativeLimits *")
    native.chain.sType = lib.WGPUSType_NativeLimits
    required = ffi.new("WGPULimits *")
    required.nextInChain = ffi.cast("WGPUChainedStruct *", native)
    for struct in (native, required):
        for name in dir(struct):
            value = limits.get(_dashed(name))
            if value is not None:
                setattr(struct, name, value)
    return native, required


def _dashed(name: str) -> str:
    """maxBufferSize → max-buffer-size, as wgpu's Python side writes a limit."""
    letters: list[str] = []
    for before, letter in zip(" " + name, name, strict=False):
        begins_word = letter.isupper() or (letter.isdigit() and not before.isdigit())
        letters.append(
            f"-{letter.lower()}" if begins_word and not before.isdigit() else letter.lower()
        )
    return "".join(letters)


def _feature_code(name: str) -> int:
    code = enummap.get(f"FeatureName.{name}")
    return int(enum_str2int["NativeFeature"][name] if code is None else code)


def _error_callback(device: NativeDevice) -> Pointer:
    reference, errors = weakref.ref(device), device.errors
    kinds = {
        lib.WGPUErrorType_Validation: ErrorKind.VALIDATION,
        lib.WGPUErrorType_OutOfMemory: ErrorKind.OUT_OF_MEMORY,
    }

    def on_error(_device: Any, kind: int, message: Any, _one: Any, _two: Any) -> None:
        text = from_c_string_view(message).strip()
        error = NativeError(kinds.get(kind, ErrorKind.INTERNAL), text)
        if _LOST in text:
            # The callback for a lost device comes late, or never if nothing is under way.
            error = NativeError(ErrorKind.LOST, text)
            found = reference()
            if found is not None and found.lost is None:
                found.lost = error
        errors.append(error)

    signature = "void(WGPUDevice const *, WGPUErrorType, WGPUStringView, void *, void *)"
    return ffi.callback(signature, on_error)


def _lost_callback(device: NativeDevice) -> Pointer:

    reference = weakref.ref(device)

    def on_lost(_device: Any, _reason: int, message: Any, _one: Any, _two: Any) -> None:
        lost = reference()
        if lost is not None:
            lost.lost = NativeError(ErrorKind.LOST, from_c_string_view(message).strip())

    signature = "void(WGPUDevice const *, WGPUDeviceLostReason, WGPUStringView, void *, void *)"
    return ffi.callback(signature, on_lost)
