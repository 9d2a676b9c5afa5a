"""Bulk streams: a tensor's bytes between a client and the front, compressed where that pays."""

from gpuwire.bulk.receiving import BulkReader
from gpuwire.bulk.sending import PIECE_BYTES, BulkLink, BulkWriter, Mode

__all__ = ["PIECE_BYTES", "BulkLink", "BulkReader", "BulkWriter", "Mode"]
