"""One order for all values: missing < null < false < true < numbers < text < lists < maps.

`key` turns a value into bytes whose plain order is that order, so every engine sorts alike. A
number is the double at or below it (with its sign bit turned so that bytes sort), then two bytes
for what an integer beyond 53 bits has above that double, then the digits of a decimal that is neither
a double nor an integer. Durations, and times of day with a zone, stand after all numbers.
"""

from __future__ import annotations

import math
import struct
from datetime import time, timedelta
from decimal import ROUND_FLOOR, Decimal
from typing import Any

from dgent import codec
from dgent.errors import InputError
from dgent.model.contract.scalar import align
from dgent.model.path import MISSING

CUT = 120
FIRST_NUMBER, FIRST_TEXT = b"\x03", b"\x04"  # where the keys of numbers and of texts begin

_EXACT = 2**53  # every integer up to here is a double
_WIDEST = 2**64  # up to here two bytes hold the remainder; stored integers end at 2**63
_ALL_BITS = 2**64 - 1
_NUMBER, _TEXT, _LIST, _MAP = FIRST_NUMBER[0], FIRST_TEXT, b"\x05", b"\x06"
_LISTS = _LIST[0]
_TIME, _DURATION = b"\x03\xff\xfe", b"\x03\xff\xff"  # above the largest number
_MICROSECOND = timedelta(microseconds=1)

_pack_positive = struct.Struct(">BdH").pack
_pack_negative = struct.Struct(">BQH").pack
_pack_double = struct.Struct(">d").pack
_unpack_bits = struct.Struct(">Q").unpack
_unpack_double = struct.Struct(">d").unpack
_NUMBER_BYTES = 11  # of an integer or a double
_FIXED: dict[bytes, bool | None] = {b"\x01": None, b"\x02\x00": False, b"\x02\x01": True}


def key(value: Any) -> bytes:
    """Return bytes that sort a value into place; equal bytes mean equal values, except lists and maps."""
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


def value_of_key(key: bytes) -> tuple[bool, Any]:
    """Return whether a key of an index says its value by itself, and the value; numbers of either type."""
    kind = key[:1]
    if kind == _TEXT and len(key) < CUT:
        return True, key[1:].decode()
    if key in _FIXED:
        return True, _FIXED[key]
    if key[0] == _NUMBER and len(key) == _NUMBER_BYTES and key[9:] == b"\0\0":
        (bits,) = _unpack_bits(key[1:9])
        value: float = -_unpack_double(key[1:9])[0] if bits >> 63 else _unpack_double(_flip(bits))[0]
        return True, int(value) if value.is_integer() and abs(value) <= _EXACT else value
    return False, None


def _flip(bits: int) -> bytes:
    return (bits ^ _ALL_BITS).to_bytes(8, "big")


def index_key(value: Any) -> tuple[bytes, bool]:
    """Return the key cut to CUT bytes, and whether it identifies the value.

    A cut key equals the key of a shorter text that ends exactly there. So after finding a key of CUT
    bytes, read the record too, also when the value searched for was exact.
    """
    if value is None:
        return b"\x01", True
    if type(value) is str:
        # Cut before encoding: a megabyte of text needs only its beginning.
        whole = _TEXT + value[:CUT].encode()
        return (whole, True) if len(whole) <= CUT else (whole[:CUT], False)
    whole = key(value)
    if len(whole) > CUT:
        return whole[:CUT], False
    return whole, whole[0] < _LISTS


def same(a: Any, b: Any) -> bool:
    """Return whether two values are equal: 1 equals 1.0, True equals neither, also deep inside.

    A decimal, a duration or a zoned time equals a text (or number) that stands for the same.
    """
    kind, other = type(a), type(b)
    if kind is not other:
        if kind in _NUMBERS and other in _NUMBERS:
            return bool(a == b)
        pair = align(a, b)
        return pair is not None and bool(pair[0] == pair[1])
    if kind is list:
        return len(a) == len(b) and all(map(same, a, b))
    if kind is dict:
        return len(a) == len(b) and all(name in b and same(item, b[name]) for name, item in a.items())
    return bool(a == b)


_NUMBERS = frozenset((int, float))


def comparable(a: Any, b: Any) -> bool:
    """Return whether $gt and its kin may compare two values: two numbers, two texts or two bools."""
    return type(b) in kinds_like(a)


def kinds_like(value: Any) -> frozenset[type]:
    """Return the Python types that compare with this value; none for null, lists and maps."""
    return _KINDS.get(type(value), frozenset())


_KINDS: dict[type, frozenset[type]] = {
    int: _NUMBERS,
    float: _NUMBERS,
    str: frozenset((str,)),
    bool: frozenset((bool,)),
    Decimal: frozenset((Decimal,)),
    timedelta: frozenset((timedelta,)),
    time: frozenset((time,)),
}


def _wide(value: int) -> bytes:
    if not -_WIDEST <= value <= _WIDEST:
        raise InputError(f"an integer of {value.bit_length()} bits has no place in the order")
    low = float(value)
    if low > value:
        low = math.nextafter(low, -math.inf)
    return _above(low, value - int(low))


def _above(low: float, rest: int) -> bytes:
    """Return the key of a double and the distance of an integer above it."""
    if low >= 0:
        return _pack_positive(_NUMBER, -(low + 0.0), rest)
    return _pack_negative(_NUMBER, _unpack_bits(_pack_double(low))[0] ^ _ALL_BITS, rest)


def _decimal(value: Decimal) -> bytes:
    """Return the key of the double or integer that a decimal equals, else the double below and its digits."""
    low = float(value)  # the nearest; too large a one becomes infinite
    nearest = Decimal.from_float(low)
    if nearest == value:
        return _above(low, 0)
    if nearest > value:
        low = math.nextafter(low, -math.inf)
    rest = 0
    if _EXACT <= abs(low) < math.inf:
        if value.adjusted() > _DIGITS_OF_LARGEST:
            rest = _MOST_REST
        else:
            whole = int(value.to_integral_value(ROUND_FLOOR))
            if whole == value and abs(whole) <= _WIDEST:
                return _wide(whole)
            rest = min(whole - int(low), _MOST_REST)
    return _above(low, rest) + _digits(value)


_DIGITS_OF_LARGEST = 310  # more than the largest double has
_MOST_REST = 2**16 - 1


def _digits(value: Decimal) -> bytes:
    """Return the digits of a decimal as bytes that sort by its size."""
    _, digits, exponent = value.as_tuple()
    assert isinstance(exponent, int), "infinity and NaN have keys of their own"
    written = "".join(map(str, digits)).lstrip("0")
    point, text = exponent + len(written), written.rstrip("0")
    pairs = text + "0" * (len(text) % 2)
    size = (point + 2**63).to_bytes(8, "big")
    size += bytes(int(pairs[place : place + 2]) + 1 for place in range(0, len(pairs), 2))
    # Of two negative numbers the one with more digits is the smaller; the end mark sorts it so.
    return bytes(255 - byte for byte in size) + b"\xff" if value < 0 else size


def _other(value: Any) -> bytes:
    if value is MISSING:
        return b"\x00"
    if isinstance(value, list):
        return _LIST
    if isinstance(value, dict):
        return _MAP
    if isinstance(value, Decimal) and not value.is_nan():
        return _decimal(value)
    if isinstance(value, timedelta):
        return _DURATION + _decimal(Decimal(value // _MICROSECOND))[1:]
    if isinstance(value, time) and (offset := value.utcoffset()) is not None:
        at = timedelta(hours=value.hour, minutes=value.minute, seconds=value.second)
        return _TIME + key((at - offset) // _MICROSECOND + value.microsecond)[1:]
    # Not a stored value (an enum, a datetime): it sorts as what it would be stored as.
    return key(codec.plain(value))
