"""Check the blobs of a store: is each content there, and with `deep` as it was stored."""

from __future__ import annotations

from contextlib import aclosing
from typing import TYPE_CHECKING

from dgent.errors import Corrupt, Unsupported
from dgent.store.port.blob import Content, check_parts
from dgent.store.upkeep import Finding
from dgent.universe.blob import BlobStore, open_blobs

if TYPE_CHECKING:
    from dgent.store.port.blob import BlobInfo
    from dgent.universe.universe import Universe

NAMED = 5


async def inspect(universe: Universe, *, deep: bool = False) -> list[Finding]:
    """Return what is wrong with blobs; changes nothing."""
    try:
        blobs = open_blobs(universe)
    except Unsupported:
        return []
    count, size, bad = 0, 0, list[str]()
    async for info in blobs.iterate():
        count, size = count + 1, size + info.size
        if not await _is_whole(blobs, info, deep):
            bad.append(repr(info.key))
    found = [] if not bad else [_report(bad, blobs.contents.place)]
    if not found:
        checked = "checked by their hashes" if deep else "there"
        found.append(Finding("ok", "blobs", f"{count} with {size:,} bytes are {checked}"))
    collected = await blobs.collect(dry_run=True)
    if unused := collected.waiting + collected.removed:
        noun = "content is" if unused == 1 else "contents are"
        found.append(Finding("note", "blobs", f"{unused} {noun} not used", "`dgent blob gc` removes them"))
    return found


async def _is_whole(blobs: BlobStore, info: BlobInfo, deep: bool) -> bool:
    if not deep:
        return await blobs.contents.size(info.sha256) == info.size
    try:
        content = Content(info.sha256, info.size)
        async with aclosing(check_parts(blobs.contents.read(info.sha256), content)) as parts:
            async for _ in parts:
                pass
    except Corrupt:
        return False
    return True


def _report(bad: list[str], place: str) -> Finding:
    more = f" and {len(bad) - NAMED} more" if len(bad) > NAMED else ""
    noun = "the content of this blob is" if len(bad) == 1 else f"the contents of {len(bad)} blobs are"
    return Finding(
        "problem",
        "blobs",
        f"{noun} missing or damaged in {place}: {', '.join(bad[:NAMED])}{more}",
        "store them again, or restore a backup",
    )
