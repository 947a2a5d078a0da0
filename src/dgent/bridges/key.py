"""Ids of records for keys of other frameworks, which may be any text."""

from __future__ import annotations

from hashlib import sha256

from dgent import ids

MAX_PLAIN = 200  # bytes of a key that stands in an id as it is


def record_id(kind: str, *parts: str) -> str:
    """Return the id of the record of a key: readable where the key is short and plain, else by its hash.

    Different keys have different ids; a plain key that begins as a hash does is hashed, too.
    """
    plain = all(part.isprintable() and not part.startswith("~") for part in parts)
    try:
        size = sum(len(part.encode()) for part in parts)
    except UnicodeEncodeError:
        plain, size = False, 0
    if plain and all(parts) and size <= MAX_PLAIN:
        return ids.compose(kind, *map(ids.escape, parts))
    whole = b"".join(len(raw).to_bytes(8, "big") + raw for raw in map(_encode, parts))
    return ids.compose(kind, f"~{sha256(whole).hexdigest()}")


def _encode(part: str) -> bytes:
    return part.encode("utf-8", "surrogatepass")
