"""The same random program on every engine: the same answers, the same order, the same error codes."""

from __future__ import annotations

import asyncio
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from dgent.model.query import Query
from dgent.store.backend import Backend, Guard
from dgent.testing.contract import STORED, Steps
from tests.contract import program
from tests.contract.columns import BARE, COLUMNS, Column
from tests.scratch import find_memory
from tests.soak import examples

Step = tuple[str, tuple[Any, ...]]


def _step(name: str, *args: st.SearchStrategy[Any]) -> st.SearchStrategy[Step]:
    return st.tuples(st.just(name), st.tuples(*args))


_ids = st.sampled_from([*program.IDS, "never", ""])
_guards = st.builds(
    Guard, st.integers(0, 12), st.frozensets(st.sampled_from(program.IDS)), st.tuples(program.queries)
)
_limits = st.sampled_from([None, 1, 3, 0])

writes = st.one_of(
    _step("commit", program.commits, st.just(STORED)),
    _step("commit", program.commits, st.just(STORED)),
    _step("commit", program.commits, st.just(STORED)),
    _step("declare", program.declarations),
    _step("fill", st.just("note"), program.views),
    _step("drop_index", st.just("note"), st.sampled_from(program.INDEXES)),
    _step("forget", st.lists(_ids, max_size=2), st.just("tester"), st.none()),
    _step("compact", program.keeps),
)
reads = st.one_of(
    _step("query", program.queries, program.views, program.past),
    _step("query", program.queries, program.views, st.none()),
    _step("count", program.queries, program.views, program.past),
    _step("tally", program.tallies, program.views, program.past),
    _step("get", _ids, program.past),
    _step("get_many", st.lists(_ids, max_size=3), program.past),
    _step("history", _ids, _limits),
    _step("changes", st.integers(-1, 20), st.sampled_from([1, 3, 100])),
    _step("states_before", st.integers(0, 20)),
    _step("validate", _guards, st.just(Steps(2))),
    _step("seq_at", program.moments),
    _step("outcome", st.sampled_from(["k1", "k2", "k3"])),
    _step("versions", st.sampled_from(["note", "tick", "never"])),
    _step("referrers", _ids, _limits),
)


async def _run(column: Column, steps: list[Step]) -> list[Any]:
    """The answers of one engine, and at the end what it holds."""
    with tempfile.TemporaryDirectory(dir=find_memory()) as folder, program.slow_clock() as slow:
        backend = column.make(Path(folder))
        await backend.open()
        answers = []
        for name, args in steps:
            slow.tick += 1
            answers.append(await program.answer(backend, name, args))
        answers.append(await _holdings(backend))
        await backend.close()
    return answers


async def _holdings(backend: Backend) -> Any:
    stats = await backend.stats()
    histories = [await program.answer(backend, "history", (id, None)) for id in program.IDS]
    records = await program.answer(backend, "query", (Query(limit=None), STORED, None))
    feed = await program.answer(backend, "changes", (stats.first_seq - 1, 1000))
    return stats.records, stats.seq, stats.first_seq, stats.schemas, histories, records, feed


def _compare(columns: tuple[Column, ...], steps: list[Step]) -> None:
    reference, *others = [asyncio.run(_run(column, steps)) for column in columns]
    for column, answers in zip(columns[1:], others, strict=True):
        for step, wanted, answer in zip([*steps, ("holdings", ())], reference, answers, strict=True):
            assert answer == wanted, (column.name, step)


@settings(max_examples=examples(25))
@given(st.lists(st.one_of(writes, writes, reads), min_size=8, max_size=30))
def test_a_random_program_gives_the_same_answers(steps: list[Step]) -> None:
    _compare(BARE, steps)


@settings(max_examples=examples(8))
@given(st.lists(st.one_of(writes, writes, reads), min_size=8, max_size=20))
def test_changed_bytes_change_no_answer(steps: list[Step]) -> None:
    _compare(COLUMNS, steps)
