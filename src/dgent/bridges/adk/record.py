"""The records of ADK's services: their schemas, their ids, and how a change of them is tried again.

All that belongs to a user is below ids that begin with the app and the user, so that it is found together.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from google.adk.sessions import _session_util

from dgent import clock, codec, ids
from dgent.errors import InputError, VersionConflict
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.store.backend import Op
from dgent.universe.universe import Universe

R = TypeVar("R")

SESSION: Schema[Any] = Schema("adk.session", indexes=("user",))
STATE: Schema[Any] = Schema("adk.state", indexes=("user",))
EVENT: Schema[Any] = Schema("adk.event", indexes=("user", "event"), text={"text": 1})
MEMORY: Schema[Any] = Schema("adk.memory", indexes=("user", "owner", "memory"), text={"text": 1})
ARTIFACT: Schema[Any] = Schema("adk.artifact", indexes=("user",), text={"text": 1})
SCHEMAS = (SESSION, STATE, EVENT, MEMORY, ARTIFACT)

ATTEMPTS = 64  # at a change while other processes change the same records
MAX_PART = 64  # bytes of a name in an id; a longer one is hashed


def make_id(schema: Schema[Any], *names: str) -> str:
    """Return the id of a record: readable where names are short and plain, and never the same for others."""
    return "/".join((schema.name, *map(make_part, names)))


def make_part(name: str) -> str:
    """Return a name as part of an id; none is "~a" and its like, by which the parts below are told apart."""
    raw = ids.escape(name).encode(errors="surrogatepass")
    if name.isprintable() and 0 < len(raw) <= MAX_PART:  # half a character is not printable
        return raw.decode()
    return "~h" + codec.blake2b(raw, size=16).hexdigest()


def make_datum(
    universe: Universe,
    schema: Schema[Any],
    id: str,
    data: dict[str, Any],
    content: bytes = b"",
    parent: str | None = None,
    before: Datum | None = None,
) -> Datum:
    """Return a record to put; it is as old as the one that it replaces."""
    made = Datum(
        id,
        data=data,
        content=content,
        schema=schema.name,
        schema_version=schema.version,
        author=universe.author,
        parent_id=parent,
    )
    return made if before is None else made.replace(created_at=before.created_at)


def encode_state(state: dict[str, Any]) -> tuple[dict[str, Any], bytes]:
    """Return a state as data that people can read, and as bytes where data cannot hold it."""
    safe = _session_util.make_json_safe_state(state)
    try:
        return {"state": codec.plain(safe)}, b""
    except InputError:  # a number such as infinity or beyond 64 bits, or half a character
        return {"state": {}, "encoded": True}, json.dumps(safe).encode()


def read_state(datum: Datum | None) -> dict[str, Any]:
    """Return the state of a record; an empty one if there is no record."""
    if datum is None:
        return {}
    state: dict[str, Any] = json.loads(datum.content) if datum.content else datum.data["state"]
    return state


async def list_below(
    universe: Universe, schema: Schema[Any], prefix: str, content: bool = True
) -> list[Datum]:
    """Return all records whose ids begin with a prefix."""
    query = Query(schema=schema.name, prefix=prefix, limit=None, content=content)
    found: list[Datum] = await universe.query(query, raw=True)
    return found


async def change(
    universe: Universe,
    lock: str,
    note: str,
    work: Callable[[Universe], Awaitable[tuple[Sequence[Op], Callable[[int], R]]]],
) -> R:
    """Commit the ops of a function, or those of its next call if somebody else was faster.

    The function returns the ops and what makes the result of the first one's revision.
    """
    async with universe.names.alone(lock):
        for attempt in range(ATTEMPTS):
            ops, finish = await work(universe)
            if not ops:
                return finish(0)
            try:
                done = await universe.commit(ops, note=note)
            except VersionConflict:
                if attempt == ATTEMPTS - 1:
                    raise
                await asyncio.sleep(clock.jitter(0, min(0.002 * 2**attempt, 0.1)))
            else:
                return finish(done.written[0].rev)
    raise AssertionError("unreachable")
