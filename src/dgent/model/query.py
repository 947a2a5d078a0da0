"""Queries: what to find, checked when it is written down, and what it means in plain Python.

`Query.matches` is the definition; engines may only be faster. `Query.filter` gives the `where`
part as a tree of conditions for a planner to pick indexes from.
"""

from __future__ import annotations

import hashlib
import operator
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Any

import msgspec

from dgent import clock, codec, ids
from dgent.errors import InputError, QueryError
from dgent.model import order
from dgent.model.datum import Datum
from dgent.model.path import MISSING, Path, parse, read, text

MAX_OFFSET = 10_000
MAX_LIMIT = 2**62
MAX_CHOICES = 1000
MAX_DEPTH = 16
MAX_CONDITIONS = 256
MAX_MAPS = 1024

_force = msgspec.structs.force_setattr


class Condition(msgspec.Struct, frozen=True, dict=True):
    """One operator at one path; `value` is plain JSON, for $in and $nin a tuple of it."""

    path: Path
    op: str
    value: Any

    def __post_init__(self) -> None:
        # Built once and found before the method, which serves copies that carry no __dict__.
        self.__dict__["holds"] = _CHECKS[self.op](self.value)

    def holds(self, found: Any) -> bool:
        """Whether a value found at the path (or MISSING) passes."""
        return _CHECKS[self.op](self.value)(found)

    def test(self, data: Any) -> bool:
        """Whether a record's data passes."""
        return self.holds(read(data, self.path))


class All(msgspec.Struct, frozen=True):
    """Holds when every part holds; so also when there is none."""

    parts: tuple[Part, ...]

    def test(self, data: Any) -> bool:
        """Whether a record's data passes."""
        return all(part.test(data) for part in self.parts)


class Either(msgspec.Struct, frozen=True):
    """Holds when at least one part holds."""

    parts: tuple[Part, ...]

    def test(self, data: Any) -> bool:
        """Whether a record's data passes."""
        return any(part.test(data) for part in self.parts)


class Negated(msgspec.Struct, frozen=True):
    """Holds when its part does not."""

    part: Part

    def test(self, data: Any) -> bool:
        """Whether a record's data passes."""
        return not self.part.test(data)


Part = Condition | All | Either | Negated
Check = Callable[[Any], bool]
_NOTHING = All(())


class Query(msgspec.Struct, frozen=True, kw_only=True, dict=True):
    """What to find, in which order, and how much of it; a wrong field is a QueryError at once.

    `order_by="created_at"` is the time of the record; any other text is a path into its data, and
    the tuple `("created_at",)` is a data field of that name.
    """

    schema: str | None = None
    tags: frozenset[str] = frozenset()
    any_tags: frozenset[str] = frozenset()
    author: str | None = None
    source: str | None = None
    parent: str | None = None
    prefix: str | None = None
    since: datetime | None = None
    until: datetime | None = None
    where: Mapping[Any, Any] | None = None
    order_by: str | tuple[str, ...] = "created_at"
    descending: bool = True
    limit: int | None = 100
    offset: int = 0
    cursor: str | None = None
    content: bool = True

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
        if self.order_by != "created_at" or self.where is not None:
            self.__dict__.update(_order_path=self.order_path, _filter=self.filter)

    @property
    def filter(self) -> All:
        """The `where` part as conditions, with `$and` flattened into the top."""
        if self.where is None:
            return _NOTHING
        found = self.__dict__.get("_filter")
        return found if found is not None else All(tuple(_Reader().where(self.where, 1)))

    @property
    def order_path(self) -> Path | None:
        """The path into data that orders the answer; None is the time of the record."""
        if self.order_by == "created_at":
            return None
        found: Path | None = self.__dict__.get("_order_path")
        return found or _path("order_by", self.order_by)

    def matches(self, datum: Datum, data: Mapping[str, Any] | None = None) -> bool:
        """Whether a record belongs to the answer; `data` stands in for the record's own data."""
        compiled = self.__dict__.get("_compiled")
        if compiled is None:
            compiled = _envelope_checks(self), tuple(part.test for part in self.filter.parts)
            self.__dict__["_compiled"] = compiled
        for check in compiled[0]:
            if not check(datum):
                return False
        found = datum.data if data is None else data
        for test in compiled[1]:  # noqa: SIM110 - a generator costs as much as a check
            if not test(found):
                return False
        return True

    def order_key(self, data: Any) -> bytes:
        """Where data stands in the order of this query; empty when the time alone decides."""
        path = self.order_path
        return b"" if path is None else order.key(read(data, path))

    def sort_key(self, datum: Datum, data: Mapping[str, Any] | None = None) -> bytes | int:
        """What to sort a record by: its key at `order_by`, or its time in microseconds."""
        if self.order_path is None:
            return clock.to_us(datum.created_at)
        return self.order_key(datum.data if data is None else data)

    def replace(self, **changes: Any) -> Query:
        """A copy with some fields changed, checked again."""
        return msgspec.structs.replace(self, **changes)

    def first(self, n: int) -> Query:
        """A copy that gives at most n records."""
        return self.replace(limit=n)

    def digest(self) -> bytes:
        """16 bytes that tell this query from others, whatever page of it is asked for."""
        found: bytes | None = self.__dict__.get("_digest")
        if found is None:
            names = [self.schema, self.author, self.source, self.parent, self.prefix]
            times = [None if at is None else clock.to_us(at) for at in (self.since, self.until)]
            tags = [sorted(self.tags), sorted(self.any_tags)]
            form = [1, names, times, tags, _form(self.filter), self.order_path, self.descending]
            found = hashlib.blake2b(codec.canonical(form), digest_size=16).digest()
            self.__dict__["_digest"] = found
        return found


def _form(part: Part) -> list[Any]:
    """A part as JSON in which the order of conditions and choices does not show."""
    if isinstance(part, Condition):
        choices = isinstance(part.value, tuple)
        value = sorted(part.value, key=codec.canonical) if choices else part.value
        return [part.op, list(part.path), value]
    if isinstance(part, Negated):
        return ["$not", _form(part.part)]
    forms = sorted((_form(each) for each in part.parts), key=codec.canonical)
    return ["$and" if isinstance(part, All) else "$or", *forms]


def _check_envelope(query: Query) -> None:
    for field in ("schema", "author", "source", "parent", "prefix"):
        value = getattr(query, field)
        if value is not None:
            check = ids.check_id if field in ("parent", "prefix") else ids.check_name
            check(value, field)
            if type(value) is not str:
                _force(query, field, str.__str__(value))
    for field in ("tags", "any_tags"):
        tags = getattr(query, field)
        if tags or type(tags) is not frozenset:
            try:
                _force(query, field, ids.check_tags(tags, field))
            except TypeError:
                raise _bad(field, "must be a set of texts") from None
    for field in ("since", "until"):
        moment = getattr(query, field)
        if moment is not None:
            _force(query, field, _utc(moment, field))


def _utc(moment: Any, field: str) -> datetime:
    if not isinstance(moment, datetime):
        raise _bad(field, f"must be a datetime, not {type(moment).__name__}")
    if moment.utcoffset() is None:
        raise _bad(field, "is a datetime without a time zone", "use datetime.now(UTC) or attach a tzinfo")
    try:
        # In UTC, because two times of one zone compare by wall clock, wrongly when it is set back.
        return moment.astimezone(UTC)
    except OverflowError:
        raise _bad(field, "is outside the years 1 to 9999 in UTC") from None


def _check_page(query: Query) -> None:
    limit, offset, cursor = query.limit, query.offset, query.cursor
    if limit is not None and (type(limit) is not int or not 1 <= limit <= MAX_LIMIT):
        raise _bad("limit", f"must be a whole number from 1, not {limit!r}", "None gives all")
    if type(offset) is not int or not 0 <= offset <= MAX_OFFSET:
        raise _bad("offset", f"must be 0 to {MAX_OFFSET}, not {offset!r}", "page with the cursor instead")
    if cursor is not None and (not isinstance(cursor, str) or not cursor):
        raise _bad("cursor", f"must be the text of an earlier answer, not {cursor!r}")
    for field in ("descending", "content"):
        if type(getattr(query, field)) is not bool:
            raise _bad(field, f"must be True or False, not {getattr(query, field)!r}")


def _bad(field: str, reason: str, hint: str = "") -> QueryError:
    return QueryError(f"{field} {reason}", hint=hint, field=field)


def _path(field: str, path: Any) -> Path:
    try:
        return parse(path)
    except QueryError as error:
        raise _bad(field, f"is malformed: {error.message}", error.hint) from None


def _envelope_checks(query: Query) -> tuple[Callable[[Datum], bool], ...]:
    """One check for each envelope field the query sets."""
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
    ]
    return tuple(check for wanted, check in checks if wanted is not None)


class _Reader:
    """Turns a `where` into parts, and counts them so that no query is without bounds."""

    def __init__(self) -> None:
        self.count = 0
        self.maps = 0

    def where(self, where: Any, depth: int) -> list[Part]:
        _check_depth(depth)
        if not isinstance(where, Mapping):
            raise _bad("where", f"must be a map, not {type(where).__name__}")
        # Maps without conditions count too: 16 levels of lists of them would never end.
        self.maps += 1
        if self.maps > MAX_MAPS:
            raise _bad("where", f"has more than {MAX_MAPS} maps")
        parts: list[Part] = []
        for name, operand in where.items():
            if name == "$and":
                for each in _listed(name, operand):
                    parts += self.where(each, depth + 1)
            elif name == "$or":
                choices = [self.where(each, depth + 1) for each in _listed(name, operand)]
                parts.append(Either(tuple(map(_one, choices))))
            elif name == "$not":
                parts.append(Negated(_one(self.where(operand, depth + 1))))
            elif _is_operator(name):
                raise _bad("where", f"has {name}, which is none of $and, $or, $not")
            else:
                parts += self.at(_path("where", name), operand, depth)
        return parts

    def at(self, path: Path, operand: Any, depth: int) -> list[Part]:
        operators = _count_operators(operand)
        if not operators:
            return [self.condition(path, "$eq", operand)]
        if operators != len(operand):
            raise _bad("where", f"mixes operators and keys at {text(path)}", "compare with a map by $eq")
        negated, condition = self.negated, self.condition
        return [
            negated(path, value, depth) if op == "$not" else condition(path, op, value)
            for op, value in operand.items()
        ]

    def negated(self, path: Path, operand: Any, depth: int) -> Part:
        _check_depth(depth + 1)
        if not _count_operators(operand):
            raise _bad("where", f"has a $not at {text(path)} without an operator", "use $ne for a value")
        return Negated(_one(self.at(path, operand, depth + 1)))

    def condition(self, path: Path, op: str, value: Any) -> Condition:
        self.count += 1
        if self.count > MAX_CONDITIONS:
            raise _bad("where", f"has more than {MAX_CONDITIONS} conditions")
        if op not in _CHECKS:
            known = "known are " + " ".join(_CHECKS)
            raise _bad("where", f"has the unknown operator {op} at {text(path)}", known)
        return Condition(path, op, _operand(path, op, value))


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise _bad("where", f"is nested deeper than {MAX_DEPTH} levels")


def _is_operator(name: Any) -> bool:
    return isinstance(name, str) and name.startswith("$")


def _count_operators(operand: Any) -> int:
    return sum(map(_is_operator, operand)) if isinstance(operand, Mapping) else 0


def _one(parts: list[Part]) -> Part:
    return parts[0] if len(parts) == 1 else All(tuple(parts))


def _listed(name: str, operand: Any) -> Any:
    if not isinstance(operand, list | tuple) or not operand:
        raise _bad("where", f"needs a list of at least one map for {name}")
    return operand


def _operand(path: Path, op: str, value: Any) -> Any:
    """The operand as plain JSON, or a QueryError when the operator cannot take it."""
    choices = op in ("$in", "$nin")
    if choices and not (isinstance(value, list | tuple | set | frozenset) and len(value) <= MAX_CHOICES):
        raise _needs(path, op, f"a list of at most {MAX_CHOICES} values")
    try:
        simple = codec.plain(dict(value) if isinstance(value, Mapping) else value)
        codec.encode(simple)
    except (InputError, UnicodeEncodeError, OverflowError) as error:
        raise _needs(path, op, f"a value that can be stored: {error}") from None
    if op in _COMPARISONS and not order.kinds_like(simple):
        raise _needs(path, op, "a number, a text, a bool or a datetime")
    if op == "$exists" and type(simple) is not bool:
        raise _needs(path, op, "True or False")
    if op == "$prefix" and type(simple) is not str:
        raise _needs(path, op, "a text")
    return tuple(simple) if choices else simple


def _needs(path: Path, op: str, what: str) -> QueryError:
    return _bad("where", f"has {op} at {text(path)}, which needs {what}")


def _equal(value: Any) -> Check:
    if type(value) is str:
        return lambda found: bool(found == value)
    if value is None or type(value) is bool:
        return lambda found: found is value
    return lambda found: order.same(found, value)


def _in(values: tuple[Any, ...]) -> Check:
    # Hashing serves a long list; bools are kept apart because a set takes True for 1.
    bools = frozenset(each for each in values if type(each) is bool)
    deep = [each for each in values if type(each) in (list, dict)]
    simple = frozenset(each for each in values if type(each) not in (bool, list, dict))

    def check(found: Any) -> bool:
        kind = type(found)
        if kind is list or kind is dict:
            return any(order.same(found, each) for each in deep)
        return found in (bools if kind is bool else simple)

    return check


def _compared(compare: Callable[[Any, Any], bool]) -> Callable[[Any], Check]:
    def build(value: Any) -> Check:
        kinds = order.kinds_like(value)
        return lambda found: type(found) in kinds and compare(found, value)

    return build


def _contains(value: Any) -> Check:
    def check(found: Any) -> bool:
        if isinstance(found, list):
            return any(order.same(each, value) for each in found)
        return isinstance(value, str) and isinstance(found, str | dict) and value in found

    return check


def _not(build: Callable[[Any], Check]) -> Callable[[Any], Check]:
    def negated(value: Any) -> Check:
        check = build(value)
        return lambda found: not check(found)

    return negated


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_CHECKS: dict[str, Callable[[Any], Check]] = {
    "$eq": _equal,
    "$ne": _not(_equal),
    **{op: _compared(compare) for op, compare in _COMPARISONS.items()},
    "$in": _in,
    "$nin": _not(_in),
    "$exists": lambda value: lambda found: (found is not MISSING) is value,
    "$prefix": lambda value: lambda found: isinstance(found, str) and found.startswith(value),
    "$contains": _contains,
}
