"""Read many blocks at once, with a few reads for all of them.

The text of a block at a version never changes. So a rendered text is used again while its version is proven
to be the newest, by the same read that would fetch a newer one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import takewhile

from dgent.blocks import errors
from dgent.blocks.access.actor import Header
from dgent.blocks.document.document import Document
from dgent.blocks.document.render import render_document
from dgent.blocks.document.shape import Shape, load_shape
from dgent.blocks.history.log import VersionLog
from dgent.blocks.history.past import open_log
from dgent.blocks.history.version import REWRITES
from dgent.blocks.record import REDACTION, SNAPSHOT, VERSION, redaction_id, snapshot_id, version_id
from dgent.model.datum import Datum
from dgent.universe.tail import TailPoint, follow
from dgent.universe.universe import Universe

FIRST = 4  # versions of a block in the first read; doubled each time
MOST = 64
AT_ONCE = 4000  # ids in one read


@dataclass(frozen=True)
class RenderedBlock:
    """A block as text at a version, with the authors of the versions that are not packed.

    `problem` says why it cannot be read, if so. `frontiers` are those of the version. `proof` is a
    commit that it was the newest version at.
    """

    rev: int | None
    version: int
    text: str
    by: frozenset[str]
    last_packed: int = 0
    problem: str = ""
    frontiers: str = ""
    proof: TailPoint | None = None


Renderer = Callable[[Shape, Document, int], str]
"""Renders a document as text, by its shape and with the limit of its block."""


@dataclass
class _Reading:
    """The raw records read of a block so far; only the content and the author are needed."""

    id: str
    redaction: Datum | None = None
    snapshot: Datum | None = None
    came: list[Datum] = field(default_factory=list)
    step: int = FIRST

    @property
    def last_packed(self) -> int:
        """The number of the newest packed version."""
        return 0 if self.snapshot is None else int(self.snapshot.data["version"])

    @property
    def last(self) -> int:
        """The number of the newest version that was read."""
        return self.last_packed + len(self.came)

    def next_ids(self) -> list[str]:
        """Return the ids to read next: the newest known version, to see if it exists, and those after it."""
        last = self.last
        return [version_id(self.id, n) for n in range(last if self.came else last + 1, last + self.step + 1)]

    def take(self, found: Sequence[Datum | None]) -> bool | None:
        """Add the answer to `next_ids`: True when that is all, None when it was rewritten meanwhile."""
        there = [each for each in takewhile(lambda each: each is not None, found) if each is not None]
        if not there or any(map(self._is_rewritten_by, there)):
            return None
        news = there[1:] if self.came else there
        done = len(news) < self.step
        self.came += news
        self.step = min(2 * self.step, MOST)
        return done

    def _is_rewritten_by(self, version: Datum) -> bool:
        """Check whether a version may have replaced the snapshot after it was read."""
        read = 0 if self.snapshot is None else self.snapshot.seq or 0
        return version.data.get("op") in REWRITES and (version.seq or 0) > read

    def document(self) -> Document:
        """Build the document from these records."""
        content = b"" if self.snapshot is None else self.snapshot.content
        return Document.load(content, [each.content for each in self.came])


def forget_others(rendered: dict[str, RenderedBlock], ids: Collection[str]) -> None:
    """Forget the texts of all blocks except these."""
    for id in rendered.keys() - set(ids):
        del rendered[id]


async def render_blocks(
    universe: Universe,
    headers: Iterable[Header],
    rendered: dict[str, RenderedBlock],
    how: Renderer = render_document,
) -> None:
    """Bring `rendered` up to date for some blocks: read and render those that are new or changed."""
    wanted = {header.id: header for header in headers}
    if not wanted:
        return
    if universe.past is not None:
        rendered |= {id: await _render_alone(universe, header, how) for id, header in wanted.items()}
        return
    tail = await follow(universe)
    proof = None if tail is None else tail.point
    known = [id for id, header in wanted.items() if id in rendered and rendered[id].rev == header.rev]
    same = {id for id in known if tail is not None and tail.is_id_untouched(rendered[id].proof, id)}
    for id in await _find_same(universe, {id: rendered[id].version for id in known if id not in same}):
        same.add(id)
        rendered[id] = replace(rendered[id], proof=proof)
    changed = {id: header for id, header in wanted.items() if id not in same}
    for reading in await _read(universe, list(changed)):
        by = frozenset(each.author or "" for each in reading.came)
        header = changed.pop(reading.id)
        text, problem = _render_text(header, reading.document, how)
        state = str(reading.came[-1].data.get("frontiers", "")) if reading.came else ""
        rendered[reading.id] = RenderedBlock(
            header.rev, reading.last, text, by, reading.last_packed, problem, state, proof
        )
    for id, header in changed.items():  # these were packed while they were read
        rendered[id] = await _render_alone(universe, header, how)


async def _find_same(universe: Universe, versions: Mapping[str, int]) -> set[str]:
    """Return the blocks whose newest version is still the given one."""
    return (await find_states(universe, versions)).keys() & versions.keys()


async def find_states(universe: Universe, versions: Mapping[str, int]) -> dict[str, str]:
    """Return the frontiers of the blocks whose newest version is still the given one."""
    pairs = [version_id(id, version + step) for id, version in versions.items() for step in (0, 1)]
    found = await _get(universe, pairs)
    # The newest version is never packed: while it is there and none comes after it, it is the newest.
    return {
        id: str(last.data.get("frontiers", ""))
        for id, last, more in zip(versions, found[::2], found[1::2], strict=True)
        if last is not None and more is None
    }


async def find_sizes(universe: Universe, ids: Sequence[str]) -> dict[str, tuple[int, int]]:
    """Map blocks to their newest version and its size in characters, except those packed meanwhile."""
    if universe.past is not None:
        return {id: size for id in ids if (size := await _find_size_then(universe, id)) is not None}
    return {
        each.id: (each.last, int(each.came[-1].data.get("size", 0)))
        for each in await _read(universe, ids)
        if each.came
    }


async def _find_size_then(universe: Universe, id: str) -> tuple[int, int] | None:
    """Return the newest version of then and its size; None where that can no longer be read."""
    log = open_log(universe, id)
    with suppress(errors.DocumentCorrupt, errors.VersionNotFound):
        newest = (await log.newest_versions(1))[-1]
        return newest.number, newest.size
    return None


async def load(universe: Universe, logs: Mapping[str, VersionLog]) -> None:
    """Load the current versions of some blocks; those that cannot be read this way are left unchanged."""
    for reading in await _read(universe, list(logs)):
        with suppress(errors.DocumentCorrupt):
            logs[reading.id].load_records(reading.redaction, reading.snapshot, reading.came)


def _render_text(header: Header, document: Callable[[], Document], how: Renderer) -> tuple[str, str]:
    """Return a document as text, and why it cannot be read, if so."""
    try:
        shape = load_shape(header.value.document, header.value.shape)
        return how(shape, document(), header.value.limit), ""
    except (errors.DocumentCorrupt, errors.TemplateError) as error:
        return f"[this block cannot be read: {error.message}]", error.message


async def _render_alone(universe: Universe, header: Header, how: Renderer) -> RenderedBlock:
    log = open_log(universe, header.id)
    try:
        await log.refresh()
    except (errors.DocumentCorrupt, errors.VersionNotFound) as error:
        text = f"[this block cannot be read: {error.message}]"
        return RenderedBlock(header.rev, 0, text, frozenset(), 0, error.message)
    by = frozenset(each.by for each in log.tail)
    text, problem = _render_text(header, lambda: log.document, how)
    state = log.tail[-1].frontiers if log.tail else ""
    return RenderedBlock(header.rev, log.number, text, by, log.last_packed, problem, state)


async def _read(universe: Universe, ids: Sequence[str]) -> list[_Reading]:
    """Read the snapshots and versions of some blocks, except those packed or rewritten meanwhile."""
    places = [snapshot_id(id) for id in ids]
    pairs = zip(ids, await _get(universe, places), strict=True)
    whole, missing = await _read_on(universe, [_Reading(id, None, each) for id, each in pairs])
    # After a redaction the snapshot has another id, and no version has the number it would have without one.
    return (
        whole + (await _read_on(universe, await _begin_redacted(universe, missing)))[0] if missing else whole
    )


async def _read_on(universe: Universe, begun: Sequence[_Reading]) -> tuple[list[_Reading], list[str]]:
    """Read the versions after some snapshots; also returns the blocks that have neither."""
    readings = [each for each in begun if _is_sound(each.snapshot)]
    whole: list[_Reading] = []
    missing: list[str] = []
    while readings:
        asked = [each.next_ids() for each in readings]
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


async def _begin_redacted(universe: Universe, ids: Sequence[str]) -> list[_Reading]:
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
    """Check whether a snapshot names its version; reading that block alone reports what is wrong."""
    return snapshot is None or type(snapshot.data.get("version")) is int


async def _get(universe: Universe, ids: Sequence[str]) -> list[Datum | None]:
    found: list[Datum | None] = []
    for start in range(0, len(ids), AT_ONCE):
        found += await universe.get_many(ids[start : start + AT_ONCE], raw=True)
    mine = (REDACTION.name, SNAPSHOT.name, VERSION.name)  # other records with such an id are not of blocks
    return [each if each is not None and each.schema in mine else None for each in found]
