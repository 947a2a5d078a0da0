"""Import many records in one change.

Records are written as they are, even where they break the rules of the graph; `audit` reports those. Derived
fields are computed once, for all of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from dgent.cupboard.change import Changeset
from dgent.cupboard.record import LINK, CrumbRecord, LinkRecord
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
    links = (await all_links(changeset, "child_of")).values()
    touched.update(link.from_id for link in links if link.to_id in turned)
    parents: dict[str, list[str]] = {id: [] for id in touched}
    for link in links:
        if link.from_id in touched:
            parents[link.from_id].append(link.to_id)
    await changeset.load(id for child, above in parents.items() for id in (child, *above))
    for id, above in parents.items():
        crumb = changeset.record(id)
        if isinstance(crumb, CrumbRecord):
            waits = sum(_is_open(changeset.record(parent)) for parent in above)
            changeset.put_crumb(
                id, replace(crumb, open_parents=waits) if crumb.open_parents != waits else crumb
            )


def _find_affected(changeset: Changeset) -> tuple[set[str], set[str]]:
    """Return the crumbs that a change touches, and those that became pebbles or no longer are."""
    touched: set[str] = set()
    turned: set[str] = set()
    for id, record, old in changeset.changes():
        for each in (record, old):
            if isinstance(each, CrumbRecord):
                touched.add(id)
            elif isinstance(each, LinkRecord) and each.link_type == "child_of":
                touched.add(each.from_id)
        if _is_open(record) != _is_open(old):
            turned.add(id)
    return touched, turned


async def all_links(changeset: Changeset, link_type: str | None = None) -> dict[str, LinkRecord]:
    """Return all links, or those of a type, by id, as a change leaves them."""
    tags = frozenset() if link_type is None else frozenset({link_type})
    query = Query(schema=LINK.name, tags=tags, limit=None, descending=False)
    found: dict[str, LinkRecord] = {each.id: each.value for each in await changeset.tx.recall(query)}
    for id, record, old in changeset.changes():
        if isinstance(record, LinkRecord) and link_type in (None, record.link_type):
            found[id] = record
        elif isinstance(old, LinkRecord):
            found.pop(id, None)
    return found


def _is_open(record: object) -> bool:
    return isinstance(record, CrumbRecord) and record.state != "pebble"
