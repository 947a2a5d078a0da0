"""States as records of a universe: every step is a version of one."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Generic, TypeVar

from dgent import codec
from dgent.errors import Conflict, InputError, NotFound, SchemaError, TransactionConflict, VersionConflict
from dgent.flow.keep import Kept, Mark
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.model.schema import Schema
from dgent.store.backend import Committed, Guard, Op, Put, Version
from dgent.universe import write
from dgent.universe.parts import OWNER
from dgent.universe.universe import Universe

S = TypeVar("S")

STATE = Schema[dict[str, Any]]("flow.state")
"""The schema of states that are plain dicts."""

STEP = Schema[dict[str, Any]]("flow.step", history="none", feed=False)
"""The outputs of steps with a name, so that a repeated one gives its output again."""


class UniverseKeeper(Generic[S]):
    """Keeps a state as one record of a universe, written whole, so every step is a version of it."""

    def __init__(self, universe: Universe, schema: Schema[S], namespace: str) -> None:
        self.universe = universe
        self.name = namespace
        self.id = namespace + OWNER
        self.schema = schema
        universe.register(schema)

    async def load(self) -> Kept[S] | None:
        """Return the state as it is now."""
        found = await self.universe.get(self.id)
        return None if found is None else self.make_kept(found)

    async def load_at(self, rev: int) -> Kept[S]:
        """Return the state after an earlier step."""
        for version in await self.history():
            if version.rev == rev and version.datum is not None:
                return self.make_kept(self.universe.contracts.crystal(version.datum))
        raise NotFound(
            f"the state {self.name!r} has no version {rev}", hint="history() lists them", field="rev"
        )

    async def history(self, limit: int | None = None) -> list[Version]:
        """Return the versions of the state, newest first."""
        return await self.universe.history(self.id, limit=limit)

    async def save(self, state: S, kept: Kept[S] | None, mark: Mark | None = None) -> None:
        """Write a state, and the mark with it: both or neither."""
        if kept is None:
            await self.create(state, mark)
            return
        op, _ = write.store_op(self.universe.contracts, kept.held.replace(value=state), kept.held.rev)
        await self.commit([op], mark)

    async def create(self, state: S, mark: Mark | None = None, parent: str | None = None) -> None:
        """Write a state that was not there."""
        contracts = self.universe.contracts
        datum, _ = write.new_datum(contracts, state, schema=self.schema, id=self.id, parent=parent)
        await self.commit([Put(datum, 0, None, True)], mark)

    async def overwrite(self, state: S) -> None:
        """Write a state whatever was written since it was loaded."""
        found = await self.universe.get(self.id, raw=True)
        if found is None:
            await self.create(state)
        else:
            data, _ = self.schema.shape.settle(state)
            datum = found.replace(data=data, schema=self.schema.name, schema_version=self.schema.version)
            await self.commit([Put(datum, found.rev, None, True)], None)

    async def commit(self, ops: Sequence[Op], mark: Mark | None, guard: Guard | None = None) -> Committed:
        """Write ops, and a mark with them; raises VersionConflict if another step was saved meanwhile."""
        if mark is not None:
            if self.universe.contracts.by_name(STEP.name) is None:
                self.universe.register(STEP)
            datum = Datum(mark.id, data=codec.plain(mark.data), schema=STEP.name, schema_version=STEP.version)
            ops = [*ops, Put(datum, mark.rev, None, True)]
        try:
            return await self.universe.commit(ops, guard=guard)
        except TransactionConflict as error:
            raise VersionConflict(
                f"the state {self.name!r} was changed meanwhile", hint="take the step again", id=self.id
            ) from error

    async def find_mark(self, id: str) -> Datum | None:
        """Return the output of a step, or how far a stream was read."""
        found: Datum | None = await self.universe.get(id, raw=True)
        if found is not None and found.schema != STEP.name:
            raise Conflict(
                f"{id!r} holds {found.schema or 'a plain record'}, not the output of a step",
                hint="give the step, the flow or the functor another name",
                id=id,
            )
        return found

    def make_kept(self, found: Crystal[S] | Datum) -> Kept[S]:
        """Return a stored state; raises Conflict for a record that is none of this type."""
        if not isinstance(found, Crystal) or found.schema_name != self.schema.name:
            kind = found.schema_name if isinstance(found, Crystal) else found.schema
            raise Conflict(
                f"{self.id!r} holds {kind or 'a plain record'}, not {self.schema.name}",
                hint="give the functor another namespace, or the type that the state has",
                id=self.id,
            )
        return Kept(found.value, found)


def find_schema(universe: Universe, state_type: type[S]) -> Schema[S]:
    """Return the schema of a type of states."""
    if state_type is dict:
        return STATE  # type: ignore[return-value]
    try:
        return universe.schema_for(state_type)
    except NotFound:
        pass
    try:
        return Schema(f"state.{getattr(state_type, '__name__', 'unnamed')}", contract=state_type)
    except SchemaError as error:
        raise InputError(
            f"{state_type!r} cannot be a state: {error}",
            hint="use a dict, a dataclass, a pydantic model or a msgspec struct",
            field="state_type",
        ) from error
