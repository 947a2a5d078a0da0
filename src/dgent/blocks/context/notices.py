"""Notices: changes by others to a block since an agent last looked at it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dgent.blocks import errors
from dgent.blocks.block import Block
from dgent.blocks.context import bulk
from dgent.blocks.document.diff import Diff, compare_lines, compare_values
from dgent.blocks.history.version import Version
from dgent.blocks.record import SeenRecord, seen_id, version_id
from dgent.model.crystal import Crystal
from dgent.store.backend import Put
from dgent.universe import write

if TYPE_CHECKING:
    from dgent.blocks.library import Library


@dataclass(frozen=True)
class Notice:
    """A change of a block by others: the versions before and after, their changes, and the difference."""

    block: str
    owner: str
    label: str
    since: int
    version: int
    changes: tuple[Version, ...]
    diff: Diff

    @property
    def by(self) -> tuple[str, ...]:
        """The authors, in the order of their first change."""
        return tuple(dict.fromkeys(change.by for change in self.changes))

    def __str__(self) -> str:
        return f"{self.owner}/{self.label}: {', '.join(self.by)} changed it\n{self.diff}"


@dataclass(frozen=True)
class Look:
    """A block to look at, and the newest version of it that the agent has seen."""

    block: Block
    seen: Crystal[SeenRecord] | None

    @property
    def version(self) -> int:
        """The number of the seen version; 0 when none was seen."""
        return 0 if self.seen is None else self.seen.value.version


async def list_notices(library: Library, mark: bool) -> list[Notice]:
    """Return the changes by others to the blocks an agent may see; `mark` records them as seen."""
    looks = await _find_changed(library, await library.list(shared=True))
    await load(library, looks)
    found = []
    seen: dict[str, int] = {}
    for look in looks:
        try:
            notice = await notice_of(library.agent, look)
        except (errors.BlockNotFound, errors.DocumentCorrupt):
            continue  # deleted since they were listed, or damaged: `render` says so
        seen[look.block.id] = look.block.version
        found += [] if notice is None else [notice]
    if mark:
        await record_seen(library, seen)
    return found


async def load(library: Library, looks: Iterable[Look]) -> None:
    """Load the blocks to look at, all of them together."""
    await bulk.load(library._universe, {look.block.id: look.block._version_log for look in looks})


async def _find_changed(library: Library, blocks: list[Block]) -> list[Look]:
    """Return the blocks that may have changed since they were seen, by one cheap read.

    The newest version of a block is never packed. So where the seen one has a record and none comes after it,
    nothing has happened.
    """
    universe = library._universe
    records = await universe.get_many([seen_id(block.id, library.agent) for block in blocks])
    looks = [
        Look(block, found if isinstance(found, Crystal) else None)
        for block, found in zip(blocks, records, strict=True)
    ]
    known = [look for look in looks if look.seen is not None]
    ids = [version_id(look.block.id, look.version + step) for look in known for step in (0, 1)]
    there = [isinstance(found, Crystal) for found in await universe.get_many(ids)]
    same = {
        look.block.id
        for look, (last, more) in zip(known, zip(there[::2], there[1::2], strict=True), strict=True)
        if last and not more
    }
    return [look for look in looks if look.block.id not in same]


async def notice_of(agent: str, look: Look, in_full: bool = True) -> Notice | None:
    """Return the notice for a block; None when others did nothing.

    If not `in_full`, it has no difference.
    """
    block, log = look.block, look.block._version_log
    if not log.is_loaded:
        await log.refresh()
    versions = log.tail if log.last_packed <= look.version else await log.versions(look.version)
    theirs = [each for each in versions if each.number > look.version and each.by != agent]
    if not theirs:
        return None
    # The agent's own changes before the first of them are not news.
    since = max(theirs[0].number - 1, look.version)
    return Notice(
        *(block.id, block.owner, block.label, since, block.version),
        tuple(theirs),
        await _compare(block, since) if in_full else Diff(since, block.version, ""),
    )


async def _compare(block: Block, since: int) -> Diff:
    """Return the difference from a version to the newest; from empty if there was none or it is gone."""
    log = block._version_log
    now = block._view(log.number, log.document)
    if since:
        with suppress(errors.VersionNotFound):  # compacted, or redacted
            before = log.find_in_memory(since) or await log.at(since)
            return block._compare(block._view(since, before), now)
    names = ("nothing", f"{block.label} version {now.version}")
    changes = () if block.document_kind == "text" else tuple(compare_values({}, now.value))
    return Diff(0, now.version, compare_lines("", now.text, names), changes)


async def record_seen(library: Library, seen: Mapping[str, int]) -> None:
    """Record the seen versions of blocks; a newer record of the same agent is left alone."""
    if not seen:
        return
    universe = library._universe
    ids = [seen_id(block, library.agent) for block in seen]
    ops = []
    for id, now, (block, version) in zip(ids, await universe.get_many(ids), seen.items(), strict=True):
        if now is None or now.value.version < version:
            record = SeenRecord(library.agent, block, version)
            datum, _ = write.new_datum(universe.contracts, record, id=id, author=library.agent)
            ops.append(Put(datum, None, None, True))
    if ops:
        await universe.commit(ops)
