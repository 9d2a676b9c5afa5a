"""One device for all tests of lowering: pipelines are compiled once."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from lowered import Machine


@pytest.fixture(scope="session")
def machine(runtime_directory: None) -> Iterator[Machine]:
    """The machine's best adapter."""
    machine = Machine()
    yield machine
    machine.server.close()
