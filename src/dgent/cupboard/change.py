"""The changeset: one change of the cupboard before its commit, with the records it read and will write.

Rules are checked on the changeset, not on the store, so that each step sees the steps before it. Each record
is read once. All of it is one transaction: a concurrent commit that touches anything read here makes the
change start again.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from dataclasses import replace
from datetime import datetime
from typing import Any, TypeVar

from dgent import clock, ids
from dgent.cupboard import errors
from dgent.cupboard.definition import Definitions
from dgent.cupboard.record import (
    CATALOG_ID,
    CRUMB,
    LINK,
    METADATA,
    STASH,
    TRAIL,
    CatalogRecord,
    CrumbRecord,
    LinkRecord,
    TrailRecord,
)
from dgent.errors import InputError, Unreadable
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.model.order import same
from dgent.model.query import Query
from dgent.universe.transaction import Transaction

R = TypeVar("R")

CHUNK = 64  # ids in one query: as many as an index looks up by their values
NOUNS = {CRUMB.name: "crumb", TRAIL.name: "trail", STASH.name: "stash", METADATA.name: "metadata entry"}


class Changeset:
    """A pending change: the records as stored, and as they will be written."""

    def __init__(self, tx: Transaction, definitions: Definitions) -> None:
        self.tx, self.definitions = tx, definitions
        self.now = clock.now()
        self._found: dict[str, Crystal[Any] | None] = {}  # as stored
        self._records: dict[str, Any] = {}  # as they will be; None is deleted
        self._made: dict[str, datetime] = {}  # new ones, and their creation times
        self._links: dict[
            tuple[str, str], dict[str, LinkRecord]
        ] = {}  # loaded: all links at one end, by (field, id)
        self._loose: dict[
            tuple[str, str], dict[str, LinkRecord]
        ] = {}  # written at ends that are not loaded yet
        self._redefined = False
        self.foreign: set[str] = set()  # loaded ids that belong to records of other rooms or none
        self.prefix = ""  # a new prefix of short ids
        self.freed: list[str] = []  # crumbs that no longer wait for a removed crumb

    # -- records --------------------------------------------------------------------------

    async def find(self, kind: type[R], id: str) -> R | None:
        """Return a record as this change sees it; None when it does not exist or is of another kind."""
        try:
            ids.check_id(id)
        except InputError:
            return None  # nothing has such an id
        if id not in self._records:
            await self.load([id])
        found = self._records.get(id)
        return found if isinstance(found, kind) else None

    async def get(self, kind: type[R], id: str, noun: str) -> R:
        """Return a record as this change sees it; raises EntityNotFound."""
        found = await self.find(kind, id)
        if found is None:
            raise errors.EntityNotFound(f"there is no {noun} {id!r}", id=id)
        return found

    async def load(self, wanted: Iterable[str]) -> None:
        """Read records in one call, unless they are loaded."""
        missing = [id for id in dict.fromkeys(wanted) if id not in self._records]
        if not missing:
            return
        for id, found in zip(missing, await self.tx.get_many(missing), strict=True):
            if isinstance(found, Datum) and (found.schema or "").startswith("cupboard."):
                raise Unreadable(f"{id!r} cannot be read: {found.problem}", id=id)
            if isinstance(found, Datum):
                self.foreign.add(id)
            self._add(id, found if isinstance(found, Crystal) else None)

    def add_loaded(self, crystal: Crystal[Any]) -> None:
        """Add a record that a query found, unless it is loaded."""
        if crystal.id not in self._records:
            self._add(crystal.id, crystal)

    def is_new(self, id: str) -> bool:
        """Check whether this change creates a record."""
        return id in self._made

    async def exists(self, id: str) -> bool:
        """Check whether any record has this id, of whatever kind."""
        await self.load([id])
        if self._records.get(id) is not None:
            return True
        return id not in self._records or (self._found.get(id) is None and await self.tx.exists(id))

    def get_stored(self, id: str) -> Crystal[Any] | None:
        """Return a loaded record as it is in the store."""
        return self._found.get(id)

    def record(self, id: str) -> Any:
        """Return a loaded record as this change leaves it."""
        return self._records[id]

    def seq(self, id: str) -> int | None:
        """Return the seq of the commit that wrote a record: this one, unless the record is unchanged."""
        stored = self._found.get(id)
        if stored is not None and is_same_record(stored.value, self._records[id]):
            return stored.seq
        return None if self.tx.committed is None else self.tx.committed.seq

    def created_at(self, id: str) -> datetime:
        """Return the creation time of a record."""
        stored = self._found.get(id)
        return self._made.get(id, self.now) if stored is None else stored.created_at

    def put(self, id: str, record: Any, *, created_at: datetime | None = None) -> None:
        """Write a record; one that is not loaded must be new."""
        old = self._records.get(id)
        if self._found.get(id) is None:
            self._made.setdefault(id, created_at or self.now)
        if isinstance(old, LinkRecord):
            self._unlink(id, old)
        self._records[id] = record
        if isinstance(record, LinkRecord):
            self._link(id, record)

    def drop(self, id: str) -> None:
        """Delete a loaded record."""
        old = self._records.get(id)
        if isinstance(old, LinkRecord):
            self._unlink(id, old)
        self._records[id] = None
        self._made.pop(id, None)

    def changes(self) -> Iterator[tuple[str, Any, Any]]:
        """Yield id, new record (None is deleted) and stored record of everything changed so far."""
        for id, record in self._records.items():
            stored = self._found.get(id)
            old = None if stored is None else stored.value
            if record is not old and record != old:
                yield id, record, old

    def mark_redefined(self) -> None:
        """Record that this change alters definitions, so that other readers load them again."""
        self._redefined = True

    def _add(self, id: str, crystal: Crystal[Any] | None) -> None:
        self._found[id] = crystal
        if id not in self._records:
            self._records[id] = None if crystal is None else crystal.value

    # -- links ----------------------------------------------------------------------------

    async def links(self, end: str, id: str, *types: str) -> dict[str, LinkRecord]:
        """Return the links of some types that start (`from_id`) or end (`to_id`) at an id, by their ids."""
        await self.load_links(end, [id])
        found = self._links.get((end, id), {})
        return {each: link for each, link in found.items() if not types or link.link_type in types}

    def get_loaded_links(self, id: str) -> dict[str, LinkRecord]:
        """Return all links of an id whose links at both ends are loaded."""
        return {**self._links["from_id", id], **self._links["to_id", id]}

    async def load_links(self, end: str, wanted: Iterable[str]) -> None:
        """Read the links at one end of several ids together; new records have none in the store."""
        missing = set()
        for id in wanted:
            if (end, id) not in self._links:
                self._links[end, id] = self._loose.pop((end, id), {})
                if not self.is_new(id):
                    missing.add(id)
        if not missing:
            return
        for crystal in await self.select(LINK.name, end, missing):
            self.add_loaded(crystal)
            link = self._records[crystal.id]
            if isinstance(link, LinkRecord) and getattr(link, end) in missing:
                self._links[end, getattr(link, end)][crystal.id] = link

    async def select(self, schema: str, field: str, values: Collection[str]) -> list[Crystal[Any]]:
        """Return the stored records of a schema whose field has one of the values."""
        found: list[Crystal[Any]] = []
        some = list(values)
        for start in range(0, len(some), CHUNK):
            where = {field: {"$in": some[start : start + CHUNK]}}
            found += await self.tx.recall(Query(schema=schema, where=where, limit=None))
        return found

    async def find_named(self, schema: str, kind: type[Any], name: str) -> list[str]:
        """Return the ids of the records of a kind that have a name, as this change sees them."""
        for crystal in await self.select(schema, "name", [name]):
            self.add_loaded(crystal)
        return [id for id, record in self.each(kind) if record.name == name]

    def each(self, kind: type[R]) -> list[tuple[str, R]]:
        """Return id and record of all loaded or new records of a kind."""
        return [(id, record) for id, record in self._records.items() if isinstance(record, kind)]

    def _link(self, id: str, link: LinkRecord) -> None:
        for key in _ends(link):
            known = self._links.get(key)
            if known is None:
                known = self._loose.setdefault(key, {})
            known[id] = link

    def _unlink(self, id: str, link: LinkRecord) -> None:
        for key in _ends(link):
            self._links.get(key, {}).pop(id, None)
            self._loose.get(key, {}).pop(id, None)

    # -- derived from states and links ------------------------------------------------------

    def put_crumb(self, id: str, crumb: CrumbRecord) -> None:
        """Write a crumb with its place in the queue; only a ready crumb without open parents has one."""
        free = crumb.state == "ready" and crumb.open_parents <= 0
        queue = self.definitions.rank(crumb.properties) if free else None
        self.put(id, crumb if crumb.queue == queue else replace(crumb, queue=queue))

    async def adjust_waiting(self, id: str, by: int) -> None:
        """Change the number of crumbs that a crumb waits for; its parts wait while it waits."""
        todo = [(id, by)] if by else []
        while todo:
            each, more = todo.pop()
            crumb = await self.find(CrumbRecord, each)
            if crumb is None:
                continue
            count = max(0, crumb.open_parents + more)
            self.put_crumb(each, replace(crumb, open_parents=count))
            turned = (count > 0) - (crumb.open_parents > 0)
            if turned:
                parts = [link.from_id for link in (await self.links("to_id", each, "part_of")).values()]
                await self.load(parts)
                await self.load_links("to_id", parts)
                todo += [(part, turned) for part in parts]

    async def children(self, id: str) -> list[str]:
        """Return the ids of the crumbs that wait for this one."""
        return [link.from_id for link in (await self.links("to_id", id, "child_of")).values()]

    # -- writing ----------------------------------------------------------------------------

    async def flush(self) -> None:
        """Write every change to the transaction."""
        if self._redefined:
            catalog = await self.tx.get(CATALOG_ID)
            if isinstance(catalog, Crystal):
                was: CatalogRecord = catalog.value
                changed = CatalogRecord(was.changes + 1, self.prefix or was.prefix)
                await self.tx.store(catalog.replace(value=changed))
            else:
                await self.tx.remember(CatalogRecord(1, self.prefix), id=CATALOG_ID)
        for id, record in self._records.items():
            stored = self._found.get(id)
            if record is None:
                if stored is not None:
                    await self.tx.delete(id)
            elif stored is None:
                await self.tx.remember(record, id=id, tags=_tags(record), created_at=self._made[id])
            elif not is_same_record(record, stored.value):
                newer = stored.replace(value=record)
                if isinstance(record, LinkRecord | CrumbRecord | TrailRecord):
                    newer = newer.replace(tags=_tags(record))
                await self.tx.store(newer)


def _tags(record: Any) -> tuple[str, ...]:
    """Return the tags by which a record is found: the type of a link, or former short ids."""
    if isinstance(record, LinkRecord):
        return (record.link_type,)
    return record.former_ids if isinstance(record, CrumbRecord | TrailRecord) else ()


def is_same_record(one: Any, other: Any) -> bool:
    """Check whether two records of a kind have equal fields; true is not 1 here."""
    return one is other or same(vars(one), vars(other))


def _ends(link: LinkRecord) -> tuple[tuple[str, str], tuple[str, str]]:
    return ("from_id", link.from_id), ("to_id", link.to_id)


def check_entity_id(id: object) -> str:
    """Return the id of an entity as the caller gave it; raises InvalidID."""
    if not isinstance(id, str) or not id:
        raise errors.InvalidID("the id is empty" if id == "" else f"expected an id as text, got {id!r}")
    try:
        return ids.check_id(id)
    except InputError as error:
        raise errors.InvalidID(error.message, hint=error.hint) from None
