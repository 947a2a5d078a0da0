"""A log of large commits is read in part: what is left out is counted."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

import dgent
from dgent import Datum, Universe
from dgent.cupboard import Cupboard
from dgent.universe.gate import Principal
from dgent.verbs.path import invoke

MANY = 700


@pytest.fixture
async def u(tmp_path: Path) -> AsyncIterator[Universe]:
    """A store with a small commit, a large one of records, and a large one of crumbs."""
    place = f"sqlite:///{tmp_path / 'a.db'}"
    async with dgent.open(place, author="ann", durability="relaxed") as opened:
        await opened.put_many(
            [Datum(f"few-{number}", schema="few", schema_version=1, data={}) for number in range(3)]
        )
        await opened.put_many(
            [Datum(f"many-{number}", schema="many", schema_version=1, data={}) for number in range(MANY)]
        )
        yield opened


async def test_a_large_commit_is_read_in_part(u: Universe) -> None:
    few, many = await u.changes(items=2)
    assert (len(few.items), few.more) == (3, 0)
    assert (len(many.items), many.more) == (2, MANY - 2)
    assert [len(each.items) for each in await u.changes()] == [3, MANY]
    (none,) = await u.changes(1, until=2, items=0)
    assert (none.items, none.more) == ((), MANY)
    # Who may not see everything counts what there is to see.
    (seen,) = await u.acting(Principal("eve", "friend")).changes(1, items=2)
    assert (len(seen.items), seen.more) == (MANY, 0)


async def test_the_log_counts_what_it_leaves_out(u: Universe) -> None:
    many, few = (await invoke(u, "self.data.log")).items
    assert (len(many.items), many.more) == (100, MANY - 100)
    assert (len(few.items), few.more) == (3, 0)
    many, few = (await invoke(u, "self.data.log", records=1)).items
    assert (len(many.items), many.more, len(few.items), few.more) == (1, MANY - 1, 1, 2)
    whole = await invoke(u, "self.data.log", records=10_000)
    assert len(whole.items[0].items) == MANY
    # A filter looks at all of them.
    (found,) = (await invoke(u, "self.data.log", id=f"many-{MANY - 1}", records=1)).items
    assert found.seq == 2
    commit = await invoke(u, "self.data.get-commit", seq=2, records=0)
    assert (commit.items, commit.more) == ([], MANY)


async def test_a_large_commit_of_work_is_told_whole(u: Universe) -> None:
    await Cupboard(u).add_many([f"crumb {number}" for number in range(MANY)])
    (entry,) = (await invoke(u, "self.data.log", limit=1, records=1)).items
    assert len(entry.summary) >= MANY
