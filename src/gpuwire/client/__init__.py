"""One session with one device of a server, as a program uses it.

`device` is the synchronous face, `aio` the asyncio one; both stand on `session`. What a program
records is typed and encoded in its own thread (`recorder`, `batch`) and sent by the session's
event loop (`writer`); replies come back through `reader` and `pending`.
"""

from gpuwire.client.aio import AsyncDevice
from gpuwire.client.captured_graphs import CapturedGraph
from gpuwire.client.device import Device, connect, list_devices
from gpuwire.client.kernels import Kernel
from gpuwire.client.profiles import Profile
from gpuwire.client.stats import CacheUse, OpCounts, Stats
from gpuwire.client.tensor import Tensor

__all__ = [
    "AsyncDevice",
    "CacheUse",
    "CapturedGraph",
    "Device",
    "Kernel",
    "OpCounts",
    "Profile",
    "Stats",
    "Tensor",
    "connect",
    "list_devices",
]
