"""Bulk streams: a tensor's bytes between a client and the front, compressed where that pays."""

from gpuwire.bulk.receiving import BulkReader
from gpuwire.bulk.sending import BulkWriter, LinkCompression

__all__ = ["BulkReader", "BulkWriter", "LinkCompression"]
