"""What front and device host have in common of the wire: its limits, and records of it inside
messages of the channel."""

from __future__ import annotations

from gpuwire.config import ServerConfig
from gpuwire.errors import GpuwireError
from gpuwire.host.channel_messages import Payload
from gpuwire.wire.codec import decode_message, encode_message
from gpuwire.wire.framing import PREFIX
from gpuwire.wire.limits import WireLimits
from gpuwire.wire.messages import Close, DeviceInfo, SessionLimits, Welcome
from gpuwire.wire.records import from_record, to_record

LEAST_FRAME_BYTES = 256 * 1024
"""Below this a frame would not hold the longest single item."""
NO_LIMITS = SessionLimits(0, 0, 0, 0.0)


def wire_limits(config: ServerConfig) -> WireLimits:
    """The limits of a server so configured. A frame limit below `LEAST_FRAME_BYTES` is that."""
    return WireLimits(max_frame_bytes=max(config.max_frame_bytes, LEAST_FRAME_BYTES))


def pack_error(error: BaseException) -> bytes:
    """An error as a payload."""
    return encode_message(Close(to_record(error)))


def unpack_error(payload: Payload) -> GpuwireError:
    """The error that `pack_error` packed."""
    message = decode_message(memoryview(payload)[PREFIX.size :], WireLimits())
    assert isinstance(message, Close) and message.error is not None
    return from_record(message.error)


def pack_devices(devices: tuple[DeviceInfo, ...]) -> bytes:
    """A list of devices as a payload."""
    return encode_message(Welcome(1, None, devices, NO_LIMITS, ""))


def unpack_devices(payload: Payload) -> tuple[DeviceInfo, ...]:
    """The list that `pack_devices` packed."""
    message = decode_message(memoryview(payload)[PREFIX.size :], WireLimits())
    assert isinstance(message, Welcome)
    return message.devices
