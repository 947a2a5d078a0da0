"""No crumb may wait for itself, over whatever way.

What is asked of each new link is whether its parent waits for its child. Everything that is read to answer
is noted by the transaction, and the answer no stands on a set of crumbs whose links were all read: so a
link that somebody else adds meanwhile to close the circle makes this start again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

from dgent.cupboard import errors
from dgent.cupboard.draft import Draft
from dgent.cupboard.record import LinkRecord

FEW = 8  # so many links are each looked at from both sides; for more, all that is above them is read once
SHOWN = 20


async def check_acyclic(draft: Draft, links: Collection[LinkRecord]) -> None:
    """Refuse child_of links of a draft that close a circle."""
    for link in links:
        if link.from_id == link.to_id:
            raise _cycle([link.from_id, link.to_id])
    left = await _without_new(draft, links)
    if len(left) > FEW:
        left = await _without_ends(draft, left)
    for link in left:
        await _check(draft, link)


async def _without_new(draft: Draft, links: Iterable[LinkRecord]) -> list[LinkRecord]:
    """The links without those of new crumbs that nobody waits for, nor only such: no circle has them.

    All links of a new crumb are in the draft, so this reads nothing; most often nothing is left.
    """
    starting: dict[str, list[LinkRecord]] = {}
    for link in links:
        starting.setdefault(link.from_id, []).append(link)
    waiting = {id: len(await draft.links("to_id", id, "child_of")) for id in starting if draft.is_new(id)}
    free = [id for id, count in waiting.items() if not count]
    while free:
        for link in starting.pop(free.pop()):
            if link.to_id in waiting:
                waiting[link.to_id] -= 1
                if not waiting[link.to_id]:
                    free.append(link.to_id)
    return [link for some in starting.values() for link in some]


async def _without_ends(draft: Draft, links: Collection[LinkRecord]) -> list[LinkRecord]:
    """The links without those whose way up comes to an end: no circle has them."""
    above: dict[str, list[str]] = {}
    level = list({link.to_id for link in links})
    while level:
        await draft.load_links("from_id", level)
        for id in level:
            above[id] = await _parents(draft, id)
        level = list({parent for id in level for parent in above[id] if parent not in above})
    below: dict[str, list[str]] = {}
    for id, parents in above.items():
        for parent in parents:
            below.setdefault(parent, []).append(id)
    left = {id: len(parents) for id, parents in above.items()}
    done = [id for id, count in left.items() if not count]
    for id in done:
        for child in below.get(id, ()):
            left[child] -= 1
            if not left[child]:
                done.append(child)
    ended = set(done)
    return [link for link in links if link.to_id not in ended]


async def _check(draft: Draft, link: LinkRecord) -> None:
    """Refuse a link whose parent waits for its child.

    From the parent upwards and from the child downwards, always where less was read so far: when either way
    is at its end, they cannot meet. So it costs about twice what the shorter way has.
    """
    child, parent = link.from_id, link.to_id
    up, down = {parent: child}, {child: ""}  # whence each was reached
    highest, lowest = [parent], [child]
    while highest and lowest:
        if len(up) <= len(down):
            highest = await _step(draft, "from_id", highest, up)
            met = [id for id in highest if id in down]
        else:
            lowest = await _step(draft, "to_id", lowest, down)
            met = [id for id in lowest if id in up]
        if met:
            raise _cycle(_way(met[0], up, down, link))


async def _step(draft: Draft, end: str, level: list[str], reached: dict[str, str]) -> list[str]:
    """What is one link further, and was not reached before."""
    await draft.load_links(end, level)
    further = []
    for id in level:
        links = (await draft.links(end, id, "child_of")).values()
        for other in (link.to_id if end == "from_id" else link.from_id for link in links):
            if other not in reached:
                reached[other] = id
                further.append(other)
    return further


async def _parents(draft: Draft, id: str) -> list[str]:
    return [link.to_id for link in (await draft.links("from_id", id, "child_of")).values()]


def _way(met: str, up: dict[str, str], down: dict[str, str], link: LinkRecord) -> list[str]:
    """The way round: from the child to its parent, up to where the two ways met, and to the child again."""
    first = [met]
    while first[-1] != link.to_id:
        first.append(up[first[-1]])
    way = [link.from_id, *reversed(first)]
    while way[-1] != link.from_id:
        way.append(down[way[-1]])
    return way


def _cycle(way: list[str]) -> errors.Cycle:
    shown = way if len(way) <= SHOWN else [*way[: SHOWN - 2], "…", way[-1]]
    return errors.Cycle(f"a crumb would wait for itself: {' -> '.join(shown)}")
