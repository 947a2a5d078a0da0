"""JSON-like values: refuse what cannot be stored, and turn the rest into bytes and back.

Nothing here constructs a type named in data, so loading can never run code.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from datetime import datetime
from enum import Enum
from functools import cache
from math import isfinite
from typing import TYPE_CHECKING, Any

import msgspec

from dgent import clock
from dgent.errors import Corrupt, InputError

if TYPE_CHECKING:
    import hashlib

MAX_DEPTH = 64
_INT_MIN, _INT_MAX = -(2**63), 2**63 - 1

_encoder = msgspec.json.Encoder()
_canonical = msgspec.json.Encoder(order="deterministic")
_decoder = msgspec.json.Decoder()


def plain(value: Any, enc_hook: Any = None) -> Any:
    """Return a JSON-like copy of a value, or an InputError that names the place that cannot be stored.

    Tuples and sets become lists; datetimes become UTC text; enums, UUIDs, bytes, dataclasses and structs
    become what msgspec makes of them. A pydantic model becomes a map of its fields; what dgent does not know
    in it, such as a URL, becomes what pydantic makes of it.
    """
    try:
        return _walk(value, 0, enc_hook)
    except _Bad as bad:
        field = ".".join(reversed(bad.path))
        raise InputError(f"{field or 'the value'} {bad.reason}", hint=bad.hint, field=field) from None


def _walk(value: Any, depth: int, enc_hook: Any) -> Any:
    kind = type(value)
    if kind is str:
        return value if value.isascii() else _check_text(value)
    if kind is bool or value is None:
        return value
    if kind is int:
        if _INT_MIN <= value <= _INT_MAX:
            return value
        raise _bad("is an integer beyond 64 bits", "store it as text")
    if kind is float:
        if isfinite(value):
            return value
        raise _bad(f"is {value}, which JSON cannot hold", "use None, or leave it out")
    if depth >= MAX_DEPTH:
        raise _bad(f"is nested deeper than {MAX_DEPTH} levels", "flatten it")
    if kind is dict:
        return _walk_dict(value, depth, enc_hook)
    if kind is list or kind is tuple:
        return _walk_list(value, depth, enc_hook)
    return _walk_other(value, depth, enc_hook)


def _walk_dict(value: dict[Any, Any], depth: int, enc_hook: Any) -> dict[str, Any]:
    out = value.copy()
    for key, item in value.items():
        if type(key) is not str:
            raise _bad(f"has the key {key!r}, which is not text", "keys of stored maps are texts")
        kind = type(item)
        if key.isascii() and (
            (kind is str and item.isascii())
            or kind is bool
            or item is None
            or (kind is int and _INT_MIN <= item <= _INT_MAX)
            or (kind is float and isfinite(item))
        ):
            continue  # most of what is ever stored: it is in the copy already
        try:
            if not key.isascii():
                _check_text(key)
            out[key] = _walk(item, depth + 1, enc_hook)
        except _Bad as bad:
            bad.path.append(key)
            raise
    return out


def _walk_list(value: Any, depth: int, enc_hook: Any) -> list[Any]:
    out = []
    for index, item in enumerate(value):
        try:
            out.append(_walk(item, depth + 1, enc_hook))
        except _Bad as bad:
            bad.path.append(str(index))
            raise
    return out


def _walk_other(value: Any, depth: int, enc_hook: Any) -> Any:
    if isinstance(value, datetime):
        try:
            return clock.text(value)
        except InputError as error:
            raise _bad("is a datetime without a time zone", error.hint) from None
    if isinstance(value, set | frozenset):
        # Sets have no order of their own; a fixed one makes equal values equal bytes.
        return sorted(_walk_list(list(value), depth, enc_hook), key=canonical)
    names, is_model = _record_fields(value.__class__)
    if is_model:
        return _walk_model(value, names, depth, enc_hook)
    if names:
        # Field by field, not by msgspec: it would give sets in an order that differs by process.
        return _walk_dict({name: getattr(value, name) for name in names}, depth, enc_hook)
    if isinstance(value, str):
        return _walk(value.value if isinstance(value, Enum) else str.__str__(value), depth, enc_hook)
    try:
        simple = msgspec.to_builtins(value, builtin_types=(datetime,), enc_hook=enc_hook)
    except (TypeError, ValueError) as error:
        raise _bad(f"is a {type(value).__name__}, which cannot be stored: {error}", "") from None
    if type(simple) is type(value) and not isinstance(simple, dict | list):
        raise _bad(f"is a {type(value).__name__}, which cannot be stored", "")
    return _walk(simple, depth, enc_hook)


def _walk_model(value: Any, names: tuple[str, ...], depth: int, enc_hook: Any) -> Any:
    if type(value).__pydantic_root_model__:
        return _walk(value.root, depth + 1, enc_hook)
    items = vars(value)
    out = {}
    for name in (name for name in names if name in items):
        try:
            out[name] = _walk(items[name], depth + 1, enc_hook)
        except _Bad as bad:
            bad.path.append(name)
            out[name] = _serialize(value, name, depth + 1, bad)
    return out | _walk_dict(value.__pydantic_extra__ or {}, depth, enc_hook)


def _serialize(model: Any, name: str, depth: int, bad: _Bad) -> Any:
    """Return the JSON-like form that pydantic has for a field; raises `bad` when it has none."""
    try:
        dump = type(model).model_dump  # a field may be named so
        made = dump(model, mode="json", include={name}, by_alias=False, round_trip=True, warnings=False)
        found = _walk(made[name], depth, None)
    except Exception:
        raise bad from None
    # As in any set: a fixed order makes equal values equal bytes.
    return sorted(found, key=canonical) if isinstance(vars(model)[name], set | frozenset) else found


def is_text(value: str) -> bool:
    """Return whether a text can be stored: it has no half of a surrogate pair."""
    try:
        return value.isascii() or bool(value.encode())
    except UnicodeEncodeError:
        return False


def _check_text(text: str) -> str:
    if not is_text(text):
        raise _bad("contains half of a surrogate pair", "it is not valid Unicode text")
    return text


def _find_fields(kind: Any) -> tuple[tuple[str, ...], bool]:
    stored = model_fields(kind)
    if stored is not None:
        return stored, True
    if hasattr(kind, "__dataclass_fields__"):
        return tuple(field.name for field in dataclasses.fields(kind)), False
    is_struct = isinstance(kind, type) and issubclass(kind, msgspec.Struct)
    return (kind.__struct_fields__ if is_struct and _is_plain(kind) else ()), False


_record_fields: Callable[[Any], tuple[tuple[str, ...], bool]] = cache(_find_fields)
"""Return the fields of a class that is stored field by field, and whether it is a pydantic model."""


def _is_plain(struct: Any) -> bool:
    """Return whether msgspec makes a map of all fields of a struct, without an option that changes it."""
    config = struct.__struct_config__
    renamed = struct.__struct_fields__ != struct.__struct_encode_fields__
    unset = any(default is msgspec.UNSET for default in struct.__struct_defaults__)
    return not (renamed or unset or config.array_like or config.omit_defaults or config.tag is not None)


def change_fields(value: Any, changes: Mapping[str, Any]) -> Any:
    """Return a copy of a dict, struct, pydantic model or dataclass with other values for some fields."""
    if isinstance(value, dict):
        return {**value, **changes}
    if isinstance(value, msgspec.Struct):
        return msgspec.structs.replace(value, **changes)
    if model_fields(type(value)) is not None:
        return value.model_copy(update=dict(changes))
    return dataclasses.replace(value, **changes)


def _model_fields(kind: Any) -> tuple[str, ...] | None:
    # Known by its attributes: pydantic is there only if the caller has it.
    fields = getattr(kind, "__pydantic_fields__", None)
    if not isinstance(fields, dict) or not hasattr(kind, "__pydantic_root_model__"):
        return None
    return tuple(name for name, field in fields.items() if not field.exclude)


model_fields: Callable[[Any], tuple[str, ...] | None] = cache(_model_fields)
"""Return the names of the stored fields of a pydantic model; None for any other class."""


class _Bad(Exception):
    """Carries the path to a value that cannot be stored while the walk unwinds."""

    def __init__(self, reason: str, hint: str) -> None:
        super().__init__(reason)
        self.reason, self.hint = reason, hint
        self.path: list[str] = []


def _bad(reason: str, hint: str) -> _Bad:
    return _Bad(reason, hint)


encode = _encoder.encode
"""Return the JSON bytes of a plain value, with keys in the caller's order."""

canonical = _canonical.encode
"""Return JSON bytes with sorted keys: equal values have equal bytes, 1 and 1.0 do not."""


def decode(raw: bytes) -> Any:
    """Return the value of stored JSON bytes."""
    try:
        return _decoder.decode(raw)
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        raise Corrupt(f"a stored record is not JSON: {error}") from None


def same(left: bytes, right: bytes) -> bool:
    """Return whether two encodings hold the same value; the order of keys does not matter."""
    if left == right:
        return True
    if len(left) != len(right):
        return False
    return canonical(decode(left)) == canonical(decode(right))


def blake2b(data: bytes, *, size: int = 64, key: bytes = b"") -> hashlib.blake2b:
    """Return the BLAKE2b hash of data, to be read or added to; `size` is that of its digest in bytes."""
    import hashlib  # loads OpenSSL, and many programs hash nothing

    return hashlib.blake2b(data, digest_size=size, key=key)
