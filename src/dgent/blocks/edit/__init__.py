"""Edits of a block and of its sections."""
