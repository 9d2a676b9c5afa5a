"""What the machine's adapters say of themselves, and opening one."""

from __future__ import annotations

import pytest

from gpuwire.compute import WgpuServer, adapters
from gpuwire.compute.properties import LayoutPolicy, Stage
from gpuwire.errors import GpuwireError, NoSuchDevice


def test_adapters_are_numbered_and_each_hardware_is_listed_once(runtime_directory):
    found = adapters()
    assert [adapter.index for adapter in found] == list(range(len(found)))
    assert len({(adapter.name.split("/")[0], adapter.driver) for adapter in found}) == len(found)
    software = [adapter.kind == "cpu" for adapter in found]
    assert software == sorted(software)


def test_properties_are_within_what_launches_may_rely_on(runtime_directory):
    for adapter in adapters():
        assert adapter.max_workgroups <= 65_535
        assert adapter.max_binding_bytes % 4 == 0
        assert adapter.storage_alignment & (adapter.storage_alignment - 1) == 0
        assert 4 <= adapter.max_buffers <= 128


@pytest.mark.parametrize("index", [-1, 1000])
def test_an_index_out_of_range_says_what_there_is(runtime_directory, index):
    with pytest.raises(NoSuchDevice, match="0 to") as raised:
        WgpuServer.init(index)
    assert isinstance(raised.value, GpuwireError)
    assert raised.value.count == len(adapters())


def test_the_server_tells_what_it_is(work):
    utilities = work.server.utilities()
    listed = adapters()[0]
    assert utilities.properties.name == listed.name
    assert utilities.properties.features <= listed.features | {"cooperative-matrix"}
    assert utilities.memory.alignment % listed.storage_alignment == 0
    assert utilities.layout_policy is LayoutPolicy.CONTIGUOUS
    assert work.server.logger() is utilities.logger
    assert work.server.stage() is Stage.COMPUTE
