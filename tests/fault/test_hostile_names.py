"""Ten thousand hostile values in every place of the API, on two engines at once.

Whatever is passed is stored and found exactly, or refused with an error of ours; both engines say
the same; and no error ever comes from SQL.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import apsw
import pytest

import dgent
from dgent import clock
from dgent.errors import DgentError, StorageError
from tests.fault.check import check_store
from tests.fault.hostile import AT, HASHED, PROBES, made, value
from tests.soak import times

CASES = times(4000)
PARTS = 4


@pytest.fixture(autouse=True)
def one_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    """Time stands still, so that two stores can be compared."""
    monkeypatch.setattr(clock, "now_us", lambda: clock.to_us(AT))
    monkeypatch.setattr(clock, "now", lambda: AT)


@pytest.mark.parametrize("part", range(PARTS))
async def test_hostile_values(tmp_path: Path, part: int) -> None:
    seed = random.randrange(2**32)
    rng = random.Random(seed)
    path = str(tmp_path / "hostile.db")
    stored = refused = 0
    async with (
        dgent.open("memory:") as memory,
        dgent.open(f"sqlite:///{path}", durability="relaxed") as sqlite,
    ):
        for u in (memory, sqlite):
            await u.put(made("keyed"))
        for n in range(CASES // PARTS):
            place = rng.choice(list(PROBES))
            if place == "compact" and rng.random() < 0.9:
                continue  # it takes the history that other cases look at
            given = value(rng)
            if place in HASHED and not _hashable(given):
                continue
            what = f"{place} = {given!r:.200} (seed {seed}, part {part}, case {n})"
            outcomes = [await _outcome(u, place, given, f"case.{n}", what) for u in (memory, sqlite)]
            assert outcomes[0] == outcomes[1], what
            refused += outcomes[0][0] == "refused"
            stored += outcomes[0][0] != "refused"
        assert await memory.count() == await sqlite.count()
        assert await memory.seq() == await sqlite.seq()
    print(f"\nhostile values: {stored} taken, {refused} refused, both engines alike")
    check_store(path)


def _hashable(given: Any) -> bool:
    try:
        hash(given)
    except TypeError:
        return False
    return True


async def _outcome(u: Any, place: str, given: Any, n: str, what: str) -> tuple[str, Any]:
    try:
        answer = await PROBES[place](u, given, n)
    except DgentError as error:
        assert not isinstance(error, StorageError), f"{what}: {error}"
        cause: BaseException | None = error
        while cause is not None:
            assert not isinstance(cause, apsw.Error), f"{what}: {cause}"
            cause = cause.__cause__ or cause.__context__
        return "refused", type(error).__name__
    except Exception as error:
        raise AssertionError(f"{type(error).__name__} for {what}: {error}") from error
    return "taken", answer
