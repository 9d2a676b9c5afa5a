"""A slice: the part of a wgpu buffer that a pool handed out."""

from __future__ import annotations


class Slice:
    """A part of a page."""
