"""The bridge from application state to memory, as a functor: agents over rows as agents over datums."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from dgent.errors import InputError
from dgent.flow.agent import Agent
from dgent.flow.functor import Functor
from dgent.flow.row import Columns
from dgent.model.datum import Datum


class BridgeFunctor(Functor):
    """Runs an agent on a column of a row that comes as a datum.

    Its identity law is that a row is the same after the way to a datum and back. It is lossy: a datum has the
    data of a row, and no longer the types of its columns.
    """

    name = "Bridge"
    loses = "the types of columns"

    def __init__(
        self, rows: Columns[Any] | None = None, field: str = "number", sample: Mapping[str, Any] | None = None
    ) -> None:
        self._rows: Columns[Any] = _Numbers() if rows is None else rows
        self._field = field
        self._sample = {"id": "sample"} if sample is None else sample

    def lift(self, agent: Agent[Any, Any]) -> Agent[Any, Any]:
        """Return the agent over datums."""
        return _Bridged(self._rows, self._field, agent)

    def unlift(self, lifted: Any) -> Agent[Any, Any]:
        """Return the agent over values of the column."""
        if not isinstance(lifted, _Bridged):
            raise InputError(f"{lifted!r:.60} was not lifted by {self.name}", field="lifted")
        return lifted.inner

    def pure(self, value: Any) -> Datum:
        """Return a row with a value, as a datum."""
        return Datum("sample", data={**self._sample, self._field: value}, schema="table.sample")

    async def observe(self, lifted: Any, given: Any) -> Any:
        """Return the data of the datum that comes out."""
        found = await lifted.invoke(given)
        return found.id, found.schema, found.data

    async def observe_unchanged(self, given: Any) -> Any:
        """Return the data of a datum."""
        return given.id, given.schema, given.data


class _Bridged(Agent[Datum, Datum]):
    def __init__(self, rows: Columns[Any], field: str, inner: Agent[Any, Any]) -> None:
        self.inner = inner
        self._rows, self._field = rows, field

    @property
    def name(self) -> str:
        """The name of the functor and of the agent within."""
        return f"Bridge({self.inner.name})"

    async def invoke(self, input: Datum, /) -> Datum:
        """Make the row of a datum, run the agent on the column, and make a datum of it again."""
        row = self._rows.to_row(input.data)
        setattr(row, self._field, await self.inner.invoke(getattr(row, self._field)))
        return input.replace(data=self._rows.to_data(row))


@dataclass
class _Number:
    id: str
    number: int


class _Numbers:
    """Rows without a database, for the laws of the bridge itself."""

    model = _Number

    def to_data(self, row: _Number, /) -> dict[str, Any]:
        """Return the data of a row."""
        return asdict(row)

    def to_row(self, data: Mapping[str, Any], /) -> _Number:
        """Return the row of some data."""
        return _Number(**data)
