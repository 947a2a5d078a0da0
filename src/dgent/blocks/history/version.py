"""A version of a block, and the tree that undo and redo move in."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

REDACT, COMPACT = "redact", "compact"
REWRITES = (REDACT, COMPACT)  # after these a document in memory is out of date
REDACTED, COMPACTED = "redacted", "compacted"


@dataclass(frozen=True)
class Version:
    """A version: author, operation, time, size, and how many characters it added and removed.

    `node` is the version whose content this is: itself for an edit, an earlier one for an undo or a redo.
    `lost` says why its content is no longer stored: it was redacted or compacted.
    """

    number: int
    at: datetime
    by: str
    op: str
    node: int
    parent: int
    size: int
    added: int
    removed: int
    frontiers: str
    message: str = ""
    lost: str = ""

    @property
    def redacted(self) -> bool:
        """True when its content was removed from this and every other version."""
        return self.lost == REDACTED

    @property
    def compacted(self) -> bool:
        """True when only this line is left of it."""
        return bool(self.lost) and not self.frontiers  # it may have been redacted before

    @property
    def diffstat(self) -> str:
        """The characters added and removed, as in `+12 -3`."""
        return f"+{self.added} -{self.removed}"


@dataclass(frozen=True)
class View:
    """A block as it was at a version, read-only."""

    label: str
    version: int
    text: str
    value: dict[str, Any]

    def __str__(self) -> str:
        return self.text


@dataclass(frozen=True)
class Branch:
    """A branch of the version tree: its newest node, where it left the others, its length, and its time."""

    tip: int
    fork: int
    length: int
    at: datetime
    current: bool


def find_redo(versions: Sequence[Version]) -> int | None:
    """Return the node that redo goes to: the child of the current one that was last left."""
    if not versions:
        return None
    here = versions[-1].node
    for version in reversed(versions):
        node = _node(versions, version.node)
        if node is not None and node.parent == here and node.number != here:
            return node.number
    return None


def list_branches(versions: Sequence[Version]) -> list[Branch]:
    """Return the branches, newest first: each ends with a node that nothing was made from."""
    nodes = {version.number: version for version in versions if version.node == version.number}
    parents = {number: node.parent for number, node in nodes.items()}
    inner = set(parents.values())
    here = versions[-1].node if versions else 0
    lines = []
    for tip in sorted((number for number in nodes if number not in inner), reverse=True):
        line = _line(tip, parents)
        lines.append((tip, line))
    found = []
    for tip, line in lines:
        others = {number for other, theirs in lines if other != tip for number in theirs}
        own = [number for number in line if number not in others]
        fork = parents.get(own[-1], 0) if own else 0
        found.append(Branch(tip, fork, len(own), nodes[tip].at, here in line))
    return found


def _line(tip: int, parents: dict[int, int]) -> list[int]:
    """Return the nodes from a tip up to the root."""
    line = []
    step = tip
    while step in parents:
        line.append(step)
        step = parents[step]
        if step == line[-1]:
            break
    return line


def _node(versions: Sequence[Version], number: int) -> Version | None:
    """Return the version with a number; versions are dense."""
    place = number - versions[0].number
    return versions[place] if 0 <= place < len(versions) else None
