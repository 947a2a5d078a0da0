"""Queries: checked when they are written down, with their meaning in plain Python.

`Query.matches` is the definition; engines may only be faster. `Query.filter` gives the `where`
part as a tree of conditions for a planner to pick indexes from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from collections.abc import Set as AbstractSet
from datetime import UTC, datetime
from functools import cached_property
from typing import Any, TypeAlias

import msgspec

from dgent import clock, codec, ids
from dgent.errors import InputError, QueryError
from dgent.model import order
from dgent.model.datum import Datum
from dgent.model.path import Path, read
from dgent.model.where import NOTHING, All, WhereParser, form, may_hold, path_of, refusal

Shape: TypeAlias = Callable[[Datum], Mapping[str, Any]]

MAX_LIMIT = 2**62

_force = msgspec.structs.force_setattr


class Query(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """The records to find, their order and their number; raises QueryError for a wrong field at once.

    `order_by="created_at"` is the time of the record, `"updated_at"` that of its newest version, `"seq"` the
    number of the commit that wrote that; any other text is a path into its data, and the tuple
    `("created_at",)` is a data field of that name. A record that is not committed yet counts as updated after
    all others. `ids` and `parents` are sets: a record with one of them matches, and none if there are none.
    `expired` asks for records that have expired and that no sweep has deleted yet, instead of all others.
    `allow` is one more test that a record must pass, set by callers that may not show everything; it is not
    part of the query's digest.
    """

    schema: str | None = None
    tags: AbstractSet[str] = frozenset()
    any_tags: AbstractSet[str] = frozenset()
    author: str | None = None
    source: str | None = None
    parent: str | None = None
    parents: AbstractSet[str] | None = None
    ids: AbstractSet[str] | None = None
    prefix: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    updated_since: datetime | None = None
    updated_until: datetime | None = None
    where: Mapping[Any, Any] | None = None
    order_by: str | tuple[str, ...] = "created_at"
    descending: bool = True
    limit: int | None = 100
    offset: int = 0
    cursor: str | None = None
    content: bool = True
    expired: bool = False
    allow: Callable[[Datum], bool] | None = None

    def __post_init__(self) -> None:
        try:
            _check_envelope(self)
        except QueryError:
            raise
        except InputError as error:
            raise QueryError(error.message, hint=error.hint, **error.details) from None
        _check_page(self)
        if isinstance(self.order_by, list):
            _force(self, "order_by", tuple(self.order_by))
        # A planner asks for these many times, so they are made and checked now.
        made = self.__dict__
        made["order_path"] = None if self.order_by in _TIMES else path_of("order_by", self.order_by)
        made["filter"] = NOTHING if self.where is None else All(tuple(WhereParser().where(self.where, 1)))

    @property
    def narrows(self) -> bool:
        """True if it asks for more than the schema of records, and what may be seen of them."""
        texts = self.author, self.source, self.parent, self.prefix
        times = self.since, self.until, self.updated_since, self.updated_until
        others = self.tags, self.any_tags, self.where
        if self.ids is not None or self.parents is not None:
            return True
        return any(each is not None and each != frozenset() for each in (*texts, *times, *others))

    @cached_property
    def filter(self) -> All:
        """The `where` part as conditions, with `$and` flattened into the top."""
        return NOTHING if self.where is None else All(tuple(WhereParser().where(self.where, 1)))

    @cached_property
    def order_path(self) -> Path | None:
        """The path into data that orders the answer; None is one of the times of the record."""
        return None if self.order_by in _TIMES else path_of("order_by", self.order_by)

    @property
    def by_creation(self) -> bool:
        """True if the answer is in the order of creation."""
        return self.order_by == "created_at"

    @property
    def by_update(self) -> bool:
        """True if the answer is in the order of the newest versions: by their times, or their commits."""
        return self.order_by == "updated_at" or self.order_by == "seq"

    @property
    def by_seq(self) -> bool:
        """True if the answer is in the order of the commits that wrote the newest versions."""
        return self.order_by == "seq"

    def matches(self, datum: Datum, data: Mapping[str, Any] | Shape | None = None) -> bool:
        """Return whether a record matches; `data`, if given, is tested instead of the record's own data.

        It may be a function that gives the data. That is called last, so never with what may not be seen.
        """
        compiled = self.__dict__.get("_compiled")
        if compiled is None:
            compiled = _envelope_checks(self), tuple(part.test for part in self.filter.parts)
            self.__dict__["_compiled"] = compiled
        for check in compiled[0]:
            if not check(datum):
                return False
        if not compiled[1]:
            return True
        found = datum.data if data is None else data(datum) if callable(data) else data
        for test in compiled[1]:  # noqa: SIM110 - a generator costs as much as a check
            if not test(found):
                return False
        return True

    def may_match(self, datum: Datum) -> bool:
        """Return whether a record does not match, but could if it had the fields that it lacks."""
        if self.matches(datum) or not all(check(datum) for check in _envelope_checks(self)):
            return False
        return may_hold(self.filter, datum.data)

    def order_key(self, data: Any) -> bytes:
        """Return the sort key of data in the order of this query; empty when the time alone decides."""
        path = self.order_path
        return b"" if path is None else order.key(read(data, path))

    def sort_key(self, datum: Datum, data: Mapping[str, Any] | None = None) -> tuple[bytes, int]:
        """Return the sort key of a record: its key at `order_by`, and its time of creation in microseconds.

        In the order of updates there is only the time of the update, or the number of its commit. Equal
        records are in the order of their first commits.
        """
        if self.by_seq:
            return update_key(datum.seq), 0
        if self.by_update:
            updated = datum.updated_at
            return update_key(None if updated is None else clock.to_us(updated)), 0
        return self.order_key(datum.data if data is None else data), clock.to_us(datum.created_at)

    def replace(self, **changes: Any) -> Query:
        """Return a copy with some fields changed, checked again."""
        return msgspec.structs.replace(self, **changes)

    def first(self, n: int) -> Query:
        """Return a copy that gives at most n records."""
        return self.replace(limit=n)

    def digest(self) -> bytes:
        """16 bytes that identify this query, the same for each page of it."""
        found: bytes | None = self.__dict__.get("_digest")
        if found is None:
            names = [self.schema, self.author, self.source, self.parent, self.prefix]
            times, updated = _times(self.since, self.until), _times(self.updated_since, self.updated_until)
            tags = [sorted(self.tags), sorted(self.any_tags)]
            whole = [1, names, times, tags, form(self.filter), self.order_path, self.descending]
            if self.by_update or updated != [None, None]:
                whole += ["seq" if self.by_seq else self.by_update, updated]
            if self.ids is not None or self.parents is not None:
                whole += [["one of", *map(_sorted, (self.ids, self.parents))]]
            if self.expired:
                whole += ["expired"]
            found = codec.blake2b(codec.canonical(whole), size=16).digest()
            self.__dict__["_digest"] = found
        return found


_TIMES = ("created_at", "updated_at", "seq")


def update_key(at: int | None) -> bytes:
    """Return the order key of an update's time in microseconds, or of its seq; None is after all others."""
    return b"\xff" * 9 if at is None else (at + 2**63).to_bytes(8, "big")


def update_time(key: bytes) -> int:
    """Return the time or the seq of an order key."""
    return int.from_bytes(key[:8], "big") - 2**63


def _sorted(texts: AbstractSet[str] | None) -> list[str] | None:
    return None if texts is None else sorted(texts)


def _times(*moments: datetime | None) -> list[int | None]:
    return [None if moment is None else clock.to_us(moment) for moment in moments]


def _check_envelope(query: Query) -> None:
    for field, value in (("schema", query.schema), ("author", query.author), ("source", query.source)):
        if value is not None and (text := ids.check_name(value, field)) is not value:
            _force(query, field, text)
    for field, value in (("parent", query.parent), ("prefix", query.prefix)):
        if value is not None and (text := ids.check_id(value, field)) is not value:
            _force(query, field, text)
    for field, many in (("ids", query.ids), ("parents", query.parents)):
        if many is not None:
            _force(query, field, _check_many(many, field))
    for field, tags in (("tags", query.tags), ("any_tags", query.any_tags)):
        if tags or type(tags) is not frozenset:
            try:
                checked = ids.check_tags(tags, field)
            except TypeError:
                raise refusal(field, "must be a set of texts") from None
            if checked is not tags:
                _force(query, field, checked)
    if query.order_by in ("-created_at", "-updated_at", "-seq"):  # as other libraries write it
        hint = f'order_by="{query.order_by[1:]}" is newest first; descending=False turns it round'
        raise refusal("order_by", f"is {query.order_by!r}", hint)
    for field in ("since", "until", "updated_since", "updated_until"):
        moment = getattr(query, field)
        if moment is not None:
            _force(query, field, _utc(moment, field))


def _check_many(given: Any, field: str) -> frozenset[str]:
    """Return a set of ids, checked; sorted lists and tuples are fine too, a single text is not."""
    if isinstance(given, str | bytes | Mapping) or not hasattr(given, "__iter__"):
        raise refusal(field, f"must be a set of ids, not {type(given).__name__}")
    return frozenset(ids.check_id(each, field) for each in given)


def _utc(moment: Any, field: str) -> datetime:
    if not isinstance(moment, datetime):
        raise refusal(field, f"must be a datetime, not {type(moment).__name__}")
    if moment.utcoffset() is None:
        raise refusal(field, "is a datetime without a time zone", "use datetime.now(UTC) or attach a tzinfo")
    try:
        # In UTC, because two times of one zone compare by wall clock, wrongly when it is set back.
        return moment.astimezone(UTC)
    except OverflowError:
        raise refusal(field, "is outside the years 1 to 9999 in UTC") from None


def _check_page(query: Query) -> None:
    limit, offset, cursor = query.limit, query.offset, query.cursor
    if limit is not None and (type(limit) is not int or not 1 <= limit <= MAX_LIMIT):
        raise refusal("limit", f"must be a whole number from 1, not {limit!r}", "None gives all")
    if type(offset) is not int or not 0 <= offset <= MAX_LIMIT:
        raise refusal("offset", f"must be a whole number from 0, not {offset!r}")
    if cursor is not None and (not isinstance(cursor, str) or not cursor):
        raise refusal("cursor", f"must be the text of an earlier answer, not {cursor!r}")
    if query.allow is not None and not callable(query.allow):
        raise refusal("allow", f"must be a function of a record, not {query.allow!r}")
    for field, flag in (
        ("descending", query.descending),
        ("content", query.content),
        ("expired", query.expired),
    ):
        if type(flag) is not bool:
            raise refusal(field, f"must be True or False, not {flag!r}")


def _envelope_checks(query: Query) -> tuple[Callable[[Datum], bool], ...]:
    """Return one check for each envelope field the query sets."""
    schema, author, source, parent = query.schema, query.author, query.source, query.parent
    tags, any_tags, prefix, since, until = query.tags, query.any_tags, query.prefix, query.since, query.until
    checks: list[tuple[object, Callable[[Datum], bool]]] = [
        (schema, lambda datum: datum.schema == schema),
        (tags or None, lambda datum: tags <= datum.tags),
        (any_tags or None, lambda datum: not any_tags.isdisjoint(datum.tags)),
        (author, lambda datum: datum.author == author),
        (source, lambda datum: datum.source == source),
        (parent, lambda datum: datum.parent_id == parent),
        (prefix, lambda datum: datum.id.startswith(prefix or "")),
        (since, lambda datum: since is not None and datum.created_at >= since),
        (until, lambda datum: until is not None and datum.created_at < until),
        (query.updated_since, lambda datum: _is_updated_since(datum, query.updated_since)),
        (query.updated_until, lambda datum: not _is_updated_since(datum, query.updated_until)),
    ]
    made = [check for wanted, check in checks if wanted is not None]
    if (wanted := query.ids) is not None:
        made.append(lambda datum: datum.id in wanted)
    if (parents := query.parents) is not None:
        made.append(lambda datum: datum.parent_id in parents)
    return tuple(made if query.allow is None else [*made, query.allow])


def _is_updated_since(datum: Datum, moment: datetime | None) -> bool:
    """Check whether a version was committed at a time or later, or is not committed yet."""
    updated = datum.updated_at
    return updated is None or moment is None or updated >= moment
