"""Processes: those that asyncio started, and a name by which others know whether one still runs."""

from __future__ import annotations

import os
from asyncio.subprocess import Process


def name_process() -> str:
    """Return a name of this process that no other has while the machine runs; empty where there is none."""
    return _name(os.getpid())


def is_gone(name: str) -> bool:
    """Check whether a process of this boot has ended; False where that cannot be seen from here.

    `name` may have more words behind the name of the process.
    """
    space, pid, start = (*name.split(" "), "", "", "")[:3]
    if not pid.isdecimal() or space != _space():
        return False
    return _name(int(pid)) != f"{space} {pid} {start}"


def _name(pid: int) -> str:
    space = _space()
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except OSError:
        return ""
    # State, then 18 more fields before the start of the process; a dead one may wait for its parent.
    return "" if not space or fields[0] in (b"Z", b"X") else f"{space} {pid} {fields[19].decode()}"


def _space() -> str:
    try:
        return os.readlink("/proc/self/ns/pid")
    except OSError:
        return ""


def close_pipes(process: Process) -> None:
    """Close the pipes of a process that has ended: asyncio keeps one open that nobody read to its end."""
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()
