"""Parts of epics, and links that only relate crumbs: who waits for whom, through every kind of change."""

from __future__ import annotations

from typing import Any

import pytest

from dgent.cupboard import Crumb, Cupboard, Link, errors
from dgent.cupboard.kind import LINK_RULES, WAITING
from dgent.errors import InputError


async def names(cupboard: Cupboard) -> list[str]:
    assert (await cupboard.audit()).findings == ()
    return sorted(crumb.name for crumb in await cupboard.ready())


async def plant(cupboard: Cupboard) -> dict[str, Crumb]:
    """An epic that waits for `first`, with a part that has a part itself."""
    made = await cupboard.add_many(
        [Crumb(name, "ready") for name in ("first", "epic", "part", "piece", "other")],
        [("child_of", 1, 0), ("part_of", 2, 1), ("part_of", 3, 2)],
    )
    return {crumb.name: crumb for crumb in made}


async def test_the_parts_of_an_epic_that_waits_wait_too(cupboard: Cupboard) -> None:
    made = await plant(cupboard)
    assert await names(cupboard) == ["first", "other"]
    await cupboard.done(made["first"])
    assert await names(cupboard) == ["epic", "other", "part", "piece"]
    again = await cupboard.crumbs.get(made["first"].id)
    again.set_state("ready")
    await cupboard.crumbs.set(again.id, again)
    assert await names(cupboard) == ["first", "other"]


async def test_why_a_part_waits_is_said(cupboard: Cupboard) -> None:
    made = await plant(cupboard)
    [reason] = (await cupboard.explain(made["part"])).reasons
    assert reason.startswith("it is part of 'epic'") and "waits for 'first'" in reason
    [deep] = (await cupboard.explain(made["piece"])).reasons
    assert deep.startswith("it is part of 'part'") and "which waits for 'epic'" in deep
    assert {each.crumb.name for each in await cupboard.blocked()} == {"epic", "part", "piece"}
    assert not any(each.ready for each in await cupboard.blocked())


async def test_links_of_parts_come_and_go(cupboard: Cupboard) -> None:
    made = await plant(cupboard)
    link = Link("part_of", made["other"].id, made["piece"].id)
    await cupboard.links.set(None, link)
    assert await names(cupboard) == ["first"]
    await cupboard.links.delete(link.id)
    assert await names(cupboard) == ["first", "other"]
    seq = await cupboard.universe.seq()
    await cupboard.universe.undo(seq)
    assert await names(cupboard) == ["first"]
    await cupboard.crumbs.delete(made["epic"].id)
    assert await names(cupboard) == ["first", "other", "part", "piece"]
    await cupboard.universe.undo(await cupboard.universe.seq())
    assert await names(cupboard) == ["first"]


async def test_an_epic_that_is_abandoned_frees_its_parts_elsewhere(cupboard: Cupboard) -> None:
    trail = await cupboard.start("try")
    made = await plant(cupboard)
    await cupboard.links.set(None, Link("belongs_to", made["epic"].id, trail.id))
    ended = await cupboard.abandon(trail)
    assert ended.freed == (made["part"].id,)
    assert await names(cupboard) == ["first", "other", "part", "piece"]


@pytest.mark.parametrize(
    ("kind", "start", "end"),
    [("part_of", 1, 3), ("child_of", 1, 2), ("part_of", 0, 3), ("child_of", 0, 3), ("part_of", 1, 1)],
)
async def test_nothing_waits_for_itself_by_way_of_parts(
    cupboard: Cupboard, kind: str, start: int, end: int
) -> None:
    made = list((await plant(cupboard)).values())
    with pytest.raises(errors.Cycle):
        await cupboard.links.set(None, Link(kind, made[start].id, made[end].id))


@pytest.mark.parametrize("kind", [kind for kind, rule in LINK_RULES.items() if rule.end == "crumb"])
async def test_only_links_that_wait_hold_work_back(cupboard: Cupboard, kind: str) -> None:
    if LINK_RULES[kind].start != "crumb":
        return
    await cupboard.add_many(
        [Crumb(name, "ready") for name in ("a", "b", "c")], [(kind, 1, 0), ("child_of", 0, 2)]
    )
    held = {"child_of": ["c"], "part_of": ["c"]}.get(kind, ["b", "c"])
    assert await names(cupboard) == held
    assert (kind in WAITING) == (held == ["c"])


async def test_related_is_the_same_from_either_side(cupboard: Cupboard) -> None:
    a, b = await cupboard.add("a"), await cupboard.add("b")
    await cupboard.links.set(None, Link("related_to", a.id, b.id))
    with pytest.raises(errors.DuplicateLink):
        await cupboard.links.set(None, Link("related_to", b.id, a.id))
    with pytest.raises(InputError, match="itself"):
        await cupboard.links.set(None, Link("supersedes", a.id, a.id))


async def test_repair_counts_parts_again(cupboard: Cupboard) -> None:
    made = await plant(cupboard)
    u: Any = cupboard._universe
    for name in ("part", "epic"):
        stored = await u.get(made[name].id, raw=True)
        await u.put(stored.replace(data={**stored.data, "open_parents": 0, "queue": 2**31}))
    found = await cupboard.audit()
    assert {finding.rule for finding in found.findings} == {"readiness"}
    await cupboard.repair(found.findings)
    assert await names(cupboard) == ["first", "other"]
