"""The owner of a record: rooms own schemas, and the ids below their names and below their records."""

from __future__ import annotations

from collections.abc import Mapping

from dgent.errors import Denied
from dgent.model import reserved
from dgent.store.backend import EVERY_ROOM
from dgent.store.engine.kernel import Reading
from dgent.store.engine.row import EncodedDatum, Row

UNREAD: Mapping[str, Row | None] = {}


def owner_of_schema(reading: Reading, schema: str) -> str | None:
    """Return the room that alone writes a schema; None when anybody may."""
    state = reading.state(schema)
    declared = None if state is None else state.owner
    return declared or reserved.OWNERS.get(schema)


def owner_of_id(reading: Reading, id: str, heads: Mapping[str, Row | None] = UNREAD) -> str | None:
    """Return the room that owns an id by the part before its first slash; None when nobody does.

    That part is the name of a schema with an owner, or the id of a record of such a schema, also of one that
    was deleted: records that belong to another record have an id below it. `heads` are records read before.
    """
    if id.startswith(reserved.BUILTIN):
        return reserved.BUILTIN_OWNER
    root, slash, _ = id.partition("/")
    if not slash or not root:
        return None
    owner = reserved.ROOTS.get(root) or owner_of_schema(reading, root)
    if owner is None and (head := heads[root] if root in heads else reading.head(root)) is not None:
        owner = owner_of_schema(reading, reading.name(head.schema))
    return owner


def check_owner(
    reading: Reading,
    id: str,
    head: Row | None,
    made: EncodedDatum | None,
    room: str | None,
    heads: Mapping[str, Row | None] = UNREAD,
) -> None:
    """Refuse to write a record of another room: by its schema, now or before, or by its id.

    A deleted record still belongs to its room. Removing a foreign record from among a room's ids is allowed.
    """
    if room == EVERY_ROOM:
        return
    schemas = [] if made is None else [made.schema]
    if head is not None and (head.live or made is not None):
        schemas.append(reading.name(head.schema))
    for schema in schemas:
        owner = owner_of_schema(reading, schema)
        if owner is not None and owner != room:
            raise Denied(
                f"{id!r} is of the schema {schema!r}, which only the room {owner!r} writes",
                hint=f"use the {owner} operations",
                id=id,
                schema=schema,
            )
    if made is not None and reserved.may_be_of_room(id):
        owner = owner_of_id(reading, id, heads)
        if owner is not None and owner != room:
            raise Denied(
                f"{id!r} is among the ids of the room {owner!r}",
                hint="choose another id, without a slash",
                id=id,
            )


def is_foreign(
    reading: Reading,
    id: str,
    head: Row | None,
    room: str | None,
    heads: Mapping[str, Row | None] = UNREAD,
) -> bool:
    """Return whether a record that is not the room's has one of its ids: to the room it does not exist."""
    if room is None or head is None or not head.live:
        return False
    owner = owner_of_schema(reading, reading.name(head.schema))
    return owner != room and owner_of_id(reading, id, heads) == room
