"""The records of a block: its header, its versions, packs of old versions, and a snapshot.

A version is one small record, `<block>/u/<number>`, with the document's update in its content. Old versions
are packed, several at a time: their fields and updates go into a pack, their updates also into the snapshot,
and their records are deleted. The snapshot holds the whole history of the document, so nothing is lost; a
pack keeps the updates too, so that an old version can be built from the last state before it. None of these
records has a history in the store: they are the history.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from dgent import ids
from dgent.model.schema import Schema
from dgent.search.words import find_words

ROOM = "blocks"


@dataclass(frozen=True)
class BlockRecord:
    """A block's header; edits of the content do not change it."""

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
    """A version: its operation, its place in the version tree, and its size.

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
class PackRecord:
    """The versions from `first` to `last`, packed in the content; `state` when it has the state, too."""

    block: str
    first: int
    last: int
    state: bool = False


@dataclass(frozen=True)
class SnapshotRecord:
    """The document as of a version, in the content, with its history since the last compaction.

    `redactions` is how often something was redacted in it.
    """

    version: int
    redactions: int = 0


@dataclass(frozen=True)
class ErasureRecord:
    """Ids of a block's records that the next redaction erases, once they are deleted.

    They were replaced by a redaction that could not erase them yet, or by a merge of two copies: their
    former versions may hold text that is in another record now.
    """

    block: str
    ids: tuple[str, ...]


@dataclass(frozen=True)
class RedactedVersion:
    """A redacted version: its number and time, and whether its message was cleared too.

    The number alone does not identify it: a restored store counts on from an older version.
    """

    version: int
    at: datetime
    cleared: bool = False


@dataclass(frozen=True)
class RedactionRecord:
    """Every redaction in a block, so that an older copy of it can be redacted alike.

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
    """A group of agents."""

    name: str
    description: str = ""
    extra: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class MemberRecord:
    """The membership of an agent in a group: its role and capabilities."""

    group: str
    agent: str
    role: str = "regular"
    capabilities: tuple[str, ...] = ()


@dataclass(frozen=True)
class ShareRecord:
    """The share of a block; `to` is the id of an agent's or a group's record."""

    block: str
    owner: str
    to: str
    permission: str
    by: str
    at: datetime


@dataclass(frozen=True)
class ArchiveShareRecord:
    """The share of an agent's archive, to be read; `to` is the id of an agent's or a group's record."""

    owner: str
    to: str
    by: str
    at: datetime


@dataclass(frozen=True)
class SeenRecord:
    """The newest version of a block that an agent has seen."""

    agent: str
    block: str
    version: int


@dataclass(frozen=True)
class AuditRecord:
    """A refusal: the agent, the operation and the reason."""

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
    """An archival entry: a text an agent stored, to be found by search; `names` are its tags."""

    agent: str
    text: str
    names: tuple[str, ...] = ()
    extra: dict[str, Any] = field(default_factory=dict)


def _drop_words(data: dict[str, Any]) -> dict[str, Any]:
    """Return an entry of version 1 as one of version 2: it had all words, those of its tags among them."""
    said = {word.form for word in find_words(str(data.get("text", "")))}
    names = [word for word in data.get("words") or () if word not in said]
    return {**{name: each for name, each in data.items() if name != "words"}, "names": names}


def _restore_words(data: dict[str, Any]) -> dict[str, Any]:
    """Return an entry of version 2 as one of version 1, without its words."""
    return {name: each for name, each in data.items() if name != "names"}


@dataclass(frozen=True)
class TextRecord:
    """The text of a block, for searches, with what they need of its header.

    It follows from the header and the version that it names, and is never merged: where it is out of date or
    missing, a search makes it again.
    """

    owner: str
    label: str
    kind: str
    description: str
    text: str
    version: int
    frontiers: str


BLOCK = Schema("block.block", contract=BlockRecord, indexes=("owner", "label", "kind", "pinned"), owner=ROOM)
VERSION = Schema("block.version", contract=VersionRecord, owner=ROOM, history="none")
PACK = Schema("block.page", contract=PackRecord, owner=ROOM, history="none")
SNAPSHOT = Schema("block.snapshot", contract=SnapshotRecord, owner=ROOM, history="none")
ERASURE = Schema("block.erasure", contract=ErasureRecord, owner=ROOM, history="none", feed=False)
REDACTION = Schema("block.redaction", contract=RedactionRecord, owner=ROOM, history="none")
CHECKPOINT = Schema("block.checkpoint", contract=CheckpointRecord, indexes=("block",), owner=ROOM)
AGENT = Schema("block.agent", contract=AgentRecord, owner=ROOM)
GROUP = Schema("block.group", contract=GroupRecord, owner=ROOM)
MEMBER = Schema("block.member", contract=MemberRecord, indexes=("agent", "group"), owner=ROOM)
SHARE = Schema("block.share", contract=ShareRecord, indexes=("to", "block", "owner"), owner=ROOM)
ARCHIVE_SHARE = Schema(
    "block.archive_share", contract=ArchiveShareRecord, indexes=("to", "owner"), owner=ROOM
)
SEEN = Schema("block.seen", contract=SeenRecord, indexes=("agent",), owner=ROOM, history="none", feed=False)
AUDIT = Schema(
    "block.audit", contract=AuditRecord, indexes=("agent", "owner"), owner=ROOM, history="none", feed=False
)
ENTRY = Schema(
    "block.entry",
    2,
    EntryRecord,
    migrations={1: _drop_words},
    downgrades={2: _restore_words},
    indexes=("agent",),
    owner=ROOM,
    text={"names": 3, "text": 1},
)
TEXT = Schema(
    "block.text",
    contract=TextRecord,
    owner=ROOM,
    history="none",
    feed=False,
    text={"label": 3, "description": 3, "text": 1},
)

SCHEMAS = (
    *(BLOCK, VERSION, PACK, SNAPSHOT, ERASURE, REDACTION, CHECKPOINT),
    *(AGENT, GROUP, MEMBER, SHARE, ARCHIVE_SHARE, SEEN, AUDIT, ENTRY, TEXT),
)


def version_id(block: str, number: int) -> str:
    """Return the id of a version; numbers have a fixed length, so that ids sort in order."""
    return f"{block}/u/{number:010d}"


def pack_id(block: str, last: int, fresh: str = "") -> str:
    """Return the id of the pack that ends with a version; `fresh` makes the id of a replacement unique."""
    return f"{block}/p/{last:010d}" + (f"/{fresh}" if fresh else "")


def snapshot_id(block: str, fresh: str = "") -> str:
    """Return the id of a block's snapshot.

    What is redacted is erased with the record it was in, perhaps much later. So a snapshot that replaces it
    has an id that no other ever had: `fresh` is its last part, which the RedactionRecord holds.
    """
    return f"{block}/s" + (f"/{fresh}" if fresh else "")


def second_snapshot_id(block: str) -> str:
    """Return the id a snapshot may have if it was redacted before there was a RedactionRecord."""
    return f"{block}/t"


def erasure_id(block: str) -> str:
    """Return the id of a block's ErasureRecord."""
    return f"{block}/erase"


def redaction_id(block: str) -> str:
    """Return the id of a block's RedactionRecord."""
    return f"{block}/redacted"


def text_id(block: str) -> str:
    """Return the id of a block's TextRecord."""
    return f"{block}/text"


def seen_id(block: str, agent: str) -> str:
    """Return the id of an agent's SeenRecord of a block."""
    return ids.compose(block, "seen", agent)


def share_id(block: str, to: str) -> str:
    """Return the id of a share, one for each recipient's id."""
    return ids.compose(block, "share", to)


def archive_share_id(owner: str, to: str) -> str:
    """Return the id of the share of an archive, one for each recipient's id."""
    return ids.compose(ARCHIVE_SHARE.name, owner, to)


def agent_id(name: str) -> str:
    """Return the id of an agent's record, which its name determines."""
    return ids.compose(AGENT.name, name)


def group_id(name: str) -> str:
    """Return the id of a group's record; the memberships are below it."""
    return f"{GROUP.name}/{ids.escape(name)}"


def group_ids(name: str) -> list[str]:
    """Return the ids a group's record may have: slashes and tildes in names were once not escaped."""
    return list(dict.fromkeys((group_id(name), f"{GROUP.name}/{name}")))


def group_of(id: str) -> str | None:
    """Return the name of the group whose record has an id; None when it is not the id of a group."""
    name = id.removeprefix(f"{GROUP.name}/")
    if name == id:
        return None
    return name if "/" in name else ids.unescape(name)


def member_id(group: str, agent: str) -> str:
    """Return the id of a membership."""
    return ids.compose(GROUP.name, group, agent)


def member_ids(group: str, agent: str) -> list[str]:
    """Return the ids a membership may have, as with `group_ids`."""
    return list(dict.fromkeys((member_id(group, agent), f"{GROUP.name}/{group}/{agent}")))


def checkpoint_id(block: str, name: str) -> str:
    """Return the id of a checkpoint."""
    return ids.compose(block, "c", name)
