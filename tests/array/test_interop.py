"""Arrays beside NumPy's, by DLPack, and on asyncio devices."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gpuwire as gw
from gpuwire.errors import ArgumentError, DTypeError, NotSupported

Send = Callable[..., gw.Array]
Check = Callable[..., None]


def test_operators_with_numpy_arrays_say_how_to_send_them(send: Send) -> None:
    x, array = send([1.0, 2.0]), np.ones(2, np.float32)
    for operation in (
        lambda: x + array,
        lambda: array + x,
        lambda: array @ x,
        lambda: x @ array,
        lambda: array < x,
        lambda: gw.add(array, x),
        lambda: gw.where(x > 1, x, array),
    ):
        with pytest.raises(NotSupported, match=r"asarray\(numpy_array, device=…\)"):
            operation()
    with pytest.raises(TypeError):
        np.sin(x)


def test_numpy_scalars_count_as_python_numbers(send: Send, check: Check) -> None:
    x = send([1.0, 2.0])
    check(np.float64(2) * x, np.array([2, 4], np.float32))
    check(x * np.int64(3), np.array([3, 6], np.float32))
    check(x - np.float32(1), np.array([0, 1], np.float32))


def test_dlpack_goes_through_host_memory(device: gw.Device, send: Send, check: Check) -> None:
    x = send([[1.0, 2.0], [3.0, 4.0]])
    assert x.__dlpack_device__() == (1, 0)
    np.testing.assert_array_equal(np.from_dlpack(x), np.asarray(x))
    check(gw.from_dlpack(np.arange(3, dtype=np.int16), device=device), np.arange(3, dtype=np.int16))
    check(gw.from_dlpack(x), np.asarray(x))
    with pytest.raises(BufferError, match="host memory"):
        x.__dlpack__(dl_device=(2, 0))
    with pytest.raises(BufferError, match="copy=False"):
        x.__dlpack__(copy=False)
    with pytest.raises(ArgumentError, match="stream"):
        x.__dlpack__(stream=1)
    with pytest.raises(ArgumentError, match="copy=False"):
        gw.from_dlpack(np.ones(2), device=device, copy=False)


def test_from_dlpack_refuses_what_it_cannot_read(device: gw.Device) -> None:
    class Elsewhere:
        def __dlpack_device__(self) -> tuple[int, int]:
            return (2, 0)

        def __dlpack__(self, **options: Any) -> object:
            raise BufferError("on a GPU")

    with pytest.raises(NotSupported, match="Elsewhere cannot be had in host memory"):
        gw.from_dlpack(Elsewhere(), device=device)
    with pytest.raises(NotSupported):
        gw.from_dlpack([1, 2], device=device)


def test_asyncio_devices_are_read_by_await(server_ticket: str) -> None:
    async def program() -> None:
        async with gw.aio.connect(server_ticket) as device:
            x = gw.asarray([1.0, 2.0, 3.0], device=device)
            y = gw.sum(x * 2) + x[0]
            assert await y.to_numpy() == 13
            for use in (float, np.asarray, bool, repr_values, lambda y: x[x > 1]):
                with pytest.raises(NotSupported, match=r"await x\.to_numpy"):
                    use(y)
            assert "await x.to_numpy()" in repr(x)
            assert "shape=(3,)" in repr(x)

    asyncio.run(program())


def repr_values(x: gw.Array) -> Any:
    return x.tolist()


FUNCTIONS = """
    exp abs clip sum mean var max any argmax count_nonzero cumulative_sum diff flip reshape
    expand_dims squeeze permute_dims roll unstack tril zeros_like astype matrix_transpose
"""


@pytest.mark.parametrize(
    "name",
    FUNCTIONS.split(),
)
def test_functions_refuse_what_is_no_array(name: str) -> None:
    arguments = {"reshape": [(2,)], "squeeze": [0], "permute_dims": [(0,)], "roll": [1]}
    arguments["astype"] = [gw.int8]
    function, rest = getattr(gw, name), arguments.get(name, [])
    with pytest.raises(DTypeError, match="takes gpuwire arrays, not list"):
        function([1.0, 2.0], *rest)
    with pytest.raises(NotSupported, match=r"of a NumPy array: .* gpuwire.asarray"):
        function(np.ones(2), *rest)


def test_sequences_of_what_is_no_array_are_refused(send: Send) -> None:
    for function in (gw.concat, gw.stack, lambda arrays: gw.broadcast_arrays(*arrays)):
        with pytest.raises(NotSupported, match="of a NumPy array"):
            function([send([1.0]), np.ones(1)])
