"""What the workers of the tests of text indexes do, each in a process of its own."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import dgent
from dgent import Schema
from dgent.embedder import HashedEmbedder
from dgent.store.engine import fold, prune, vector_fold
from dgent.store.postgres.kernel import PostgresKernel
from dgent.store.sqlite.kernel import SQLiteKernel
from tests.fault.nursery import say

SMALL_FOLDS = {"RUN_LEAST": 1, "RUN_RECORDS": 7, "RUN_CHARACTERS": 120, "RECORDS_AHEAD": 7}
SMALL_FOLDS |= {"MERGE_RUNS": 3, "MERGE_LATER": 5}
SMALL_FOLDS |= {"READ_RUNS": 2, "PLAN_RECORDS": 3, "MERGE_WORDS": 9, "MERGE_POSTINGS": 30, "DOCS": 4}
SMALL_FOLDS |= {"DROP_RUNS": 2}
"""Runs and merges of few records, so that all of it happens often."""

NOTE = Schema("note", text={"title": 3, "body": 1})
BRIEF = Schema("brief", text={"title": 3, "body": 1}, history="none")
EMBEDDED = Schema("note", text={"title": 3, "body": 1}, embed=("body",))

STEPS = (
    *("put_text_pages", "drop_text_pages", "put_text_docs", "drop_text_docs", "put_vectors", "drop_vectors"),
    *("add_entries", "remove_entries", "set_state", "make_index", "drop_indexes", "commit", "end"),
)
"""The writes of a kernel between which a process may be killed."""


def fold_in_small_steps() -> None:
    """Fold and fill few records in each write, for the rest of the process."""
    for name, value in SMALL_FOLDS.items():
        setattr(fold, name, value)
    prune.FILL_BATCH = 11
    for name, value in {"FOLD_LEAST": 1, "FOLD_RECORDS": 9, "RECODE_PAGES": 1, "CENTRE_AT": (10, 40)}.items():
        setattr(vector_fold, name, value)


class _Killer:
    """Counts the writes of kernels, and kills the process at one of them: before, or after it."""

    def __init__(self, at: int) -> None:
        self.at, self.count = at, 0

    def count_step(self, name: str) -> None:
        self.count += 1
        if self.count == self.at:
            say(name)
            os.kill(os.getpid(), signal.SIGKILL)

    def wrap(self, name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*args: Any, **options: Any) -> Any:
            self.count_step(f"before {name}")
            done = real(*args, **options)
            self.count_step(f"after {name}")
            return done

        return step


async def fold_until_killed(url: str, kill_at: int, embed: bool = False) -> None:
    """Bring the indexes of a store up to date, killed at one of its writes; say how many there were."""
    fold_in_small_steps()
    killer = _Killer(kill_at)
    embedder = HashedEmbedder(16) if embed else None
    async with dgent.open(url, embedder=embedder) as u:
        for kernel in (SQLiteKernel, PostgresKernel):
            for name in STEPS:
                if hasattr(kernel, name):
                    setattr(kernel, name, killer.wrap(name, getattr(kernel, name)))
        u.register(EMBEDDED if embed else NOTE, BRIEF)
        await u.indexed()
        for schema in ("note", "brief"):
            while await u.backend.fill(schema, u.contracts):
                pass
        if embed:
            await u.embedded()
        say(killer.count)


async def crowd(url: str, name: str, count: int) -> None:
    """Write, change and search while others do the same, and index what waits."""
    fold_in_small_steps()
    async with dgent.open(url) as u:
        u.register(NOTE, BRIEF)
        for number in range(count):
            schema, id = ("note", "brief")[number % 2], f"{name}-{number}"
            data = {"title": f"{name} title{number}", "body": "shared words of all"}
            await u.remember(data, schema=schema, id=id)
            say(id)
            hits = await u.search(f"{name} title{number}", k=5)
            assert hits[0].id == id, hits
            if number % 3 == 2:
                await u.remember(data | {"body": "shared and changed"}, schema=schema, id=id)
                await u.backend.fill(schema, u.contracts)
            found = [hit.id for hit in await u.search("shared", k=1000)]
            assert id in found and len(found) == len(set(found)), found
    say("done")
