"""What is measured: work as programs do it.

A workload prepares its arrays on a device and gives back two functions. `step` records one step and
does not wait: many of them and one sync are a throughput. `answer` is the least that the workload
can be asked for: from the call to the values in hand is a latency.
"""

from __future__ import annotations

import hashlib
import importlib.util
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FunctionType, TracebackType

import numpy as np

from gpuwire.array import creation_functions as xp
from gpuwire.array import namespace as gw
from gpuwire.client import Device
from gpuwire.errors import ArgumentError, GpuwireError, SessionError

CHAIN_OPERATIONS = 64
UPLOAD_BYTES = 128 * 1024
UPLOADS = 8


@dataclass(frozen=True, slots=True)
class Work:
    """A workload on one device."""

    step: Callable[[], object]
    answer: Callable[[], object]


@dataclass(frozen=True, slots=True)
class Workload:
    """Something to measure."""

    name: str
    title: str
    """What it is, in a few words."""
    unit: str
    """Of its throughput."""
    amount: float
    """What one step counts for in that unit, times a second."""
    prepare: Callable[[Device], Work]
    identity: str
    """Equal only for the same work."""


def standard_workloads() -> tuple[Workload, ...]:
    """Those that are measured unless others are named."""
    return (
        Workload(
            "chain",
            f"a chain of {CHAIN_OPERATIONS} tiny operations",
            "op/s",
            CHAIN_OPERATIONS,
            _chain,
            "chain 1",
        ),
        Workload(
            "training",
            "a training step of a small network",
            "steps/s",
            1,
            _training,
            "training 1",
        ),
        Workload(
            "upload",
            f"a stream of uploads, {UPLOAD_BYTES // 1024} KiB each, every one reduced",
            "MB/s",
            UPLOADS * UPLOAD_BYTES / 1e6,
            _upload,
            "upload 1",
        ),
    )


def load_workload(text: str) -> Workload:
    """The user's own, from `script.py:function`.

    The script is run, as `import` does; `function(dev)` is then called with the connected
    `gpuwire.Device`, once to warm up and many times to measure. One call is one step. It may leave
    its results unread; what it prepares should be kept, by device, in the script. Raises
    `ArgumentError`.
    """
    path, colon, name = text.rpartition(":")
    if not colon or not name.isidentifier():
        raise ArgumentError(f"a workload is written script.py:function, found {text!r}")
    file = Path(path)
    try:
        content = file.read_bytes()
    except OSError as error:
        raise ArgumentError(f"{file}: cannot be read: {error.strerror}") from error
    function = getattr(_module(file), name, None)
    if not isinstance(function, FunctionType):
        raise ArgumentError(f"{file} has no function {name!r}")

    def prepare(device: Device) -> Work:
        def answer() -> None:
            function(device)
            device.sync()

        return Work(lambda: function(device), answer)

    digest = hashlib.sha256(content).hexdigest()[:16]
    label = f"{file.name}:{name}"
    return Workload(
        label, f"{name}(dev) of {file.name}", "calls/s", 1, prepare, f"{label} {digest}"
    )


def failed(workload: Workload, error: Exception) -> GpuwireError:
    """One line about a workload that raised. A session that ended is no fault of the workload."""
    if isinstance(error, SessionError):
        return error
    place = _last_place(error.__traceback__)
    said = str(error) or "no message"
    return ArgumentError(
        f"workload {workload.name} raised {type(error).__name__}{place}: {said}; nothing was "
        "changed"
    )


def _module(file: Path) -> object:
    name = f"gpuwire_workload_{file.stem}"
    spec = importlib.util.spec_from_file_location(name, file)
    if spec is None or spec.loader is None:
        raise ArgumentError(f"{file} is no Python script")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # dataclasses and pickling look there
    # What lies beside a script can be imported by it, as when Python runs it.
    sys.path.insert(0, str(file.absolute().parent))
    # Nothing is left behind in the folder of somebody's script.
    wrote_none, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        raise ArgumentError(
            f"{file} raised {type(error).__name__}{_last_place(error.__traceback__)}: {error}"
        ) from error
    finally:
        sys.path.pop(0)
        sys.dont_write_bytecode = wrote_none
    return module


def _last_place(trace: TracebackType | None) -> str:
    """` at script.py, line 3`: the innermost line that is the user's, the last one otherwise."""
    places: list[tuple[str, int]] = []
    while trace is not None:
        places.append((trace.tb_frame.f_code.co_filename, trace.tb_lineno))
        trace = trace.tb_next
    own = [place for place in places if "gpuwire" not in Path(place[0]).parts]
    if not own:
        return ""
    file, line = own[-1]
    return f" at {Path(file).name}, line {line}"


def _chain(device: Device) -> Work:
    start = xp.ones((64,), device=device)

    def run(operations: int) -> gw.Array:
        x = start
        for _ in range(operations // 2):
            x = x * 0.999 + 0.001
        return x

    return Work(lambda: run(CHAIN_OPERATIONS), lambda: np.asarray(run(8)))


def _training(device: Device) -> Work:
    """A network of two layers, its gradient written out, and plain gradient descent."""
    random = np.random.default_rng(1)

    def there(*shape: int) -> gw.Array:
        values = random.standard_normal(shape, dtype=np.float32) * 0.1
        return xp.asarray(values, device=device)

    inputs, targets = there(32, 64), there(32, 8)
    weights = [there(64, 32), there(32, 8)]

    def step() -> gw.Array:
        first, second = weights
        hidden = gw.tanh(inputs @ first)
        error = hidden @ second - targets
        back = (error @ second.mT) * (1 - hidden * hidden)
        weights[0] = first - 0.01 * (inputs.mT @ back)
        weights[1] = second - 0.01 * (hidden.mT @ error)
        return gw.mean(error * error)

    return Work(step, lambda: float(step()))


def _upload(device: Device) -> Work:
    values = np.ones(UPLOAD_BYTES // 4, np.float32)

    def step() -> gw.Array:
        total = gw.sum(xp.asarray(values, device=device))
        for _ in range(UPLOADS - 1):
            total = total + gw.sum(xp.asarray(values, device=device))
        return total

    return Work(step, lambda: float(gw.sum(xp.asarray(values, device=device))))
