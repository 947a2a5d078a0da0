"""The change from one JSON-like value to the next: found by structure, small, and applied in place.

A patch is a list that begins with its kind: `["=", value]` replaces, `["{", set, remove, inside]` changes
keys of a map, `["[", start, count, items]` replaces items of a list, `["@", index, patch]` changes one item.
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import is_
from typing import Any

from dgent import codec
from dgent.errors import Corrupt

_PLAIN = frozenset((str, int, float, bool, type(None)))
_KINDS = _PLAIN | {dict, list}


def copy_plain(value: Any) -> Any:
    """Return a copy of a JSON-like value that shares no map or list with it."""
    kind = type(value)
    if kind is list:
        if _PLAIN.issuperset(map(type, value)):
            return value.copy()
        return [copy_plain(each) for each in value]
    if kind is dict:
        copied = value.copy()
        for key, each in value.items():
            if type(each) is list or type(each) is dict:
                copied[key] = copy_plain(each)
        return copied
    return value


def find_patch(old: Any, new: Any, path: tuple[str, ...] = ()) -> list[Any] | None:
    """Return the patch from a JSON-like value to any other that can be stored; None if they are equal.

    What changed is checked as every stored value is: InputError names the place of what cannot be stored.
    """
    if old is new:
        return None
    kind = type(new)
    if kind not in _KINDS:
        new = _check(new, path)  # a tuple, a datetime: it may be what is stored already
        kind = type(new)
    if kind is not type(old):
        return ["=", _check(new, path)]
    if kind is dict:
        return _find_in_map(old, new, path)
    if kind is list:
        return _find_in_list(old, new, path)
    return None if _is_equal(old, new) else ["=", _check(new, path)]


def _find_in_map(old: dict[str, Any], new: dict[Any, Any], path: tuple[str, ...]) -> list[Any] | None:
    put: dict[str, Any] = {}
    inside: dict[str, Any] = {}
    for key, value in new.items():
        if key not in old or type(key) is not str:
            put.update(_check({key: value}, path))
            continue
        found = find_patch(old[key], value, (*path, key))
        if found is None:
            continue
        if found[0] == "=":
            put[key] = found[1]
        else:
            inside[key] = found
    gone = [key for key in old if key not in new]
    return ["{", put, gone, inside] if put or gone or inside else None


def _find_in_list(old: list[Any], new: list[Any], path: tuple[str, ...]) -> list[Any] | None:
    short = min(len(old), len(new))
    start = short if all(map(is_, old, new)) else _count_equal(old, new, short)
    if start == len(old) == len(new):
        return None
    end = _count_equal(old[start:][::-1], new[start:][::-1], short - start)
    count, items = len(old) - start - end, new[start : len(new) - end]
    if count == len(items) == 1:
        found = find_patch(old[start], items[0], (*path, str(start)))
        if found is None or found[0] != "=":
            return None if found is None else ["@", start, found]
    checked = [_check(item, (*path, str(start + number))) for number, item in enumerate(items)]
    return ["[", start, count, checked]


def _count_equal(old: Sequence[Any], new: Sequence[Any], most: int) -> int:
    """Return how many items at the beginning are equal."""
    for number in range(most):
        one, other = old[number], new[number]
        if one is not other and not (one == other and type(one) is str) and not _is_same(one, other):
            return number
    return most


def _is_same(old: Any, new: Any) -> bool:
    """Return whether two values are stored alike; False also for what must be checked first."""
    if old is new:
        return True
    kind = type(old)
    if kind is not type(new):
        return False
    if kind is dict:
        return len(old) == len(new) and all(
            key in new and _is_same(value, new[key]) for key, value in old.items()
        )
    if kind is list:
        return len(old) == len(new) and all(map(_is_same, old, new))
    return _is_equal(old, new)


def _is_equal(old: Any, new: Any) -> bool:
    return bool(old == new) and (type(new) is not float or new != 0 or str(old) == str(new))


def _check(value: Any, path: tuple[str, ...]) -> Any:
    """Return a value as it is stored, with the depth and the name that it has at its place."""
    for key in reversed(path):
        value = {key: value}
    value = codec.plain(value)
    for key in path:
        value = value[key]
    return value


def apply_patch(value: Any, patch: list[Any]) -> Any:
    """Return a value with a patch applied; maps and lists are changed in place.

    Raises Corrupt for a patch that is not one of this value.
    """
    try:
        return _apply(value, patch)
    except (KeyError, IndexError, TypeError, ValueError, AttributeError) as error:
        raise Corrupt(f"a stored change of a state does not fit the state: {error!r}") from None


def _apply(value: Any, patch: list[Any]) -> Any:
    kind = patch[0]
    if kind == "=":
        return patch[1]
    if kind == "{":
        _, put, gone, inside = patch
        for key in gone:
            del value[key]
        for key, found in inside.items():
            value[key] = _apply(value[key], found)
        value.update(put)
    elif kind == "[":
        _, start, count, items = patch
        if not 0 <= start <= start + count <= len(value):
            raise IndexError(f"items {start} to {start + count} of {len(value)}")
        value[start : start + count] = items
    elif kind == "@":
        _, index, found = patch
        value[index] = _apply(value[index], found)
    else:
        raise ValueError(f"the kind {kind!r}")
    return value
