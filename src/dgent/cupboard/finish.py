"""End work on crumbs: done, dropped, released, or opened again, with the reason."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Literal, cast

from dgent import ids
from dgent.cupboard import errors
from dgent.cupboard.builtin import schema_id
from dgent.cupboard.change import Changeset
from dgent.cupboard.kind import FINISHED
from dgent.cupboard.record import OWNER, CrumbRecord, MetadataRecord, SchemaRecord
from dgent.cupboard.tables.crumb import Crumb, check_claim
from dgent.model.crystal import Crystal

if TYPE_CHECKING:
    from dgent.cupboard.cupboard import Cupboard

How = Literal["done", "drop", "release", "reopen"]

REASON = "close_reason"
_STATES = {"done": "pebble", "drop": "dust", "release": "ready", "reopen": "ready"}
_SCHEMA = SchemaRecord(REASON, "Why it was done or dropped.")


async def finish(
    cupboard: Cupboard,
    given: Sequence[Crumb | str],
    how: How,
    *,
    token: int | None = None,
    agent: str | None = None,
    force: bool = False,
    reason: str | None = None,
) -> list[Crumb]:
    """Change the state of crumbs in one commit: all or none. Raises NotLockHolder unless forced."""
    wanted = {await cupboard._find_id(each, cupboard.crumbs): each for each in given}
    universe = cupboard._universe

    async def work(changeset: Changeset) -> None:
        await changeset.load(wanted)
        for id, each in wanted.items():
            crumb = await changeset.get(CrumbRecord, id, "crumb")
            if not force:
                _check_holder(id, crumb, each, token, agent, universe.author)
            _check_state(id, crumb, how)
            entity = cupboard.crumbs._build(cast(Crystal[Any], changeset.get_stored(id)))
            entity.state = _STATES[how]
            if how == "done" and crumb.holder and not crumb.properties.get(OWNER):
                entity.set_property(OWNER, crumb.holder)  # the holder ends with the claim
            await cupboard.crumbs._write(changeset, id, entity, crumb)
            if reason:
                await _write_reason(changeset, id, how, reason)

    which = f"crumb {next(iter(wanted))} is" if len(wanted) == 1 else f"{len(wanted)} crumbs are"
    note = f"{which} {_STATES[how]}"
    _, changeset = await cupboard._change(work, note)
    made = [Crumb() for _ in wanted]
    for crumb, id in zip(made, wanted, strict=True):
        cupboard.crumbs._write_back(crumb, id, changeset)
    return made


def _check_holder(
    id: str, crumb: CrumbRecord, given: Crumb | str, token: int | None, agent: str | None, author: str
) -> None:
    taken_by = given._taken_by if isinstance(given, Crumb) else None
    if token is None and taken_by is not None and agent in (None, taken_by):
        token = cast(Crumb, given).token  # as `take` gave it
    check_claim(id, crumb, token, agent or taken_by or author)


def _check_state(id: str, crumb: CrumbRecord, how: How) -> None:
    if how == "release" and crumb.state not in ("taken", "ready"):
        raise errors.InvalidTransition(
            f"{id!r} is {crumb.state}; only a taken crumb can be released", hint="use set_state", id=id
        )
    if how == "reopen" and crumb.state not in FINISHED:
        raise errors.InvalidTransition(
            f"{id!r} is {crumb.state}; only a crumb that is done or dropped can be reopened", id=id
        )


async def _write_reason(changeset: Changeset, id: str, how: How, reason: str) -> None:
    """Write why a crumb was finished beside it; for other changes, a comment."""
    schema = REASON if how in ("done", "drop") else "comments"
    if await changeset.find(SchemaRecord, schema_id(schema)) is None:
        changeset.put(schema_id(schema), replace(_SCHEMA, name=schema))
        changeset.mark_redefined()
    changeset.put(ids.new_id(), MetadataRecord(id, schema, reason))
