"""Repeated work is sent once: ops of a stream become op-graphs, and known graphs are run by id.

`GraphCache` is what the recorder fills. Ops stay open in their stream (`ops`) until a segment of
them closes: where a repeating sequence ends (`periods` finds repetition, `boundaries` where it
begins, `units` follows it), at a size, at a read, when idle. A closed segment is put in relative
form (`relative`) and looked up among the known graphs (`known`). Nothing here does any I/O or
reads a clock of its own.
"""

from __future__ import annotations

from gpuwire.client.graph_cache.cache import GraphCache

__all__ = ["GraphCache"]
