"""Rows of one table as datums, and datums as rows."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from sqlalchemy import Column, Table, UniqueConstraint, inspect, types
from sqlalchemy.exc import NoInspectionAvailable

from dgent import codec
from dgent.errors import Corrupt, InputError, Unsupported
from dgent.model.datum import Datum
from dgent.tables.convert import Converter, check_value, converter_of

SOURCE = "alembic"
"""The source of every datum that is a row of a table."""
EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
"""The time of a row whose table has none."""


def table_of(model: Any) -> Table:
    """Return the table of a mapped class, or the table that was given."""
    if isinstance(model, Table):
        return model
    try:
        found = inspect(model).local_table
    except NoInspectionAvailable:
        found = None
    if not isinstance(found, Table):
        raise InputError(
            f"{model!r} is neither a Table nor a mapped class of SQLAlchemy",
            hint="give a class with __tablename__, or a Table, which may be a reflected one",
            field="model",
        )
    return found


class Rows:
    """Converts between the rows of a table and datums; `key` has the columns that make the id."""

    def __init__(self, model: Any, id_field: str | Sequence[str] | None, parent_field: str) -> None:
        self.model, self.table = model, table_of(model)
        self.name = _plain(self.table.name)
        self.schema = f"table.{self.name}"
        self.columns: dict[str, Column[Any]] = {_plain(column.name): column for column in self.table.columns}
        self.key = self._find_key(id_field)
        self.parent = parent_field if parent_field in self.columns else None
        self.created = self._find_time("created_at")
        self.updated = self._find_time("updated_at")
        self.json = frozenset(
            name for name, column in self.columns.items() if isinstance(column.type, types.JSON)
        )
        converters = {name: converter_of(column.type) for name, column in self.columns.items()}
        self._converters: dict[str, Converter] = converters
        # Values that are the same in JSON are not touched: those of most columns.
        self._write = [(name, None if each.writes_same else each.write) for name, each in converters.items()]
        self._key_places = [list(self.columns).index(name) for name in self.key]

    def _find_key(self, id_field: str | Sequence[str] | None) -> tuple[str, ...]:
        if id_field is None:
            names = tuple(_plain(column.name) for column in self.table.primary_key)
            # Several rows may have an id that is only a part of the key.
            if "id" in self.columns and (not names or self._is_unique("id")):
                names = ("id",)
        else:
            names = (id_field,) if isinstance(id_field, str) else tuple(id_field)
        unknown = [name for name in names or ("id",) if name not in self.columns]
        if unknown:
            raise InputError(
                f"the table {self.name} has no column {unknown[0]!r} (it has {self._list_names()})",
                hint="give id_field=, or several names for a key of several columns",
                field="id_field",
            )
        return names

    def _is_unique(self, name: str) -> bool:
        column = self.columns[name]
        made: list[Any] = [*self.table.constraints, *self.table.indexes]
        alone = (
            tuple(each.columns)
            for each in made
            if isinstance(each, UniqueConstraint) or getattr(each, "unique", False)
        )
        return bool(column.unique) or (column,) in alone

    def _find_time(self, name: str) -> str | None:
        column = self.columns.get(name)
        return name if column is not None and isinstance(column.type, types.DateTime) else None

    def _list_names(self) -> str:
        return ", ".join(self.columns)

    # -- ids ------------------------------------------------------------------------------

    def read_id(self, id: str) -> tuple[Any, ...]:
        """Return the values of the key's columns for an id; raises InputError for one they cannot hold."""
        if not isinstance(id, str):
            raise InputError(f"an id is a text, not {type(id).__name__}", field="id")
        if len(self.key) == 1:
            return (self._read_key(self.key[0], id),)
        parts = _decode(id.encode(errors="replace"))
        if not isinstance(parts, list) or len(parts) != len(self.key):
            raise InputError(
                f"{id!r} is not a valid id of {self.name}, whose key is {', '.join(self.key)}",
                hint='write a JSON list of its values, like ["a", 1]',
                field="id",
            )
        return tuple(self.read_value(name, part) for name, part in zip(self.key, parts, strict=True))

    def _read_key(self, name: str, id: str) -> Any:
        column = self.columns[name]
        if isinstance(column.type, types.Integer):
            return check_value(column, id, int)
        return self.read_value(name, id)

    def write_key(self, id: str) -> list[Any]:
        """Return the JSON values of the key's columns for an id."""
        return [
            self._converters[name].write(value)
            for name, value in zip(self.key, self.read_id(id), strict=True)
        ]

    def write_id(self, values: Sequence[Any]) -> str:
        """Return the id for the JSON values of the key's columns."""
        if len(values) == 1:
            return str(values[0])
        return codec.encode(list(values)).decode()

    # -- rows to datums -------------------------------------------------------------------

    def write_data(self, row: Sequence[Any]) -> dict[str, Any]:
        """Return a row as JSON data by column."""
        return {
            name: value if convert is None or value is None else convert(value)
            for (name, convert), value in zip(self._write, row, strict=True)
        }

    def make_datum(self, row: Sequence[Any], serialize: Callable[[Any], bytes] | None = None) -> Datum:
        """Return a row as a datum; without `serialize` its content is its data as JSON."""
        data = self.write_data(row)
        if serialize is not None:
            content = serialize(self._make_object(row))
        else:
            try:
                content = codec.encode(data)
            except (TypeError, ValueError, msgspec.EncodeError) as error:
                raise Unsupported(
                    f"a row of {self.name} has no form in JSON: {error}",
                    hint="give serialize= and deserialize=",
                ) from None
        created, updated = self.created, self.updated
        return Datum(
            id=self.write_id([data[name] for name in self.key]),
            created_at=_read_time(data[created]) if created and data[created] else EPOCH,
            data=data,
            content=content,
            source=SOURCE,
            parent_id=None if self.parent is None or data[self.parent] is None else str(data[self.parent]),
            schema=self.schema,
            schema_version=1,
            updated_at=_read_time(data[updated]) if updated and data[updated] else None,
        )

    def _make_object(self, row: Sequence[Any]) -> Any:
        """Return a row as its mapped class has it, or as a dict by column."""
        values = dict(zip(self.columns, row, strict=True))
        return values if self.model is self.table else self._fill(values)

    def to_object(self, data: Mapping[str, Any]) -> Any:
        """Return JSON data as the mapped class has it, in no session, or as a dict by column."""
        values = self.read_data(data)
        return values if self.model is self.table else self._fill(values)

    def _fill(self, values: Mapping[str, Any]) -> Any:
        """Return an object of the mapped class, without its constructor, as when SQLAlchemy loads one."""
        made = self.model.__new__(self.model)
        inspect(self.model).class_manager.setup_instance(made)
        keys = self._list_attributes()
        made.__dict__.update((keys[name], value) for name, value in values.items())
        return made

    def to_data(self, made: Any) -> dict[str, Any]:
        """Return the JSON data of an object of the mapped class or a dict by column, as far as it is set."""
        values = made if self.model is self.table else self._read_object(made)
        converters = self._converters
        return {
            name: None if value is None else converters[name].write(value) for name, value in values.items()
        }

    def find_id(self, data: Mapping[str, Any]) -> str | None:
        """Return the id of a row with this data; None where a column of the key is not set."""
        found = [data.get(name) for name in self.key]
        return None if None in found else self.write_id(found)

    # -- datums to rows -------------------------------------------------------------------

    def read_value(self, name: str, value: Any) -> Any:
        """Return the value of a column for one of JSON."""
        return check_value(self.columns[name], value, self._converters[name].read)

    def read_data(self, data: Mapping[str, Any]) -> dict[str, Any]:
        """Return the values of columns for JSON data; raises InputError for keys the table does not have."""
        unknown = [name for name in data if name not in self.columns]
        if unknown:
            raise InputError(
                f"the table {self.name} has no column {unknown[0]!r} (it has {self._list_names()})",
                hint="leave it out, or add the column by a migration",
                field=unknown[0],
            )
        return {name: self.read_value(name, value) for name, value in data.items()}

    def read_datum(self, datum: Datum, deserialize: Callable[[bytes], Any] | None) -> dict[str, Any]:
        """Return the row of a datum; its id and parent go to the columns that have them."""
        if deserialize is not None and datum.content:
            values = self._read_object(deserialize(datum.content))
        else:
            values = self.read_data(self._find_data(datum))
        key = self.read_id(datum.id)
        for name, value in zip(self.key, key, strict=True):
            if values.setdefault(name, value) != value:
                raise InputError(
                    f"the datum {datum.id!r} has another {name!r}: {values[name]!r}",
                    hint="give it the id of its row",
                    field=name,
                )
        if self.parent is not None and datum.parent_id is not None:
            parent = self._read_key(self.parent, datum.parent_id)
            if values.get(self.parent) is None:
                values[self.parent] = parent
            elif values[self.parent] != parent:
                raise InputError(
                    f"the datum {datum.id!r} has the parent {datum.parent_id!r}, its data has another one",
                    hint=f"change {self.parent!r} in its data, too",
                    field=self.parent,
                )
        return values

    def find_time(self, datum: Datum, values: Mapping[str, Any]) -> dict[str, Any]:
        """Return the time for a row that is new: that of its datum, unless its values have one."""
        if self.created is None or self.created in values:
            return {}
        return {self.created: self.read_value(self.created, datum.created_at)}

    def _find_data(self, datum: Datum) -> Mapping[str, Any]:
        if datum.data or not datum.content:
            return datum.data
        found = _decode(datum.content)
        if not isinstance(found, dict):
            raise InputError(
                f"the content of {datum.id!r} is not a JSON object",
                hint="put the row in its data, or give deserialize=",
                field="content",
            )
        return found

    def _read_object(self, made: Any) -> dict[str, Any]:
        """Return the row of what `deserialize` gave: a dict by column, or an object of the mapped class."""
        if isinstance(made, Mapping):
            return self.read_data(made)
        return self.read_object(made)

    # -- objects --------------------------------------------------------------------------

    def _list_attributes(self) -> dict[str, str]:
        """Return the attributes of the mapped class by column: a column may have another name there."""
        if self.model is self.table:
            return {name: name for name in self.columns}
        mapper = inspect(self.model)
        return {name: mapper.get_property_by_column(column).key for name, column in self.columns.items()}

    def read_object(self, made: Any) -> dict[str, Any]:
        """Return the values of columns that an object of the mapped class has; others are left out."""
        if self.model is self.table or not isinstance(made, self.model):
            raise InputError(
                f"expected a row of {self.name}, got {type(made).__name__}",
                hint="give an object of the mapped class, or a dict by column",
            )
        given = vars(made)
        return {name: given[key] for name, key in self._list_attributes().items() if key in given}


def _plain(name: str) -> str:
    """Return a name as a plain text: SQLAlchemy has a class of its own for those that need quotes."""
    return str.__str__(name)


def _decode(raw: bytes) -> Any:
    """Return the value of JSON bytes; None for what is not JSON."""
    try:
        return codec.decode(raw)
    except Corrupt:
        return None


def _read_time(text: str) -> datetime:
    return datetime.fromisoformat(text)
