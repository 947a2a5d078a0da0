"""Find the keys of an index under which the records of a condition are."""

from __future__ import annotations

from typing import NamedTuple

from dgent.model import order
from dgent.model import path as paths
from dgent.model.contract.lookup import Defaults
from dgent.model.contract.scalar import KINDS, Kind, is_exact, value_of
from dgent.model.where import Condition
from dgent.store.engine.catalog import UNLISTED, after_prefix

_CHOICES = 64  # `$in` with more values is left to `matches`
_AFTER_MISSING = after_prefix(UNLISTED) or b""  # where the records with a field begin in its index
_BY_VALUE = ("$eq", "$in", "$contains", "$exists", "$prefix")
RANGES = ("$gt", "$gte", "$lt", "$lte", "$prefix")


def compares_keys(condition: Condition, kind: Kind | None) -> bool:
    """Return whether a condition compares values as keys of a kind do."""
    values = condition.value if isinstance(condition.value, tuple) else (condition.value,)
    for value in values:
        if type(value) in KINDS and is_exact(value) and KINDS[type(value)] != kind:
            return False
        # A text is below another text, and a text that stands for a decimal is also below decimals.
        if type(value) is str and kind is not None and condition.op not in _BY_VALUE:
            return False
    return True


def holds_any(condition: Condition, defaults: Defaults) -> bool:
    """Return whether a condition may hold for a default; None are defaults that depend on the record."""
    return defaults is None or any(map(condition.holds, defaults))


def find_one_key(defaults: Defaults) -> bytes | None:
    """Return the order key of a default, if it is known and not cut."""
    key = order.key(defaults[0]) if defaults is not None and len(defaults) == 1 else None
    return None if key is None or len(key) >= order.CUT else key


def make_key(value: object, kind: Kind | None) -> tuple[bytes, bool]:
    """Return the key of a value in an index of a kind."""
    return order.index_key(value if kind is None else value_of(kind, value))


def find_equal_keys(condition: Condition, kind: Kind | None) -> tuple[tuple[bytes, ...], bool]:
    """Return the keys a condition allows when they are few, and whether having one proves it."""
    if condition.op == "$eq":
        values = (condition.value,)
    elif condition.op == "$in" and 0 < len(condition.value) <= _CHOICES:
        values = condition.value
    elif condition.op == "$exists" and condition.value is False:
        return (order.key(paths.MISSING),), True
    else:
        return (), False
    keyed = [make_key(value, kind) for value in values]
    # A key of full length may belong to a longer text that was cut.
    sure = all(exact and len(key) < order.CUT for key, exact in keyed)
    return tuple(sorted({key for key, _ in keyed})), sure


class KeyRange(NamedTuple):
    """The keys from and up to which a condition can hold; `sure` if it holds for all keys in between."""

    first: bytes
    last: bytes
    sure: bool


def find_key_range(condition: Condition, kind: Kind | None) -> KeyRange | None:
    """Return the part of an index in which a condition can hold; None when that is not one run of keys."""
    op = condition.op
    if op == "$exists":
        return KeyRange(_AFTER_MISSING, b"\xff", True) if condition.value else None
    if op not in RANGES and op != "$eq":
        return None
    key, exact = make_key(condition.value, None if op == "$prefix" else kind)
    # A key of full length may belong to a longer text that was cut, on either side of the value.
    sure = exact and len(key) < order.CUT and kind is None
    after = key + b"\x00"
    ends = {
        "$eq": (key, after),
        "$gt": (after if sure else key, bytes((key[0] + 1,))),
        "$gte": (key, bytes((key[0] + 1,))),
        "$lt": (key[:1], key if sure else after),
        "$lte": (key[:1], after),
        "$prefix": (key, after_prefix(key) or b"\xff"),
    }
    return KeyRange(*ends[op], sure)


def find_order_range(
    conditions: list[Condition], kind: Kind | None, defaults: Defaults
) -> tuple[bytes, bytes, frozenset[object]]:
    """Return the run of keys in which the conditions on the ordering field can hold, and those it proves."""
    first, last, proves = b"" if defaults == () else _AFTER_MISSING, b"\xff", []
    for part in conditions:
        bounds = find_key_range(part, kind) if compares_keys(part, kind) else None
        if bounds is not None:
            first, last = max(first, bounds.first), min(last, bounds.last)
            if bounds.sure:
                proves.append(id(part))
    return first, last, frozenset(proves)
