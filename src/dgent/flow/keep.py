"""Where a state is kept: a record whose versions are the steps, and the protocol for other places."""

from __future__ import annotations

from typing import Any, Generic, NamedTuple, Protocol, TypeVar

from dgent import codec
from dgent.errors import Conflict, InputError, NotFound, SchemaError, Unsupported
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.model.schema import Schema
from dgent.store.backend import Version
from dgent.universe.universe import Universe

S = TypeVar("S")

STATE = Schema[dict[str, Any]]("flow.state")
"""The schema of states that are plain dicts."""

STEP = Schema[dict[str, Any]]("flow.step", history="none", feed=False)
"""The outputs of steps with a name, so that a repeated one gives its output again."""


class Kept(NamedTuple, Generic[S]):
    """A state as it is kept; `rev` is None before the first step."""

    state: S
    rev: Any
    crystal: Crystal[S] | None = None


class Mark(NamedTuple):
    """A record to write together with a state: the output of a step, or how far a stream was read."""

    id: str
    data: dict[str, Any]
    rev: int | None = 0


class Keeper(Protocol[S]):
    """A place for one state, which is written only if nobody else wrote it meanwhile."""

    name: str

    async def load(self) -> Kept[S] | None:
        """Return the state; None before the first step."""
        ...

    async def save(self, state: S, kept: Kept[S] | None, mark: Mark | None = None) -> None:
        """Write a state; raises Conflict if it is no longer the one that was loaded."""
        ...

    async def find_mark(self, id: str) -> Datum | None:
        """Return a record that was written together with a state."""
        ...


class UniverseKeeper(Generic[S]):
    """Keeps a state as one record of a universe, so every step is a version of it."""

    def __init__(self, universe: Universe, state_type: type[S], namespace: str) -> None:
        self.universe = universe
        self.name = namespace
        self.id = f"{namespace}:state"
        self.schema = _schema_of(universe, state_type)
        universe.register(STEP)

    async def load(self) -> Kept[S] | None:
        """Return the state as it is now."""
        found = await self.universe.get(self.id)
        return None if found is None else self._kept(found)

    async def load_at(self, rev: int) -> Kept[S]:
        """Return the state after an earlier step."""
        for version in await self.history():
            if version.rev == rev and version.datum is not None:
                return self._kept(self.universe.contracts.crystal(version.datum))
        raise NotFound(
            f"the state {self.name!r} has no version {rev}", hint="history() lists them", field="rev"
        )

    async def history(self, limit: int | None = None) -> list[Version]:
        """Return the versions of the state, newest first."""
        return await self.universe.history(self.id, limit=limit)

    async def save(self, state: S, kept: Kept[S] | None, mark: Mark | None = None) -> None:
        """Write a state, and the mark with it: both or neither."""
        if mark is not None:
            await self._save_both(state, kept, mark)
        elif kept is None or kept.crystal is None:
            await self.universe.remember(state, schema=self.schema, id=self.id, expect=0)
        else:
            await self.universe.store(kept.crystal.replace(value=state), expect=kept.rev)

    async def _save_both(self, state: S, kept: Kept[S] | None, mark: Mark) -> None:
        async with self.universe.transaction() as tx:
            if kept is None or kept.crystal is None:
                await tx.remember(state, schema=self.schema, id=self.id)
            else:
                await tx.store(kept.crystal.replace(value=state), expect=kept.rev)
            data = codec.plain(mark.data)
            if mark.rev == 0:
                await tx.remember(data, schema=STEP, id=mark.id)
            else:
                datum = Datum(mark.id, data=data, schema=STEP.name, schema_version=STEP.version)
                await tx.put(datum, expect=mark.rev)

    async def find_mark(self, id: str) -> Datum | None:
        """Return the output of a step, or how far a stream was read."""
        found: Datum | None = await self.universe.get(id, raw=True)
        return found

    def _kept(self, found: Crystal[S] | Datum) -> Kept[S]:
        if not isinstance(found, Crystal) or found.schema_name != self.schema.name:
            kind = found.schema_name if isinstance(found, Crystal) else found.schema
            raise Conflict(
                f"{self.id!r} holds {kind or 'a plain record'}, not {self.schema.name}",
                hint="give the functor another namespace, or the type that the state has",
                id=self.id,
            )
        return Kept(found.value, found.rev, found)


def _schema_of(universe: Universe, state_type: type[S]) -> Schema[S]:
    """Return the schema of a type of states, which is registered here if it is not yet."""
    if state_type is dict:
        universe.register(STATE)
        return STATE  # type: ignore[return-value]
    try:
        return universe.schema_for(state_type)
    except NotFound:
        pass
    name = f"state.{getattr(state_type, '__name__', 'unnamed')}"
    try:
        schema = Schema(name, contract=state_type)
    except SchemaError as error:
        raise InputError(
            f"{state_type!r} cannot be a state: {error}",
            hint="use a dict, a dataclass, a pydantic model or a msgspec struct",
            field="state_type",
        ) from error
    universe.register(schema)
    return schema


def refuse_history(keeper: Keeper[Any]) -> UniverseKeeper[Any]:
    """Return a keeper that keeps versions; raises Unsupported for one that does not."""
    if isinstance(keeper, UniverseKeeper):
        return keeper
    raise Unsupported(
        f"the state {keeper.name!r} is a row of a table, which keeps no versions",
        hint="keep the state on a universe",
    )
