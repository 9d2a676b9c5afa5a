"""A device that lacks data types: they are refused by name before anything is sent.

The devices are scripted ones; the first has bool, int32, uint8 and float32.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

import numpy as np
import pytest

import gpuwire as gw
from client.scripted_server import DEVICE, Running, ScriptedServer, running
from gpuwire.errors import UnsupportedDType
from gpuwire.wire.messages import RunOperation


@pytest.fixture(scope="module")
def server() -> Iterator[Running]:
    with running() as server:
        yield server


@pytest.fixture(scope="module")
def small(server: Running) -> Iterator[gw.Device]:
    with gw.connect(server.ticket) as device:
        yield device


def test_defaults_are_what_the_device_has(small: gw.Device) -> None:
    assert gw.asarray([1, 2], device=small).dtype is gw.int32
    assert gw.arange(3, device=small).dtype is gw.int32
    assert gw.argmax(gw.zeros(3, device=small)).dtype is gw.int32
    assert gw.mean(gw.asarray([1, 2], device=small)).dtype is gw.float32


REFUSED: list[tuple[str, str, Callable[[gw.Device], object]]] = [
    ("float64", "float32", lambda device: gw.asarray(np.zeros(2), device=device)),
    ("float16", "float32", lambda device: gw.zeros(2, dtype=gw.float16, device=device)),
    ("int64", "int32", lambda device: gw.asarray([1], dtype="int64", device=device)),
    ("int16", "int32", lambda device: gw.astype(gw.zeros(2, device=device), gw.int16)),
    ("int8", "int32", lambda device: gw.full(2, 1, dtype=gw.int8, device=device)),
    ("float64", "float32", lambda device: gw.sum(gw.zeros(2, device=device), dtype=gw.float64)),
    ("float64", "float32", lambda device: gw.linspace(0, 1, 3, dtype=gw.float64, device=device)),
    ("float64", "float32", lambda device: gw.arange(3, dtype=gw.float64, device=device)),
]


@pytest.mark.parametrize(("dtype", "instead", "use"), REFUSED)
def test_a_type_the_device_lacks_is_refused_before_it_is_sent(
    dtype: str,
    instead: str,
    use: Callable[[gw.Device], object],
    small: gw.Device,
    server: Running,
) -> None:
    with pytest.raises(UnsupportedDType, match=f"no {dtype}.*use {instead}") as caught:
        use(small)
    assert caught.value.fields["dtype"] == dtype
    assert caught.value.fields["instead"] == instead
    small.sync()
    sent = [task.operation for task in server.server.tasks if isinstance(task, RunOperation)]
    assert all(dtype not in repr(operation.attributes) for operation in sent)


def test_a_type_with_nothing_of_its_kind_lists_what_there_is(small: gw.Device) -> None:
    x = gw.zeros(2, device=small)
    for use in (
        lambda: x * 1j,
        lambda: gw.astype(x, gw.complex64),
        lambda: gw.asarray(1j, device=small),
    ):
        with pytest.raises(UnsupportedDType, match=r"no complex64.*bool, int32, uint8"):
            use()


def test_promotion_to_a_type_the_device_lacks_is_refused(small: gw.Device) -> None:
    x = gw.zeros(2, dtype=gw.int32, device=small)
    assert (x + gw.zeros(2, dtype=gw.uint8, device=small)).dtype is gw.int32
    kind = replace(DEVICE, dtypes=("bool", "int32", "uint32", "float32"))
    with running(ScriptedServer(device=kind)) as server, gw.connect(server.ticket) as device:
        x, y = (gw.ones(2, dtype=dtype, device=device) for dtype in (gw.int32, gw.uint32))
        for use in (lambda: x + y, lambda: x < y, lambda: gw.where(x == 1, x, y)):
            with pytest.raises(UnsupportedDType, match="no int64; use int32"):
                use()
