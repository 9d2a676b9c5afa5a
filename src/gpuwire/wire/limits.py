"""What a peer may send at most.

Every length, count and depth on the wire has its limit here; a breach is `LimitBreached` and
ends the session. The limits hold before memory is taken: a declared length costs nothing until it
is known to be allowed.
"""

from __future__ import annotations

from dataclasses import dataclass

KIB = 1024
MIB = 1024 * KIB


@dataclass(frozen=True, slots=True)
class WireLimits:
    """Sizes in bytes of encoded form, unless said otherwise."""

    max_hello_bytes: int = 16 * KIB
    """A server's limit on any message until it has accepted the client's `Hello`."""
    max_message_bytes: int = 256 * KIB
    """A message that carries no frame."""
    max_frame_bytes: int = 32 * MIB
    """A message that carries a frame, its own length prefix left out. A server tells a client its
    own with `SessionLimits`; a client's is this one."""
    max_item_bytes: int = 128 * KIB
    """One task or reply. It bounds what a hostile item can make the decoder build before the item
    is known to be wrong, which is up to 80 times its encoded size."""
    max_traceparent_bytes: int = 128
    """Which trace a frame belongs to; version 0 of the format has 55."""
    max_items_per_frame: int = 65_536
    """Tasks or replies in one frame."""
    max_inline_bytes: int = 64 * KIB
    """Tensor bytes, or bytes in an error's field, inside an item."""
    max_text_bytes: int = 32 * KIB
    """One text, in UTF-8."""
    max_array_length: int = 1024
    """Elements of one array: inputs of an operation, fields of an error, devices of a server."""
    max_dropped_tensors: int = 8192
    """Tensor ids in one `DropTensors`."""
    max_graph_bytes: int = 96 * KIB
    """A graph's definition; it travels inside an item."""
    max_graph_nodes: int = 4096
    """Also its inputs, its scalars, and the tensors dropped along with one run."""
    max_kernel_bytes: int = 96 * KIB
    """The source of a kernel that a user wrote; it travels inside an item."""
    max_kernel_buffers: int = 64
    """Of one launch. Adapters bind fewer."""
    max_params_bytes: int = 4 * KIB
    """Parameters of one launch."""
    max_capture_arrays: int = 256
    """Arrays that a captured graph works on."""
    max_facts_bytes: int = 96 * KIB
    """What a server tells a viewer at once, and a plan as text."""
    max_causes: int = 8
    """Errors in a chain below the first."""
    max_resumed_transfers: int = 512
    """Of each direction in one handshake that resumes a session; a connection has at most 128 bulk
    streams open each way. With both and a token it fits into `max_hello_bytes`."""
    max_bulk_bytes: int = 1 << 46
    """Tensor bytes of one bulk stream; a server's own upload limit is lower and comes with
    `SessionLimits`."""
    max_unacknowledged_frames: int = 1024
    """Frames that a sender keeps for sending again; then it must wait for an acknowledgement."""
    max_unacknowledged_bytes: int = 32 * MIB
    """Their bytes; one frame is always allowed."""


DEFAULT_LIMITS = WireLimits()
