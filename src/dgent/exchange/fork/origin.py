"""The origin of a fork: its source, the commit, and the scope."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from typing import Literal, get_args

import msgspec

from dgent.blocks.access import permission
from dgent.blocks.kind import CONSTELLATION
from dgent.errors import Conflict, Corrupt, InputError, NotFound, Unavailable, Unsupported
from dgent.model.datum import Datum
from dgent.model.schema import Schema
from dgent.store.upkeep import upkeep_of
from dgent.universe.universe import Universe

Scope = Literal["all", "core", "since"]
SCOPES: tuple[str, ...] = get_args(Scope)
ORIGIN_ID = "dgent.fork"


@dataclass(frozen=True)
class Origin:
    """The origin of a fork: its own id, its source and the fork point, which is a commit of the source.

    `name` is what the source was called. A fork of `since` holds what was written after the commit `after`.
    `whole` is False until it is complete: a fork that was killed while it was made is refused.
    """

    fork: str
    source: str
    seq: int
    scope: str
    made_at: datetime
    name: str = ""
    after: int = 0
    whole: bool = True


ORIGIN = Schema("dgent.fork", contract=Origin, history="none", feed=False)


async def origin(universe: Universe) -> Origin | None:
    """Return the origin of a fork; None for another store."""
    # Raw: reading must not declare a schema in a store that is not a fork.
    found: Datum | None = await universe.get(ORIGIN_ID, raw=True)
    if found is None or found.schema != ORIGIN.name:
        return None
    try:
        return msgspec.convert(found.data, Origin)
    except msgspec.ValidationError as error:
        raise Corrupt(f"the origin of the fork cannot be read: {error}") from None


async def require_origin(universe: Universe) -> Origin:
    """Return the origin of a fork; raises NotFound for another store, Conflict for an unfinished fork."""
    found = await origin(universe)
    if found is None:
        raise NotFound("this store is not a fork", hint="`dgent fork list` shows the forks there are")
    if not found.whole:
        raise Conflict("this fork was never finished", hint="delete it, and fork again", fork=found.fork)
    return found


async def identity(universe: Universe) -> str:
    """Return the identity of a store: the own id of a fork, else the id that the store got when made."""
    if universe.degraded is not None:
        raise Unavailable(f"the store is unavailable: {universe.degraded.reason}")
    own = await origin(universe)
    if own is not None:
        return own.fork
    try:
        return await upkeep_of(universe.backend).universe_id()
    except Unsupported:
        found: bytes = getattr(universe.backend, "epoch", b"")
        if not found:
            raise Unsupported("the engine does not identify its store") from None
        return found.hex()


def check_trust(trust: str, what: str) -> None:
    """Refuse callers below trust `partner`, since a whole store belongs to many agents; raises Denied."""
    if permission.check_trust(trust) != "partner":
        judgement = permission.Judgement("deny", f"a caller of trust {trust} may not")
        raise permission.denied_error(CONSTELLATION, what, judgement)


def check_scope(scope: object, since: object) -> None:
    """Refuse an unknown scope, and `since` without a time or a time without it; raises InputError."""
    if scope not in SCOPES:
        raise InputError(
            f"{scope!r} is not a valid scope", hint=f"use one of {', '.join(SCOPES)}", field="scope"
        )
    if (scope == "since") != (since is not None):
        raise InputError("scope since and a time belong together", hint="give both or none", field="since")
