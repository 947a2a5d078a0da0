"""Write a datum and its row together: in one transaction where one database holds both.

Elsewhere the rows are written but not committed, then the datums are committed, then the rows. So a crash
leaves at worst a datum without its row, from which `repair` makes the row again.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from sqlalchemy.exc import IntegrityError, SQLAlchemyError
from sqlalchemy.ext.asyncio import AsyncSession

from dgent import clock, ids
from dgent.errors import (
    Conflict,
    DgentError,
    InputError,
    NotFound,
    TransactionConflict,
    VersionConflict,
)
from dgent.model.schema import Schema
from dgent.tables.adapter import explain
from dgent.tables.models.model import Base
from dgent.universe.transaction import Transaction

if TYPE_CHECKING:
    from dgent.tables.place import Place
    from dgent.universe.universe import Universe

M = TypeVar("M", bound=Base)
R = TypeVar("R")
Work = Callable[[Transaction, AsyncSession], Awaitable[R]]

ATTEMPTS = 12
LONGEST_PAUSE_S = 0.25


class Tracks:
    """A universe and a place of tables: what is written to both, and read from either."""

    def __init__(self, universe: Universe, place: Place, *schemas: Schema[Any]) -> None:
        self.universe, self.place = universe, place
        self._names = frozenset(schema.name for schema in schemas)
        universe.register(*schemas)

    async def write(self, work: Work[R], *, lock: str | None = None) -> R:
        """Run work that writes to both; again when another writer was faster.

        `lock` names what is changed, so that the tasks of this program take turns instead of trying again.
        """
        if lock is not None:
            async with self.universe.names.alone(lock):
                return await self.write(work)
        for attempt in range(ATTEMPTS):
            inside, tx = True, self.universe.transaction()
            try:
                async with tx, self._session(tx) as session:
                    done = await work(tx, session)
                    await session.flush()
                    inside = False
                return done
            except (Conflict, SQLAlchemyError) as error:
                # Another writer is the reason of what a commit runs into, and of these. Once the datums are
                # committed, another attempt would store them twice.
                raced = not inside or isinstance(
                    error, TransactionConflict | VersionConflict | IntegrityError
                )
                translated = translate(error)
                last = attempt == ATTEMPTS - 1 or tx.committed is not None
                if last or not raced or not isinstance(translated, Conflict):
                    raise translated from error
            await asyncio.sleep(clock.jitter(0, min(0.002 * 2**attempt, LONGEST_PAUSE_S)))
        raise AssertionError("the last attempt raises or returns")

    @asynccontextmanager
    async def _session(self, tx: Transaction) -> AsyncIterator[AsyncSession]:
        if self.place.shared:
            async with self.place.transaction(tx) as session:
                yield session
            return
        async with self.place.sessions() as session, session.begin():
            yield session
            await tx.commit()

    @asynccontextmanager
    async def rows(self) -> AsyncIterator[AsyncSession]:
        """Give a session for rows alone, which commits at the end."""
        try:
            async with self.place.sessions() as session, session.begin():
                yield session
        except SQLAlchemyError as error:
            raise translate(error) from error

    async def erase(self, remove: Callable[[AsyncSession], Awaitable[int]], datum_ids: Sequence[str]) -> bool:
        """Erase rows and their datums for good; False when there were none.

        Rows go first: forgetting the datums also erases the free pages that the rows leave in the same file.
        """
        async with self.rows() as session:
            removed = await remove(session)
        # Without a row, an id may be that of any record of the universe.
        wanted = [id for id in datum_ids if removed or await self._is_own(id)]
        forgotten = await self.universe.forget(*wanted) if removed or wanted else None
        return removed > 0 or bool(forgotten and forgotten.records)

    async def _is_own(self, id: str) -> bool:
        """Return whether a datum of these tracks is kept under an id, live or deleted."""
        versions = await self.universe.history(id)
        return any(each.datum is not None and each.datum.schema in self._names for each in versions)


async def find_row(session: AsyncSession, model: type[M], id: str) -> M:
    """Return a row by its id; raises NotFound."""
    row = await session.get(model, ids.check_id(id))
    if row is None:
        raise NotFound(f"there is no row {id!r} in {model.__tablename__}", id=id)
    return row


def count_rows(done: Any) -> int:
    """Return how many rows a statement changed."""
    return int(getattr(done, "rowcount", 0))


def translate(error: Exception) -> DgentError:
    """Return dgent's error for one of SQLAlchemy's; errors of drivers do not leave this room."""
    if not isinstance(error, SQLAlchemyError):
        assert isinstance(error, DgentError)
        return error
    cause = getattr(error, "orig", None)
    if "no such table" in str(cause) or getattr(cause, "sqlstate", None) == "42P01":
        hint = "make the tables first: ensure_migrations(place), `dgent tables upgrade`"
        return InputError(str(cause), hint=hint)
    return explain(error, "the tables")
