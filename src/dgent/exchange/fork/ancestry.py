"""What a fork and its home last had in common, worked out from what both hold.

A fork remembers what was merged. After its home was restored from an older backup, that is not so any more:
the newest version of a record that is in the history of both sides is then the base of the merge.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection

from dgent.exchange.fork import baseline
from dgent.exchange.fork.baseline import Known, proof
from dgent.model.datum import Datum
from dgent.universe.universe import Universe


class Ancestry:
    """The past of a fork and of its home, compared by what their records said."""

    def __init__(self, fork: Universe, home: Universe) -> None:
        self._fork, self._home = fork, home

    async def of_record(self, id: str) -> tuple[Known | None, bytes | None]:
        """The newest version of a record that both have had, and its proof at home; None without one."""
        common = await self._common(id)
        if common is None:
            return None, None
        there, here = common
        return Known(there.schema or "", proof(there)), proof(here)

    async def of_block(self, id: str, known: Known | None) -> Known | None:
        """A block as it was when both had it last: its card, and no version, so that each is looked at.

        Versions that home has already are left out when they are joined. None for a block that home has never
        had.
        """
        common = await self._common(id)
        if known is None or common is None:
            return None
        return known._replace(card=dict(common[0].data), version=0)

    async def deleted(self, known: Collection[str]) -> AsyncIterator[tuple[str, Known]]:
        """What home has and the fork has deleted, with what both had last; of records that are not known."""
        async for datum in baseline.records(self._home, await self._home.seq()):
            if datum.id in known or datum.problem is not None:
                continue
            newest = await self._fork.history(datum.id, limit=1)
            if newest and newest[0].op == "delete":
                base, here = await self.of_record(datum.id)
                if base is not None:
                    yield datum.id, base._replace(proof=here or base.proof)

    async def _common(self, id: str) -> tuple[Datum, Datum] | None:
        here = {proof(each, False): each for each in reversed(await _versions(self._home, id))}
        for each in await _versions(self._fork, id):
            found = here.get(proof(each, False))
            if found is not None:
                return each, found
        return None


async def _versions(universe: Universe, id: str) -> list[Datum]:
    found = [each.datum for each in await universe.history(id)]
    return [each for each in found if each is not None and each.problem is None]
