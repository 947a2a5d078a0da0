"""Reading many blocks at once: a few reads for all of them, not one for each.

What a block looked like at a version never changes. So a text that was made once is used again while its
version is proven to be the newest, by the same read that would fetch a newer one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from dgent.blocks.access import Card
from dgent.blocks.chain import Chain
from dgent.blocks.form import rendered
from dgent.blocks.record import SnapshotRecord, snapshot_id, version_id
from dgent.blocks.shape import load
from dgent.model.crystal import Crystal
from dgent.universe.universe import Universe

FIRST = 4  # versions of a block that are asked for at first; then twice as many each time
MOST = 64
AT_ONCE = 4000  # ids in one read


@dataclass(frozen=True)
class Drawn:
    """A block as text at a version, and who has written the versions that are not folded."""

    rev: int | None
    version: int
    text: str
    by: frozenset[str]


@dataclass
class _Reading:
    """What was read of a block so far."""

    id: str
    snapshot: Crystal[SnapshotRecord] | None = None
    came: list[Crystal[Any]] = field(default_factory=list)
    step: int = FIRST

    @property
    def folded(self) -> int:
        return 0 if self.snapshot is None else self.snapshot.value.version

    @property
    def last(self) -> int:
        return self.folded + len(self.came)

    def wanted(self) -> list[str]:
        """The newest version that is known, which must still be there, and those after it."""
        first = self.last if self.came else self.last + 1
        return [version_id(self.id, number) for number in range(first, self.last + self.step + 1)]

    def take(self, found: Sequence[Any]) -> bool | None:
        """Take in the answer to `wanted`: True when that is all, None when it was folded meanwhile."""
        there = [each for each in found if isinstance(each, Crystal)]
        if not there and (self.came or self.snapshot is not None):
            return None
        news = there[1:] if self.came else there
        full = len(news) == self.step
        self.came += news
        self.step = min(2 * self.step, MOST)
        return not full


async def load_many(universe: Universe, ids: Sequence[str]) -> dict[str, Chain]:
    """The chains of some blocks, each with its document."""
    chains = {id: Chain(universe, id) for id in ids}
    found = await _get(universe, [snapshot_id(id) for id in ids])
    readings = [
        _Reading(id, each if isinstance(each, Crystal) else None) for id, each in zip(ids, found, strict=True)
    ]
    while readings:
        asked = [each.wanted() for each in readings]
        answers = iter(await _get(universe, [id for each in asked for id in each]))
        further = []
        for reading, wanted in zip(readings, asked, strict=True):
            done = reading.take([next(answers) for _ in wanted])
            if done:
                chains[reading.id].adopt(reading.snapshot, reading.came)
            elif done is None or (reading.snapshot is None and not reading.came):
                await chains[reading.id].refresh()
            else:
                further.append(reading)
        readings = further
    return chains


async def draw(universe: Universe, cards: Iterable[Card], drawn: dict[str, Drawn]) -> None:
    """Bring `drawn` up to date for some blocks: read and render those that are new or have changed."""
    wanted = {card.id: card for card in cards}
    known = [id for id, card in wanted.items() if id in drawn and drawn[id].rev == card.rev]
    pairs = [version_id(id, drawn[id].version + step) for id in known for step in (0, 1)]
    there = [each is not None for each in await _get(universe, pairs)]
    # The newest version is never folded: while it is there and none comes after it, it is the newest.
    same = {id for id, last, more in zip(known, there[::2], there[1::2], strict=True) if last and not more}
    for id, chain in (await load_many(universe, [id for id in wanted if id not in same])).items():
        card = wanted[id]
        shape = load(card.value.document, card.value.shape)
        text = rendered(shape, chain.document, card.value.limit)
        drawn[id] = Drawn(card.rev, chain.number, text, frozenset(each.by for each in chain.tail))


async def _get(universe: Universe, ids: Sequence[str]) -> list[Any]:
    found: list[Any] = []
    for start in range(0, len(ids), AT_ONCE):
        found += await universe.get_many(ids[start : start + AT_ONCE])
    return found
