"""Brain: texts that are worth keeping. The text is a datum, what to count and filter by is a row."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import msgspec
from sqlalchemy import delete, func, insert, literal, select, union_all, update
from sqlalchemy.ext.asyncio import AsyncSession

from dgent import clock, ids
from dgent.errors import InputError
from dgent.model.datum import Datum
from dgent.tables.both import Tracks, count_rows
from dgent.tables.models.brain import BrainSettings, Crystal, Tag
from dgent.tables.record import CRYSTAL, BrainContent
from dgent.universe.surface import surface
from dgent.universe.transaction import Transaction

if TYPE_CHECKING:
    from dgent.tables.place import Place
    from dgent.universe.universe import Universe

SUMMARY = 200  # characters of a text that its row has
SETTINGS = "default"


class Captured(msgspec.Struct, frozen=True):
    """A crystal as a caller reads it: its row with the whole text; `content` is None where that is gone."""

    id: str
    summary: str
    content: str | None
    tags: tuple[str, ...]
    captured_at: datetime
    access_count: int
    last_accessed: datetime | None
    source_type: str | None
    source_ref: str | None
    content_hash: str
    metadata: dict[str, Any]
    score: float | None = None


class BrainStatus(msgspec.Struct, frozen=True):
    """The numbers of rows, texts and tags in a brain, and the times of its first and last crystal."""

    crystals: int
    texts: int
    tags: int
    first: datetime | None
    last: datetime | None


class Brain:
    """Captures texts, finds them again, and brings old ones back to mind: `Brain(u, place)`."""

    def __init__(self, universe: Universe, place: Place) -> None:
        self._tracks = Tracks(universe, place, CRYSTAL)

    async def capture(
        self,
        content: str,
        tags: Iterable[str] = (),
        *,
        source_type: str | None = None,
        source_ref: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        parent: Any = None,
    ) -> Captured:
        """Keep a text: as a datum that search finds, and as a row. Tags of the settings are added."""
        if not isinstance(content, str) or not content.strip():
            raise InputError("a crystal needs a text", field="content")
        value = BrainContent(content, source_type, source_ref, dict(metadata or {}))
        given = list(ids.check_tags(list(tags)))
        id = ids.new_id()

        async def work(tx: Transaction, session: AsyncSession) -> Captured:
            settings = await session.get(BrainSettings, SETTINGS)
            labels = sorted({*given, *(settings.default_tags if settings else ())})
            crystal = await tx.remember(value, id=id, tags=labels, parent=parent)
            row = await add_row(session, crystal.datum, value)
            return _make_captured(row, crystal.datum)

        return await self._tracks.write(work)

    async def get(self, id: str, *, touch: bool = True) -> Captured | None:
        """Return a crystal, and count the access unless `touch` is False; None when there is none."""
        async with self._tracks.rows() as session:
            row = await session.get(Crystal, ids.check_id(id))
            if row is None:
                return None
            if touch:
                await _touch(session, [id])
                await session.refresh(row)
        return (await self._read([row]))[0]

    async def search(self, query: str, limit: int = 10, *, tags: Iterable[str] = ()) -> list[Captured]:
        """Return the crystals whose texts fit best, with the scores of `u.search`; counts no access."""
        found = await self._tracks.universe.search(
            query, schema=CRYSTAL.name, tags=ids.check_tags(list(tags)), k=limit
        )
        scores = {hit.id: hit.score for hit in found}
        datums = {hit.id: hit.datum for hit in found}
        async with self._tracks.rows() as session:
            rows = {
                row.datum_id: row
                for row in await session.scalars(select(Crystal).where(Crystal.datum_id.in_(list(scores))))
            }
        return [_make_captured(rows[id], datums[id], score) for id, score in scores.items() if id in rows]

    async def surface(
        self,
        context: str | None = None,
        *,
        entropy: float = 0.7,
        seed: int | str = 0,
        rest: timedelta = timedelta(days=1),
        tags: Iterable[str] = (),
    ) -> Captured | None:
        """Bring back a crystal that is related, old, and was not accessed within `rest`; None if none fits.

        It counts as accessed then. The same seed on the same crystals brings back the same one.
        """
        found = await surface(
            self._tracks.universe,
            context,
            seed=seed,
            entropy=entropy,
            seen=self._find_seen,
            rest=rest,
            schema=CRYSTAL.name,
            tags=ids.check_tags(list(tags)),
        )
        if not found:
            return None
        async with self._tracks.rows() as session:
            row = await session.scalar(select(Crystal).where(Crystal.datum_id == found[0].id))
            if row is None:
                return None
            await _touch(session, [row.id])
            await session.refresh(row)
        return (await self._read([row]))[0]

    async def _find_seen(self, wanted: Sequence[str]) -> dict[str, datetime]:
        """Return when each text was last accessed."""
        asked = select(Crystal.datum_id, Crystal.last_accessed).where(Crystal.datum_id.in_(wanted))
        async with self._tracks.rows() as session:
            found = await session.execute(asked)
            return {id: at for id, at in found if id is not None and at is not None}

    async def list_recent(self, limit: int = 10) -> list[Captured]:
        """Return the newest crystals, the newest first."""
        return await self._list(
            select(Crystal).order_by(Crystal.created_at.desc(), Crystal.id.desc()).limit(limit)
        )

    async def list_by_tag(self, tag: str, limit: int = 100) -> list[Captured]:
        """Return the crystals with a tag, the newest first."""
        marked = select(Crystal).join(Tag, Tag.crystal_id == Crystal.id).where(Tag.tag == tag)
        return await self._list(marked.order_by(Crystal.created_at.desc(), Crystal.id.desc()).limit(limit))

    async def delete(self, id: str) -> bool:
        """Delete a crystal, its row and its text; False when there was none. History keeps the text."""
        async with self._tracks.rows() as session:
            row = await session.get(Crystal, ids.check_id(id))
        if row is None:
            return False
        datum_id = row.datum_id
        if datum_id is None or not await self._tracks.universe.exists(datum_id):
            async with self._tracks.rows() as session:
                return await delete_rows(session, [id]) > 0

        async def work(tx: Transaction, session: AsyncSession) -> bool:
            await tx.delete(datum_id)
            return await delete_rows(session, [id]) > 0

        return await self._tracks.write(work)

    async def forget(self, id: str) -> bool:
        """Erase a crystal for good: its row, its text, and all versions of it; False when there was none."""
        async with self._tracks.rows() as session:
            row = await session.get(Crystal, ids.check_id(id))
        datum_id = id if row is None else row.datum_id or id
        return await self._tracks.erase(lambda session: delete_rows(session, [id]), [datum_id])

    async def status(self) -> BrainStatus:
        """Return how much is in the brain, on both tracks."""
        async with self._tracks.rows() as session:
            asked = select(func.count(), func.min(Crystal.created_at), func.max(Crystal.created_at))
            crystals, first, last = (await session.execute(asked.select_from(Crystal))).one()
            tags = await session.scalar(select(func.count(Tag.tag.distinct())))
        texts = await self._tracks.universe.count(schema=CRYSTAL.name)
        return BrainStatus(crystals, texts, tags or 0, first, last)

    manifest = status

    async def _list(self, asked: Any) -> list[Captured]:
        async with self._tracks.rows() as session:
            rows = list(await session.scalars(asked))
        return await self._read(rows)

    async def _read(self, rows: Sequence[Crystal]) -> list[Captured]:
        """Return rows with their texts, read at once."""
        wanted = [row.datum_id or row.id for row in rows]
        found = await self._tracks.universe.get_many(wanted, raw=True)
        return [_make_captured(row, datum) for row, datum in zip(rows, found, strict=True)]


async def add_row(session: AsyncSession, datum: Datum, value: BrainContent) -> Crystal:
    """Add the row of a text and of its tags to a session; the row has the id of the datum."""
    row = Crystal(
        id=datum.id,
        content_hash=hashlib.sha256(value.content.encode()).hexdigest(),
        summary=value.content[:SUMMARY],
        tags=sorted(datum.tags),
        access_count=0,
        datum_id=datum.id,
        source_type=value.source_type,
        source_ref=value.source_ref,
        created_at=datum.created_at,
        updated_at=datum.created_at,
    )
    session.add(row)
    await session.flush()
    if row.tags:
        # From a SELECT: the ids are made by the database, in whichever transaction this runs in the end.
        given = union_all(*(select(literal(row.id), literal(tag)) for tag in row.tags))
        await session.execute(insert(Tag).from_select(["crystal_id", "tag"], given))
    return row


async def delete_rows(session: AsyncSession, wanted: Sequence[str]) -> int:
    """Delete the rows of crystals and of their tags; returns how many crystals there were."""
    await session.execute(delete(Tag).where(Tag.crystal_id.in_(wanted)))
    return count_rows(await session.execute(delete(Crystal).where(Crystal.id.in_(wanted))))


async def _touch(session: AsyncSession, wanted: Sequence[str]) -> None:
    """Count an access in the database, where no other access is lost."""
    counted = {"access_count": Crystal.access_count + 1, "last_accessed": clock.now()}
    same = {"updated_at": Crystal.updated_at}  # an access changes nothing
    await session.execute(update(Crystal).where(Crystal.id.in_(wanted)).values(**counted, **same))


def _make_captured(row: Crystal, datum: Datum | None, score: float | None = None) -> Captured:
    data = {} if datum is None else datum.data
    return Captured(
        id=row.id,
        summary=row.summary,
        content=data.get("content"),
        tags=tuple(row.tags),
        captured_at=row.created_at,
        access_count=row.access_count,
        last_accessed=row.last_accessed,
        source_type=row.source_type,
        source_ref=row.source_ref,
        content_hash=row.content_hash,
        metadata=dict(data.get("metadata", {})),
        score=score,
    )
