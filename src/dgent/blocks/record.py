"""What the store holds of a block: its card, its versions, pages of old versions, and a snapshot.

A version is one small record, `<block>/u/<number>`, with the document's update in its content. Some of them
at a time are folded: what they say goes into a page, their updates into the snapshot, and they are deleted.
The snapshot holds the whole history of the document, so nothing is lost by that; a page keeps the updates
too, so that an old version can be built from the last state before it. None of this has a history of its
own: it is the history.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from dgent.model.schema import Schema

ROOM = "blocks"


@dataclass(frozen=True)
class BlockRecord:
    """A block's card. It is not touched by edits."""

    owner: str
    label: str
    kind: str = "working"
    document: str = "text"
    description: str = ""
    template: str = ""
    shape: dict[str, Any] = field(default_factory=dict)
    limit: int = 5000
    permission: str = "read_write"
    pinned: bool = False
    active: bool = True
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class VersionRecord:
    """One version: what was done, where in the tree of versions it stands, and how large it is.

    `node` is the version whose content this is: itself for an edit, an earlier one for an undo or a redo.
    `parent` is the node it was made from. `frontiers` name the state in the document's own history.
    """

    op: str
    node: int
    parent: int
    size: int
    added: int
    removed: int
    frontiers: str
    message: str = ""


@dataclass(frozen=True)
class PageRecord:
    """The versions from one number to another, packed in the content; `state` when the state is too."""

    block: str
    first: int
    last: int
    state: bool = False


@dataclass(frozen=True)
class SnapshotRecord:
    """The document as of a version, with its history, in the content."""

    version: int
    folded_from: int = 0
    shallow_before: int = 0


@dataclass(frozen=True)
class CheckpointRecord:
    """A version with a name."""

    block: str
    name: str
    version: int


BLOCK = Schema("block.block", contract=BlockRecord, indexes=("owner", "label"), owner=ROOM)
VERSION = Schema("block.version", contract=VersionRecord, owner=ROOM, history="none")
PAGE = Schema("block.page", contract=PageRecord, owner=ROOM, history="none", feed=False)
SNAPSHOT = Schema("block.snapshot", contract=SnapshotRecord, owner=ROOM, history="none", feed=False)
CHECKPOINT = Schema("block.checkpoint", contract=CheckpointRecord, indexes=("block",), owner=ROOM)

SCHEMAS = (BLOCK, VERSION, PAGE, SNAPSHOT, CHECKPOINT)


def version_id(block: str, number: int) -> str:
    """The id of a version: numbers of one length, so that ids stand in order."""
    return f"{block}/u/{number:010d}"


def page_id(block: str, last: int) -> str:
    """The id of the page that ends with a version."""
    return f"{block}/p/{last:010d}"


def snapshot_id(block: str) -> str:
    """The id of a block's snapshot."""
    return f"{block}/s"
