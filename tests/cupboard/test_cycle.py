"""No crumb waits for itself, however links come: one by one, together, or from two writers at once."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dgent
from dgent.cupboard import Crumb, Cupboard, Link, errors
from dgent.cupboard.change import Changeset
from dgent.cupboard.record import LinkRecord
from dgent.cupboard.tables.link import add_link
from tests.soak import examples

Edges = list[tuple[int, int]]

NODES = 6
edges = st.lists(st.tuples(st.integers(0, NODES - 1), st.integers(0, NODES - 1)), max_size=14, unique=True)


@pytest.fixture
async def cupboard() -> AsyncIterator[Cupboard]:
    async with dgent.open("memory:") as u:
        yield Cupboard(u)


def has_circle(links: Edges) -> bool:
    """By taking away whoever waits for nobody, again and again."""
    left = list(links)
    while left:
        waiting = {child for child, _ in left}
        rest = [(child, parent) for child, parent in left if parent in waiting]
        if len(rest) == len(left):
            return True
        left = rest
    return False


@settings(max_examples=examples(75), deadline=None)
@given(before=edges, after=edges, fresh=st.integers(0, NODES))
def test_links_are_refused_exactly_when_they_close_a_circle(before: Edges, after: Edges, fresh: int) -> None:
    asyncio.run(_check(before, after, fresh))


async def _check(before: Edges, after: Edges, fresh: int) -> None:
    """Some links one by one between old crumbs, then some together between old and new ones."""
    async with dgent.open("memory:") as u:
        cupboard = Cupboard(u)
        old = [(await cupboard.add(f"c{n}")).id for n in range(fresh)]
        there: Edges = []
        for child, parent in before:
            if max(child, parent) >= fresh:
                continue
            link = Link("child_of", old[child], old[parent])
            if has_circle([*there, (child, parent)]):
                with pytest.raises(errors.Cycle):
                    await cupboard.links.set(None, link)
            else:
                await cupboard.links.set(None, link)
                there.append((child, parent))
        more = [edge for edge in after if edge not in there]
        new = [Crumb(f"c{n}") for n in range(fresh, NODES)]
        ends = [*old, *range(len(new))]
        wanted = [("child_of", ends[child], ends[parent]) for child, parent in more]
        if has_circle([*there, *more]):
            with pytest.raises(errors.Cycle):
                await cupboard.add_many(new, wanted)
        else:
            await cupboard.add_many(new, wanted)
            there += more
        assert len(await cupboard.links.fetch()) == len(there)
        assert (await cupboard.audit()).ok


async def test_the_way_round_is_told(cupboard: Cupboard) -> None:
    crumbs = [(await cupboard.add(f"c{n}")).id for n in range(5)]
    for child, parent in itertools.pairwise(crumbs):
        await cupboard.links.set(None, Link("child_of", child, parent))
    with pytest.raises(errors.Cycle) as caught:
        await cupboard.links.set(None, Link("child_of", crumbs[4], crumbs[0]))
    way = caught.value.message.partition(": ")[2].split(" -> ")
    assert way == [crumbs[4], crumbs[0], crumbs[1], crumbs[2], crumbs[3], crumbs[4]]


async def test_a_crumb_cannot_wait_for_itself(cupboard: Cupboard) -> None:
    crumb = await cupboard.add("a")
    with pytest.raises(errors.Cycle, match=f"{crumb.id} -> {crumb.id}"):
        await cupboard.links.set(None, Link("child_of", crumb.id, crumb.id))


async def test_many_links_between_crumbs_that_are_there(cupboard: Cupboard) -> None:
    crumbs = await cupboard.add_many([Crumb(f"c{n}") for n in range(40)])
    chain = [("child_of", crumbs[n].id, crumbs[n + 1].id) for n in range(39)]
    with pytest.raises(errors.Cycle):
        await cupboard.add_many([], [*chain, ("child_of", crumbs[39].id, crumbs[20].id)])
    await cupboard.add_many([], chain)
    assert len(await cupboard.links.fetch()) == 39


async def test_two_writers_cannot_close_a_circle_together(cupboard: Cupboard) -> None:
    for _ in range(10):
        ring = await cupboard.add_many([Crumb(f"c{n}") for n in range(4)])
        links = [Link("child_of", ring[n].id, ring[(n + 1) % 4].id) for n in range(4)]
        done = await asyncio.gather(
            *(cupboard.links.set(None, link) for link in links), return_exceptions=True
        )
        assert sorted(type(each).__name__ for each in done) == ["Cycle", "str", "str", "str"]


async def test_a_long_chain_grows_at_both_ends(cupboard: Cupboard) -> None:
    """Only what is on the shorter side of a link is read: each of these is a handful of reads."""
    count = 1_000
    crumbs = await cupboard.add_many(
        [Crumb(f"c{n}") for n in range(count)], [("child_of", n, n - 1) for n in range(1, count)]
    )
    low = await cupboard.add("low", parents=[crumbs[-1]])
    high = await cupboard.add("high")

    async def on_top(changeset: Changeset) -> None:
        await add_link(changeset, "on-top", LinkRecord("child_of", crumbs[0].id, high.id))

    _, changeset = await cupboard._change(on_top, None)
    assert len(changeset.tx._ids) < 10
    with pytest.raises(errors.Cycle, match="…"):
        await cupboard.links.set(None, Link("child_of", high.id, low.id))
