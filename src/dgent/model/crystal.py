"""The crystal: a datum together with its typed, validated value."""

from __future__ import annotations

from collections.abc import Callable
from datetime import datetime
from typing import Any, Generic, TypeVar

import msgspec

from dgent import ids
from dgent.errors import DgentError, InputError, NewerRecord
from dgent.model import html
from dgent.model.datum import Datum
from dgent.model.schema import Schema

T = TypeVar("T")

_force = msgspec.structs.force_setattr
MAX_REPR = 100  # characters of a value
_CHANGEABLE = frozenset({"tags", "author", "source", "parent_id"})


class CrystalMeta(msgspec.Struct, frozen=True):
    """The schema envelope of a crystal.

    `crystallized_from` is the datum's id when its data was upgraded for reading, and None otherwise.
    `stored_version` is the version of the stored bytes, `schema_version` that of the value.
    """

    schema_name: str
    schema_version: int
    created_at: datetime
    crystallized_from: str | None
    stored_version: int


class Crystal(msgspec.Struct, Generic[T], frozen=True, eq=False, gc=False):
    """A datum as it is stored, and its value under one version of its schema.

    The datum stays as stored, also when the value came from an upgraded copy of its data. So fields that
    the contract does not know survive when the crystal is changed and stored again.
    """

    _kept: Any  # the datum, or what `_make` makes it of: most crystals are only asked for their value
    value: T
    schema_name: str
    schema_version: int
    _make: Callable[[Any], Datum] | None = None

    @property
    def datum(self) -> Datum:
        """The record as it is stored."""
        kept = self._kept
        if type(kept) is not Datum and self._make is not None:
            kept = self._make(kept)
            _force(self, "_kept", kept)
        found: Datum = kept
        return found

    @classmethod
    def from_datum(cls, datum: Datum, schema: Schema[T]) -> Crystal[T]:
        """Crystallize a datum; a raw one without a schema is read as the schema's own version.

        Raises UpgradeFailed, DecodeFailed or NewerRecord, each with the record's id in its details.
        """
        try:
            if datum.schema_version == schema.version and datum.schema == schema.name:
                raw = datum.raw
                value = schema.decode(datum.data) if raw is None else schema.shape.decode_json(raw)
            else:
                value = schema.decode(_in_shape(datum, schema))
        except DgentError as error:
            error.details.setdefault("id", datum.id)
            raise
        return cls(datum, value, schema.name, schema.version)

    def draft(self, schema: Schema[T]) -> Datum:
        """Return the datum to store: the value's data plus the fields that the contract does not know.

        A record that is stored in a newer version is never rewritten: that raises NewerRecord.
        """
        return self.settle(schema)[0]

    def settle(self, schema: Schema[T]) -> tuple[Datum, T]:
        """Return the datum to store, and the value as everyone will read it back."""
        datum = self.datum
        stored = datum.schema_version
        if stored is not None and stored > schema.version:
            raise NewerRecord(
                f"{datum.id} is stored as {schema.name} version {stored}, newer than {schema.version}",
                id=datum.id,
                schema=schema.name,
                stored=stored,
                version=schema.version,
            )
        data, value = schema.shape.settle(self.value)
        old = datum.data
        current = datum.schema == schema.name and stored == schema.version
        if old and not (current and schema.shape.knows_all(old)):
            data = schema.carry(_in_shape(datum, schema), data)
        return datum.replace(data=data, schema=schema.name, schema_version=schema.version), value

    def replace(self, **changes: Any) -> Crystal[T]:
        """Return a crystal of the same record with another value, tags, author, source or parent_id.

        The stored data stays underneath until `draft`, so unknown fields survive the change.
        """
        value = changes.pop("value", self.value)
        wrong = changes.keys() - _CHANGEABLE
        if wrong:
            allowed = ", ".join(["value", *sorted(_CHANGEABLE)])
            raise InputError(
                f"a crystal has no changeable {', '.join(sorted(wrong))}", hint=f"change {allowed}"
            )
        if "tags" in changes:
            changes["tags"] = ids.check_tags(changes["tags"])
        datum = self.datum.replace(**changes) if changes else self.datum
        return Crystal(datum, value, self.schema_name, self.schema_version)

    def with_tags(self, *tags: str) -> Crystal[T]:
        """Return a crystal of the same record with more tags."""
        return self.replace(tags=self.datum.tags | ids.check_tags(tags))

    @property
    def meta(self) -> CrystalMeta:
        """The schema envelope, built on request: most crystals are never asked for it."""
        return CrystalMeta(
            schema_name=self.schema_name,
            schema_version=self.schema_version,
            created_at=self.datum.created_at,
            crystallized_from=self.datum.id if self.was_upgraded else None,
            stored_version=self.datum.schema_version or self.schema_version,
        )

    @property
    def was_upgraded(self) -> bool:
        """True if the stored record is of an older version than the value."""
        return (self.datum.schema_version or self.schema_version) < self.schema_version

    @property
    def id(self) -> str:
        """The record's id."""
        return self.datum.id

    @property
    def rev(self) -> int | None:
        """The record's rev as it was read; None before it is stored."""
        return self.datum.rev

    @property
    def seq(self) -> int | None:
        """The commit that wrote this version; None before it is stored."""
        return self.datum.seq

    @property
    def tags(self) -> frozenset[str]:
        """The record's tags."""
        return self.datum.tags

    @property
    def author(self) -> str | None:
        """The author of this version."""
        return self.datum.author

    @property
    def source(self) -> str | None:
        """The origin of the record, as its writer named it."""
        return self.datum.source

    @property
    def parent_id(self) -> str | None:
        """The id of the record that caused this one."""
        return self.datum.parent_id

    @property
    def created_at(self) -> datetime:
        """The time when the record was made."""
        return self.datum.created_at

    @property
    def updated_at(self) -> datetime | None:
        """The time of the commit that wrote this version; None before it is stored."""
        return self.datum.updated_at

    @property
    def expires_at(self) -> datetime | None:
        """The time from which no read shows the record; None if it does not expire."""
        return self.datum.expires_at

    def __repr__(self) -> str:
        value = " ".join(repr(self.value).split())
        head = f"Crystal {self.schema_name} v{self.schema_version} {self.id!r:.50} rev {self.rev}"
        return f"<{head}: {value if len(value) <= MAX_REPR else value[: MAX_REPR - 1] + '…'}>"

    def _repr_html_(self) -> str:
        """Return the crystal as a notebook shows it."""
        about = {"id": self.id, "rev": self.rev, "tags": ", ".join(sorted(self.tags)), "author": self.author}
        made = {"made": f"{self.created_at:%Y-%m-%d %H:%M:%S} UTC", "value": self.value}
        return html.draw_fields(f"{self.schema_name} v{self.schema_version}", about | made)

    def __reduce__(self) -> tuple[Any, ...]:
        return Crystal, (self.datum, self.value, self.schema_name, self.schema_version)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Crystal):
            return NotImplemented
        return self.id == other.id and self.rev == other.rev and bool(self.value == other.value)

    def __hash__(self) -> int:
        return hash((self.id, self.rev))


def _in_shape(datum: Datum, schema: Schema[Any]) -> dict[str, Any]:
    """Return the datum's data in the version of the schema; refuses a record of another schema."""
    if datum.schema is None:
        return datum.data
    if datum.schema != schema.name:
        raise InputError(f"{datum.id} is a {datum.schema}, not a {schema.name}", field="schema", id=datum.id)
    return schema.shape_of(datum.data, datum.schema_version or schema.version)
