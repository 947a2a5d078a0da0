"""Signals between the modules of an engine; no caller meets them."""

from __future__ import annotations


class TooLong(Exception):
    """A search that was to be short is not, and goes to a thread."""
