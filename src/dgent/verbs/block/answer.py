"""Answers of the verbs of blocks, where they are not what the library itself returns."""

from __future__ import annotations

from datetime import datetime
from typing import Any

import msgspec

from dgent.blocks import Block, Branch, Difference, FileReport, Member, Version
from dgent.verbs.origin import LowTrust


class BlockHeader(msgspec.Struct, frozen=True):
    """The header of a block, without its content; `permission` is what the caller may do with it.

    `over_limit` is one that a merge made longer than it may be: it can only become shorter.
    `retain` is how many of its versions are kept; None for all. A list also says its newest version and
    how many characters that has. `origin` is the trust of those who wrote to it, where that is less than a
    partner's; lists and `block.info` have it.
    """

    id: str
    owner: str
    label: str
    description: str
    kind: str
    document: str
    template: str
    limit: int
    permission: str
    pinned: bool
    over_limit: bool = False
    retain: int | None = None
    version: int | None = None
    size: int | None = None
    origin: LowTrust = msgspec.UNSET


class Blocks(msgspec.Struct, frozen=True):
    """Blocks by label, and the labels of those that were deleted and can be restored."""

    items: list[BlockHeader]
    agent: str
    deleted: list[str] = []


class BlockText(msgspec.Struct, frozen=True, omit_defaults=True):
    """The content of a block at a version: as text, and as plain values.

    If only some lines were asked for, `text` has them with their numbers, `value` is empty, and `lines` says
    how many there are.
    """

    owner: str
    label: str
    version: int
    text: str
    value: dict[str, Any]
    lines: int | None = None
    origin: LowTrust = msgspec.UNSET


class BlockShare(msgspec.Struct, frozen=True):
    """A share of a block: with an agent or a group, by whom, when, and with which permission."""

    owner: str
    label: str
    agent: str | None
    group: str | None
    permission: str
    by: str
    at: datetime


class BlockField(msgspec.Struct, frozen=True, omit_defaults=True):
    """One field of a block, of its items or its entries."""

    name: str
    type: str
    description: str = ""
    required: bool = False
    read_only: bool = False
    choices: list[Any] = []


class BlockSection(msgspec.Struct, frozen=True, omit_defaults=True):
    """One section of a composite."""

    name: str
    document: str
    read_only: bool = False
    fields: list[BlockField] = []


class BlockInfo(msgspec.Struct, frozen=True):
    """A block with its size, fields or sections, checkpoints and shares."""

    card: BlockHeader
    version: int
    size: int
    fields: list[BlockField]
    sections: list[BlockSection]
    checkpoints: dict[str, int]
    shares: list[BlockShare]


class BlockVersion(msgspec.Struct, frozen=True):
    """One version: its author, operation and time, its size, and how much was added and removed.

    `node` is the version whose content it is, and `parent` the one it was made from. `lost` says why what it
    brought is not kept: it was redacted, or compacted.
    """

    version: int
    at: datetime
    by: str
    op: str
    size: int
    added: int
    removed: int
    message: str
    node: int
    parent: int
    lost: str = ""


class BlockVersions(msgspec.Struct, frozen=True):
    """Versions of a block, newest first; `total` is how many there are."""

    items: list[BlockVersion]
    owner: str
    label: str
    total: int


class EditResult(msgspec.Struct, frozen=True):
    """The version that an edit made. A `node` is the one that was added to a tree.

    `changed` are the lines of a text that are different now, with their numbers.
    """

    owner: str
    label: str
    limit: int
    version: BlockVersion
    node: str | None = None
    changed: str = ""


class BlockDiff(msgspec.Struct, frozen=True):
    """The differences of two versions of a block: as lines, and path by path unless it is a text."""

    owner: str
    label: str
    before: int
    after: int
    text: str
    changes: tuple[Difference, ...]


class Stretch(msgspec.Struct, frozen=True):
    """Edits that follow each other, up to where undo and a new edit made two lines of one."""

    first: int
    last: int
    parent: int
    edits: int
    by: list[str]
    at: datetime
    here: bool


class BlockBranches(msgspec.Struct, frozen=True):
    """The lines of edits of a block, newest first, and the tree that they make."""

    items: list[Branch]
    owner: str
    label: str
    node: int
    tree: list[Stretch]


class RedactResult(msgspec.Struct, frozen=True):
    """The redacted versions, and the version that records the redaction.

    `elsewhere` are other versions that still say some of it. `erased`: the bytes are gone from the disk.
    `messages` are the redacted versions whose messages are still there.
    """

    owner: str
    label: str
    version: int
    versions: list[int]
    elsewhere: list[int]
    erased: bool
    messages: list[int]


class BlockCompaction(msgspec.Struct, frozen=True):
    """The number of old versions of a block that were pruned to their history entries."""

    owner: str
    label: str
    versions: int


class Checkpoint(msgspec.Struct, frozen=True):
    """A version with a name."""

    name: str
    version: int


class Checkpoints(msgspec.Struct, frozen=True):
    """The versions of a block that have names."""

    items: list[Checkpoint]
    label: str


class BlockNotice(msgspec.Struct, frozen=True):
    """Changes of others to a block since the agent last looked."""

    owner: str
    label: str
    since: int
    version: int
    by: list[str]
    diff: str


class BlockActivity(msgspec.Struct, frozen=True):
    """Something that was done to a block, an archival entry, a crumb or a trail; `kind` says which."""

    seq: int
    at: datetime
    by: str
    what: str
    owner: str
    label: str
    version: int | None
    message: str
    kind: str = "block"
    id: str = ""


class RefusalInfo(msgspec.Struct, frozen=True):
    """A refused request: the agent, the operation, the block, and the reason."""

    at: datetime
    agent: str
    trust: str
    owner: str
    label: str
    what: str
    verdict: str
    reason: str


class ArchiveEntry(msgspec.Struct, frozen=True):
    """An archival entry."""

    id: str
    agent: str
    text: str
    tags: list[str]
    at: datetime


class AgentInfo(msgspec.Struct, frozen=True):
    """An agent of the constellation."""

    name: str
    description: str
    status: str


class Primer(msgspec.Struct, frozen=True):
    """The text for the start of an agent's session."""

    agent: str
    text: str


class GroupInfo(msgspec.Struct, frozen=True):
    """A group and its members."""

    name: str
    description: str
    members: tuple[Member, ...]


def header_of(
    found: Block, newest: tuple[int, int] | None = None, origin: LowTrust = msgspec.UNSET
) -> BlockHeader:
    """Return the header of a block as doors show it, with its newest version and the size of that."""
    version, size = newest or (None, None)
    return BlockHeader(
        found.id,
        found.owner,
        found.label,
        found.description,
        found.kind,
        found.document_kind,
        found.template,
        found.limit,
        found.permission,
        found.pinned,
        found.over_limit,
        found.retain,
        version,
        size,
        origin,
    )


def version_of(found: Version) -> BlockVersion:
    """Return a version as doors show it."""
    return BlockVersion(
        found.number,
        found.at,
        found.by,
        found.op,
        found.size,
        found.added,
        found.removed,
        found.message,
        found.node,
        found.parent,
        found.lost,
    )


class SyncResult(msgspec.Struct, frozen=True):
    """The result of a folder sync or its dry run; `healthy` without refusals and conflicts."""

    folder: str
    taken: tuple[FileReport, ...]
    written: tuple[FileReport, ...]
    deleted: tuple[FileReport, ...]
    conflicts: tuple[FileReport, ...]
    refused: tuple[FileReport, ...]
    healthy: bool
    dry_run: bool = False
