"""The report of a merge or of its dry run."""

from __future__ import annotations

from typing import Any, Literal, NamedTuple

import msgspec

MergeMethod = Literal["new", "versions", "changes", "compared", "beside", "card"]
"""The method by which a block was merged: it is new; version by version; as one version with all missing
changes; as one version by comparing both contents; as a separate block; or only its header."""


class Side(NamedTuple):
    """The side that changes come from, in the words of reports; `suffix` marks its labels that are taken."""

    where: str
    suffix: str


FORK = Side("in the fork", "fork")
HOME = Side("at home", "home")
SIBLING = Side("in the other fork", "fork")


class ForkClash(msgspec.Struct, frozen=True):
    """A conflict of both sides, and what was chosen for it: `both`, `theirs`, `mine`, or `open` if nothing.

    `kept` is the id or label of the other side's version here; if it is not stored, `theirs` has it.
    """

    id: str
    schema: str
    what: str
    kept: str = ""
    theirs: dict[str, Any] | None = None
    choice: str = "both"


class BlockMerged(msgspec.Struct, frozen=True):
    """A merged block: the number of versions merged, and the method."""

    id: str
    owner: str
    label: str
    how: MergeMethod
    versions: int = 0
    size: int = 0
    limit: int = 0
    over_limit: bool = False


class NotMerged(msgspec.Struct, frozen=True):
    """Records that the fork changed and the merge skipped, and why."""

    schema: str
    records: int
    why: str


class ForkMerged(msgspec.Struct, frozen=True):
    """The result of a merge or a pull, or with `dry_run` what it would be.

    `added`, `changed` and `deleted` count records other than blocks; `entries` are archival ones among those
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
        """True when there was nothing to merge."""
        return not (self.blocks or self.added or self.changed or self.deleted or self.conflicts)


class MergeTally:
    """The counts of a merge in progress."""

    def __init__(self, side: Side) -> None:
        self.side = side
        self.counts = dict.fromkeys(("added", "changed", "deleted", "entries"), 0)
        self.blocks: list[BlockMerged] = []
        self.conflicts: list[ForkClash] = []
        self.skipped: set[str] = set()  # ids that were not merged: the next merge reports them again
        self._left: dict[tuple[str, str], int] = {}

    def skip(self, id: str, schema: str, why: str, again: bool = True) -> None:
        """Count a record that is not merged; with `again` the next merge considers it again."""
        self._left[schema, why] = self._left.get((schema, why), 0) + 1
        if again:
            self.skipped.add(id)

    def done(self, fork: str, fork_point: int, seq: int, dry_run: bool) -> ForkMerged:
        """Return the result of the merge."""
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
