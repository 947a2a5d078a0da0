"""Forking with an open store: the child must not use what it inherited, and must not harm it.

SQLite keeps one table of locks per process, and fork copies it without the locks. A child that
opened the file anew on top of that copy would believe it holds locks that only the parent has.
Each test runs in a process of its own, made by the nursery, so that pytest itself never forks.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.fault.check import check_store
from tests.fault.nursery import Nursery

JOBS = [
    "fork_inherited",  # the child's inherited handle says Closed; closing it there changes nothing
    "fork_anew",  # the child opens the file itself; what it is told stands, also after the parent closed
    "fork_exit",  # the child ends normally, with all its finalizers; the parent never notices
    "fork_after_close",  # closed handles that are still held do not stop the child
    "fork_mid_write",  # forked with writes waiting: the parent's happen once, the child's are Closed
    "fork_storm",  # 60 forks under load from every thread; children open, write and read
    "fork_while_opening",  # the same while a file is being opened
    "fork_while_busy",  # the writer cannot be paused: the child is refused instead of corrupting
]


@pytest.mark.parametrize("job", JOBS)
def test_fork(tmp_path: Path, job: str) -> None:
    path = str(tmp_path / "forked.db")
    with Nursery() as nursery:
        nursery.finish(nursery.start(job, path=path))
    check_store(path)
