"""Activity of crumbs and trails: told to every agent, in few words, and never broken by odd records."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

import dgent
from dgent.blocks import Library
from dgent.cupboard import Cupboard
from dgent.cupboard.describe import DESCRIBED
from tests.blocks.agents import library, scout, scribe, u

__all__ = ["library", "scout", "scribe", "u"]


async def told(lib: Library, **options: int) -> list[tuple[str, str, str, str]]:
    found = await lib.activity(**options)
    return [(each.by, each.what, each.kind, each.label) for each in found if each.kind in ("crumb", "trail")]


async def test_who_did_what_to_which_crumb_and_trail(u: dgent.Universe, scout: Library) -> None:
    cupboard = Cupboard(u)
    look = await cupboard.add("look", state="ready")
    async with cupboard.explore("try it", goal="to know") as trail:
        await cupboard.add("on the trail", trail=trail)
    taken = await cupboard.take("scribe")
    assert taken is not None
    await cupboard.done(taken)
    fresh = await cupboard.crumbs.get(look.id)
    fresh.name = "look again"
    await cupboard.crumbs.set(look.id, fresh)
    await cupboard.crumbs.delete(look.id)
    assert await told(scout) == [
        ("system", "delete", "crumb", "look again"),
        ("system", "change", "crumb", "look again"),
        ("system", "pebble", "crumb", "look"),
        ("scribe", "taken", "crumb", "look"),
        ("system", "completed", "trail", "try it"),
        ("system", "create", "crumb", "on the trail"),
        ("system", "create", "trail", "try it"),
        ("system", "create", "crumb", "look"),
    ]
    assert await told(scout, limit=2) == (await told(scout))[:2]


async def test_what_only_follows_is_not_told(u: dgent.Universe, scout: Library) -> None:
    cupboard = Cupboard(u)
    first = await cupboard.add("first", state="ready")
    second = await cupboard.add("second", state="ready", parents=first)
    start = await u.seq()
    await cupboard.done(first)
    assert (await cupboard.crumbs.get(second.id)).state == "ready"
    assert await told(scout, since=start) == [("system", "pebble", "crumb", "first")]


async def test_both_kinds_of_work_are_in_the_section_of_the_prompt(u: dgent.Universe, scout: Library) -> None:
    start = await u.seq()
    await (await scout.get("persona")).append("!")
    await Cupboard(u).add("a name\n[of two lines] " + "x" * 500, state="ready")
    text = await scout.render(since=start)
    section = text[text.index("<memory:activity") :]
    [line] = [each for each in section.splitlines() if "create crumb" in each]
    assert "a name [of two lines] xxx" in line and len(line) < 150
    assert "you: append persona" in section
    for n in range(100):
        await Cupboard(u).add(f"n{n}")
    section = (await scout.render(since=start))[text.index("<memory:activity") :]
    assert len(section.splitlines()) < 40


async def test_only_those_who_may_read_are_told(u: dgent.Universe, library, scribe: Library) -> None:  # type: ignore[no-untyped-def]
    await Cupboard(u).add("look")
    assert [each[3] for each in await told(scribe)] == ["look"]
    with pytest.raises(dgent.errors.Denied):
        await library("stranger", trust="untrusted").activity()


@pytest.mark.parametrize(
    "data", [{}, {"name": 7, "state": ["x"]}, {"name": None, "state": "taken", "holder": 3}, {"state": ""}]
)
async def test_odd_records_are_left_out_or_told_of_plainly(
    u: dgent.Universe, scout: Library, data: dict[str, object]
) -> None:
    for name in DESCRIBED:
        for n in range(2):
            odd = dgent.Datum(f"odd-{name}", data={**data, "n": n}, schema=name, schema_version=1)
            await u.for_room("cupboard").put(odd)
        await u.for_room("cupboard").delete(f"odd-{name}")
    found = await told(scout)
    assert {each[3] for each in found} == {""} and {each[1] for each in found} >= {"create", "delete"}


async def test_where_history_is_gone_it_goes_on(u: dgent.Universe, scout: Library) -> None:
    cupboard = Cupboard(u)
    crumb = await cupboard.add("look", state="ready")
    await u.compact(datetime.now(UTC))
    await cupboard.done(crumb)
    assert (await told(scout))[0] == ("system", "pebble", "crumb", "look")
