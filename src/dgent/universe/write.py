"""Turn the values, crystals and datums of callers into ops."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from time import time_ns
from typing import Any, Literal, TypeAlias

from dgent import clock, codec, ids
from dgent.errors import InputError, VersionConflict
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum, make_fresh, stamp
from dgent.model.schema import Schema
from dgent.store.backend import Backend, Commit, Committed, Expect, Put
from dgent.store.engine.fresh import FreshKind
from dgent.system.collector import pause
from dgent.universe.contract import Contracts

_STORED = (Crystal, Datum)
_SETS = (frozenset, set, list, tuple, type(None))  # of tags, that can be read twice

Read: TypeAlias = Literal["read"]
"""An expectation of an update: the rev at which the crystal was read."""


def new_datum(
    contracts: Contracts,
    value: Any,
    *,
    schema: str | type | Schema[Any] | None = None,
    id: str | None = None,
    tags: Iterable[str] | None = None,
    author: str | None = None,
    source: str | None = None,
    parent: Any = None,
    content: bytes = b"",
    created_at: datetime | None = None,
    expires_at: datetime | None = None,
    key: str | None = None,
) -> tuple[Datum, Any]:
    """Return the datum of a new value, and the value as everyone will read it.

    A dict without a schema becomes a plain datum.
    """
    if isinstance(value, _STORED):
        raise InputError("remember takes a value", hint="use store for crystals and put for datums")
    name, version = None, None
    if schema is None and isinstance(value, dict):
        data = settled = codec.plain(value)
    else:
        known = contracts.of_type(type(value)) if schema is None else contracts.find(schema)
        name, version = known.name, known.version
        data, settled = known.shape.settle(value)
    if id is None:
        id = ids.new_id() if key is None else keyed_id(name or "", key)
    elif type(id) is not str:
        id = ids.check_id(id)
    datum = Datum(
        id,
        clock.now() if created_at is None else created_at,
        data,
        content,
        frozenset() if tags is None else ids.check_tags(tags),
        author,
        source,
        None if parent is None else id_of(parent),
        name,
        version,
        expires_at=expires_at,
    )
    return set_expiry(contracts, datum) if contracts.lifetimes else datum, settled


def set_expiry(contracts: Contracts, datum: Datum) -> Datum:
    """Return a datum with its time of expiry, if records of its schema live for a time.

    A new one keeps the time that it has; one that was read from a store gets a new time.
    """
    lifetime = contracts.lifetimes.get(datum.schema or "")
    if lifetime is None or (datum.rev is None and datum.expires_at is not None):
        return datum
    return datum.replace(expires_at=clock.from_us(clock.now_us()) + lifetime)


def fresh_op(
    contracts: Contracts, value: Any, tags: Iterable[str] | None, author: str, expect: Expect
) -> Put | None:
    """Return the op that stores a value of scalar fields under an id of its own; None for any other value.

    It does what `new_datum` does, in fewer steps: most of what agents remember is of this kind.
    """
    schema = contracts.only_of(type(value))
    if contracts.lifetimes and schema is not None and schema.name in contracts.lifetimes:
        return None
    found = None if schema is None else schema.shape.settle_flat(value)
    if schema is None or found is None:
        return None
    data, raw = found
    checked = frozenset() if tags is None else ids.check_tags(tags)
    now = time_ns() // 1000
    datum = make_fresh(ids.new_id(), now, data, checked, author, schema.name, schema.version)
    return Put(datum, expect, None, True, raw)


class FreshKinds:
    """The kinds of records that a universe puts together with others."""

    def __init__(self) -> None:
        self._known: dict[tuple[type, str, str | None], tuple[Schema[Any], FreshKind]] = {}

    def put(
        self,
        backend: Backend,
        contracts: Contracts,
        value: Any,
        tags: Any,
        author: str,
        room: str | None,
        texts: Mapping[str, int],
    ) -> asyncio.Future[Datum | None] | None:
        """Put a value of scalar fields with others of this turn of the loop; None to put it by itself.

        The future gives None if it has to be put by itself after all. Records of schemas in `texts` are.
        """
        put: Any = getattr(backend, "put_fresh", None)
        if put is None or not backend.has_company():  # type: ignore[attr-defined]
            return None
        schema = contracts.only_of(type(value)) if type(tags) in _SETS else None
        if contracts.lifetimes and schema is not None and schema.name in contracts.lifetimes:
            return None
        data = None if schema is None or schema.name in texts else schema.shape.copy_flat(value)
        if schema is None or data is None:
            return None
        name = type(value), author, room
        known = self._known.get(name)
        if known is None or known[0] is not schema:
            commit, encode = Commit((), author=author, room=room), schema.shape.encode_flat
            kind = FreshKind(schema.name, schema.version, commit, encode, [False])
            known = self._known[name] = schema, kind
        try:
            given = tags if type(tags) is frozenset else frozenset(tags or ())
        except TypeError:
            return None  # something that cannot be in a set; the usual way says so
        answer: asyncio.Future[Datum | None] | None = put(known[1], data, given)
        return answer


def keyed_id(schema: str, key: str) -> str:
    """Return the id of a record remembered under an idempotency key: the same for a retry."""
    return codec.blake2b(f"{schema}\0{key}".encode(), size=16).hexdigest()


def id_of(thing: Any) -> str | None:
    """Return the id of a crystal, datum or ref; an id comes back as it is."""
    found: str | None = getattr(thing, "id", thing)
    return found


def put_op(contracts: Contracts, datum: Datum, expect: Expect, plain: bool = False) -> Put:
    """Return the op that stores a datum, with its index shape when it is of an older version."""
    if not isinstance(datum, Datum):
        raise InputError(f"put takes a Datum, not {type(datum).__name__}", hint="use remember for values")
    if datum.problem is not None:
        datum = datum.replace(problem=None)
    if type(datum.id) is not str:
        datum = datum.replace(id=ids.check_id(datum.id))
    if contracts.lifetimes:
        datum = set_expiry(contracts, datum)
    version = contracts.version(datum.schema) if isinstance(datum.schema, str) else None
    if version is not None and datum.schema_version != version and isinstance(datum.data, dict):
        return Put(datum, expect, contracts.index_shape(datum), plain)
    return Put(datum, expect, None, plain)


def add_author(op: Put, author: str) -> Put:
    """Return the op with an author where its datum names none."""
    if op.datum.author is not None:
        return op
    return Put(op.datum.replace(author=author), op.expect, op.indexed, op.plain)


def store_op(contracts: Contracts, thing: Any, expect: Expect) -> tuple[Put, Any]:
    """Return the op that stores a crystal or a datum, and the crystal's value as everyone will read it."""
    if isinstance(thing, Crystal):
        schema = contracts.by_name(thing.schema_name)
        if schema is None:
            raise InputError(f"the schema {thing.schema_name!r} is not registered here")
        datum, settled = thing.settle(schema)
        if contracts.lifetimes:
            datum = set_expiry(contracts, datum)
        return Put(datum, expect, None, True), settled
    if isinstance(thing, Datum):
        return put_op(contracts, thing, expect), None
    raise InputError(f"store takes a Crystal or a Datum, not {type(thing).__name__}", hint="use remember")


def update_op(
    contracts: Contracts, crystal: Any, fields: Mapping[str, Any], expect: Expect | Read
) -> tuple[Put, Any]:
    """Return the op that stores a crystal with fields of its value changed, and the value as it will be read.

    `"read"` expects the rev at which the crystal was read.
    """
    if not isinstance(crystal, Crystal):
        raise InputError(
            f"update takes a Crystal, not {type(crystal).__name__}",
            hint="get the record first, so that a change made since then is noticed",
        )
    if expect == "read":
        expect = crystal.rev
        if expect is None:
            raise InputError(
                f"{crystal.id!r} was never read from the store, so it has no rev to compare with",
                hint="get it again after it is committed, or pass expect=None",
            )
    schema = contracts.by_name(crystal.schema_name)
    value = crystal.value if schema is None else schema.shape.change(crystal.value, fields)
    return store_op(contracts, crystal.replace(value=value), expect)


def add_update_hint(error: VersionConflict) -> None:
    """Say what to do when somebody else changed a record first."""
    error.hint = "get it again and repeat the update, or pass expect=None to overwrite"


async def apply_written(
    backend: Backend, datums: Sequence[Datum], done: Committed, author: str
) -> list[Datum]:
    """Return the datums of a commit's last puts as it stored them, with the creation time of each record."""
    written = done.written[-len(datums) :]
    with pause(len(datums)):
        stored = [
            stamp(datum, mine.rev, mine.seq, mine.at_us, author)
            for datum, mine in zip(datums, written, strict=True)
        ]
        old = {
            datum.id: place
            for place, (datum, mine) in enumerate(zip(datums, written, strict=True))
            if datum.rev is None and (mine.rev > 1 or done.repeated or not mine.changed)
        }
    if old:
        # A record keeps the time of its first version, also if a later one has another.
        at_hand: Backend = getattr(backend, "at_hand", backend)  # the receipt is of what is at hand
        for first in await at_hand.get_many(list(old)):
            if first is not None:
                place = old[first.id]
                stored[place] = stored[place].replace(created_at=first.created_at)
    return stored
