"""Many records in one change, as a file gives them.

They are put into the draft as they are, also where they break the rules of the graph: what was imported is
there for `audit` to tell. What follows from states and links is worked out once, for all of them.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import replace
from typing import TYPE_CHECKING, TypeVar

from dgent.cupboard.change import Draft
from dgent.cupboard.record import LINK, CrumbRecord, LinkRecord
from dgent.model.query import Query

if TYPE_CHECKING:
    from dgent.cupboard.cupboard import Cupboard

R = TypeVar("R")


async def change(
    cupboard: Cupboard, work: Callable[[Draft], Awaitable[R]], note: str, *, dry_run: bool = False
) -> tuple[R, int | None]:
    """Work out a change and commit it, unless it is only tried; what it came to, and its commit if any."""

    async def settled(draft: Draft) -> R:
        result = await work(draft)
        await settle(draft)
        return result

    result, draft = await cupboard._change(settled, note, dry_run=dry_run)
    done = draft.tx.committed
    return result, done.seq if done is not None and done.written else None


async def settle(draft: Draft) -> None:
    """Work out what the crumbs wait for that a change touches, and with it their place in the queue."""
    touched: set[str] = set()
    turned: set[str] = set()  # became pebbles, or are none any more
    for id, record, old in draft.changes():
        for each in (record, old):
            if isinstance(each, CrumbRecord):
                touched.add(id)
            elif isinstance(each, LinkRecord) and each.link_type == "child_of":
                touched.add(each.from_id)
        if _is_open(record) != _is_open(old):
            turned.add(id)
    if not touched:
        return
    links = (await all_links(draft, "child_of")).values()
    touched.update(link.from_id for link in links if link.to_id in turned)
    parents: dict[str, list[str]] = {id: [] for id in touched}
    for link in links:
        if link.from_id in touched:
            parents[link.from_id].append(link.to_id)
    await draft.load(id for child, above in parents.items() for id in (child, *above))
    for id, above in parents.items():
        crumb = draft.record(id)
        if isinstance(crumb, CrumbRecord):
            waits = sum(_is_open(draft.record(parent)) for parent in above)
            draft.place(id, replace(crumb, open_parents=waits) if crumb.open_parents != waits else crumb)


async def all_links(draft: Draft, link_type: str | None = None) -> dict[str, LinkRecord]:
    """All links, or those of a type, as a change leaves them, by their ids."""
    tags = frozenset() if link_type is None else frozenset({link_type})
    query = Query(schema=LINK.name, tags=tags, limit=None, descending=False)
    found: dict[str, LinkRecord] = {each.id: each.value for each in await draft.tx.recall(query)}
    for id, record, old in draft.changes():
        if isinstance(record, LinkRecord) and link_type in (None, record.link_type):
            found[id] = record
        elif isinstance(old, LinkRecord):
            found.pop(id, None)
    return found


def _is_open(record: object) -> bool:
    return isinstance(record, CrumbRecord) and record.state != "pebble"
