"""What a merge came to, or would come to."""

from __future__ import annotations

from typing import Any, Literal

import msgspec

How = Literal["new", "versions", "changes", "compared", "beside", "card"]
"""How a block was merged: it is new; version by version; as one version with all changes that were missing;
as one version by comparing what both hold; as a block of its own beside; or only its card."""


class ForkClash(msgspec.Struct, frozen=True):
    """Something that both sides did, so that nobody but you can decide; nothing of it is lost.

    `kept` is where the fork's version is now, an id or a label; where there is no place, `theirs` has it.
    """

    id: str
    schema: str
    what: str
    kept: str = ""
    theirs: dict[str, Any] | None = None


class BlockMerged(msgspec.Struct, frozen=True):
    """A block that the fork made or changed: how many versions came, and how."""

    id: str
    owner: str
    label: str
    how: How
    versions: int = 0
    size: int = 0
    limit: int = 0
    over_limit: bool = False


class NotMerged(msgspec.Struct, frozen=True):
    """Records that the fork changed and a merge leaves alone, and why."""

    schema: str
    records: int
    why: str


class ForkMerged(msgspec.Struct, frozen=True):
    """What a merge did, or with `dry_run` would do.

    `added`, `changed` and `deleted` count records that are no blocks; `entries` are archival ones among those
    added. `seq` is the target's newest commit afterwards.
    """

    fork: str
    fork_point: int
    blocks: list[BlockMerged]
    added: int
    changed: int
    deleted: int
    entries: int
    conflicts: list[ForkClash]
    not_merged: list[NotMerged]
    seq: int
    dry_run: bool = False

    @property
    def empty(self) -> bool:
        """Whether there was nothing to do."""
        return not (self.blocks or self.added or self.changed or self.deleted or self.conflicts)


class Tally:
    """A merge being counted."""

    def __init__(self) -> None:
        self.counts = dict.fromkeys(("added", "changed", "deleted", "entries"), 0)
        self.blocks: list[BlockMerged] = []
        self.conflicts: list[ForkClash] = []
        self.left: set[str] = set()  # the ids of what is not merged: the next merge tells it again
        self._left: dict[tuple[str, str], int] = {}

    def leave(self, id: str, schema: str, why: str, again: bool = True) -> None:
        """One more record stays where it is."""
        self._left[schema, why] = self._left.get((schema, why), 0) + 1
        if again:
            self.left.add(id)

    def done(self, fork: str, fork_point: int, seq: int, dry_run: bool) -> ForkMerged:
        """The end of it."""
        left = [NotMerged(schema, count, why) for (schema, why), count in sorted(self._left.items())]
        counts = self.counts
        return ForkMerged(
            fork,
            fork_point,
            sorted(self.blocks, key=lambda each: (each.owner, each.label, each.id)),
            counts["added"],
            counts["changed"],
            counts["deleted"],
            counts["entries"],
            sorted(self.conflicts, key=lambda each: each.id),
            left,
            seq,
            dry_run,
        )
