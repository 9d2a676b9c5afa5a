"""What a session reaches of the device besides array operations: kernels of its own, captured
graphs of their launches, memory, time and plans."""

from __future__ import annotations

from collections.abc import Callable

from gpuwire.host.black_box import BlackBox
from gpuwire.host.captured_graphs import CapturedGraphs
from gpuwire.host.dataflow import Dataflow
from gpuwire.host.device import Device
from gpuwire.host.kernels import Kernels
from gpuwire.host.memory_requests import MemoryRequests
from gpuwire.host.plans import Plans
from gpuwire.host.profiles import Profiles
from gpuwire.wire.device_tasks import (
    AskMemory,
    BeginCapture,
    CaptureLaunch,
    CleanMemory,
    DescribeGraph,
    DeviceTask,
    EndCapture,
    EndProfile,
    LaunchKernel,
    RegisterKernel,
    ReplayCapture,
    SetAllocationMode,
    StartProfile,
)
from gpuwire.wire.limits import WireLimits
from gpuwire.wire.messages import Reply


class DeviceFace:
    """That of one session."""

    def __init__(
        self,
        session: int,
        device: Device,
        dataflow: Dataflow,
        box: BlackBox,
        reply: Callable[[Reply], None],
        limits: WireLimits,
    ) -> None:
        self.kernels = Kernels(session, device, dataflow, box)
        self._captures = CapturedGraphs(device, dataflow, self.kernels, reply)
        self._profiles = Profiles(device, dataflow, reply)
        self._memory = MemoryRequests(device, dataflow, reply)
        self._plans = Plans(device, limits, reply)

    def run(self, task: DeviceTask) -> None:
        """Does what a task asks for, now or when its tensors are there. `ProtocolError` for one
        that no client may send."""
        match task:
            case LaunchKernel():
                self.kernels.launch(task)
            case RegisterKernel():
                self.kernels.register(task)
            case ReplayCapture():
                self._captures.replay(task)
            case BeginCapture():
                self._captures.begin(task)
            case CaptureLaunch():
                self._captures.add(task)
            case EndCapture():
                self._captures.end(task)
            case SetAllocationMode():
                self._memory.set_mode(task)
            case AskMemory():
                self._memory.ask(task)
            case CleanMemory():
                self._memory.clean(task)
            case StartProfile():
                self._profiles.start(task)
            case EndProfile():
                self._profiles.end(task)
            case DescribeGraph():
                self._plans.describe(task)

    def drop(self, number: int) -> None:
        """Lets go of the kernel or captured graph of that id, if there is one."""
        self.kernels.drop(number)
        self._captures.drop(number)

    def close(self) -> None:
        """Lets go of everything, before the session's streams go."""
        self._captures.close()
        self.kernels.close()
        self._profiles.close()
        self._memory.close()
