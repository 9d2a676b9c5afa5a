"""A device of the run's server, and the comparison with NumPy."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import gpuwire as gw

Check = Callable[..., None]
Send = Callable[..., gw.Array]


@pytest.fixture(scope="session")
def device(server_ticket: str) -> Iterator[gw.Device]:
    with gw.connect(server_ticket) as device:
        yield device


@pytest.fixture(scope="session")
def send(device: gw.Device) -> Send:
    """What a test has in NumPy, as an array of the device."""

    def send(value: Any, **options: Any) -> gw.Array:
        return gw.asarray(value, device=device, **options)

    return send


@pytest.fixture(scope="session")
def check() -> Check:
    """Asserts that an array has the values, shape and type of a NumPy one."""

    def check(found: gw.Array, wanted: Any, dtype: str | None = None, rtol: float = 0.0) -> None:
        wanted = np.asarray(wanted)
        assert isinstance(found, gw.Array)
        assert found.dtype.name == (dtype or wanted.dtype.name)
        values = np.asarray(found)
        assert values.shape == found.shape == wanted.shape
        if rtol:
            np.testing.assert_allclose(values, wanted, rtol=rtol, atol=rtol)
        else:
            np.testing.assert_array_equal(values, wanted)

    return check
