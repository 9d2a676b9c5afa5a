"""Telling a session by which plan a graph of its would run."""

from __future__ import annotations

from collections.abc import Callable

from gpuwire.errors import GpuwireError
from gpuwire.host.device import Device
from gpuwire.ir.graphs import typed_graph
from gpuwire.wire.codec import decode_definition
from gpuwire.wire.device_tasks import DescribeGraph, GraphDescribed
from gpuwire.wire.limits import WireLimits
from gpuwire.wire.messages import Failed, Reply
from gpuwire.wire.records import to_record


class Plans:
    """That of one session."""

    def __init__(self, device: Device, limits: WireLimits, reply: Callable[[Reply], None]) -> None:
        self._device = device
        self._limits = limits
        self._reply = reply

    def describe(self, task: DescribeGraph) -> None:
        """Answers with the plan, cut where it is longer than the wire takes, or with why there is
        none."""
        try:
            definition = decode_definition(task.definition, self._limits)
            graph = typed_graph(definition.inputs, definition.nodes, definition.outputs)
            text = self._device.lowering.describe(graph)
        except GpuwireError as error:
            self._reply(Failed(task.request, to_record(error), 0))
        else:
            self._reply(GraphDescribed(task.request, _cut(text, self._limits.max_facts_bytes)))


def _cut(text: str, most: int) -> str:
    """Whole lines of at most so many bytes."""
    if len(text.encode()) <= most:
        return text
    end = "\n… cut here: the plan is longer than a reply may be"
    room = text.encode()[: most - len(end.encode())].decode(errors="ignore")
    return room.rpartition("\n")[0] + end
