"""Reading many blocks at once: a few reads for all of them, not one for each.

What a block looked like at a version never changes. So a text that was made once is used again while its
version is proven to be the newest, by the same read that would fetch a newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import takewhile

from dgent.blocks import errors
from dgent.blocks.access.standing import Card
from dgent.blocks.document import shape as shapes
from dgent.blocks.document.document import Document
from dgent.blocks.document.render import rendered
from dgent.blocks.document.shape import Shape
from dgent.blocks.history.log import Chain
from dgent.blocks.history.version import REWRITES
from dgent.blocks.record import REDACTION, SNAPSHOT, VERSION, redaction_id, snapshot_id, version_id
from dgent.model.datum import Datum
from dgent.universe.universe import Universe

FIRST = 4  # versions of a block that are asked for at first; then twice as many each time
MOST = 64
AT_ONCE = 4000  # ids in one read


@dataclass(frozen=True)
class Drawn:
    """A block as text at a version, and who has written the versions after the newest that is folded.

    `problem` says why it cannot be read, if so.
    """

    rev: int | None
    version: int
    text: str
    by: frozenset[str]
    folded: int = 0
    problem: str = ""


Draw = Callable[[Shape, Document, int], str]
"""How a document becomes text: by its shape, and with the limit of its block."""


@dataclass
class _Reading:
    """What was read of a block so far: raw records, of which only the content and the author are needed."""

    id: str
    redaction: Datum | None = None
    snapshot: Datum | None = None
    came: list[Datum] = field(default_factory=list)
    step: int = FIRST

    @property
    def folded(self) -> int:
        """The newest version that is folded."""
        return 0 if self.snapshot is None else int(self.snapshot.data["version"])

    @property
    def last(self) -> int:
        """The newest version that is known."""
        return self.folded + len(self.came)

    def wanted(self) -> list[str]:
        """The newest version that is known, which must still be there, and those after it."""
        last = self.last
        return [version_id(self.id, n) for n in range(last if self.came else last + 1, last + self.step + 1)]

    def take(self, found: Sequence[Datum | None]) -> bool | None:
        """Take in the answer to `wanted`: True when that is all, None when it was rewritten meanwhile."""
        there = [each for each in takewhile(lambda each: each is not None, found) if each is not None]
        if not there or any(map(self._is_rewritten_by, there)):
            return None
        news = there[1:] if self.came else there
        done = len(news) < self.step
        self.came += news
        self.step = min(2 * self.step, MOST)
        return done

    def _is_rewritten_by(self, version: Datum) -> bool:
        """Whether a version may have replaced the snapshot after it was read."""
        read = 0 if self.snapshot is None else self.snapshot.seq or 0
        return version.data.get("op") in REWRITES and (version.seq or 0) > read

    def document(self) -> Document:
        """The document that these are."""
        content = b"" if self.snapshot is None else self.snapshot.content
        return Document.load(content, [each.content for each in self.came])


def keep(drawn: dict[str, Drawn], ids: Collection[str]) -> None:
    """Forget the texts of all blocks but some."""
    for id in drawn.keys() - set(ids):
        del drawn[id]


async def draw(
    universe: Universe, cards: Iterable[Card], drawn: dict[str, Drawn], how: Draw = rendered
) -> None:
    """Make `drawn` hold some blocks as they are now: read and draw those that are new or have changed."""
    wanted = {card.id: card for card in cards}
    known = [id for id, card in wanted.items() if id in drawn and drawn[id].rev == card.rev]
    pairs = [version_id(id, drawn[id].version + step) for id in known for step in (0, 1)]
    there = [each is not None for each in await _get(universe, pairs)]
    # The newest version is never folded: while it is there and none comes after it, it is the newest.
    same = {id for id, last, more in zip(known, there[::2], there[1::2], strict=True) if last and not more}
    changed = {id: card for id, card in wanted.items() if id not in same}
    for reading in await _read(universe, list(changed)):
        by = frozenset(each.author or "" for each in reading.came)
        card = changed.pop(reading.id)
        text, problem = _text(card, reading.document, how)
        drawn[reading.id] = Drawn(card.rev, reading.last, text, by, reading.folded, problem)
    for id, card in changed.items():  # these were folded while they were read
        drawn[id] = await _drawn_alone(universe, card, how)


async def load(universe: Universe, chains: Mapping[str, Chain]) -> None:
    """Read some blocks as they are now; not those that cannot be read so, which are left as they are."""
    for reading in await _read(universe, list(chains)):
        with suppress(errors.DocumentCorrupt):
            chains[reading.id].hold(reading.redaction, reading.snapshot, reading.came)


def _text(card: Card, document: Callable[[], Document], how: Draw) -> tuple[str, str]:
    """A document as text, and why it cannot be read, if so: the others can."""
    try:
        shape = shapes.load(card.value.document, card.value.shape)
        return how(shape, document(), card.value.limit), ""
    except (errors.DocumentCorrupt, errors.TemplateError) as error:
        return f"[this block cannot be read: {error.message}]", error.message


async def _drawn_alone(universe: Universe, card: Card, how: Draw) -> Drawn:
    chain = Chain(universe, card.id)
    try:
        await chain.refresh()
    except errors.DocumentCorrupt as error:
        text = f"[this block cannot be read: {error.message}]"
        return Drawn(card.rev, 0, text, frozenset(), 0, error.message)
    by = frozenset(each.by for each in chain.tail)
    text, problem = _text(card, lambda: chain.document, how)
    return Drawn(card.rev, chain.number, text, by, chain.folded, problem)


async def _read(universe: Universe, ids: Sequence[str]) -> list[_Reading]:
    """Snapshots and versions of some blocks; not of those that were folded or rewritten meanwhile."""
    places = [snapshot_id(id) for id in ids]
    pairs = zip(ids, await _get(universe, places), strict=True)
    whole, missing = await _read_on(universe, [_Reading(id, None, each) for id, each in pairs])
    # After a redaction the snapshot is elsewhere, and no version is where it would be without one.
    return whole + (await _read_on(universe, await _redacted(universe, missing)))[0] if missing else whole


async def _read_on(universe: Universe, begun: Sequence[_Reading]) -> tuple[list[_Reading], list[str]]:
    """Read the versions after some snapshots; also the ids of the blocks without any of both."""
    readings = [each for each in begun if _is_sound(each.snapshot)]
    whole: list[_Reading] = []
    missing: list[str] = []
    while readings:
        asked = [each.wanted() for each in readings]
        answers = iter(await _get(universe, [id for each in asked for id in each]))
        further: list[_Reading] = []
        for reading, wanted in zip(readings, asked, strict=True):
            done = reading.take([next(answers) for _ in wanted])
            if done is not None:
                (whole if done else further).append(reading)
            elif reading.snapshot is None:
                missing.append(reading.id)
        readings = further
    return whole, missing


async def _redacted(universe: Universe, ids: Sequence[str]) -> list[_Reading]:
    """Begin to read those of some blocks in which something was redacted."""
    found = await _get(universe, [redaction_id(id) for id in ids])
    moved = [_Reading(id, each) for id, each in zip(ids, found, strict=True) if each is not None]
    places = [
        snapshot_id(each.id, str(each.redaction.data.get("snapshot"))) for each in moved if each.redaction
    ]
    for reading, snapshot in zip(moved, await _get(universe, places), strict=True):
        reading.snapshot = snapshot
    return [each for each in moved if each.snapshot is not None]


def _is_sound(snapshot: Datum | None) -> bool:
    """Whether a snapshot says of which version it is; who reads it alone is told what is wrong with it."""
    return snapshot is None or type(snapshot.data.get("version")) is int


async def _get(universe: Universe, ids: Sequence[str]) -> list[Datum | None]:
    found: list[Datum | None] = []
    for start in range(0, len(ids), AT_ONCE):
        found += await universe.get_many(ids[start : start + AT_ONCE], raw=True)
    mine = (REDACTION.name, SNAPSHOT.name, VERSION.name)  # whatever else has such an id is not of blocks
    return [each if each is not None and each.schema in mine else None for each in found]
