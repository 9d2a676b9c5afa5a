"""The identities that travel: what they number, and who hands them out."""

from __future__ import annotations

from typing import NewType

TensorId = NewType("TensorId", int)
"""A tensor of one session; handed out by the client, never reused. 1 … 2⁶³ − 1."""

RequestId = NewType("RequestId", int)
"""A task that wants a reply, or that owns a bulk stream; handed out by the client. 1 … 2⁶³ − 1."""

StreamId = NewType("StreamId", int)
"""An ordered sequence of work inside a session; one per client thread by default. 0 … 2³² − 1."""

LocationId = NewType("LocationId", int)
"""A line of the user's program, interned by the client's session; 0 is unknown."""

KernelId = NewType("KernelId", int)
"""A kernel that a user wrote, registered in one session; out of the same row as tensors' ids."""

CaptureId = NewType("CaptureId", int)
"""A captured graph of one session; out of the same row as tensors' ids."""

GraphId = NewType("GraphId", int)
"""An op-graph registered in one session; handed out by the client."""

SessionId = NewType("SessionId", bytes)
"""16 random bytes, handed out by the server."""
