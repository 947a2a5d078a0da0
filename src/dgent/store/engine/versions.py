"""Bodies of old versions, stored small: whole, compressed, or as a difference from the next version."""

from __future__ import annotations

from functools import cache
from typing import Any

from dgent.errors import Corrupt

PLAIN, ZSTD, DELTA = 0, 1, 2

SMALL = 512  # below this, compression saves less than it costs
ANCHOR = 16  # every so many revs at least a version stands alone, so reading an old one is a short chain
LONGEST = 256  # versions in a chain; a large body that stands alone costs more than many differences
CHAIN_BYTES = 32 * 1024 * 1024  # to expand for one read, at most, once bodies are larger than `LARGE`
LARGE = 8_192
MAX_BYTES = 128 * 1024 * 1024


@cache
def _zstd() -> Any:
    import zstandard  # 20 ms to import, and only large records need it

    return zstandard


def pack(
    rev: int, data: bytes | None, content: bytes | None, next_data: bytes | None, next_content: bytes | None
) -> tuple[int, bytes | None, bytes | None]:
    """Return the encoding and the two parts as history stores them."""
    size = len(data or b"") + len(content or b"")
    if size < SMALL:
        return PLAIN, data, content
    if rev % _spacing(size) == 0 or (next_data is None and next_content is None):
        return ZSTD, _press(data, None), _press(content, None)
    return DELTA, _press(data, next_data), _press(content, next_content)


def _spacing(size: int) -> int:
    """Return after how many revs a body of this size stands alone: a power of two."""
    if size < LARGE:
        return ANCHOR
    spacing = LONGEST
    while spacing > ANCHOR and spacing * size > CHAIN_BYTES:
        spacing //= 2
    return spacing


def unpack(
    enc: int, data: bytes | None, content: bytes | None, next_data: bytes | None, next_content: bytes | None
) -> tuple[bytes | None, bytes | None]:
    """Return the plain parts of a stored body."""
    if enc == PLAIN:
        return data, content
    if enc == ZSTD:
        return _expand(data, None), _expand(content, None)
    if enc == DELTA:
        return _expand(data, next_data), _expand(content, next_content)
    raise Corrupt(f"a stored version has the unknown encoding {enc}", hint="upgrade dgent")


def _dictionary(base: bytes | None) -> Any:
    # A shorter base than 8 bytes is not a usable dictionary for zstd.
    if base is None or len(base) < 8:
        return None
    return _zstd().ZstdCompressionDict(base, dict_type=_zstd().DICT_TYPE_RAWCONTENT)


def _press(raw: bytes | None, base: bytes | None) -> bytes | None:
    if raw is None:
        return None
    dictionary = _dictionary(base)
    options = {} if dictionary is None else {"dict_data": dictionary}
    pressed: bytes = _zstd().ZstdCompressor(level=3, **options).compress(raw)
    return pressed


def _expand(pressed: bytes | None, base: bytes | None) -> bytes | None:
    if pressed is None:
        return None
    zstd = _zstd()
    try:
        if zstd.frame_content_size(pressed) > MAX_BYTES:
            raise Corrupt("a stored version claims to be larger than any record can be")
        dictionary = _dictionary(base)
        options = {} if dictionary is None else {"dict_data": dictionary}
        raw: bytes = zstd.ZstdDecompressor(**options).decompress(pressed, max_output_size=MAX_BYTES)
    except zstd.ZstdError as error:
        raise Corrupt(f"a stored version does not unpack: {error}") from None
    return raw
