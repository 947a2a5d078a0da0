"""What the store holds of a block: its card, its versions, pages of old versions, and a snapshot.

A version is one small record, `<block>/u/<number>`, with the document's update in its content. Some of them
at a time are folded: what they say goes into a page, their updates into the snapshot, and they are deleted.
The snapshot holds the whole history of the document, so nothing is lost by that; a page keeps the updates
too, so that an old version can be built from the last state before it. None of this has a history of its
own: it is the history.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dgent import ids
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
    """The document as of a version in the content, with its history since the last that was compacted.

    `redactions` is how often something was taken out of it.
    """

    version: int
    redactions: int = 0


@dataclass(frozen=True)
class ErasureRecord:
    """Records of a block that were replaced by others without what was redacted, and must be erased."""

    block: str
    ids: tuple[str, ...]


@dataclass(frozen=True)
class RedactedVersion:
    """A version that was redacted: its number and its time, and whether its message was cleared too.

    The number alone does not name it: a store that was restored counts on from an older version.
    """

    version: int
    at: datetime
    cleared: bool = False


@dataclass(frozen=True)
class RedactionRecord:
    """What was ever redacted in a block, so that an older copy of it can be redacted alike.

    `snapshot` is the last part of the id of its snapshot, which every redaction chooses anew; it is empty
    when nothing was redacted in the block as it is here.
    """

    block: str
    snapshot: str
    redacted: tuple[RedactedVersion, ...] = ()


@dataclass(frozen=True)
class CheckpointRecord:
    """A version with a name."""

    block: str
    name: str
    version: int


@dataclass(frozen=True)
class AgentRecord:
    """An agent of the constellation. Its name is its identity, and never changes."""

    name: str
    description: str = ""
    status: str = "active"
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class GroupRecord:
    """Agents that belong together."""

    name: str
    description: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MemberRecord:
    """That an agent is in a group, and what it is there."""

    group: str
    agent: str
    role: str = "regular"
    capabilities: tuple[str, ...] = ()


@dataclass(frozen=True)
class ShareRecord:
    """That a block is shared: `to` is the id of an agent's or a group's record."""

    block: str
    owner: str
    to: str
    permission: str
    by: str
    at: datetime


@dataclass(frozen=True)
class SeenRecord:
    """The version of a block that an agent looked at last."""

    agent: str
    block: str
    version: int


@dataclass(frozen=True)
class AuditRecord:
    """Something that was refused: to whom, what, and why."""

    agent: str
    trust: str
    owner: str
    label: str
    what: str
    operation: str
    verdict: str
    reason: str
    block: str = ""


@dataclass(frozen=True)
class EntryRecord:
    """An archival entry: a text that an agent put away, to be found by search.

    `words` are those of the text and the tags, each once, as search compares them. They are an index of the
    store, so an entry is found as soon as it is there, and not any more when it is gone.
    """

    agent: str
    text: str
    words: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)


BLOCK = Schema("block.block", contract=BlockRecord, indexes=("owner", "label", "kind", "pinned"), owner=ROOM)
VERSION = Schema("block.version", contract=VersionRecord, owner=ROOM, history="none")
PAGE = Schema("block.page", contract=PageRecord, owner=ROOM, history="none")
SNAPSHOT = Schema("block.snapshot", contract=SnapshotRecord, owner=ROOM, history="none")
ERASURE = Schema("block.erasure", contract=ErasureRecord, owner=ROOM, history="none", feed=False)
REDACTION = Schema("block.redaction", contract=RedactionRecord, owner=ROOM, history="none")
CHECKPOINT = Schema("block.checkpoint", contract=CheckpointRecord, indexes=("block",), owner=ROOM)
AGENT = Schema("block.agent", contract=AgentRecord, owner=ROOM)
GROUP = Schema("block.group", contract=GroupRecord, owner=ROOM)
MEMBER = Schema("block.member", contract=MemberRecord, indexes=("agent", "group"), owner=ROOM)
SHARE = Schema("block.share", contract=ShareRecord, indexes=("to", "block", "owner"), owner=ROOM)
SEEN = Schema("block.seen", contract=SeenRecord, indexes=("agent",), owner=ROOM, history="none", feed=False)
AUDIT = Schema(
    "block.audit", contract=AuditRecord, indexes=("agent", "owner"), owner=ROOM, history="none", feed=False
)
ENTRY = Schema("block.entry", contract=EntryRecord, indexes=("agent", "words.*"), owner=ROOM)

SCHEMAS = (
    *(BLOCK, VERSION, PAGE, SNAPSHOT, ERASURE, REDACTION, CHECKPOINT),
    *(AGENT, GROUP, MEMBER, SHARE, SEEN, AUDIT, ENTRY),
)


def version_id(block: str, number: int) -> str:
    """The id of a version: numbers of one length, so that ids stand in order."""
    return f"{block}/u/{number:010d}"


def page_id(block: str, last: int, fresh: str = "") -> str:
    """The id of the page that ends with a version; one that replaces another has a fresh last part."""
    return f"{block}/p/{last:010d}" + (f"/{fresh}" if fresh else "")


def snapshot_id(block: str, fresh: str = "") -> str:
    """The id of a block's snapshot.

    What is redacted is erased with the record it was in, perhaps much later. So a snapshot that replaces it
    has an id that no other ever had: `fresh` is its last part, and the RedactionRecord says which.
    """
    return f"{block}/s" + (f"/{fresh}" if fresh else "")


def second_snapshot_id(block: str) -> str:
    """Where the snapshot of a block may be that was redacted before there was a RedactionRecord."""
    return f"{block}/t"


def erasure_id(block: str) -> str:
    """The id of what is still to be erased of a block."""
    return f"{block}/erase"


def redaction_id(block: str) -> str:
    """The id of what was redacted in a block."""
    return f"{block}/redacted"


def seen_id(block: str, agent: str) -> str:
    """The id of what an agent has seen of a block."""
    return ids.compose(block, "seen", agent)


def share_id(block: str, to: str) -> str:
    """The id of a share, by the id of whom it is for: one for each of them."""
    return ids.compose(block, "share", to)


def agent_id(name: str) -> str:
    """The id of an agent's record: there can only be one of a name."""
    return ids.compose(AGENT.name, name)


def group_id(name: str) -> str:
    """The id of a group's record; the memberships are below it."""
    return f"{GROUP.name}/{ids.escape(name)}"


def group_ids(name: str) -> list[str]:
    """Where a group's record may be: names with a slash or a tilde were once not escaped."""
    return list(dict.fromkeys((group_id(name), f"{GROUP.name}/{name}")))


def group_of(id: str) -> str | None:
    """The name of the group whose record has an id; None when it is not the id of a group."""
    name = id.removeprefix(f"{GROUP.name}/")
    if name == id:
        return None
    return name if "/" in name else ids.unescape(name)


def member_id(group: str, agent: str) -> str:
    """The id of a membership."""
    return ids.compose(GROUP.name, group, agent)


def member_ids(group: str, agent: str) -> list[str]:
    """Where a membership may be, as with `group_ids`."""
    return list(dict.fromkeys((member_id(group, agent), f"{GROUP.name}/{group}/{agent}")))


def checkpoint_id(block: str, name: str) -> str:
    """The id of a named version."""
    return ids.compose(block, "c", name)
