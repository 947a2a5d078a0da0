"""Ids and names: make them, and refuse the ones that cannot be stored."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Sequence

from dgent.errors import InputError

MAX_ID_BYTES = 512
MAX_NAME_BYTES = 256
MAX_TAGS = 64

_AHEAD = 64  # so many ends of ids are made at once
_VARIANT = int("8000" * _AHEAD, 16)  # the first two bits of each end are 1 and 0
_VARIANT_BITS = int("c000" * _AHEAD, 16)

_lock = threading.Lock()
_last = 0  # the newest 60-bit (millisecond, counter) pair handed out
_head = 0, ""  # the newest millisecond, and the ids' beginning in it
_ends: list[str] = []  # random ends of the next ids


def new_id() -> str:
    """Return a UUIDv7 as text: unique, and rising within this process even when the clock jumps back."""
    global _last, _head
    tick = (time.time_ns() // 1_000_000) << 12
    with _lock:
        _last = tick = tick if tick > _last else _last + 1
        if not _ends:
            _make_ends()
        end = _ends.pop()
        millisecond, head = _head
        if tick >> 12 != millisecond:
            millisecond = tick >> 12
            digits = f"{millisecond:012x}"
            head = f"{digits[:8]}-{digits[8:]}-7"
            _head = millisecond, head
    return f"{head}{tick & 0xFFF:03x}{end}"


def new_ids(count: int) -> list[str]:
    """Return so many new ids, rising; each would take longer by itself."""
    global _last
    made: list[str] = []
    tick = (time.time_ns() // 1_000_000) << 12
    with _lock:
        first = tick if tick > _last else _last + 1
        _last = first + count - 1
        while len(_ends) < count:
            _make_ends()
        left = len(_ends) - count
        ends = _ends[left:]
        del _ends[left:]
    while len(made) < count:
        millisecond, number = first >> 12, first & 0xFFF
        digits = f"{millisecond:012x}"
        head = f"{digits[:8]}-{digits[8:]}-7"
        numbers = range(number, 4096)
        made += [f"{head}{each:03x}{end}" for each, end in zip(numbers, ends[len(made) :], strict=False)]
        first = (millisecond + 1) << 12
    return made


def _make_ends() -> None:
    """Make the random ends of some ids; a call of the system for each would take longer than all the rest."""
    drawn = os.urandom(8 * _AHEAD)
    short = int.from_bytes(drawn[: 2 * _AHEAD], "big") & ~_VARIANT_BITS | _VARIANT
    firsts = short.to_bytes(2 * _AHEAD, "big").hex("-", 2).split("-")
    lasts = drawn[2 * _AHEAD :].hex("-", 6).split("-")
    _ends.extend([f"-{first}-{last}" for first, last in zip(firsts, lasts, strict=True)])


if hasattr(os, "register_at_fork"):  # not on Windows, which has no fork
    os.register_at_fork(after_in_child=_ends.clear)  # a child must not repeat its parent's ids


_LOWEST, _HIGHEST = (f"{digit * 8}-{digit * 4}-{digit * 4}-{digit * 4}-{digit * 12}" for digit in "0f")


def pack_id(id: str) -> str | bytes:
    """Return the 16 bytes of a UUID as it is usually written, in small letters; any other id as it is.

    In their own order, ids that are packed have the same order as their texts.
    """
    if type(id) is str and len(id) == 36 and id[8:24:5] == "----":  # a damaged one may be anything
        digits = id.replace("-", "")
        try:
            packed = bytes.fromhex(digits)
        except ValueError:
            return id
        if len(packed) == 16 and packed.hex() == digits:
            return packed
    return id


def pack_ids(ids: Sequence[str]) -> list[str | bytes]:
    """Return what `pack_id` returns for each id; many UUIDs take half the time."""
    count = len(ids)
    if count > 2 and {*map(len, ids)} == {36}:
        joined = "".join(ids)
        digits, dashes = joined.replace("-", ""), "-" * count
        if len(digits) == 32 * count and all(joined[place::36] == dashes for place in (8, 13, 18, 23)):
            try:
                packed = bytes.fromhex(digits)
            except ValueError:
                packed = b""
            if len(packed) == 16 * count and packed.hex() == digits:
                return [packed[first : first + 16] for first in range(0, 16 * count, 16)]
    return [*map(pack_id, ids)]


def unpack_id(packed: bytes) -> str:
    """Return the id of its 16 bytes; ValueError if they are not so many."""
    if len(packed) != 16:
        raise ValueError(f"an id of {len(packed)} bytes; a packed one has 16")
    groups = packed.hex("-", 2)  # of four digits each
    return f"{groups[:4]}{groups[5:29]}{groups[30:34]}{groups[35:]}"


def packed_range(prefix: str) -> tuple[bytes, bytes] | None:
    """Return the first and the last of the packed ids that begin with a text; None if no packed one does."""
    first, last = (pack_id(prefix + rest[len(prefix) :]) for rest in (_LOWEST, _HIGHEST))
    return (first, last) if isinstance(first, bytes) and isinstance(last, bytes) else None


def compose(*parts: str) -> str:
    """Return an id made of parts with slashes between them; different parts make different ids.

    A part is escaped as in a JSON pointer (`~` is `~0`, `/` is `~1`). The last one is not: nothing comes
    after it, so it may hold slashes.
    """
    return "/".join((*map(escape, parts[:-1]), parts[-1]))


def escape(part: str) -> str:
    """Return a part of a composed id with its slashes escaped, for an id that others are below."""
    return part.replace("~", "~0").replace("/", "~1")


def unescape(part: str) -> str:
    """Return the part that `escape` was given."""
    return part.replace("~1", "/").replace("~0", "~")


def check_id(value: object, field: str = "id") -> str:
    """Return the id; InputError names the field when it cannot be stored."""
    # Nearly every id ends here; each check of a record is made for every record.
    if type(value) is str and value.isascii() and 0 < len(value) <= MAX_ID_BYTES and "\0" not in value:
        return value
    return _check(value, field, MAX_ID_BYTES)


def check_name(value: object, field: str) -> str:
    """Return a tag, schema, author or source; InputError names the field when it cannot be stored."""
    if type(value) is str and value.isascii() and 0 < len(value) <= MAX_NAME_BYTES and "\0" not in value:
        return value
    return _check(value, field, MAX_NAME_BYTES)


def check_tags(values: object, field: str = "tags") -> frozenset[str]:
    """Return a set of tags; a bare string is refused because it would become its letters."""
    if isinstance(values, str | bytes) or not hasattr(values, "__iter__"):
        raise InputError(f"{field} must be a set of texts, not {type(values).__name__}", field=field)
    try:
        tags = values if type(values) is frozenset else frozenset(values)
    except TypeError:  # one that is a list, or the like
        raise InputError(f"{field} must be a set of texts", field=field) from None
    exact = True
    for tag in tags:
        if not (type(tag) is str and tag.isascii() and 0 < len(tag) <= MAX_NAME_BYTES and "\0" not in tag):
            exact = _check(tag, field, MAX_NAME_BYTES) is tag and exact
    if not exact:
        tags = frozenset(_check(tag, field, MAX_NAME_BYTES) for tag in tags)
    if len(tags) > MAX_TAGS:
        raise InputError(f"{field} has {len(tags)} entries; at most {MAX_TAGS} are stored", field=field)
    return tags


def _check(value: object, field: str, limit: int) -> str:
    if not isinstance(value, str):
        raise InputError(f"{field} must be text, not {type(value).__name__}", field=field)
    # A member of an enum, say, becomes the text it holds: it hashes and prints as something else.
    value = str.__str__(value)
    if not value:
        raise InputError(f"{field} must not be empty", field=field)
    if "\0" in value:
        raise InputError(f"{field} must not contain a NUL character", field=field)
    try:
        size = len(value.encode())
    except UnicodeEncodeError:
        raise InputError(f"{field} contains half of a surrogate pair", field=field) from None
    if size > limit:
        raise InputError(f"{field} is {size} bytes; at most {limit} are stored", field=field)
    return value
