"""Verbs of blocks, the archive, agents and groups."""
