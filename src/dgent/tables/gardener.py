"""Gardener: ideas that are planted, nurtured and harvested. Each is a row, and a datum with its growth."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

import msgspec
from sqlalchemy import delete, func, or_, select
from sqlalchemy.ext.asyncio import AsyncSession

from dgent import clock, ids
from dgent.errors import Conflict, InputError
from dgent.model.datum import Datum
from dgent.tables.both import Tracks, count_rows, find_row
from dgent.tables.models.gardener import GardenIdea, GardenSession, IdeaConnection, Lifecycle, Plot
from dgent.tables.record import IDEA, IdeaContent
from dgent.universe.transaction import Transaction

if TYPE_CHECKING:
    from dgent.tables.place import Place
    from dgent.universe.universe import Universe

STEP = 0.1  # of confidence, each time an idea is nurtured
RULE = "\n\n---\n\n"  # between what an idea was and what was added
STAGES = tuple(Lifecycle)


class GardenStatus(msgspec.Struct, frozen=True):
    """The numbers of sessions, plots, ideas and connections in a garden, and of ideas by their stage."""

    sessions: int
    plots: int
    ideas: int
    connections: int
    ideas_by_lifecycle: dict[str, int]


class Gardener:
    """Keeps ideas as they grow: `Gardener(u, place)`."""

    def __init__(self, universe: Universe, place: Place) -> None:
        self._tracks = Tracks(universe, place, IDEA)

    # -- sessions and plots -----------------------------------------------------------------

    async def start_session(self, title: str | None = None, notes: str | None = None) -> GardenSession:
        """Begin a session in the garden."""
        row = GardenSession(title=title, notes=notes)
        async with self._tracks.rows() as session:
            session.add(row)
        return row

    async def end_session(self, id: str, notes: str | None = None) -> GardenSession:
        """End a session: keep how long it took, and append notes. One that has ended is a Conflict."""
        async with self._tracks.rows() as session:
            row = await find_row(session, GardenSession, id)
            if row.duration_seconds is not None:
                raise Conflict(f"the session {id!r} has already ended")
            row.duration_seconds = max(0.0, (clock.now() - row.created_at).total_seconds())
            if notes:
                row.notes = f"{row.notes}\n{notes}" if row.notes else notes
        return row

    async def get_session(self, id: str) -> GardenSession | None:
        """Return a session by id; None when there is none."""
        async with self._tracks.rows() as session:
            return await session.get(GardenSession, id)

    async def list_sessions(self, limit: int = 100) -> list[GardenSession]:
        """Return sessions, the newest first."""
        asked = select(GardenSession).order_by(GardenSession.created_at.desc(), GardenSession.id.desc())
        async with self._tracks.rows() as session:
            return list(await session.scalars(asked.limit(limit)))

    async def create_plot(self, name: str, description: str | None = None, color: str | None = None) -> Plot:
        """Add a plot; a name that another one has is a Conflict."""
        row = Plot(name=name, description=description, color=color)
        async with self._tracks.rows() as session:
            session.add(row)
        return row

    async def list_plots(self) -> list[Plot]:
        """Return the plots by name."""
        async with self._tracks.rows() as session:
            return list(await session.scalars(select(Plot).order_by(Plot.name)))

    # -- ideas ------------------------------------------------------------------------------

    async def plant(
        self,
        content: str,
        *,
        session_id: str | None = None,
        plot_id: str | None = None,
        confidence: float = 0.3,
        tags: Iterable[str] = (),
        causal_parent: str | None = None,
    ) -> GardenIdea:
        """Plant an idea as a SEED: a row, and a datum that search finds."""
        if not isinstance(content, str) or not content.strip():
            raise InputError("an idea needs a text", field="content")
        if not 0 <= confidence <= 1:
            raise InputError(f"confidence is {confidence!r}", hint="a number from 0 to 1", field="confidence")
        value = IdeaContent(content, "SEED", float(confidence), 0, session_id, plot_id)
        labels = ids.check_tags(list(tags))
        id = ids.new_id()

        async def work(tx: Transaction, session: AsyncSession) -> GardenIdea:
            if session_id is not None:
                await find_row(session, GardenSession, session_id)
            if plot_id is not None:
                await find_row(session, Plot, plot_id)
            crystal = await tx.remember(value, id=id, tags=labels, parent=causal_parent)
            return add_row(session, crystal.datum, value)

        return await self._tracks.write(work)

    async def nurture(self, id: str, refinement: str | None = None) -> GardenIdea:
        """Nurture an idea: its confidence grows by 0.1 up to 1, and a refinement is appended after a rule.

        Compost is not nurtured: that is a Conflict.
        """

        def change(row: GardenIdea) -> None:
            if row.lifecycle == Lifecycle.COMPOST:
                raise Conflict(
                    f"the idea {id!r} is compost", hint="plant another one with it as causal_parent"
                )
            if refinement:
                row.content = row.content + RULE + refinement
            row.confidence = min(1.0, round(row.confidence + STEP, 9))
            row.nurture_count += 1
            row.last_nurtured = clock.now()

        return await self._change(id, change)

    async def harvest(self, id: str) -> GardenIdea | None:
        """Bring an idea to its next stage: SEED, SAPLING, TREE, FLOWER, COMPOST; None after the last."""
        ended = False

        def change(row: GardenIdea) -> None:
            nonlocal ended
            at = STAGES.index(Lifecycle(row.lifecycle))
            ended = at == len(STAGES) - 1
            if not ended:
                row.lifecycle = STAGES[at + 1].value

        row = await self._change(id, change)
        return None if ended else row

    async def compost(self, id: str) -> GardenIdea:
        """Give an idea up, whatever its stage; it stays as COMPOST, for others to grow on."""

        def change(row: GardenIdea) -> None:
            row.lifecycle = Lifecycle.COMPOST.value

        return await self._change(id, change)

    async def get(self, id: str) -> GardenIdea | None:
        """Return an idea by id; None when there is none."""
        async with self._tracks.rows() as session:
            return await session.get(GardenIdea, ids.check_id(id))

    async def list_ideas(
        self,
        *,
        lifecycle: str | None = None,
        session_id: str | None = None,
        plot_id: str | None = None,
        limit: int = 100,
    ) -> list[GardenIdea]:
        """Return ideas, the newest first; of a stage, a session or a plot."""
        if lifecycle is not None and lifecycle not in {stage.value for stage in STAGES}:
            raise InputError(
                f"{lifecycle!r} is not a valid stage", hint=f"use {', '.join(STAGES)}", field="lifecycle"
            )
        asked = select(GardenIdea).order_by(GardenIdea.created_at.desc(), GardenIdea.id.desc())
        for column, given in (
            (GardenIdea.lifecycle, lifecycle),
            (GardenIdea.session_id, session_id),
            (GardenIdea.plot_id, plot_id),
        ):
            if given is not None:
                asked = asked.where(column == given)
        async with self._tracks.rows() as session:
            return list(await session.scalars(asked.limit(limit)))

    async def search(self, text: str, k: int = 10) -> list[GardenIdea]:
        """Return the ideas that fit a text best."""
        found = [hit.id for hit in await self._tracks.universe.search(text, schema=IDEA.name, k=k)]
        async with self._tracks.rows() as session:
            asked = select(GardenIdea).where(GardenIdea.datum_id.in_(found))
            rows = {row.datum_id: row for row in await session.scalars(asked)}
        return [rows[id] for id in found if id in rows]

    async def connect(
        self,
        source_id: str,
        target_id: str,
        connection_type: str = "related",
        *,
        strength: float = 0.5,
        notes: str | None = None,
    ) -> IdeaConnection:
        """Connect two ideas: a row; the same connection twice is a Conflict."""
        async with self._tracks.rows() as session:
            for id in (source_id, target_id):
                await find_row(session, GardenIdea, id)
            row = IdeaConnection(
                source_id=source_id,
                target_id=target_id,
                connection_type=connection_type,
                strength=strength,
                notes=notes,
            )
            session.add(row)
        return row

    async def get_connections(self, idea_id: str) -> list[IdeaConnection]:
        """Return the connections of an idea at either end, the strongest first."""
        ends = IdeaConnection.source_id, IdeaConnection.target_id
        asked = select(IdeaConnection).where(or_(*(end == idea_id for end in ends)))
        async with self._tracks.rows() as session:
            return list(
                await session.scalars(asked.order_by(IdeaConnection.strength.desc(), IdeaConnection.id))
            )

    async def forget(self, id: str) -> bool:
        """Erase an idea for good: its row, its connections, its text, and all versions of it."""
        found = await self.get(id)

        async def remove(session: AsyncSession) -> int:
            ends = IdeaConnection.source_id, IdeaConnection.target_id
            await session.execute(delete(IdeaConnection).where(or_(*(end == id for end in ends))))
            return count_rows(await session.execute(delete(GardenIdea).where(GardenIdea.id == id)))

        return await self._tracks.erase(remove, [id if found is None else found.datum_id or id])

    async def status(self) -> GardenStatus:
        """Return how much is in the garden, and in which stages."""
        async with self._tracks.rows() as session:
            sessions, plots, ideas, connections = [
                await session.scalar(select(func.count()).select_from(model)) or 0
                for model in (GardenSession, Plot, GardenIdea, IdeaConnection)
            ]
            asked = select(GardenIdea.lifecycle, func.count()).group_by(GardenIdea.lifecycle)
            stages = {row[0]: row[1] for row in await session.execute(asked)}
        by_stage = {stage.value: stages.get(stage.value, 0) for stage in STAGES}
        return GardenStatus(sessions, plots, ideas, connections, by_stage)

    manifest = status

    async def _change(self, id: str, change: Callable[[GardenIdea], None]) -> GardenIdea:
        """Change the row of an idea and its datum alike; a datum that is gone is made again."""

        async def work(tx: Transaction, session: AsyncSession) -> GardenIdea:
            row = await find_row(session, GardenIdea, id)
            change(row)
            value = content_of(row)
            row.datum_id = row.datum_id or row.id
            stored = await tx.get(row.datum_id)
            if stored is None:
                await tx.remember(value, id=row.datum_id, tags=row.tags, parent=row.causal_parent)
            else:
                await tx.update(stored, **msgspec.to_builtins(value))
            return row

        return await self._tracks.write(work, lock=f"garden/{id}")


def add_row(session: AsyncSession, datum: Datum, value: IdeaContent) -> GardenIdea:
    """Add the row of an idea to a session; it has the id of the datum."""
    row = GardenIdea(
        id=datum.id,
        content=value.content,
        lifecycle=value.lifecycle,
        confidence=value.confidence,
        nurture_count=value.nurture_count,
        session_id=value.session_id,
        plot_id=value.plot_id,
        datum_id=datum.id,
        tags=sorted(datum.tags),
        causal_parent=datum.parent_id,
        created_at=datum.created_at,
        updated_at=datum.created_at,
    )
    session.add(row)
    return row


def content_of(row: GardenIdea) -> IdeaContent:
    """Return the datum's part of a row."""
    return IdeaContent(
        row.content, row.lifecycle, row.confidence, row.nurture_count, row.session_id, row.plot_id
    )
