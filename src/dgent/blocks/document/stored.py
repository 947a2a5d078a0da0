"""The stored form of a document with a long history: its state in front, then the snapshot.

A state is read in a fraction of the time that a long history takes, and most readers need no more.
"""

from __future__ import annotations

from dgent.blocks import errors

MARK = b"dgent-doc\x01"  # a snapshot alone begins with the mark of its own library
WORTH = 4  # a history of fewer times the state's bytes is stored alone


def join_state(state: bytes, snapshot: bytes) -> bytes:
    """Put a state before a snapshot, if the snapshot is much longer."""
    if len(snapshot) < WORTH * len(state):
        return snapshot
    return MARK + len(state).to_bytes(4, "big") + state + snapshot


def split_state(stored: bytes) -> tuple[bytes, bytes]:
    """Return the state and the snapshot; the state is empty where a snapshot is stored alone."""
    if not stored.startswith(MARK):
        return b"", stored
    start = len(MARK) + 4
    end = start + int.from_bytes(stored[len(MARK) : start], "big")
    if not start < end < len(stored):
        raise errors.DocumentCorrupt("the state of a document is cut off")
    return stored[start:end], stored[end:]
