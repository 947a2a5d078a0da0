"""The versions of a block: stored, packed, rewritten and merged."""
