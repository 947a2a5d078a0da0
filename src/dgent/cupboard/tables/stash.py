"""The stash: state that crumbs share, with a version and a history."""

from __future__ import annotations

import asyncio
import copy
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, ClassVar

from dgent import clock, codec, ids
from dgent.cupboard import errors, lease
from dgent.cupboard.change import Changeset, check_entity_id, is_same_record
from dgent.cupboard.kind import STASH_TYPES
from dgent.cupboard.lease import check_lease, read_lease_end, read_lock, read_token
from dgent.cupboard.record import STASH, LinkRecord, StashRecord
from dgent.cupboard.tables.entity import Propertied
from dgent.cupboard.tables.link import add_link
from dgent.cupboard.tables.scope import check_stash_name, find_scope
from dgent.cupboard.tables.table import Table
from dgent.errors import VersionConflict
from dgent.universe.lease import LEASE_S, send_heartbeats


@dataclass
class Stash(Propertied):
    """A resource, an artifact, a context, a counter or a lock.

    The methods change it in memory, and `stashes.set` stores it unless it was changed meanwhile. For one
    atomic step between programs use the methods of the table: `stashes.increment`, `acquire`, …
    """

    name: str = ""
    stash_type: str = ""
    value: Any = None
    changed_by: str | None = None
    version: int = field(default=1, kw_only=True)
    updated_at: datetime | None = field(default=None, kw_only=True)
    last_operation: str = field(default="", kw_only=True)

    SCOPE: ClassVar[str] = "stash"
    OWN: ClassVar[tuple[str, ...]] = (
        "name",
        "stash_type",
        "value",
        "changed_by",
        "version",
        "properties",
        "extra",
    )

    @property
    def stash_id(self) -> str:
        """The same as `id`."""
        return self.id

    def get_value(self) -> Any:
        """Return its value; None for a free lock."""
        return self.value

    def set_value(self, value: Any) -> None:
        """Set its value in memory; a lock is acquired and released instead."""
        if self.stash_type == "lock":
            raise errors.InvalidStashType("a lock has no value to set", hint="acquire or release it")
        self.value = copy.deepcopy(value)
        self._record_operation("set")

    def increment(self, delta: int = 1) -> int:
        """Add to a counter in memory, and return its new value."""
        self.value = {"value": compute_increment(self, delta)}
        self._record_operation("increment")
        found: int = self.value["value"]
        return found

    def acquire(self, holder: str, *, lease_s: float | None = None) -> None:
        """Acquire a lock in memory; nothing changes if the holder has it already."""
        value = make_lock_value(self, holder, lease_s)
        if value is not None:
            self.value = value
            self._record_operation("acquire")

    def release(self, holder: str) -> None:
        """Release a lock in memory."""
        check_holder(self, holder)
        self.value = None
        self._record_operation("release")

    def _record_operation(self, operation: str) -> None:
        self.version += 1
        self.last_operation = operation
        self.updated_at = clock.now()


@dataclass(frozen=True)
class StashHistoryEntry:
    """One version of a stash: its value after the operation that made it."""

    history_id: str
    stash_id: str
    version: int
    value: Any
    operation: str
    changed_by: str | None
    created_at: datetime


def check_type(stash: Any, wanted: str, operation: str) -> None:
    """Refuse an operation that this type of stash does not have; raises InvalidStashType."""
    if stash.stash_type != wanted:
        raise errors.InvalidStashType(
            f"{operation} is for a {wanted}, and {stash.name!r} is a {stash.stash_type}"
        )


def compute_increment(stash: Any, delta: int) -> int:
    """Return the new value of a counter; a missing or invalid value counts as 0."""
    check_type(stash, "counter", "increment")
    if type(delta) is not int:
        raise errors.TypeMismatch(f"expected a whole number to add to a counter, got {delta!r}")
    now = stash.value.get("value") if isinstance(stash.value, dict) else stash.value
    total = (now if type(now) is int else 0) + delta
    if not -(2**63) <= total < 2**63:
        raise errors.InvalidData(f"the counter {stash.name!r} would not fit into 64 bits")
    return total


def make_lock_value(stash: Any, holder: str, lease_s: float | None, ended: bool | None = None) -> Any:
    """Return the value of a lock for a new holder; None if it holds it already. LockHeld while another does.

    `ended` says whether the current lease has expired, where the caller knows of heartbeats.
    """
    check_type(stash, "lock", "acquire")
    if not isinstance(holder, str) or not holder:
        raise errors.InvalidHolder("a lock needs the name of its holder", field="holder")
    length = None if lease_s is None else check_lease(lease_s)
    now = clock.now()
    held = stash.value if isinstance(stash.value, dict) else {}
    until = read_lease_end(held)
    if ended is None:
        ended = until is not None and until <= now
    if held.get("holder") and not ended:
        if held["holder"] == holder:
            return None
        raise errors.LockHeld(
            f"{stash.name!r} is held by {held['holder']!r}"
            + ("" if until is None else f" until {clock.text(until)}"),
            holder=held["holder"],
        )
    value = {"holder": holder, "acquired_at": clock.text(now), "token": stash.version + 1}
    if length is not None:
        value["lease_until"] = clock.text(now + length)
    return value


def check_holder(stash: Any, holder: str) -> None:
    """Raise NotLockHolder unless the holder has the lock."""
    check_type(stash, "lock", "release")
    held = stash.value.get("holder") if isinstance(stash.value, dict) else None
    if held is None or held != holder:
        who = f"held by {held!r}" if held else "free"
        raise errors.NotLockHolder(f"{holder!r} does not hold {stash.name!r}, which is {who}")


Step = Callable[[Changeset, StashRecord], Awaitable[StashRecord]]


class Stashes(Table[Stash]):
    """Shared state, oldest first."""

    name = "stashes"
    noun = "stash"
    alias = "stash_id"
    entity = Stash
    schema = STASH
    columns: ClassVar[Mapping[str, str]] = {
        "id": "texts",
        "stash_id": "texts",
        "name": "texts",
        "stash_type": "texts",
        "version": "whole",
        "value": "any",
        "changed_by": "text",
        "properties": "map",
        "created_at": "time",
        "updated_at": "time",
    }

    async def create(
        self,
        name: str,
        stash_type: str,
        value: Any = None,
        *,
        trail: str | None = None,
        changed_by: str | None = None,
    ) -> Stash:
        """Make a stash, scoped to a trail if one is given, in one commit."""
        made = Stash(name, stash_type, value, changed_by)
        id = ids.new_id()

        async def work(changeset: Changeset) -> None:
            await self._judge(changeset, id, made, None)
            if trail is None:
                await check_stash_name(changeset, id, None)
            else:
                await add_link(changeset, ids.new_id(), LinkRecord("scoped_to", id, check_entity_id(trail)))

        _, changeset = await self._cupboard._change(work, f"stash {name}"[:200])
        self._write_back(made, id, changeset)
        return made

    # -- atomic steps -------------------------------------------------------------------------

    async def set_value(
        self, id: str, value: Any, *, changed_by: str | None = None, expected_version: int | None = None
    ) -> Stash:
        """Set the value of a stash, which must not be a lock."""

        async def step(_changeset: Changeset, stash: StashRecord) -> StashRecord:
            if stash.stash_type == "lock":
                raise errors.InvalidStashType("a lock has no value to set", hint="acquire or release it")
            return replace(stash, value=codec.plain(value))

        return await self._operate(id, "set", step, changed_by, expected_version)

    async def increment(
        self,
        id: str,
        delta: int = 1,
        *,
        changed_by: str | None = None,
        expected_version: int | None = None,
    ) -> int:
        """Add to a counter atomically and return its new value."""

        async def step(_changeset: Changeset, stash: StashRecord) -> StashRecord:
            return replace(stash, value={"value": compute_increment(stash, delta)})

        done = await self._operate(id, "increment", step, changed_by, expected_version)
        total: int = done.value["value"]
        return total

    async def acquire(
        self,
        id: str,
        holder: str,
        *,
        lease_s: float | None = LEASE_S,
        changed_by: str | None = None,
        expected_version: int | None = None,
    ) -> int:
        """Acquire a lock for the length of a lease, and return the fencing token.

        The token grows with every new holder, so that the guarded resource can refuse a smaller one. Raises
        LockHeld while another holder has it. `heartbeat` extends the lease; with None it does not expire.
        """

        async def step(changeset: Changeset, stash: StashRecord) -> StashRecord:
            value = make_lock_value(stash, holder, lease_s, await _has_expired(changeset, id, stash))
            return stash if value is None else replace(stash, value=value)

        done = await self._operate(id, "acquire", step, changed_by, expected_version)
        return read_token(done)

    async def heartbeat(self, id: str, holder: str, *, lease_s: float = LEASE_S) -> datetime:
        """Renew the lease on a lock from now on and return its end; raises NotLockHolder when it was lost."""
        wanted, length = check_entity_id(id), lease.check_lease(lease_s)

        async def work(changeset: Changeset) -> datetime:
            stash = await changeset.get(StashRecord, wanted, self.noun)
            check_holder(stash, holder)
            if await _has_expired(changeset, wanted, stash):
                raise errors.NotLockHolder(f"the lease of {holder!r} on {stash.name!r} has expired")
            return await lease.extend_lease(changeset, wanted, holder, read_token(stash), length)

        until, _ = await self._cupboard._change(work, None)
        return until

    async def release(
        self, id: str, holder: str, *, changed_by: str | None = None, expected_version: int | None = None
    ) -> None:
        """Release a lock; raises NotLockHolder unless the holder has it."""

        async def step(_changeset: Changeset, stash: StashRecord) -> StashRecord:
            check_holder(stash, holder)
            return replace(stash, value=None)

        await self._operate(id, "release", step, changed_by, expected_version)

    @asynccontextmanager
    async def held(self, id: str, holder: str, *, lease_s: float = LEASE_S) -> AsyncIterator[int]:
        """Hold a lock for a block of code, with heartbeats: `async with stashes.held(id, "me") as token`."""
        since = asyncio.get_running_loop().time()
        token = await self.acquire(id, holder, lease_s=lease_s)
        beating = send_heartbeats(lambda: self.heartbeat(id, holder, lease_s=lease_s), lease_s, since)
        async with beating:
            try:
                yield token
            except BaseException:
                with suppress(errors.NotLockHolder, errors.EntityNotFound):  # what went wrong says more
                    await self.release(id, holder)
                raise
            await self.release(id, holder)

    async def history(self, id: str) -> list[StashHistoryEntry]:
        """Return the versions of a stash, oldest first; none if the stash does not exist."""
        return [_make_history_entry(id, record) for record in await self.records(id)]

    async def records(self, id: str) -> list[StashRecord]:
        """Return the records of a stash, one for each version, oldest first."""
        universe = await self._cupboard._ready()
        wanted = check_entity_id(id)
        if not await universe.exists(wanted):
            return []
        entries: dict[int, StashRecord] = {}
        for version in reversed(await universe.history(wanted)):
            crystal = None if version.datum is None else universe.contracts.lenient(version.datum)
            record = getattr(crystal, "value", None)
            if record is None:
                entries.clear()  # deleted; later versions are of another stash
            elif isinstance(record, StashRecord):
                entries.pop(record.version, None)
                entries[record.version] = record
        return list(entries.values())

    # -- storing ------------------------------------------------------------------------------

    def _fill(self, entity: Stash, record: StashRecord) -> None:
        super()._fill(entity, record)
        entity.last_operation = record.operation

    async def _operate(
        self, id: str, operation: str, step: Step, changed_by: str | None, expected: int | None
    ) -> Stash:
        wanted = check_entity_id(id)

        async def work(changeset: Changeset) -> None:
            stash = await changeset.get(StashRecord, wanted, self.noun)
            self._check_version(changeset, wanted, stash, expected)
            changed = await step(changeset, stash)
            if changed is not stash:
                await self._put(changeset, wanted, changed, operation, changed_by, stash.version + 1)

        _, changeset = await self._cupboard._change(work, f"{operation} stash {wanted}")
        stash = self.entity()
        self._write_back(stash, wanted, changeset)
        return stash

    async def _put(
        self,
        changeset: Changeset,
        id: str,
        stash: StashRecord,
        operation: str,
        changed_by: str | None,
        version: int,
    ) -> None:
        done = replace(
            stash,
            version=version,
            operation=operation,
            changed_by=changed_by,
            updated_at=changeset.now,
            history_id=ids.new_id(),
        )
        changeset.put(id, done)
        held = read_lock(done)
        if operation == "acquire" and (until := read_lease_end(held)) is not None:
            length = max(until - changeset.now, lease.SHORTEST)
            await lease.extend_lease(changeset, id, held["holder"], read_token(done), length)

    async def _write(self, changeset: Changeset, id: str, entity: Stash, old: StashRecord | None) -> None:
        if await self._judge(changeset, id, entity, old):
            await check_stash_name(changeset, id, await find_scope(changeset, id))

    async def _judge(self, changeset: Changeset, id: str, entity: Stash, old: StashRecord | None) -> bool:
        """Check a stash and put it into a changeset; return whether its name is new there."""
        base = self._base(changeset, id, entity)
        if old is not None and base is not None:
            self._check_version(changeset, id, old, base["version"])
        fields = self._merge_fields(changeset, id, entity, old)
        _check_fields(fields)
        fields["properties"] = changeset.definitions.encode_values("stash", fields["properties"])
        fields["value"] = codec.plain(fields["value"])  # as it will be read again
        version = fields.pop("version")
        if old is None:
            if fields["value"] is None and fields["stash_type"] == "counter":
                fields["value"] = {"value": 0}
            made_at = entity._creation_time(changeset.now)
            made = StashRecord(**fields, updated_at=made_at, history_id=ids.new_id())
            changeset.put(id, made, created_at=made_at)
            return True
        if old.stash_type != fields["stash_type"]:
            raise errors.InvalidStashType(
                f"{old.name!r} is a {old.stash_type}, which cannot be changed", hint="make another stash"
            )
        changed = replace(old, **fields)
        operated = base is not None and version > base["version"]  # also when the value is the same again
        if is_same_record(changed, old) and not operated:
            return False
        await _check_lock(changeset, id, old, changed)
        operation = entity.last_operation if operated and entity.last_operation else "set"
        await self._put(
            changeset, id, changed, operation, fields["changed_by"], max(version, old.version + 1)
        )
        return bool(changed.name != old.name)

    def _check_version(self, changeset: Changeset, id: str, old: Any, expected: int | None) -> None:
        version = 0 if old is None else old.version
        if expected is not None and version != expected:
            raise VersionConflict(
                f"the stash {id!r} is at version {version}, not {expected}",
                hint="get it again, and decide",
                id=id,
                version=version,
            )

    async def _remove(self, changeset: Changeset, id: str) -> None:
        """Delete a stash; refused while it is a lock that is held."""
        stash = changeset.record(id)
        held = read_lock(stash)
        if stash.stash_type == "lock" and held.get("holder") and not await _has_expired(changeset, id, stash):
            raise errors.LockHeld(f"{stash.name!r} is held by {held['holder']!r}", holder=held["holder"])
        for link_id in await changeset.links("from_id", id):
            changeset.drop(link_id)
        await lease.drop_leases(changeset, [id] if read_token(stash) else [])
        changeset.drop(id)


def _check_fields(fields: dict[str, Any]) -> None:
    """Check the name, the type and the version of a stash."""
    name, stash_type, version = fields["name"], fields["stash_type"], fields["version"]
    if not isinstance(name, str) or not name:
        raise errors.InvalidName("a stash needs a name", field="name")
    if stash_type not in STASH_TYPES:
        raise errors.InvalidStashType(
            f"{stash_type!r} is not a valid type of stash", hint=f"use one of {', '.join(STASH_TYPES)}"
        )
    if type(version) is not int or version < 1:
        raise errors.InvalidData(
            f"expected a whole number from 1 as version, got {version!r}", field="version"
        )


async def _check_lock(changeset: Changeset, id: str, old: StashRecord, new: StashRecord) -> None:
    """Refuse another holder for a lock whose lease was renewed after the caller read it."""
    holder = read_lock(old).get("holder") if old.stash_type == "lock" else None
    if not holder or read_lock(new).get("holder") in (None, holder):
        return
    if not await _has_expired(changeset, id, old):
        raise errors.LockHeld(f"{old.name!r} is held by {holder!r}", holder=holder)


async def _has_expired(changeset: Changeset, id: str, lock: Any) -> bool:
    return await lease.has_expired(changeset, id, read_token(lock), read_lease_end(read_lock(lock)))


def _make_history_entry(id: str, record: StashRecord) -> StashHistoryEntry:
    return StashHistoryEntry(
        record.history_id,
        id,
        record.version,
        record.value,
        record.operation,
        record.changed_by,
        record.updated_at,
    )
