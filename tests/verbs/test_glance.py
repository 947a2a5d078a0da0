"""A store at a glance: the commits of the last days, and a log that leaves records out."""

from __future__ import annotations

from datetime import timedelta

import pytest

import dgent
from dgent import clock
from dgent.errors import InputError
from dgent.store.backend import Change
from dgent.universe.history import FIRST, read_back
from dgent.verbs.path import invoke


@pytest.fixture
def moment(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The number of days for which the clock is wrong."""
    real_now, real_us, ahead = clock.now, clock.now_us, [0]
    monkeypatch.setattr(clock, "now", lambda: real_now() + timedelta(days=ahead[0]))
    monkeypatch.setattr(clock, "now_us", lambda: real_us() + ahead[0] * 86_400_000_000)
    return ahead


async def test_status_counts_the_commits_of_each_day(moment: list[int]) -> None:
    async with dgent.open("memory:") as u:
        for day, commits in ((0, 3), (2, 1), (3, 2)):
            moment[0] = day
            for number in range(commits):
                await u.put(dgent.Datum(f"{day}-{number}", data={}))
        status = await invoke(u, "self.store.status", days=4, commits=0)
        assert [each.commits for each in status.days] == [3, 0, 1, 2]
        assert all(each.at.hour == each.at.minute == 0 for each in status.days)
        assert status.commits == []
        assert status.health == "ok"
        assert (await invoke(u, "self.store.status", quick=True)).health == "unchecked"
        plain = await invoke(u, "self.store.status")
        assert plain.days == []
        assert len(plain.commits) == 5
        for wrong in ({"days": -1}, {"days": 400}, {"commits": -1}):
            with pytest.raises(InputError):
                await invoke(u, "self.store.status", **wrong)


async def test_a_log_leaves_records_out_and_says_how_many() -> None:
    async with dgent.open("memory:") as u:
        await u.put_many([dgent.Datum(str(number), data={}) for number in range(10)])
        (entry,) = (await invoke(u, "self.data.log", records=3)).items
        assert (len(entry.items), entry.more) == (3, 7)
        (entry,) = (await invoke(u, "self.data.log")).items
        assert (len(entry.items), entry.more) == (10, 0)
        commit = await invoke(u, "self.data.get-commit", seq=1, records=0)
        assert (commit.items, commit.more) == ([], 10)
        with pytest.raises(InputError):
            await invoke(u, "self.data.log", records=-1)


async def test_reading_back_begins_with_few_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    async with dgent.open("memory:") as u:
        for number in range(3 * FIRST):
            await u.put(dgent.Datum(str(number), data={}))
        asked: list[tuple[int, int | None]] = []
        changes = u.changes

        async def note(since: int = 0, **rest: int) -> list[Change]:
            asked.append((since, rest.get("until")))
            return await changes(since, **rest)

        monkeypatch.setattr(u, "changes", note)
        seen = [change.seq async for change in read_back(u)]
        assert seen == list(range(3 * FIRST, 0, -1))
        assert asked == [(2 * FIRST, 3 * FIRST), (0, 2 * FIRST)]
        asked.clear()
        await invoke(u, "self.data.log", limit=2)
        assert asked == [(3 * FIRST - 2, 3 * FIRST)]
