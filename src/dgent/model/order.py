"""One order for all values: missing < null < false < true < numbers < text < lists < maps.

`key` turns a value into bytes whose plain order is that order, so every engine sorts alike. A
number is the double at or below it (with its sign bit turned so that bytes sort), then two bytes
for what an integer beyond 53 bits has above that double.
"""

from __future__ import annotations

import math
import struct
from typing import Any

from dgent import codec
from dgent.errors import InputError
from dgent.model.path import MISSING

CUT = 120

_EXACT = 2**53  # every integer up to here is a double
_WIDEST = 2**64  # up to here two bytes hold the remainder; stored integers end at 2**63
_ALL_BITS = 2**64 - 1
_NUMBER, _TEXT, _LIST, _MAP = 3, b"\x04", b"\x05", b"\x06"
_LISTS = _LIST[0]

_pack_positive = struct.Struct(">BdH").pack
_pack_negative = struct.Struct(">BQH").pack
_pack_double = struct.Struct(">d").pack
_unpack_bits = struct.Struct(">Q").unpack


def key(value: Any) -> bytes:
    """The bytes that put a value in its place; equal bytes mean equal values, except lists and maps."""
    kind = type(value)
    if kind is str:
        encoded: bytes = value.encode()
        return _TEXT + encoded
    if kind is float or (kind is int and -_EXACT <= value <= _EXACT):
        if value >= 0:
            # Adding 0.0 makes -0.0 positive; the minus then sets the sign bit, which sorts it high.
            return _pack_positive(_NUMBER, -(value + 0.0), 0)
        return _pack_negative(_NUMBER, _unpack_bits(_pack_double(value))[0] ^ _ALL_BITS, 0)
    if value is None:
        return b"\x01"
    if kind is bool:
        return b"\x02\x01" if value else b"\x02\x00"
    if kind is int:
        return _wide(value)
    return _other(value)


def index_key(value: Any) -> tuple[bytes, bool]:
    """The key cut to CUT bytes, and whether it says everything about the value.

    A cut key equals the key of a shorter text that ends exactly there, so whoever finds a key of
    CUT bytes must look at the record, also when the value it searched for was exact.
    """
    if type(value) is str and len(value) > CUT:
        # Cut before encoding: a megabyte of text needs only its beginning.
        return (_TEXT + value[:CUT].encode())[:CUT], False
    whole = key(value)
    if len(whole) > CUT:
        return whole[:CUT], False
    return whole, whole[0] < _LISTS


def same(a: Any, b: Any) -> bool:
    """Whether two JSON values are equal: 1 equals 1.0, True equals neither, also deep inside."""
    kind, other = type(a), type(b)
    if kind is not other:
        return kind in _NUMBERS and other in _NUMBERS and bool(a == b)
    if kind is list:
        return len(a) == len(b) and all(map(same, a, b))
    if kind is dict:
        return len(a) == len(b) and all(name in b and same(item, b[name]) for name, item in a.items())
    return bool(a == b)


_NUMBERS = frozenset((int, float))


def comparable(a: Any, b: Any) -> bool:
    """Whether $gt and its kin may compare two values: two numbers, two texts or two bools."""
    return type(b) in kinds_like(a)


def kinds_like(value: Any) -> frozenset[type]:
    """The Python types that compare with this value; none for null, lists and maps."""
    return _KINDS.get(type(value), frozenset())


_KINDS: dict[type, frozenset[type]] = {
    int: _NUMBERS,
    float: _NUMBERS,
    str: frozenset((str,)),
    bool: frozenset((bool,)),
}


def _wide(value: int) -> bytes:
    if not -_WIDEST <= value <= _WIDEST:
        raise InputError(f"an integer of {value.bit_length()} bits has no place in the order")
    low = float(value)
    if low > value:
        low = math.nextafter(low, -math.inf)
    rest = value - int(low)
    if value > 0:
        return _pack_positive(_NUMBER, -low, rest)
    return _pack_negative(_NUMBER, _unpack_bits(_pack_double(low))[0] ^ _ALL_BITS, rest)


def _other(value: Any) -> bytes:
    if value is MISSING:
        return b"\x00"
    if isinstance(value, list):
        return _LIST
    if isinstance(value, dict):
        return _MAP
    # Not a stored value (an enum, a datetime): it sorts as what it would be stored as.
    return key(codec.plain(value))
