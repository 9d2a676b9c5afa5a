"""The adapters of this machine, and how one is opened.

A device is asked for every feature that a kernel may use and for the adapter's own limits.
wgpu-native lists features that it then refuses (cooperative matrices: experimental ones cannot be
switched on from C in this version), so those are probed by asking with and without.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from gpuwire.compute.native import NativeDevice, enumerate_adapters
from gpuwire.errors import NoAdapter, NoSuchDevice

USEFUL_FEATURES = frozenset(
    {
        "immediates",
        "shader-f16",
        "shader-f64",
        "shader-float32-atomic",
        "shader-i16",
        "shader-int64",
        "shader-int64-atomic-all-ops",
        "shader-int64-atomic-min-max",
        "subgroup",
        "subgroup-barrier",
        "subgroups",
        "timestamp-query",
        "timestamp-query-inside-encoders",
        "timestamp-query-inside-passes",
    }
)
PROBED_FEATURES = ("cooperative-matrix",)

_KINDS = {"DiscreteGPU": "discrete", "IntegratedGPU": "integrated", "CPU": "cpu"}
_RANKS = {"discrete": 0, "integrated": 1, "virtual": 2, "unknown": 3, "cpu": 4}
_BACKENDS = {"Vulkan": 0, "Metal": 0, "D3D12": 1, "OpenGL": 2, "OpenGLES": 2}
_SAFE_WORKGROUPS = 65_535
_MOST_BUFFERS = 128
"""Some adapters claim half a million."""


@dataclass(frozen=True, slots=True)
class AdapterProperties:
    """One adapter. Sizes in bytes."""

    index: int
    """Its place in `adapters()`; what `WgpuServer.init` takes."""
    name: str
    backend: str
    """Vulkan, Metal, D3D12 or OpenGL."""
    kind: str
    """discrete, integrated, virtual, cpu or unknown."""
    driver: str
    features: frozenset[str]
    """wgpu's names, such as `shader-f16`, `shader-f64`, `shader-int64`, `subgroup`."""
    max_buffer_bytes: int
    max_binding_bytes: int
    """The largest range that one binding of a launch may have."""
    storage_alignment: int
    """What a binding's offset must be a multiple of."""
    max_immediate_bytes: int
    max_buffers: int
    """Storage buffers of one launch."""
    max_workgroup_invocations: int
    max_workgroup_size: tuple[int, int, int]
    max_workgroup_memory: int
    max_workgroups: int
    """Along one dimension of a dispatch."""
    subgroup_sizes: tuple[int, int]


@dataclass(frozen=True, slots=True)
class OpenedAdapter:
    """A device, with the properties it really has."""

    properties: AdapterProperties
    device: NativeDevice


def adapters() -> tuple[AdapterProperties, ...]:
    """Every usable adapter, best first: discrete before integrated before software, and Vulkan or
    Metal before OpenGL. An adapter that the OpenGL backend lists a second time is left out."""
    return tuple(_properties(index, found) for index, found in enumerate(_ranked_adapters()))


def open_adapter(index: int) -> OpenedAdapter:
    """The device of `adapters()[index]`. Raises NoAdapter or NoSuchDevice."""
    found = _ranked_adapters()
    if not found:
        raise NoAdapter(
            "no graphics adapter: install the GPU's Vulkan driver, or Mesa's software one "
            "(package mesa-vulkan-drivers)"
        )
    if not 0 <= index < len(found):
        message = f"device {index} does not exist: this machine has devices 0 to {len(found) - 1}"
        raise NoSuchDevice(message, index=index, count=len(found))
    adapter = found[index]
    device, features = _open_with_probes(adapter)
    return OpenedAdapter(_properties(index, adapter, features), device)


def _open_with_probes(adapter: Any) -> tuple[NativeDevice, frozenset[str]]:
    available = frozenset(adapter.features)
    limits = {name: int(value) for name, value in adapter.limits.items()}
    features = available & USEFUL_FEATURES
    for probed in PROBED_FEATURES:
        if probed in available:
            try:
                return NativeDevice(adapter, features | {probed}, limits), features | {probed}
            except RuntimeError:
                continue
    try:
        return NativeDevice(adapter, features, limits), features
    except RuntimeError as error:
        name = adapter.info["device"]
        raise NoAdapter(f"adapter {name!r} refuses to be opened: {error}") from error


def _ranked_adapters() -> list[Any]:
    found = enumerate_adapters()
    native = [adapter for adapter in found if adapter.info["backend_type"] != "OpenGL"]
    others = [
        adapter
        for adapter in found
        if adapter not in native and not any(_is_same(adapter, one) for one in native)
    ]
    return sorted([*native, *others], key=_rank)


def _is_same(opengl: Any, native: Any) -> bool:
    """Whether OpenGL's adapter is one that a better backend lists too. It gives no device id, and
    often no vendor; its name begins with the GPU's."""
    ours, theirs = opengl.info, native.info
    if ours["device"].startswith(theirs["device"]):
        return True
    return bool(
        ours["adapter_type"] == theirs["adapter_type"] and ours["vendor_id"] == theirs["vendor_id"]
    )


def _rank(adapter: Any) -> tuple[int, int]:
    info = adapter.info
    return _RANKS[_kind(info["adapter_type"])], _BACKENDS.get(info["backend_type"], 3)


def _kind(adapter_type: str) -> str:
    return _KINDS.get(adapter_type, "unknown")


def _properties(
    index: int, adapter: Any, features: frozenset[str] | None = None
) -> AdapterProperties:
    info, limits = adapter.info, adapter.limits
    if features is None:
        features = frozenset(adapter.features) & USEFUL_FEATURES
    return AdapterProperties(
        index=index,
        name=str(info["device"]),
        backend=str(info["backend_type"]),
        kind=_kind(info["adapter_type"]),
        driver=str(info["description"]),
        features=features,
        max_buffer_bytes=int(limits["max-buffer-size"]),
        max_binding_bytes=int(limits["max-storage-buffer-binding-size"]) & ~3,
        storage_alignment=int(limits["min-storage-buffer-offset-alignment"]),
        max_immediate_bytes=(int(limits["max-immediate-size"]) if "immediates" in features else 0),
        # Beside the buffers a bind group may hold the parameters.
        max_buffers=min(
            int(limits["max-storage-buffers-per-shader-stage"]),
            int(limits["max-bindings-per-bind-group"]) - 1,
            _MOST_BUFFERS,
        ),
        max_workgroup_invocations=int(limits["max-compute-invocations-per-workgroup"]),
        max_workgroup_size=(
            int(limits["max-compute-workgroup-size-x"]),
            int(limits["max-compute-workgroup-size-y"]),
            int(limits["max-compute-workgroup-size-z"]),
        ),
        max_workgroup_memory=int(limits["max-compute-workgroup-storage-size"]),
        # Adapters claim up to 2³¹ − 1 and then run something else: WebGPU's own limit holds.
        max_workgroups=min(int(limits["max-compute-workgroups-per-dimension"]), _SAFE_WORKGROUPS),
        subgroup_sizes=(int(info["stackgroup_min_size"]), int(info["stackgroup_max_size"])),
    )
