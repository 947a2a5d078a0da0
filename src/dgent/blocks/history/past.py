"""The version log of a block as of an earlier commit.

Versions have no history of their own: they are the history. So those of now are read, and cut off at the
commit.
"""

from __future__ import annotations

from itertools import takewhile

from dgent.blocks import errors
from dgent.blocks.history.log import VersionLog
from dgent.blocks.record import version_id
from dgent.universe.past import Past
from dgent.universe.universe import Universe


def open_log(universe: Universe, block: str) -> VersionLog:
    """Return the version log of a block, at the moment that a handle reads at."""
    past = universe.past
    return VersionLog(universe, block) if past is None else PastLog(universe, block, past)


class PastLog(VersionLog):
    """The versions of a block up to a commit, and its document as it was then."""

    def __init__(self, universe: Universe, block: str, past: Past) -> None:
        super().__init__(universe.present(), block)
        self._past = past
        self._cut: int | None = None  # the newest version of then, where it is packed by now

    @property
    def last_packed(self) -> int:
        """The number of the newest packed version; never one that came later."""
        packed = super().last_packed
        return packed if self._cut is None else min(packed, self._cut)

    def newest_ids(self) -> tuple[str, ...]:
        """Return none: what was the newest version then needs no proof."""
        return ()

    async def refresh_locked(self) -> None:
        """Read the versions up to the commit, once: they do not change."""
        if self._loaded:
            return
        await super().refresh_locked()
        try:
            await self._cut_off()
        except BaseException:
            self.forget()
            raise

    async def _cut_off(self) -> None:
        """Drop what came after the commit from memory."""
        ids = [version_id(self._block, each.number) for each in self.tail]
        found = await self._universe.get_many(ids, raw=True)
        kept = [*takewhile(lambda each: each is not None and (each.seq or 0) <= self._past.seq, found)]
        if kept or not self.last_packed:
            if not kept:
                raise errors.VersionNotFound(f"the block {self._block!r} had no version at that commit")
            if len(kept) < len(self.tail):
                document = self.find_in_memory(self.tail[len(kept) - 1].number)
                self._document, self.tail = document, self.tail[: len(kept)]
                self._updates = self._updates[: len(kept)]
            return
        # A merged version has its original time: only its place in the order counts.
        packed = [each for each in await self._packs.versions() if each.number <= self.last_packed]
        before = [*takewhile(lambda each: each.at <= self._past.at, packed)]
        if not before:
            raise errors.VersionNotFound(f"the block {self._block!r} had no version at that commit")
        self._document, self.tail, self._updates = await self._packs.at(before[-1]), [], []
        self._cut = before[-1].number

    def forget(self) -> None:
        """Drop what is in memory, so that everything is read again."""
        super().forget()
        self._cut = None
