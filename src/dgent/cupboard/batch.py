"""Import many records in one change.

Records are written as they are, even where they break the rules of the graph; `audit` reports those. Derived
fields are computed once, for all of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from dgent.cupboard.change import Changeset
from dgent.cupboard.kind import WAITING
from dgent.cupboard.record import LINK, CrumbRecord, LinkRecord
from dgent.cupboard.waiting import Edge, count_waiting, with_parts
from dgent.model.query import Query

if TYPE_CHECKING:
    from dgent.cupboard.cupboard import Cupboard

R = TypeVar("R")


async def change(
    cupboard: Cupboard, work: Callable[[Changeset], Awaitable[R]], note: str, *, dry_run: bool = False
) -> tuple[R, int | None]:
    """Run a change and commit it, unless `dry_run`; return its result and its seq if it wrote anything."""

    async def work_and_update(changeset: Changeset) -> R:
        result = await work(changeset)
        await update_readiness(changeset)
        return result

    result, changeset = await cupboard._change(work_and_update, note, dry_run=dry_run)
    done = changeset.tx.committed
    return result, done.seq if done is not None and done.written else None


async def update_readiness(changeset: Changeset) -> None:
    """Recompute `open_parents` and `queue` of every crumb that a change affects."""
    touched, turned = _find_affected(changeset)
    if not touched:
        return
    links = (await all_links(changeset, *WAITING)).values()
    edges = [(link.link_type, link.from_id, link.to_id) for link in links]
    touched.update(start for _, start, end in edges if end in turned)
    await recount(changeset, touched, edges)


async def recount(changeset: Changeset, crumbs: Iterable[str], edges: Collection[Edge]) -> None:
    """Recompute `open_parents` and `queue` of crumbs and their parts; `edges` are all links that wait."""
    wanted = with_parts(crumbs, edges)
    await changeset.load(wanted)
    await changeset.load(end for _, start, end in edges if start in wanted)
    known = {id for id in wanted if isinstance(changeset.record(id), CrumbRecord)}
    waits = count_waiting(
        known,
        edges,
        lambda id: _is_open(changeset.record(id)),
        lambda id: getattr(changeset.record(id), "open_parents", 0) > 0,
    )
    for id, count in waits.items():
        crumb = changeset.record(id)
        changeset.put_crumb(id, replace(crumb, open_parents=count) if crumb.open_parents != count else crumb)


def _find_affected(changeset: Changeset) -> tuple[set[str], set[str]]:
    """Return the crumbs that a change touches, and those that became pebbles or no longer are."""
    touched: set[str] = set()
    turned: set[str] = set()
    for id, record, old in changeset.changes():
        for each in (record, old):
            if isinstance(each, CrumbRecord):
                touched.add(id)
            elif isinstance(each, LinkRecord) and each.link_type in WAITING:
                touched.add(each.from_id)
        if _is_open(record) != _is_open(old):
            turned.add(id)
    return touched, turned


async def all_links(changeset: Changeset, *types: str) -> dict[str, LinkRecord]:
    """Return all links, or those of some types, by id, as a change leaves them."""
    query = Query(schema=LINK.name, any_tags=frozenset(types), limit=None, descending=False)
    found: dict[str, LinkRecord] = {each.id: each.value for each in await changeset.tx.recall(query)}
    for id, record, old in changeset.changes():
        if isinstance(record, LinkRecord) and (not types or record.link_type in types):
            found[id] = record
        elif isinstance(old, LinkRecord):
            found.pop(id, None)
    return found


def _is_open(record: object) -> bool:
    return isinstance(record, CrumbRecord) and record.state != "pebble"
