"""The rooms of dgent, and the names it reserves: their schemas and ids, also where a room was never used.

A room's schemas name their owner in the store as soon as the room is used there. Until then this list
does, so that nobody can prepare records for the room to find.
"""

from __future__ import annotations

OWN = "dgent."  # how schemas and ids begin that are of no room
LINKS = "dgent.association"  # of which everyone may make records

_BLOCK_PRIVATE = (
    *("archive_share", "share", "snapshot", "version"),
    *("audit", "block", "checkpoint", "entry", "erasure", "page", "redaction", "seen", "text"),
)
_BLOCKS = (*_BLOCK_PRIVATE, "agent", "group", "member")
_CUPBOARD = (
    *("catalog", "category", "crumb", "lease", "line", "link"),
    *("metadata", "property", "schema", "stash", "trail"),
)
_MEMBRANE = (
    *("instance", "shape", "dream", "embedding_metadata", "agent_state", "prompt_checkpoint"),
    *("cli_session", "cli_session_event", "cli_session_agent", "cli_session_artifact"),
    *("self_grow_proposal", "self_grow_nursery", "self_grow_rollback_token"),
)
_MESSAGES = ("message", "batch", "summary", "incoming", "lease", "erasure")
MODULES = {
    "blocks": "dgent.blocks.room",
    "cupboard": "dgent.cupboard.room",
    "membrane": "dgent.membrane.room",
    "messages": "dgent.messages.room",
    "blobs": "dgent.universe.blob_room",
    "code": "dgent.runtime.code.room",
}
"""The module of each room; its `ROOM` answers what the layers around it ask (`universe/room.py`)."""

_OWN = (
    *("conflict", "consent", "copy", "fork", "fork.base", "fork.pulled", "grant", "origin"),
    *("outbox", "outbox.home", "outbox.part", "token"),
)

OWNERS: dict[str, str] = {
    **{f"block.{name}": "blocks" for name in _BLOCKS},
    **{f"cupboard.{name}": "cupboard" for name in _CUPBOARD},
    **{f"membrane.{name}": "membrane" for name in _MEMBRANE},
    **{f"message.{name}": "messages" for name in _MESSAGES},
    **{f"blob.{name}": "blobs" for name in ("key", "orphan", "content")},
    "code.file": "code",
}
"""The room of each schema."""

ROOTS: dict[str, str] = {**OWNERS, "cupboard": "cupboard"}
"""The room of the ids that begin with such a name and a slash."""

BUILTIN, BUILTIN_OWNER = "01941f29-7c00-7000-8000-", "cupboard"
"""The prefix of ids that are the same in every store, and the room that starts with these records."""

PARTS = frozenset(("flow.delta",))
"""The schemas of records that are parts of others: a search does not show them by themselves."""

MARKS = frozenset(("cupboard/turn",))
"""The ids of records that a room writes and removes while it works, whatever the request."""

CONTENTS = ("blob.content/", "blob.orphan/")
"""How ids of contents of blobs begin, and of notes on them: they follow from the keys that are stored."""

PRIVATE: dict[str, frozenset[str]] = {
    "blocks": frozenset(f"block.{name}" for name in _BLOCK_PRIVATE),
    "messages": frozenset(f"message.{name}" for name in _MESSAGES),
    "code": frozenset(("code.file",)),
    "dgent": frozenset((*(OWN + name for name in _OWN), "blob.content")),
}
"""The schemas that nobody below a partner reads, unless their room says who may."""


SINGLE = frozenset(f"block.{name}" for name in ("agent", "archive_share", "entry", "group", "member"))
"""The schemas of blocks that are no part of a block."""

WHOLES = frozenset(("block.block", "block.version"))
"""The schemas of records that say something in a thing made of several records, of which they are parts."""

UNSHARED = frozenset(
    ("blob.content", "blob.orphan", "block.text", "dgent.consent", "dgent.grant", "dgent.token")
)
"""The schemas of records that stay in their store: nobody copies, exports or merges them.

They follow from others, or give access to this very store; contents go with the keys that refer to them.
"""


def may_be_of_room(id: str) -> bool:
    """Return whether an id can be a room's by itself: it is below another id, or known beforehand."""
    return "/" in id or id.startswith(BUILTIN)


def is_reserved(schema: str | None) -> bool:
    """Return whether a schema is of a room or of dgent itself, also where nobody declared it."""
    return schema is not None and (schema in OWNERS or schema.startswith(OWN))


def is_own(id: str, schema: str | None) -> bool:
    """Return whether a record would be one that dgent makes for itself, outside its rooms."""
    return id.startswith(OWN) or (schema is not None and schema.startswith(OWN) and schema != LINKS)
