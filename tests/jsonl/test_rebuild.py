"""The files are the store: without the cache, or with another one, everything is as it was."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dgent.model.query import Query
from dgent.store.backend import Backend
from dgent.store.jsonl.backend import JSONLBackend
from dgent.testing.contract import STORED
from tests.contract import program
from tests.contract.test_differential import Step, reads, writes
from tests.scratch import find_memory
from tests.soak import examples


async def _holdings(backend: Backend) -> Any:
    """All that a store says of its records and commits."""
    stats = await backend.stats()
    histories = [await program.answer(backend, "history", (id, None)) for id in program.IDS]
    records = await program.answer(backend, "query", (Query(limit=None), STORED, None))
    feed = await program.answer(backend, "changes", (stats.first_seq - 1, 1000))
    keys = [await program.answer(backend, "outcome", (key,)) for key in ("k1", "k2")]
    undos = [await program.answer(backend, "states_before", (seq,)) for seq in range(1, stats.seq + 1)]
    declared = [
        (each.name, each.records, each.index_version, each.indexes, each.owner)
        for each in stats.schemas
        if each.records or each.index_version
    ]
    return stats.records, stats.seq, stats.first_seq, declared, histories, records, feed, keys, undos


async def _run(steps: list[Step]) -> None:
    with tempfile.TemporaryDirectory(dir=find_memory()) as folder, program.slow_clock() as slow:
        place, cache = Path(folder) / "store", Path(folder) / "other"
        backend = JSONLBackend(str(place), sync="on_close")
        follower = JSONLBackend(str(place), sync="on_close", cache=str(cache))
        await backend.open()
        await follower.open()
        for name, args in steps:
            slow.tick += 1
            answer = await program.answer(backend, name, args)
            if name in ("get", "history", "changes", "outcome", "states_before", "versions", "count"):
                assert await program.answer(follower, name, args) == answer, (name, args)
        before = await _holdings(backend)
        assert await _holdings(follower) == before
        await backend.close()
        await follower.close()
        shutil.rmtree(place / ".cache")
        await backend.open()
        assert await _holdings(backend) == before
        slow.tick += 1
        await program.answer(backend, *steps[0])
        after = await _holdings(backend)
        await follower.open()
        assert await _holdings(follower) == after
        await follower.close()
        await backend.close()


@settings(max_examples=examples(30))
@given(st.lists(st.one_of(writes, writes, reads), min_size=8, max_size=30))
def test_a_cache_made_anew_says_the_same(steps: list[Step]) -> None:
    asyncio.run(_run(steps))
