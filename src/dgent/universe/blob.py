"""Blobs: bytes under keys, each content kept once, with its uses counted by the references to it.

A key is a record, so it has history, feed, copies and permissions like any other. It holds a reference to its
content, `blob:<sha256>`, as a record with a `Ref` field does: a content without such references is garbage.
"""

from __future__ import annotations

import builtins
import hashlib
import os
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import aclosing, asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import msgspec

from dgent import clock
from dgent.errors import Conflict, Denied, InputError, NotFound
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.ref import Ref
from dgent.model.schema import Schema
from dgent.store.backend import NEW, Delete, Expect, Op, Put
from dgent.store.blob import BlobCalls
from dgent.store.port.blob import (
    PREFIX,
    BlobContents,
    BlobInfo,
    BlobReader,
    BlobWriter,
    Collected,
    Content,
    check_key,
    check_parts,
    check_type,
    find_sha256,
    make_damage_error,
    name_user,
)
from dgent.store.read_only import check_writable
from dgent.store.registry import contents_beside, contents_for
from dgent.universe.blob_record import (
    CONTENT,
    MOST_BYTES,
    ORPHAN,
    ROOM,
    RecordContents,
    content_id,
    note_orphan,
    orphan_id,
)
from dgent.universe.contract import Contracts
from dgent.universe.gate import Gate

if TYPE_CHECKING:
    from dgent.universe.universe import Universe

GRACE = timedelta(days=1)
PAGE = 500
BATCH = 10_000  # contents of a collection that are looked at together
MAX_LIMIT = 10_000
MOST_CHECKED = 1024


class BlobKey(msgspec.Struct, frozen=True):
    """A key as the store has it."""

    key: str
    content: Ref[Any]
    size: int
    content_type: str


KEY = Schema("blob.key", contract=BlobKey, indexes=("key",), owner=ROOM)
SCHEMAS: tuple[Schema[Any], ...] = (KEY, ORPHAN, CONTENT)


class BlobPlace:
    """The contents of an open store, shared by all handles on it."""

    def __init__(self, universe: Universe, contents: BlobContents, user: str | None) -> None:
        self.declared = False
        self.user = user  # the name of this store at a place that others may use too
        self.noted = user is None
        self.checked: dict[str, object] = {}  # contents that were as they should be, and their stamps
        self.contracts = Contracts()
        for schema in SCHEMAS:
            self.contracts.add(schema)
        self.contents = contents
        if getattr(universe.backend, "reachable_store", universe.backend).name == "sqlite":
            room = universe.for_room(ROOM, contracts=self.contracts)
            self.contents = RecordContents(room, contents, 0 if user is not None else MOST_BYTES)


def open_blobs(universe: Universe, url: str | None = None) -> BlobStore:
    """Return the blobs of a universe, which closes them with itself.

    Their bytes are beside its store, unless a `url` or the settings say where: `files:path`,
    `postgresql://…` or `memory:`. All handles on a store have one place, so only the first call decides.
    """
    life = universe._life
    if life.blobs is None:
        url = url or life.storage.get("blob", {}).get("url")
        everything = universe._unlimited()
        made = contents_for(url) if url else contents_beside(everything.backend)
        life.blobs = BlobPlace(everything, made, _name_store(everything.backend) if url else None)
    place: BlobPlace = life.blobs
    return BlobStore(universe, place)


def _name_store(backend: Any) -> str | None:
    """Return how a store is noted at a place that it shares with others; None where it does not last."""
    reached = getattr(backend, "reachable_store", backend)
    if getattr(reached, "name", "") == "postgres":
        return f"postgres {reached.address.place}"
    path = getattr(reached, "path", None) or getattr(reached, "folder", None)
    return None if path is None else name_user(str(path))


def key_id(key: str) -> str:
    """Return the id of the record of a key: any two keys have different ones, and all are plain."""
    return f"{KEY.name}/{hashlib.sha256(check_key(key).encode()).hexdigest()}"


class BlobStore(BlobCalls):
    """The blobs of a universe: their keys are its records, their bytes are where `contents` has them."""

    def __init__(self, universe: Universe, place: BlobPlace) -> None:
        self._universe = universe.for_room(ROOM, contracts=place.contracts)
        self._asking = universe  # knows the caller's schemas
        self._place, self.contents = place, place.contents
        universe.rooms.add(ROOM)

    async def _declare(self) -> None:
        """Declare the schemas to the store, before the first write: reading must not change it."""
        if not self._place.declared:
            self._universe._undeclared.extend(SCHEMAS)
            await self._universe._ready()
            await self._note_store()
            self._place.declared = True

    async def _note_store(self) -> None:
        """Note this store at a place that others may use too, so that none of them collects its contents."""
        if not self._place.noted and self._place.user is not None:
            await self.contents.note_user(self._place.user)
            self._place.noted = True

    async def _check_own_place(self) -> None:
        """Raise Conflict if other stores keep contents here: theirs would look unused."""
        if self._place.user is not None:
            others = await self.contents.note_user(self._place.user)
            if others:
                raise Conflict(
                    f"{self.contents.place} has contents of other stores too ({', '.join(others)}), so none"
                    " of them is removed",
                    hint="give each store a place of its own: storage.blob.url",
                )

    # -- writing --------------------------------------------------------------------------

    @asynccontextmanager
    async def _writer(self, key: str, content_type: str, expect: Expect) -> AsyncIterator[BlobWriter]:
        expect = self._check_may_write(expect)
        await self._declare()
        async with self.contents.upload() as upload:
            writer = BlobWriter(upload)
            yield writer
            content, known = await upload.publish()
            ops = upload.ops or await self._end_waiting(content, known and expect != NEW)
            writer.info = await self._store_key(key, content, content_type, expect, ops)

    def _check_may_write(self, expect: Expect) -> Expect:
        """Refuse before a byte is taken; who may only add gets a new key or none."""
        gate = self._universe.backend
        check_writable(gate.inner if isinstance(gate, Gate) else gate)
        if isinstance(gate, Gate):
            if gate.principal.trust == "untrusted":
                raise Denied(f"{gate.principal.name} is untrusted and may not write")
            if gate.principal.trust == "conversant" and expect in (None, 0):
                return NEW
        return expect

    async def _store_key(
        self, key: str, content: Content, content_type: str, expect: Expect, others: Sequence[Op]
    ) -> BlobInfo:
        datum = Datum(
            key_id(key),
            data={
                "key": key,
                "content": PREFIX + content.sha256,
                "size": content.size,
                "content_type": content_type,
            },
            schema=KEY.name,
            schema_version=KEY.version,
            author=self._universe.author,
        )
        before = None if expect in (0, NEW) else await self._universe.get(datum.id, raw=True)
        if before is not None:  # the record is as old as its key
            datum = datum.replace(created_at=before.created_at)
        ops = [Put(datum, expect), *others]
        done = (await self._universe.commit(ops, note=f"put blob {_brief(key)}")).written[0]
        at = None if done.at_us is None else clock.from_us(done.at_us)
        return BlobInfo(key, content.sha256, content.size, content_type, at, done.rev)

    async def _end_waiting(self, content: Content, may_wait: bool) -> Sequence[Op]:
        """Return the op by which a content that waits to be collected no longer does."""
        orphan = orphan_id(content.sha256)
        return (Delete(orphan),) if may_wait and await self._unlimited().exists(orphan) else ()

    async def delete(self, key: str, *, expect: Expect = None) -> bool:
        """Delete a key; False when there was none. Its content stays while anything refers to it."""
        return await self._universe.delete(key_id(key), expect=expect, note=f"delete blob {_brief(key)}")

    # -- reading --------------------------------------------------------------------------

    async def info(self, key: Any) -> BlobInfo | None:
        """Return hash, size and type of a blob by its key, or by a `Ref` to its content."""
        if isinstance(key, str):
            found: Datum | None = await self._universe.get(key_id(key), raw=True)
            if found is None:
                return None
            if not self._place.noted:
                await self._note_store()
            return _info_of(found)
        sha256 = find_sha256(getattr(key, "id", None))
        if sha256 is None:
            raise InputError(f"{key!r} is neither a key nor a ref to a blob", field="key")
        if isinstance(self._universe.backend, Gate):
            # Who may see no record with this content may not see the content.
            users = await self._asking.referrers(PREFIX + sha256, limit=1)
            if not users:
                return None
        size = await self.contents.size(sha256)
        kind = check_type(getattr(key, "content_type", None))
        return None if size is None else BlobInfo("", sha256, size, kind)

    async def exists(self, key: Any) -> bool:
        """Return whether there is a blob of a key."""
        return await self.info(key) is not None

    async def get(self, key: Any) -> bytes | None:
        """Return the bytes of a key or a ref, checked by their hash; None where there is no such key."""
        info = await self.info(key)
        if info is None:
            return None
        async with self._reader(info, 0, None) as reader:
            return await reader.read()

    @asynccontextmanager
    async def _reader(self, key: Any, start: int, end: int | None) -> AsyncIterator[BlobReader]:
        info = key if isinstance(key, BlobInfo) and key.rev is not None else await self.info(key)
        if info is None:
            raise NotFound(f"there is no blob {key!r}", hint="`list` shows the keys", key=str(key))
        content = Content(info.sha256, info.size)
        if start or (end is not None and end < info.size):
            if start < 0 or (end is not None and end < start):
                raise InputError(f"{start} to {end} is not a valid range", field="start")
            await self._check_whole(content)
            parts = self.contents.read(info.sha256, start, min(info.size if end is None else end, info.size))
        else:
            parts = check_parts(self.contents.read(info.sha256), content)
        async with aclosing(parts):
            yield BlobReader(info, parts)

    async def _check_whole(self, content: Content) -> None:
        """Check a content before a part of it is read; once, as long as its bytes are the same ones."""
        stamp, checked = await self.contents.stamp(content.sha256), self._place.checked
        if stamp is not None and checked.get(content.sha256) == stamp:
            return
        async with aclosing(check_parts(self.contents.read(content.sha256), content)) as parts:
            async for _ in parts:
                pass
        checked[content.sha256] = stamp
        if len(checked) > MOST_CHECKED:
            del checked[next(iter(checked))]

    async def list(
        self, prefix: str = "", *, after: str | None = None, limit: int = 1000
    ) -> builtins.list[BlobInfo]:
        """Return a page of blobs in the order of their keys: those after a key, if one is given."""
        if type(limit) is not int or not 1 <= limit <= MAX_LIMIT:
            raise InputError(f"limit must be 1 to {MAX_LIMIT:,}, not {limit!r}", field="limit")
        where: dict[str, Any] = {}
        if prefix:
            where["$prefix"] = check_key(prefix)
        if after is not None:
            where["$gt"] = after
        wanted = Query(
            schema=KEY.name,
            where={"key": where} if where else None,
            order_by="key",
            descending=False,
            limit=limit,
        )
        return [_info_of(each) for each in await self._universe.query(wanted, raw=True)]

    async def references(self, key: Any) -> int:
        """Return how many keys and records refer to the content of a blob."""
        info = await self.info(key)
        return 0 if info is None else len(await self._universe.referrers(info.id, limit=None))

    # -- removing -------------------------------------------------------------------------

    async def collect(self, *, grace: timedelta = GRACE, dry_run: bool = False) -> Collected:
        """Remove contents that nothing refers to, once they have been so for the time of grace.

        The first collection that finds one notes the time; a later one removes it. With a grace of 0 they go
        at once. A content that is being stored is never removed, whatever the grace.
        """
        if dry_run:
            self._check_may_read()
        else:
            self._check_alone("collect blobs")
        if grace < timedelta(0):
            raise InputError(f"grace must not be negative, and was {grace}", field="grace")
        await self._check_own_place()
        removed = removed_bytes = waiting = kept = 0
        after = ""
        while found := await self.contents.list(after, BATCH):
            after = found[-1]
            orphans = await self._find_orphans(found)
            kept += len(found) - len(orphans)
            due = await self._note_orphans(found, orphans, grace, dry_run)
            waiting += len(orphans) - len(due)
            for sha256 in due:
                size = await self.contents.size(sha256) or 0
                if dry_run or await self._remove(sha256):
                    removed, removed_bytes = removed + 1, removed_bytes + size
                else:
                    kept += 1
        leftovers = 0 if dry_run else await self.contents.sweep()
        return Collected(removed, removed_bytes, waiting, kept, leftovers)

    async def _note_orphans(
        self, found: builtins.list[str], orphans: builtins.list[str], grace: timedelta, dry_run: bool
    ) -> builtins.list[str]:
        """Record which contents are orphans and since when; return those whose time is over."""
        if not grace:
            return orphans
        noted: dict[str, Datum] = {}
        for start in range(0, len(found), PAGE):
            ids = [orphan_id(each) for each in found[start : start + PAGE]]
            known = await self._universe.get_many(ids, raw=True)
            noted |= {each.data["content"]: each for each in known if each is not None}
        now = clock.now()
        ops: builtins.list[Op] = [Delete(orphan_id(each)) for each in noted if each not in orphans]
        ops += [note_orphan(each, clock.to_us(now)) for each in orphans if each not in noted]
        if ops and not dry_run:
            await self._declare()
            for start in range(0, len(ops), PAGE):
                await self._universe.commit(ops[start : start + PAGE], note="collect blobs")
        return [
            each
            for each in orphans
            if each in noted and clock.from_us(noted[each].data["since_us"]) + grace <= now
        ]

    async def _remove(self, sha256: str) -> bool:
        removed = await self.contents.remove(sha256, lambda: self._is_used(sha256))
        if removed:
            await self._universe.delete(orphan_id(sha256))
        return removed

    async def _find_orphans(self, hashes: Iterable[str]) -> builtins.list[str]:
        """Return the contents among some that nothing refers to.

        The index knows the references of declared schemas. A copy of a store declares none until a program
        uses them there, so the records of all others are searched: what is in doubt stays.
        """
        orphans = dict.fromkeys([each for each in hashes if not await self._is_used(each)])
        if orphans:
            everything = self._unlimited()
            linked = {each.name for each in await everything.schemas() if each.refs}
            async for datum in everything.iterate(Query(limit=None, content=False), raw=True):
                if datum.schema not in linked:
                    for sha256 in hashes_in(datum.data):
                        orphans.pop(sha256, None)
        return [*orphans]

    async def _is_used(self, sha256: str) -> bool:
        return bool(await self._unlimited().backend.referrers(PREFIX + sha256, 1))

    async def forget(self, *keys: str) -> int:
        """Erase keys with their history, and contents that nothing else refers to; return how many keys.

        A content that another process is storing at this very moment stays: it is that one's by now.
        """
        self._check_alone("forget")
        return (await self._universe.forget(*map(key_id, keys))).records

    async def drop(self, hashes: Iterable[str]) -> int:
        """Remove contents at once, of those that nothing refers to any more; return how many."""
        self._check_alone("remove contents of blobs")
        orphans = await self._find_orphans(dict.fromkeys(hashes))
        if orphans:
            await self._check_own_place()
        removed = sum([await self._remove(each) for each in orphans])
        # No bytes in free pages, and no hash, by which one could guess them; what was stored again stays.
        traces = [make(each) for each in orphans for make in (content_id, orphan_id)]
        if traces:
            await self._unlimited().backend.forget(traces, self._universe.author, ROOM, True)
        return removed

    def _check_may_read(self) -> None:
        gate = self._universe.backend
        if isinstance(gate, Gate) and gate.principal.trust == "untrusted":
            raise Denied(f"{gate.principal.name} is untrusted and may not read")

    def _check_alone(self, what: str) -> None:
        gate = self._universe.backend
        if isinstance(gate, Gate):
            raise Denied(f"{gate.principal.name} is {gate.principal.trust} and may not {what}")

    def _unlimited(self) -> Universe:
        return self._universe._unlimited()

    async def close(self) -> None:
        """Close the connections of the contents, if they have some; they open again when they are used."""
        await self.contents.close()


@asynccontextmanager
async def drop_unused(universe: Universe, ids: Sequence[str]) -> AsyncIterator[None]:
    """Remove, after records were forgotten, the contents that nothing else refers to."""
    everything = universe._unlimited()
    if not getattr(everything.backend, "holds_rooms", True) or universe.degraded is not None:
        yield  # the server does it, or the replay of what is pending
        return
    hashes = await find_contents(everything, ids) if await _has_contents(everything) else []
    yield
    if hashes:
        await open_blobs(everything).drop(hashes)


async def _has_contents(universe: Universe) -> bool:
    """Return False if no blob was ever stored, as far as that is quickly seen."""
    if universe.blob_folder is None or os.path.isdir(universe.blob_folder):
        return True
    return bool(await universe.query(Query(schema=CONTENT.name, limit=1, content=False), raw=True))


async def find_contents(universe: Universe, ids: Iterable[str]) -> list[str]:
    """Return the hashes of all contents that kept versions of some records refer to."""
    found: dict[str, None] = {}
    for id in ids:
        for version in await universe.history(id):
            if version.datum is not None:
                found |= dict.fromkeys(hashes_in(version.datum.data))
    return [*found]


def hashes_in(data: Any) -> Iterable[str]:
    """Yield the hashes of contents that are named anywhere in some data."""
    if isinstance(data, str):
        sha256 = find_sha256(data)
        if sha256 is not None:
            yield sha256
    elif isinstance(data, dict):
        for value in data.values():
            yield from hashes_in(value)
    elif isinstance(data, list | tuple):
        for value in data:
            yield from hashes_in(value)


def _info_of(datum: Datum) -> BlobInfo:
    data = datum.data
    sha256 = find_sha256(data.get("content"))
    if sha256 is None or type(data.get("size")) is not int or not isinstance(data.get("key"), str):
        raise make_damage_error("?", f"the record {datum.id} of its key cannot be read")
    return BlobInfo(
        data["key"], sha256, data["size"], check_type(data.get("content_type")), datum.updated_at, datum.rev
    )


def _brief(key: str) -> str:
    return repr(key if len(key) <= 80 else key[:79] + "…")
