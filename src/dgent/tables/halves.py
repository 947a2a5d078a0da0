"""Find halves: a datum without its row, or a row without its datum; and mend them.

A datum without a row is what a crash leaves where two databases hold them: the row is made again. A row
without a datum is what a delete, or a forget, of the datum alone leaves. Making the datum again would bring
back what somebody erased, so that, or deleting the row, happens only when it is asked for.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection, Sequence
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec
from sqlalchemy import delete, select
from sqlalchemy.ext.asyncio import AsyncSession

from dgent.errors import Conflict, InputError
from dgent.model.crystal import Crystal as Value
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.store.upkeep import Finding
from dgent.tables import brain, gardener, town
from dgent.tables.both import Tracks
from dgent.tables.models import CitizenConversation, ConversationTurn, Crystal, GardenIdea
from dgent.tables.place import Place, connect
from dgent.tables.record import CRYSTAL, IDEA, TURN, TurnContent

if TYPE_CHECKING:
    from dgent.universe.universe import Universe

PAGE = 1_000
_SHOWN = 5  # halves that a finding names

Missing = Literal["report", "restore", "delete"]
Done = Literal["found", "row made", "datum made", "row deleted", "cannot be mended"]


class Half(msgspec.Struct, frozen=True):
    """One half: the table, the id, which part is missing, and what was done about it."""

    table: str
    id: str
    missing: Literal["row", "datum"]
    done: Done
    reason: str = ""


class _Pair(NamedTuple):
    """A schema and the model of its rows, with the column that has the datum's id."""

    schema: Schema[Any]
    model: Any
    column: Any


PAIRS = (
    _Pair(CRYSTAL, Crystal, Crystal.datum_id),
    _Pair(TURN, ConversationTurn, ConversationTurn.id),
    _Pair(IDEA, GardenIdea, GardenIdea.datum_id),
)


async def find_halves(universe: Universe, place: Place) -> list[Half]:
    """Return all halves, and change nothing."""
    return await repair(universe, place, dry_run=True)


async def inspect_halves(universe: Universe, names: Collection[str]) -> list[Finding]:
    """Look for halves in those tables of Brain, Town and Gardener that are among `names`; changes nothing."""
    pairs = [pair for pair in PAIRS if str(pair.model.__tablename__) in names]
    if not pairs:
        return []
    async with await connect(universe) as place:
        found = await _look(Tracks(universe, place, *(pair.schema for pair in pairs)), pairs, "report", True)
    if not found:
        return [Finding("ok", "tables", "texts and rows of Brain, Town and Gardener belong together")]
    shown = ", ".join(f"{half.table} {half.id} has no {half.missing}" for half in found[:_SHOWN])
    message = f"{len(found)} texts and rows of Brain, Town and Gardener lack their other half: {shown}"
    return [Finding("problem", "tables", message, "dgent tables repair --dry-run lists them, repair mends")]


async def repair(
    universe: Universe, place: Place, *, missing_datum: Missing = "report", dry_run: bool = False
) -> list[Half]:
    """Mend halves and return all that were found, with what was done.

    Rows that are missing are made from their datums. `missing_datum` says what to do with a row whose datum
    is gone: `report` it, `restore` the datum from its history or from the row, or `delete` the row as well.
    """
    if missing_datum not in ("report", "restore", "delete"):
        raise InputError(
            f"{missing_datum!r} is not a valid way to mend",
            hint="use report, restore or delete",
            field="missing_datum",
        )
    tracks = Tracks(universe, place, *(pair.schema for pair in PAIRS))
    return await _look(tracks, PAIRS, missing_datum, dry_run)


async def _look(tracks: Tracks, pairs: Sequence[_Pair], missing_datum: Missing, dry_run: bool) -> list[Half]:
    found: list[Half] = []
    for pair in pairs:
        rows = [id async for id in _row_ids(tracks, pair)]
        # The rows first: what is written to both meanwhile is then at worst seen as a datum, and looked up.
        datums = [
            datum.id
            async for datum in tracks.universe.iterate(Query(schema=pair.schema.name, limit=None), raw=True)
        ]
        have_rows, have_datums = set(rows), set(datums)
        table = str(pair.model.__tablename__)
        for id in datums:
            if id not in have_rows and (done := await _mend_row(tracks, pair, id, dry_run)) is not None:
                found.append(Half(table, id, "row", *done))
        for id in rows:
            if id not in have_datums:
                action: Missing = "report" if dry_run else missing_datum
                if (done := await _mend_datum(tracks, pair, id, action)) is not None:
                    found.append(Half(table, id, "datum", *done))
    return found


async def _row_ids(tracks: Tracks, pair: _Pair) -> AsyncIterator[str]:
    last = ""
    while True:
        async with tracks.rows() as session:
            asked = select(pair.column).where(pair.column > last).order_by(pair.column).limit(PAGE)
            page = [id for id in await session.scalars(asked) if id is not None]
        for id in page:
            yield id
        if len(page) < PAGE:
            return
        last = page[-1]


async def _mend_row(tracks: Tracks, pair: _Pair, id: str, dry_run: bool) -> tuple[Done, str] | None:
    """Make the row of a datum; None if it is there by now, or the datum is gone."""
    stored = await tracks.universe.get(id)
    if stored is None:
        return None
    try:
        async with tracks.rows() as session:
            if await session.scalar(select(pair.column).where(pair.column == id)) is not None:
                return None
            if dry_run:
                return "found", ""
            if not isinstance(stored, Value):
                return "cannot be mended", "the datum cannot be read here"
            await _add_row(session, pair, stored.datum, stored.value)
    except Conflict as error:
        return "cannot be mended", error.message
    return "row made", ""


async def _add_row(session: AsyncSession, pair: _Pair, datum: Datum, value: Any) -> None:
    if pair.schema is CRYSTAL:
        await brain.add_row(session, datum, value)
    elif pair.schema is IDEA:
        gardener.add_row(session, datum, value)
    else:
        town.add_row(session, datum, value)
        await session.flush()
        conversation = await session.get(CitizenConversation, value.conversation_id)
        if conversation is not None and conversation.turn_count < value.turn_number:
            before = conversation.turn_count
            await town.advance(session, value.conversation_id, before, value.turn_number, datum.id)


async def _mend_datum(tracks: Tracks, pair: _Pair, id: str, action: Missing) -> tuple[Done, str] | None:
    """Deal with a row whose datum is gone; None if it is there by now, or the row is gone."""
    if await tracks.universe.exists(id):
        return None
    async with tracks.rows() as session:
        row = await session.scalar(select(pair.model).where(pair.column == id))
        if row is None:
            return None
        if action == "delete":
            await _delete_row(session, pair, row)
            return "row deleted", ""
    if action == "report":
        return "found", ""
    datum = await _last_version(tracks, id) or _make_from_row(tracks, pair, row)
    if datum is None:
        return "cannot be mended", "the row has only the beginning of the text, and history has none"
    await tracks.universe.put(datum)
    return "datum made", ""


async def _delete_row(session: AsyncSession, pair: _Pair, row: Any) -> None:
    if pair.schema is CRYSTAL:
        await brain.delete_rows(session, [row.id])
    else:
        await session.execute(delete(pair.model).where(pair.model.id == row.id))


async def _last_version(tracks: Tracks, id: str) -> Datum | None:
    """Return the last version of a deleted datum, as a new one; None if history has none."""
    for version in await tracks.universe.history(id):
        if version.datum is not None:
            return version.datum
    return None


def _make_from_row(tracks: Tracks, pair: _Pair, row: Any) -> Datum | None:
    """Return a datum made from a row; None for a crystal, whose row has only the beginning of its text."""
    value: Any
    if pair.schema is TURN:
        value = TurnContent(
            row.conversation_id, row.turn_number, row.role, row.content, row.sentiment, row.emotion
        )
    elif pair.schema is IDEA:
        value = gardener.content_of(row)
    else:
        return None
    return Datum(
        id=row.id if pair.schema is TURN else row.datum_id,
        data=pair.schema.encode(value),
        tags=frozenset(getattr(row, "tags", None) or ()),
        schema=pair.schema.name,
        schema_version=pair.schema.version,
        parent_id=row.causal_parent,
        created_at=row.created_at,
    )
