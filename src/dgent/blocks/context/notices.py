"""Notices: what others did to a block since an agent last looked at it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from dgent.blocks import errors
from dgent.blocks.block import Block
from dgent.blocks.context import bulk
from dgent.blocks.document import diff as diffs
from dgent.blocks.document.diff import Diff
from dgent.blocks.history.version import Version
from dgent.blocks.record import SeenRecord, seen_id, version_id
from dgent.model.crystal import Crystal
from dgent.store.backend import Put
from dgent.universe import write

if TYPE_CHECKING:
    from dgent.blocks.library import Library


@dataclass(frozen=True)
class Notice:
    """That others have changed a block: from which version to which, what they did, and the difference."""

    block: str
    owner: str
    label: str
    since: int
    version: int
    changes: tuple[Version, ...]
    diff: Diff

    @property
    def by(self) -> tuple[str, ...]:
        """Who changed it, in the order in which they first did."""
        return tuple(dict.fromkeys(change.by for change in self.changes))

    def __str__(self) -> str:
        return f"{self.owner}/{self.label}: {', '.join(self.by)} changed it\n{self.diff}"


@dataclass(frozen=True)
class Look:
    """A block to look at, and the newest version that was seen of it before."""

    block: Block
    seen: Crystal[SeenRecord] | None

    @property
    def version(self) -> int:
        """The number of the version that was seen; 0 when none was."""
        return 0 if self.seen is None else self.seen.value.version


async def notices(library: Library, mark: bool) -> list[Notice]:
    """What others did to the blocks that an agent may see; `mark` keeps that it has seen it now."""
    looks = await _changed(library, await library.list(shared=True))
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
        await keep(library, seen)
    return found


async def load(library: Library, looks: Iterable[Look]) -> None:
    """Read the blocks to look at, all of them together."""
    await bulk.load(library._universe, {look.block.id: look.block._chain for look in looks})


async def _changed(library: Library, blocks: list[Block]) -> list[Look]:
    """Those of some blocks that may have changed since they were seen: most have not, which is seen at once.

    The newest version of a block is never folded. So where the seen one is there and none comes after it,
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
    """What others did to a block since an agent saw it; None when they did nothing.

    If not `in_full`, without the difference: for who only wants to name it.
    """
    block, chain = look.block, look.block._chain
    if not chain.loaded:
        await chain.refresh()
    versions = chain.tail if chain.folded <= look.version else await chain.versions(look.version)
    theirs = [each for each in versions if each.number > look.version and each.by != agent]
    if not theirs:
        return None
    # What it did itself before the first of them is no news.
    since = max(theirs[0].number - 1, look.version)
    return Notice(
        *(block.id, block.owner, block.label, since, block.version),
        tuple(theirs),
        await _difference(block, since) if in_full else Diff(since, block.version, ""),
    )


async def _difference(block: Block, since: int) -> Diff:
    """The difference from a version to the newest; from nothing where there was none, or it is gone."""
    chain = block._chain
    now = block._view(chain.number, chain.document)
    if since:
        with suppress(errors.VersionNotFound):  # compacted, or redacted
            before = chain.held(since) or await chain.at(since)
            return block._difference(block._view(since, before), now)
    names = ("nothing", f"{block.label} version {now.version}")
    changes = () if block.document_kind == "text" else tuple(diffs.structured({}, now.value))
    return Diff(0, now.version, diffs.lines("", now.text, names), changes)


async def keep(library: Library, seen: Mapping[str, int]) -> None:
    """Keep which version of which block was seen; a newer look of the same agent is not set back."""
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
