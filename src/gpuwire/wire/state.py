"""The states of a session and the one table that moves it."""

from __future__ import annotations

from enum import Enum


class Role(Enum):
    """The two ends of a session."""

    CLIENT = "client"
    SERVER = "server"


class SessionState(Enum):
    """Where a session's conversation stands, as one end sees it."""

    AWAITING_HELLO = "awaiting hello"
    AWAITING_WELCOME = "awaiting welcome"
    OPEN = "open"
    LISTED = "listed"
    """The client asked for the devices only: nothing follows but heartbeats and close."""
    CLOSED_BY_CLIENT = "closed by the client"
    CLOSED_BY_SERVER = "closed by the server"
    BROKEN = "broken"
    """The peer broke the protocol; all that is left is to tell it so."""
    CLOSED = "closed"
