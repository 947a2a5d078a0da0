"""Processes that were started by asyncio."""

from __future__ import annotations

from asyncio.subprocess import Process


def close_pipes(process: Process) -> None:
    """Close the pipes of a process that has ended: asyncio keeps one open that nobody read to its end."""
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()
