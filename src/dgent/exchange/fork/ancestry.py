"""Common ancestors of a fork and its home, found in the histories of both.

A fork records what was merged. When its home was restored from an older backup since, that record is wrong:
the base of the merge is then the newest version of a record that is in the history of both sides.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

from dgent.exchange.fork import baseline
from dgent.exchange.fork.baseline import BaseEntry, hash_record
from dgent.model.datum import Datum
from dgent.universe.universe import Universe


class Ancestry:
    """The histories of a fork and of its home, compared by the content of their records."""

    def __init__(self, fork: Universe, home: Universe) -> None:
        self._fork, self._home = fork, home

    async def find_record_base(self, id: str) -> tuple[BaseEntry | None, bytes | None]:
        """Return the newest version of a record that both have had, and its hash at home; None if none."""
        common = await self._find_common(id)
        if common is None:
            return None, None
        there, here = common
        return BaseEntry(there.schema or "", hash_record(there)), hash_record(here)

    async def find_block_base(self, id: str, known: BaseEntry | None) -> BaseEntry | None:
        """Return a block as both had it last: its header, and version 0, so that every version is merged.

        Merging leaves out versions that home has already. None for a block that home has never had.
        """
        common = await self._find_common(id)
        if known is None or common is None:
            return None
        return known._replace(card=dict(common[0].data), version=0)

    async def find_deleted(self, known: Collection[str]) -> AsyncIterator[tuple[str, BaseEntry]]:
        """Yield unknown records that home has and the fork has deleted, with their common version."""
        async for datum in baseline.iterate_records(self._home, await self._home.seq()):
            if datum.id in known or datum.problem is not None:
                continue
            newest = await self._fork.history(datum.id, limit=1)
            if newest and newest[0].op == "delete":
                base, here = await self.find_record_base(datum.id)
                if base is not None:
                    yield datum.id, base._replace(fingerprint=here or base.fingerprint)

    async def _find_common(self, id: str) -> tuple[Datum, Datum] | None:
        here = {hash_record(each, False): each for each in reversed(await _versions(self._home, id))}
        for each in await _versions(self._fork, id):
            found = here.get(hash_record(each, False))
            if found is not None:
                return each, found
        return None


async def _versions(universe: Universe, id: str) -> list[Datum]:
    found = [each.datum for each in await universe.history(id)]
    return [each for each in found if each is not None and each.problem is None]
