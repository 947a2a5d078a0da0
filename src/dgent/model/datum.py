"""The datum: the one thing dgent stores."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any, final

from dgent import clock, codec, ids
from dgent.errors import Corrupt, InputError

FIELDS = (
    "id",
    "created_at",
    "data",
    "content",
    "tags",
    "author",
    "source",
    "parent_id",
    "schema",
    "schema_version",
    "rev",
    "seq",
    "problem",
    "extra",
    "updated_at",
)


EXPIRES_AT = "expires_at"
"""The name of a record's time of expiry in `extra`, which programs keep that do not know it."""


class Blank:
    """A datum under construction: the slots, which can still be set.

    A finished one has the class Datum, which refuses changes. Switching the class is much quicker than
    setting eighteen attributes around a refusal, and every record read is made this way. Slots of
    `UNSET` may be left alone.
    """

    __slots__ = (
        "_at",
        "_created_at",
        "_data",
        "_raw",
        "_updated_at",
        "_us",
        "author",
        "content",
        "extra",
        "id",
        "parent_id",
        "problem",
        "rev",
        "schema",
        "schema_version",
        "seq",
        "source",
        "tags",
    )

    id: str
    content: bytes
    tags: frozenset[str]
    author: str | None
    source: str | None
    parent_id: str | None
    schema: str | None
    schema_version: int | None
    rev: int | None
    seq: int | None
    problem: str | None
    extra: dict[str, Any] | None
    _created_at: datetime | None
    _us: int
    _updated_at: datetime | None
    _at: int | None
    _data: dict[str, Any] | None
    _raw: bytes | None


UNSET: dict[str, Any] = {
    "content": b"",
    "source": None,
    "parent_id": None,
    "problem": None,
    "extra": None,
    "_created_at": None,
    "_data": None,
    "_raw": None,
    "_us": 0,
    "_updated_at": None,
    "_at": None,
}
"""The slots of a datum where nothing was set: most records have none of these."""

_make = object.__new__
_set = object.__setattr__


@final
class Datum(Blank):
    """One record: JSON-like data, opaque content, and its origin.

    `rev`, `seq` and `updated_at` are set by the store. `problem` says why a query gave this raw datum instead
    of a crystal. `extra` holds envelope fields that a newer dgent wrote. A datum cannot be changed;
    `replace` makes another one.
    """

    __slots__ = ()

    def __new__(
        cls,
        id: str | None = None,
        created_at: datetime | None = None,
        data: dict[str, Any] | None = None,
        content: bytes = b"",
        tags: frozenset[str] = frozenset(),
        author: str | None = None,
        source: str | None = None,
        parent_id: str | None = None,
        schema: str | None = None,
        schema_version: int | None = None,
        rev: int | None = None,
        seq: int | None = None,
        problem: str | None = None,
        extra: dict[str, Any] | None = None,
        updated_at: datetime | None = None,
        *,
        expires_at: datetime | None = None,
    ) -> Datum:
        new = _make(Blank)
        new.id = ids.new_id() if id is None else id
        new._created_at = clock.now() if created_at is None else created_at
        new._data = {} if data is None else data
        new._us, new._raw = 0, None
        new.content, new.tags, new.author, new.source = content, tags, author, source
        new.parent_id = parent_id
        new.schema, new.schema_version, new.rev, new.seq = schema, schema_version, rev, seq
        new.problem, new.extra = problem, extra
        if expires_at is not None:
            new.extra = add_expiry(extra, expires_at)
        new._updated_at, new._at = updated_at, None
        new.__class__ = Datum
        return new  # type: ignore[return-value]

    @property
    def created_at(self) -> datetime:
        """The time when the record was made, in UTC."""
        found = self._created_at
        if found is None:
            found = clock.from_us(self._us)
            _set(self, "_created_at", found)
        return found

    @property
    def updated_at(self) -> datetime | None:
        """The time of the commit that wrote this version, in UTC; None before it is stored."""
        found = self._updated_at
        if found is None and self._at is not None:
            found = clock.from_us(self._at)
            _set(self, "_updated_at", found)
        return found

    @property
    def expires_at(self) -> datetime | None:
        """The time when the record expires, in UTC: no read shows it from then on. None if it does not."""
        text = None if self.extra is None else self.extra.get(EXPIRES_AT)
        try:
            found = datetime.fromisoformat(text) if type(text) is str else None
            return None if found is None or found.tzinfo is None else found.astimezone(UTC)
        except (ValueError, OverflowError):
            return None

    @property
    def data(self) -> dict[str, Any]:
        """The JSON-like data."""
        found = self._data
        if found is None:
            found = codec.decode(self._raw or b"{}")
            if type(found) is not dict:
                raise Corrupt(f"the data of {self.id!r} is not a map")
            _set(self, "_data", found)
        return found

    @property
    def raw(self) -> bytes | None:
        """The JSON of the data, where it was read and not decoded yet."""
        return self._raw

    def __getattr__(self, name: str) -> Any:
        try:
            return UNSET[name]
        except KeyError:
            raise AttributeError(f"a Datum has no {name!r}") from None

    def __setattr__(self, name: str, value: object) -> None:
        raise AttributeError(f"a Datum cannot be changed; use replace({name}=...)")

    def __delattr__(self, name: str) -> None:
        raise AttributeError(f"a Datum cannot be changed; {name} stays")

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Datum):
            return NotImplemented
        return self._tuple() == other._tuple()

    def __hash__(self) -> int:
        return hash((self.id, self.rev))

    def __repr__(self) -> str:
        parts = [f"{name}={value!r}" for name, value in zip(FIELDS, self._tuple(), strict=True)]
        return f"Datum({', '.join(parts)})"

    def __reduce__(self) -> tuple[Any, ...]:
        return Datum, self._tuple()

    def _tuple(self) -> tuple[Any, ...]:
        return tuple(getattr(self, name) for name in FIELDS)

    @classmethod
    def create(cls, data: Mapping[str, Any] | None = None, **fields: Any) -> Datum:
        """Return a checked datum; raises InputError naming the field that cannot be stored."""
        return cls(data=dict(data or {}), **fields).check()

    def replace(self, **changes: Any) -> Datum:
        """Return a copy with some fields changed."""
        new = _copy(self)
        for name, value in changes.items():
            if name == "data":
                new._data, new._raw = value, None
            elif name == "created_at":
                new._created_at = value
            elif name == "updated_at":
                new._updated_at, new._at = value, None
            elif name == "expires_at":
                new.extra = add_expiry(changes.get("extra", self.extra), value)
            elif name in FIELDS:
                setattr(new, name, value)
            else:
                raise TypeError(f"a Datum has no field {name!r}")
        new.__class__ = Datum
        return new  # type: ignore[return-value]

    def with_tags(self, *tags: str) -> Datum:
        """Return a copy with more tags."""
        return self.replace(tags=self.tags | ids.check_tags(tags))

    def derive(self, data: Mapping[str, Any] | None = None, **fields: Any) -> Datum:
        """Return a new datum that this one caused."""
        return Datum.create(data, parent_id=self.id, **fields)

    def check(self, plain: bool = False) -> Datum:
        """Return this datum in storable form, or raise an InputError that names the wrong field.

        `plain` says that data and tags were checked before and need no second look.
        """
        exact = self.check_envelope()
        if plain:
            return exact
        return exact.replace(data=codec.plain(exact.data), tags=ids.check_tags(exact.tags))

    def check_envelope(self) -> Datum:
        """Check everything but the contents of data and tags.

        Names that are not plain texts, such as members of an enum, become the texts they hold.
        """
        made, data = self._created_at or self.created_at, self._data
        exact = ids.check_id(self.id) is self.id
        if not isinstance(made, datetime):
            raise InputError("created_at must be a datetime", field="created_at")
        if made.tzinfo is not UTC:
            clock.to_us(made)
        if data is None:
            data = self.data
        if not isinstance(data, dict):
            raise InputError(f"data must be a dict, not {type(data).__name__}", field="data")
        if not isinstance(self.content, bytes):
            raise InputError(f"content must be bytes, not {type(self.content).__name__}", field="content")
        if self._check_names() and exact:
            return self
        names = {name: getattr(self, name) for name in ("id", "author", "source", "schema", "parent_id")}
        return self.replace(**{name: str.__str__(text) for name, text in names.items() if text is not None})

    def _check_names(self) -> bool:
        """Check the names and the version; return whether the names are plain texts."""
        author, source, schema, parent = self.author, self.source, self.schema, self.parent_id
        version, exact = self.schema_version, True
        if author is not None:
            exact = ids.check_name(author, "author") is author
        if source is not None:
            exact = ids.check_name(source, "source") is source and exact
        if schema is not None:
            exact = ids.check_name(schema, "schema") is schema and exact
        if parent is not None:
            exact = ids.check_id(parent, "parent_id") is parent and exact
        if schema is None:
            if version is not None:
                raise InputError("schema_version is set but schema is not", field="schema_version")
        elif type(version) is not int or not 1 <= version < 2**31:
            raise InputError(
                "schema_version must be a whole number from 1 when schema is set", field="schema_version"
            )
        return exact


def add_expiry(extra: dict[str, Any] | None, moment: datetime | None) -> dict[str, Any] | None:
    """Return envelope fields with another time when the record expires; None: it does not."""
    rest = {name: value for name, value in (extra or {}).items() if name != EXPIRES_AT}
    if moment is None:
        return rest or None
    if not isinstance(moment, datetime) or moment.tzinfo is None:
        raise InputError(
            f"expires_at must be a datetime with a time zone, not {moment!r}",
            hint="datetime.now(UTC) + timedelta(days=14)",
            field="expires_at",
        )
    return {**rest, EXPIRES_AT: clock.text(moment)}


def _copy(datum: Datum) -> Blank:
    new = _make(Blank)
    new.id, new.content, new.tags, new.extra = datum.id, datum.content, datum.tags, datum.extra
    new.author, new.source, new.parent_id = datum.author, datum.source, datum.parent_id
    new.schema, new.schema_version = datum.schema, datum.schema_version
    new.rev, new.seq, new.problem = datum.rev, datum.seq, datum.problem
    new._created_at, new._us, new._data, new._raw = datum._created_at, datum._us, datum._data, datum._raw
    new._updated_at, new._at = datum._updated_at, datum._at
    return new


def make_fresh(
    id: str,
    created_us: int,
    data: dict[str, Any],
    tags: frozenset[str],
    author: str,
    schema: str,
    version: int,
) -> Datum:
    """Return a datum with these fields only, which are known to be storable."""
    new = _make(Blank)
    new.id, new._us, new._data, new.tags, new.author = id, created_us, data, tags, author
    new.schema, new.schema_version, new.rev, new.seq = schema, version, None, None
    new.__class__ = Datum
    return new  # type: ignore[return-value]


def make_stored(
    id: str,
    created_us: int,
    data: dict[str, Any],
    tags: frozenset[str],
    author: str,
    schema: str,
    version: int,
    seq: int,
    at_us: int,
) -> Datum:
    """Return a datum with these fields only, as a commit stored its first version."""
    new = _make(Blank)
    new.id, new._us, new._data, new.tags, new.author = id, created_us, data, tags, author
    new.schema, new.schema_version, new.rev, new.seq, new._at = schema, version, 1, seq, at_us
    new.__class__ = Datum
    return new  # type: ignore[return-value]


def stamp_fresh(datum: Datum, rev: int, seq: int | None, at_us: int | None) -> Datum:
    """Return a datum of `make_fresh` as a commit stored it; nobody has seen it yet, so it may be changed."""
    _set(datum, "rev", rev)
    _set(datum, "seq", seq)
    _set(datum, "_at", at_us)
    return datum


def stamp(datum: Datum, rev: int, seq: int | None, at_us: int | None, author: str) -> Datum:
    """Return a copy of a datum as a commit stored it: with rev, seq, time, and an author if it has none."""
    new = _copy(datum)
    new.rev, new.seq, new._updated_at, new._at = rev, seq, None, at_us
    if new.author is None:
        new.author = author
    new.__class__ = Datum
    return new  # type: ignore[return-value]
