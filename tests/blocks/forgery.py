"""Bytes of documents that somebody has changed on purpose: with a checksum that is right again."""

from __future__ import annotations

import struct

from dgent.blocks.document.document import Document

HEAD = 22  # the magic, the checksum and the mode stand before what the bytes say
_SEED = int.from_bytes(b"LORO", "little")
_P1, _P2, _P3, _P4, _P5 = 2654435761, 2246822519, 3266489917, 668265263, 374761393
_MASK = 0xFFFFFFFF


def forged(given: bytes) -> bytes:
    """The bytes with the checksum that they should have."""
    return given[:16] + struct.pack("<I", checksum(given[20:])) + given[20:]


def checksum(given: bytes) -> int:
    """The xxHash of some bytes, 32 bits, with the seed that the library uses."""
    place, end = 0, len(given)
    made = (_SEED + _P5) & _MASK
    if end >= 16:
        lanes = [(_SEED + _P1 + _P2) & _MASK, (_SEED + _P2) & _MASK, _SEED, (_SEED - _P1) & _MASK]
        while place <= end - 16:
            for lane, word in enumerate(struct.unpack_from("<4I", given, place)):
                lanes[lane] = _turned(lanes[lane] + word * _P2, 13) * _P1 & _MASK
            place += 16
        made = sum(_turned(lane, by) for lane, by in zip(lanes, (1, 7, 12, 18), strict=True)) & _MASK
    made = (made + end) & _MASK
    while place <= end - 4:
        made = _turned(made + struct.unpack_from("<I", given, place)[0] * _P3, 17) * _P4 & _MASK
        place += 4
    for byte in given[place:]:
        made = _turned(made + byte * _P5, 11) * _P1 & _MASK
    made = (made ^ made >> 15) * _P2 & _MASK
    made = (made ^ made >> 13) * _P3 & _MASK
    return made ^ made >> 16


def _turned(value: int, by: int) -> int:
    value &= _MASK
    return (value << by | value >> (32 - by)) & _MASK


def sample() -> Document:
    """A document with something of every kind in it."""
    made = Document()
    made.write("some text here\n" * 4)
    made.set_field("k", {"a": [1, 2]})
    made.insert_item(0, "x")
    made.insert_map(1, {"t": 1})
    made.append_entry({"m": 1})
    made.add_node(made.add_node(None, {"q": 2}), {"z": 1})
    made.increment(3)
    return made


def unknown_kind() -> bytes:
    """An update that names a container of a kind that there is not: it can be merged, but not used."""
    given = sample().take_update()
    for place in range(HEAD, len(given)):
        for kind in (4, 6, 7, 9, 12, 40, 255):
            made = forged(given[:place] + bytes([kind]) + given[place + 1 :])
            document = Document()
            try:
                document.merge(made)
            except Exception:
                continue
            try:
                document.snapshot()
            except Exception:
                return made
    raise AssertionError("no byte makes an update that can be merged and not used")
