"""Conditions: the `where` of a query as pure values, each with its meaning in plain Python."""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any

import msgspec

from dgent import codec
from dgent.errors import InputError, QueryError
from dgent.model import order
from dgent.model.contract.scalar import align, is_exact
from dgent.model.path import MISSING, Path, parse, read, text
from dgent.system.near import nearest

MAX_CHOICES = 1000
MAX_DEPTH = 16
MAX_CONDITIONS = 256
MAX_MAPS = 1024


class Condition(msgspec.Struct, frozen=True, dict=True):
    """One operator at one path.

    `value` is plain JSON, or a decimal, duration or zoned time; for $in and $nin a tuple of such.
    """

    path: Path
    op: str
    value: Any

    def holds(self, found: Any) -> bool:
        """Return whether a value found at the path (or MISSING) passes."""
        check: Check = _CHECKS[self.op](self.value)
        self.__dict__["holds"] = check  # found before this method from now on
        return check(found)

    def test(self, data: Any) -> bool:
        """Return whether a record's data passes."""
        return self.holds(read(data, self.path))


class All(msgspec.Struct, frozen=True):
    """Holds when every part holds, so also when there are no parts."""

    parts: tuple[Part, ...]

    def test(self, data: Any) -> bool:
        """Return whether a record's data passes."""
        return all(part.test(data) for part in self.parts)


class Either(msgspec.Struct, frozen=True):
    """Holds when at least one part holds."""

    parts: tuple[Part, ...]

    def test(self, data: Any) -> bool:
        """Return whether a record's data passes."""
        return any(part.test(data) for part in self.parts)


class Negated(msgspec.Struct, frozen=True):
    """Holds when its part does not."""

    part: Part

    def test(self, data: Any) -> bool:
        """Return whether a record's data passes."""
        return not self.part.test(data)


Part = Condition | All | Either | Negated
Check = Callable[[Any], bool]
NOTHING = All(())


def may_hold(part: Part, data: Any, negated: bool = False) -> bool:
    """Return whether a part (or its opposite) could hold if data had the fields that it lacks."""
    if isinstance(part, Negated):
        return may_hold(part.part, data, not negated)
    if isinstance(part, Condition):
        found = read(data, part.path)
        return found is MISSING or part.holds(found) is not negated
    every = isinstance(part, All) is not negated  # not all of them: one does not hold
    return (all if every else any)(may_hold(each, data, negated) for each in part.parts)


def form(part: Part) -> list[Any]:
    """Return a part as JSON in which the order of conditions and choices does not show."""
    if isinstance(part, Condition):
        choices = isinstance(part.value, tuple)
        value = sorted(part.value, key=codec.canonical) if choices else part.value
        return [part.op, list(part.path), value]
    if isinstance(part, Negated):
        return ["$not", form(part.part)]
    forms = sorted((form(each) for each in part.parts), key=codec.canonical)
    return ["$and" if isinstance(part, All) else "$or", *forms]


def refusal(field: str, reason: str, hint: str = "") -> QueryError:
    """Return the error for a wrong field of a query."""
    return QueryError(f"{field} {reason}", hint=hint, field=field)


def path_of(field: str, path: Any) -> Path:
    """Return the path that a query names; QueryError names the field it stands in."""
    try:
        return parse(path)
    except QueryError as error:
        raise refusal(field, f"is malformed: {error.message}", error.hint) from None


class WhereParser:
    """Turns a `where` into parts, and counts them so that every query is bounded."""

    def __init__(self) -> None:
        self.count = 0
        self.maps = 0

    def where(self, where: Any, depth: int) -> list[Part]:
        """Return the parts of a map of conditions; all of them must hold."""
        _check_depth(depth)
        if not is_map(where):
            raise refusal("where", f"must be a map, not {type(where).__name__}")
        # Maps without conditions count too: 16 levels of lists of them would never end.
        self.maps += 1
        if self.maps > MAX_MAPS:
            raise refusal("where", f"has more than {MAX_MAPS} maps")
        parts: list[Part] = []
        for name, operand in where.items():
            if name == "$and":
                for each in _check_list(name, operand):
                    parts += self.where(each, depth + 1)
            elif name == "$or":
                choices = [self.where(each, depth + 1) for each in _check_list(name, operand)]
                parts.append(Either(tuple(map(_one, choices))))
            elif name == "$not":
                parts.append(Negated(_one(self.where(operand, depth + 1))))
            elif _is_operator(name):
                raise refusal("where", f"has {name}; at this place it must be $and, $or or $not")
            else:
                parts += self.at(path_of("where", name), operand, depth)
        return parts

    def at(self, path: Path, operand: Any, depth: int) -> list[Part]:
        """Return the parts of the operand at one path."""
        operators = _count_operators(operand)
        if not operators:
            if is_map(operand) and operand and _BARE_NAMES.issuperset(operand):
                fix = ", ".join(f"${name}" for name in operand)
                hint = f"write {fix}; to compare with a map that has such keys, use $eq"
                raise refusal("where", f"has operators without $ at {text(path)}", hint)
            return [self.condition(path, "$eq", operand)]
        if operators != len(operand):
            raise refusal("where", f"mixes operators and keys at {text(path)}", "compare with a map by $eq")
        negated, condition = self.negate, self.condition
        return [
            negated(path, value, depth) if op == "$not" else condition(path, op, value)
            for op, value in operand.items()
        ]

    def negate(self, path: Path, operand: Any, depth: int) -> Part:
        """Return the opposite of the operand at one path."""
        _check_depth(depth + 1)
        if not _count_operators(operand):
            raise refusal("where", f"has a $not at {text(path)} without an operator", "use $ne for a value")
        return Negated(_one(self.at(path, operand, depth + 1)))

    def condition(self, path: Path, op: str, value: Any) -> Condition:
        """Return one operator with a checked operand."""
        self.count += 1
        if self.count > MAX_CONDITIONS:
            raise refusal("where", f"has more than {MAX_CONDITIONS} conditions")
        if op not in _CHECKS:
            known = f"{nearest(op, _CHECKS)} known are {' '.join(_CHECKS)}".strip()
            raise refusal("where", f"has the unknown operator {op} at {text(path)}", known)
        return Condition(path, op, _operand(path, op, value))


def is_map(value: Any) -> bool:
    """Return whether a value is a mapping; tests plain types first: abstract classes are slow to ask."""
    return type(value) is not str and (type(value) is dict or isinstance(value, Mapping))


def _check_depth(depth: int) -> None:
    if depth > MAX_DEPTH:
        raise refusal("where", f"is nested deeper than {MAX_DEPTH} levels")


def _is_operator(name: Any) -> bool:
    return isinstance(name, str) and name.startswith("$")


def _count_operators(operand: Any) -> int:
    return sum(map(_is_operator, operand)) if is_map(operand) else 0


def _one(parts: list[Part]) -> Part:
    return parts[0] if len(parts) == 1 else All(tuple(parts))


def _check_list(name: str, operand: Any) -> Any:
    if not isinstance(operand, list | tuple) or not operand:
        raise refusal("where", f"needs a list of at least one map for {name}")
    return operand


def _operand(path: Path, op: str, value: Any) -> Any:
    """Return the operand as plain JSON; raises QueryError when the operator cannot take it."""
    if op == "$eq" and type(value) is str and value.isascii():
        return value  # the usual case; the rest below finds nothing wrong with it
    choices = op in ("$in", "$nin")
    if choices and not (isinstance(value, list | tuple | set | frozenset) and len(value) <= MAX_CHOICES):
        raise _needs(path, op, f"a list of at most {MAX_CHOICES} values")
    try:
        simple = [_simple(each) for each in value] if choices else _simple(value)
        codec.encode(simple)
    except (InputError, UnicodeEncodeError, OverflowError) as error:
        raise _needs(path, op, f"a value that can be stored: {error}") from None
    _check_type(path, op, simple)
    return tuple(simple) if choices else simple


def _check_type(path: Path, op: str, operand: Any) -> None:
    """Raise QueryError when the operator compares no values of this type."""
    if op in _COMPARISONS and not order.kinds_like(operand):
        raise _needs(path, op, "a number, a text, a bool, a time or a duration")
    if op == "$exists" and type(operand) is not bool:
        raise _needs(path, op, "True or False")
    if op == "$prefix" and type(operand) is not str:
        raise _needs(path, op, "a text")


def _simple(value: Any) -> Any:
    if is_exact(value):
        if isinstance(value, Decimal) and value.is_nan():
            raise InputError("NaN compares with nothing")
        return value
    return codec.plain(dict(value) if isinstance(value, Mapping) else value)


def _needs(path: Path, op: str, what: str) -> QueryError:
    return refusal("where", f"has {op} at {text(path)}, which needs {what}")


def _equal(value: Any) -> Check:
    if type(value) is str:
        return lambda found: found == value if type(found) is str else order.same(found, value)
    if value is None or type(value) is bool:
        return lambda found: found is value
    return lambda found: order.same(found, value)


def _in(values: tuple[Any, ...]) -> Check:
    # Hashing serves a long list; bools are kept apart because a set takes True for 1.
    bools = frozenset(each for each in values if type(each) is bool)
    deep = [each for each in values if type(each) in (list, dict)]
    exact = [each for each in values if is_exact(each)]
    simple = frozenset(each for each in values if type(each) not in (bool, list, dict) and not is_exact(each))

    def check(found: Any) -> bool:
        kind = type(found)
        if kind is list or kind is dict:
            return any(order.same(found, each) for each in deep)
        if is_exact(found):
            return any(order.same(found, each) for each in values)
        if found in (bools if kind is bool else simple):
            return True
        return bool(exact) and any(order.same(found, each) for each in exact)

    return check


def _build_comparison(compare: Callable[[Any, Any], bool]) -> Callable[[Any], Check]:
    def build(value: Any) -> Check:
        kinds = order.kinds_like(value)

        def check(found: Any) -> bool:
            if type(found) in kinds:
                return compare(found, value)
            pair = align(found, value)
            return pair is not None and compare(*pair)

        return check

    return build


def _contains(value: Any) -> Check:
    def check(found: Any) -> bool:
        if isinstance(found, list):
            return any(order.same(each, value) for each in found)
        return isinstance(value, str) and isinstance(found, str | dict) and value in found

    return check


def _not(build: Callable[[Any], Check]) -> Callable[[Any], Check]:
    def build_negation(value: Any) -> Check:
        check = build(value)
        return lambda found: not check(found)

    return build_negation


_COMPARISONS: dict[str, Callable[[Any, Any], bool]] = {
    "$gt": operator.gt,
    "$gte": operator.ge,
    "$lt": operator.lt,
    "$lte": operator.le,
}
_CHECKS: dict[str, Callable[[Any], Check]] = {
    "$eq": _equal,
    "$ne": _not(_equal),
    **{op: _build_comparison(compare) for op, compare in _COMPARISONS.items()},
    "$in": _in,
    "$nin": _not(_in),
    "$exists": lambda value: lambda found: (found is not MISSING) is value,
    "$prefix": lambda value: lambda found: isinstance(found, str) and found.startswith(value),
    "$contains": _contains,
}
_BARE_NAMES = frozenset((*(op[1:] for op in _CHECKS), "not", "and", "or"))
