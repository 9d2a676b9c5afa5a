"""What devices this machine has, asked in a child process so that a driver crash harms nobody."""

from __future__ import annotations

import asyncio
import sys

from gpuwire.config import Config
from gpuwire.errors import ServerStartError
from gpuwire.host.envelopes import unpack_devices, unpack_error
from gpuwire.wire.messages import DeviceInfo

PROBE_SECONDS = 60.0
LISTED = b"L"
FAILED = b"F"
"""The first byte of the child's output: a list of devices follows, or an error."""


async def probe(config: Config | None = None) -> tuple[DeviceInfo, ...]:
    """The devices of this machine, best first, each physical one once.

    Raises `NoAdapter`, or `ServerStartError` if the child process died or hung. The configuration
    changes nothing yet.
    """
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-P", "-m", "gpuwire.host.listing"),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.PIPE,
    )
    try:
        output, complaints = await asyncio.wait_for(process.communicate(), PROBE_SECONDS)
    except BaseException as error:
        if process.returncode is None:
            process.kill()
        await process.wait()
        if isinstance(error, TimeoutError):
            raise ServerStartError(
                f"the graphics drivers did not list their devices within {PROBE_SECONDS:g} s",
                reason="timeout",
            ) from None
        raise
    if output[:1] == LISTED:
        return unpack_devices(output[1:])
    if output[:1] == FAILED:
        raise unpack_error(output[1:])
    last = complaints.decode(errors="replace").strip().rpartition("\n")[2]
    raise ServerStartError(
        f"listing the devices ended with exit code {process.returncode}: {last}",
        reason=f"exit code {process.returncode}",
    )
