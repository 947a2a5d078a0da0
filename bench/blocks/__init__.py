"""Memory documents: against plain puts of the same bytes, and against the document library in memory."""

from bench.blocks.rows import blocks

__all__ = ["blocks"]
