"""Paths into a record's data: `a.b.0`, with `\\.` for a dot inside a key."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from enum import Enum
from functools import lru_cache
from typing import Any, Final

from dgent.errors import QueryError

Path = tuple[str, ...]

EACH = "*"  # only in the paths of refs and indexes, which come from contracts and never from queries
MAX_SEGMENTS = 32
MAX_BYTES = 512


class Missing(Enum):
    """The type of MISSING; an enum, so that type checkers narrow on `is MISSING`."""

    MISSING = ...  # a value that the codec refuses to store

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing.MISSING

EVERY = "*"
"""The path of all texts of a record, wherever they are in it."""


def parse(path: str | Sequence[str]) -> Path:
    """Return the segments of a dotted path, tuple or list; QueryError names a segment that is not valid."""
    # An index reads the same few paths for every record; remembering them saves most of the cost.
    return _parse_cached(path) if type(path) is str else _parse(path)


@lru_cache(1024)
def _parse_cached(path: str) -> Path:
    return _parse(path)


def _parse(path: str | Sequence[str]) -> Path:
    if isinstance(path, str):
        segments = _unescape(path) if "\\" in path else tuple(path.split("."))
    elif isinstance(path, tuple | list):
        segments = tuple(path)
    else:
        raise _bad(path, f"must be a text or a tuple of texts, not {type(path).__name__}")
    _check(path, segments)
    return segments


def text(path: Path) -> str:
    """Return the dotted form of a path: the inverse of `parse`."""
    dotted = ".".join(path)
    if "\\" not in dotted and dotted.count(".") == len(path) - 1:
        return dotted
    return ".".join(segment.replace("\\", "\\\\").replace(".", "\\.") for segment in path)


def read(data: Any, path: Path) -> Any:
    """Return the value at a path, or MISSING; a list is entered only by an index, never fanned out."""
    here = data
    for segment in path:
        if isinstance(here, dict):
            here = here.get(segment, MISSING)
        elif isinstance(here, list):
            here = _item(here, segment)
        elif isinstance(here, Mapping):
            here = here.get(segment, MISSING)
        else:
            return MISSING
    return here


def every(data: Any, path: Path) -> Iterator[Any]:
    """Yield the values at a path in which EACH stands for all items of a list, or all values of a map."""
    for place, segment in enumerate(path):
        if segment == EACH:
            below = read(data, path[:place])
            items = below.values() if isinstance(below, Mapping) else below if isinstance(below, list) else ()
            for item in items:
                yield from every(item, path[place + 1 :])
            return
    found = read(data, path)
    yield from found if isinstance(found, list) else (found,)


@lru_cache(1024)
def list_path(index: str) -> Path | None:
    """Return the path of the list that an index of its items is on (`a` for `a.*`); None for any other."""
    parsed = parse(index)
    return parsed[:-1] if parsed[-1] == EACH and len(parsed) > 1 else None


def _item(values: list[Any], segment: str) -> Any:
    if not (segment.isascii() and segment.isdigit()) or (segment[0] == "0" and len(segment) > 1):
        return MISSING
    index = int(segment)
    return values[index] if index < len(values) else MISSING


def _unescape(path: str) -> Path:
    segments, current = [], ""
    letters = iter(path)
    for letter in letters:
        if letter == "\\":
            escaped = next(letters, "")
            if escaped not in (".", "\\"):
                raise _bad(path, "has a backslash before something other than a dot or a backslash")
            current += escaped
        elif letter == ".":
            segments.append(current)
            current = ""
        else:
            current += letter
    return (*segments, current)


def _check(path: object, segments: tuple[Any, ...]) -> None:
    if not segments or segments == ("",):
        raise _bad(path, "is empty")
    if len(segments) > MAX_SEGMENTS:
        raise _bad(path, f"has {len(segments)} segments; at most {MAX_SEGMENTS} are read")
    for segment in segments:
        if not isinstance(segment, str):
            raise _bad(path, f"has the segment {segment!r}, which is not text")
        if not segment:
            raise _bad(path, "has an empty segment")
    try:
        size = len(text(segments).encode())
    except UnicodeEncodeError:
        raise _bad(path, "contains half of a surrogate pair") from None
    if size > MAX_BYTES:
        raise _bad(path, f"is {size} bytes; at most {MAX_BYTES} are read")


def _bad(path: object, reason: str) -> QueryError:
    shown = repr(path)
    shown = shown if len(shown) <= 80 else shown[:77] + "..."
    return QueryError(f"the path {shown} {reason}", hint='write a.b.0, or ("a.b", "c") for keys with dots')
