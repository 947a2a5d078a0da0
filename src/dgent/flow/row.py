"""States as rows of a table: the newest one only, written if nobody changed the row meanwhile."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Generic, NoReturn, Protocol, TypeVar
from weakref import WeakKeyDictionary

from dgent.errors import InputError, Unsupported, VersionConflict
from dgent.flow.keep import Kept, Mark
from dgent.flow.patch import copy_plain, find_patch
from dgent.model.datum import Datum
from dgent.universe.transaction import Names

S = TypeVar("S")


class Columns(Protocol[S]):
    """Rows and their data: a JSON-like dict of the columns, from which the row can be made again."""

    model: Any

    def to_data(self, row: S, /) -> dict[str, Any]:
        """Return the data of a row, as far as its columns are set."""
        ...

    def to_row(self, data: Mapping[str, Any], /) -> S:
        """Return the row of some data, which is in no session."""
        ...


class Rows(Columns[S], Protocol[S]):
    """A table whose rows can be states, as `dgent.tables.TableAdapter` is one."""

    def find_id(self, data: Mapping[str, Any], /) -> str | None:
        """Return the id of the row with this data; None where a column of its key is not set."""
        ...

    async def get(self, id: str, /) -> Datum | None:
        """Return a row as a datum with its data; None if there is none."""
        ...

    async def replace(
        self,
        id: str,
        old_data: Mapping[str, Any] | None,
        new_data: Mapping[str, Any],
        /,
        version_field: str | None = None,
    ) -> bool:
        """Write a row if it is still as in the old data, and return whether it was; without them insert it.

        It is compared by its version field, or else by all its columns, in the statement that writes it.
        """
        ...


def kind_of(rows: Columns[S]) -> type[S]:
    """Return the type of the rows of a table: the mapped class, or a dict by column."""
    found: type[S] = rows.model if isinstance(rows.model, type) else dict
    return found


_names: WeakKeyDictionary[Any, Names] = WeakKeyDictionary()


class RowKeeper(Generic[S]):
    """Keeps a state as one row of a table."""

    def __init__(self, rows: Rows[S], key: str, version_field: str | None = None) -> None:
        self.rows = rows
        self.key = key
        self.version_field = version_field
        self.kind = kind_of(rows)
        table = getattr(rows.model, "__tablename__", None) or getattr(rows.model, "name", self.kind.__name__)
        self.name = f"{table}/{key}"
        self.names = _names.setdefault(rows, Names())

    async def load(self) -> Kept[S] | None:
        """Return the row as it is now."""
        found = await self.rows.get(self.key)
        return None if found is None else Kept(self.rows.to_row(copy_plain(found.data)), found.data)

    async def save(self, state: S, kept: Kept[S] | None, mark: Mark | None = None) -> None:
        """Write the row; raises VersionConflict if somebody else changed it, or made it."""
        if mark is not None:
            self._refuse_marks()
        old: Mapping[str, Any] | None = None if kept is None else kept.held
        new = self._data_of(state)
        if old is not None and find_patch(dict(old), new) is None:
            return
        field = self.version_field
        if field is not None:
            new[field] = self._version(new if old is None else old) + (old is not None)
        if not await self.rows.replace(self.key, old, new, version_field=field):
            raise VersionConflict(
                f"the row {self.name!r} was changed meanwhile", hint="take the step again", id=self.key
            )

    def _data_of(self, state: S) -> dict[str, Any]:
        if not isinstance(state, self.kind):
            raise InputError(
                f"expected a {self.kind.__name__} as the state, got a {type(state).__name__}",
                hint="return (output, state), where state is a row of the table",
                field="state",
            )
        data = self.rows.to_data(state)
        id = self.rows.find_id(data)
        if id is not None and id != self.key:
            raise InputError(
                f"the state is the row {self.key!r}, and its id became {id!r}",
                hint="leave the id of the row as it is",
                field="id",
            )
        return data

    def _version(self, data: Mapping[str, Any]) -> int:
        found = data.get(self.version_field or "", 0)
        if type(found) is not int:
            raise InputError(
                f"the version field {self.version_field!r} of the row {self.name!r} is {found!r:.60}",
                hint="name a column of whole numbers, or leave out version_field",
                field="version_field",
            )
        return found

    def copy(self, state: S) -> S:
        """Return a row with the same data, in no session."""
        return self.rows.to_row(copy_plain(self.rows.to_data(state)))

    async def find_mark(self, id: str) -> Datum | None:
        """Refuse: a table of rows has no place for outputs of steps."""
        self._refuse_marks()

    def _refuse_marks(self) -> NoReturn:
        raise Unsupported(
            f"the state {self.name!r} is a row of a table, which keeps no outputs of steps",
            hint="leave out the step, or keep the state on a universe",
        )


def find_key(rows: Rows[S], initial_state: S | None, key: str | None) -> str:
    """Return the id of the row that is the state: as it is given, or that of the state to begin with."""
    found = key
    if found is None and initial_state is not None:
        found = rows.find_id(rows.to_data(initial_state))
    if type(found) is not str or not found:
        raise InputError(
            f"the id of the row is missing or not a text: {found!r:.60}",
            hint='from_table_adapter(adapter, initial_state, key="…")',
            field="key",
        )
    return found
