"""Read arrays of numbers from a safetensors file: a header of JSON, then plain numbers.

Nothing in such a file is run. All that the header claims is checked before it is used.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from math import prod
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from dgent.embedder.embedder import load_numpy
from dgent.errors import Corrupt

if TYPE_CHECKING:
    from numpy.typing import NDArray

MAX_HEADER_BYTES = 1 << 20
MAX_ARRAYS = 4_096
_NUMBERS = {"F32": ("<f4", 4), "F16": ("<f2", 2), "I64": ("<i8", 8)}
_AGAIN = "`dgent embed install` puts the files there again"


class _Place(msgspec.Struct):
    dtype: str
    shape: list[int]
    data_offsets: tuple[int, int]


_header = msgspec.json.Decoder(dict[str, msgspec.Raw])
_place = msgspec.json.Decoder(_Place)


def read_arrays(path: Path) -> Mapping[str, NDArray[Any]]:
    """Return the arrays of a file by name, mapped from it: read when used, shared between processes.

    Raises Corrupt for anything that is not such a file.
    """
    numpy = load_numpy()
    size = os.stat(path).st_size
    with open(path, "rb") as file:
        length = int.from_bytes(file.read(8), "little")
        if not 2 <= length <= min(MAX_HEADER_BYTES, size - 8):
            raise Corrupt(f"{path.name} does not begin as a safetensors file does", hint=_AGAIN)
        places = _read_header(file.read(length), path.name)
    start = 8 + length
    whole = numpy.memmap(path, dtype=numpy.uint8, mode="r")
    found: dict[str, NDArray[Any]] = {}
    for name, place in places.items():
        kind, width = _NUMBERS.get(place.dtype, ("", 0))
        first, last = place.data_offsets
        fits = 0 <= first <= last <= size - start and all(0 <= each <= size for each in place.shape)
        if not width or not fits or len(place.shape) > 4 or prod(place.shape) * width != last - first:
            raise Corrupt(f"{path.name}: the place of {name[:80]!r} is wrong", hint=_AGAIN)
        found[name] = numpy.asarray(whole[start + first : start + last]).view(kind).reshape(place.shape)
    return found


def _read_header(raw: bytes, name: str) -> dict[str, _Place]:
    try:
        header = _header.decode(raw)
        header.pop("__metadata__", None)
        if len(header) > MAX_ARRAYS:
            raise Corrupt(f"{name} has more than {MAX_ARRAYS} arrays", hint=_AGAIN)
        return {key: _place.decode(place) for key, place in header.items()}
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise Corrupt(f"the header of {name} cannot be read: {error}", hint=_AGAIN) from None
