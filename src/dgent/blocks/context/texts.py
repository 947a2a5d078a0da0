"""Keep the texts of blocks up to date for searches.

Each block has a TextRecord, from which the store indexes its words. Edits leave it alone. A search first
proves which of these records are current, as a reader of the block would: by the newest version. It makes the
others again, and stores them where nothing came in between. What it cannot store counts in this search only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from dgent.blocks.access.actor import Header
from dgent.blocks.context import bulk
from dgent.blocks.context.bulk import RenderedBlock
from dgent.blocks.document.fulltext import fulltext
from dgent.blocks.document.shape import load_shape
from dgent.blocks.errors import TemplateError
from dgent.blocks.history.log import VersionLog
from dgent.blocks.record import BLOCK, TEXT, VERSION, TextRecord, redaction_id, text_id
from dgent.errors import Conflict, Corrupt, HistoryGone, NotFound, StorageError
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Check, Delete, Op, Put
from dgent.universe import write
from dgent.universe.tail import follow
from dgent.universe.universe import Universe

LOOK_BACK = 500  # commits that are read; if there were more, all blocks are looked at
AT_ONCE = 100  # blocks that are read, and stored, together

_HEADER_FIELDS = ("owner", "label", "kind", "description")


class _Text(NamedTuple):
    """The new text of a block, None if it has none, and the ops that store it."""

    id: str
    datum: Datum | None
    ops: list[Op]


async def refresh_texts(universe: Universe, since: int | None) -> dict[str, Datum | None]:
    """Bring the texts of all blocks up to date, or of those that changed since a commit.

    Returns those that could not be stored.
    """
    touched = None if since is None else await _find_touched(universe, since)
    if touched is not None and not touched:
        return {}
    headers, texts = await _read(universe, None if touched is None else list(touched))
    left: dict[str, Datum | None] = {}
    stale = [headers[id] for id in await _find_stale(universe, headers, texts)]
    for start in range(0, len(stale), AT_ONCE):
        some = stale[start : start + AT_ONCE]
        left |= await _store(universe, await _make_texts(universe, some, texts))
    gone = [each for id, each in texts.items() if id not in headers]
    left |= await _store(universe, [_Text(each.id, None, [Delete(each.id, each.rev)]) for each in gone])
    return left


async def find_texts_at(universe: Universe, seq: int) -> dict[str, Datum | None]:
    """Return the texts of blocks as of an earlier commit, where the stored ones are of another moment.

    They must be up to date. None stands for a block that was not there, or cannot be read as it was.
    """
    touched = await _find_touched(universe, seq)
    headers = await universe.query(Query(schema=BLOCK.name, limit=None, content=False), as_of=seq)
    there = {each.id: each for each in headers if _is_active(each)}
    _, texts = await _read(universe, None)
    found: dict[str, Datum | None] = {text.id: None for id, text in texts.items() if id not in there}
    for id, header in there.items():
        text = texts.get(id)
        if text is None or touched is None or id in touched:
            newer = None if touched is None else touched.get(id)
            found[text_id(id)] = await _make_text_at(universe, header, seq, newer)
        elif (text.seq or 0) > seq:  # stored later than it was written
            found[text.id] = text
    return found


async def _make_text_at(universe: Universe, header: Header, seq: int, newer: int | None) -> Datum | None:
    """Make the text of a block as of an earlier commit; None if that version can no longer be read.

    `newer` is the first version that came later, 0 if there is none; None if only their times can tell.
    """
    log = VersionLog(universe, header.id)
    try:
        versions = await log.versions()
        if newer is None:
            (commit,) = await universe.changes(seq - 1, limit=1)
            # A merged version has its original time: only its place in the order counts.
            versions = list(takewhile(lambda each: each.at <= commit.at, versions))
        elif newer:
            versions = [each for each in versions if each.number < newer]
        if not versions:
            return None
        shape = load_shape(header.value.document, header.value.shape)
        text = fulltext(shape, await log.at(versions[-1].number), header.value.limit)
    except (NotFound, Corrupt, HistoryGone, TemplateError):
        return None
    now = RenderedBlock(header.rev, versions[-1].number, text, frozenset(), frontiers=versions[-1].frontiers)
    return _make_datum(universe, header, now)


async def _find_touched(universe: Universe, since: int) -> dict[str, int] | None:
    """Return the blocks that changed since a commit, each with its first new version, or 0.

    None if that cannot be told, or was long ago.
    """
    tail = await follow(universe)
    known = None if tail is None else tail.find_by_schema(tail.at(since), (BLOCK.name, VERSION.name))
    try:
        changes = await universe.changes(since, limit=LOOK_BACK + 1) if known is None else known
    except HistoryGone:
        return None
    items = [item for change in changes for item in change.items]
    if len(changes) > LOOK_BACK or any(item.id is None for item in items):
        return None
    touched: dict[str, int] = {}
    for item in items:
        block, _, version = str(item.id).partition("/u/")
        if item.schema == BLOCK.name:
            touched.setdefault(block, 0)
        elif item.schema == VERSION.name:
            first = touched.setdefault(block.partition("/")[0], 0)
            if not first and item.op == "put" and item.rev == 1:
                touched[block] = int(version)
    return touched


async def _read(
    universe: Universe, blocks: Sequence[str] | None
) -> tuple[dict[str, Header], dict[str, Datum]]:
    """Return the headers of active blocks and the stored texts, by block: of some, or of all."""
    if blocks is None:
        headers = await universe.query(Query(schema=BLOCK.name, limit=None, content=False))
        texts = await universe.query(Query(schema=TEXT.name, limit=None), raw=True)
    else:
        headers = await universe.get_many(blocks)
        texts = await universe.get_many([text_id(block) for block in blocks], raw=True)
    active = {each.id: each for each in headers if _is_active(each)}
    return active, {each.id.partition("/")[0]: each for each in texts if each and each.schema == TEXT.name}


def _is_active(header: Any) -> bool:
    return isinstance(header, Crystal) and header.schema_name == BLOCK.name and header.value.active


async def _find_stale(
    universe: Universe, headers: Mapping[str, Header], texts: Mapping[str, Datum]
) -> list[str]:
    """Return the blocks whose text is missing, or of another header or version."""
    alike = [id for id, header in headers.items() if id in texts and _has_fields(texts[id], header)]
    numbers = {id: int(texts[id].data["version"]) for id in alike}
    states = await bulk.find_states(universe, numbers)
    return [id for id in headers if id not in states or states[id] != texts[id].data.get("frontiers")]


def _has_fields(text: Datum, header: Header) -> bool:
    fields = vars(header.value)
    whole = type(text.data.get("version")) is int
    return whole and all(text.data.get(name) == fields[name] for name in _HEADER_FIELDS)


async def _make_texts(
    universe: Universe, headers: Sequence[Header], texts: Mapping[str, Datum]
) -> list[_Text]:
    """Make the texts of some blocks as they are now."""
    # Read before the blocks: a commit that finds them changed would store what was redacted meanwhile.
    redactions = await universe.get_many([redaction_id(each.id) for each in headers], raw=True)
    rendered: dict[str, RenderedBlock] = {}
    await bulk.render_blocks(universe, headers, rendered, fulltext)
    made: list[_Text] = []
    for header, redaction in zip(headers, redactions, strict=True):
        old, now = texts.get(header.id), rendered[header.id]
        if now.problem:
            ops: list[Op] = [] if old is None else [Delete(old.id, old.rev)]
            made.append(_Text(text_id(header.id), None, ops))
            continue
        datum = _make_datum(universe, header, now)
        checks = [
            Check(header.id, header.rev or 0),
            Check(redaction_id(header.id), 0 if redaction is None else redaction.rev or 0),
        ]
        expect = 0 if old is None else old.rev or 0
        made.append(_Text(datum.id, datum, [Put(datum, expect, None, True), *checks]))
    return made


def _make_datum(universe: Universe, header: Header, now: RenderedBlock) -> Datum:
    fields = {name: vars(header.value)[name] for name in _HEADER_FIELDS}
    datum, _ = write.new_datum(
        universe.contracts,
        TextRecord(**fields, text=now.text, version=now.version, frontiers=now.frontiers),
        id=text_id(header.id),
        author=header.value.owner,
        created_at=header.created_at,
    )
    return datum


async def _store(universe: Universe, texts: Iterable[_Text]) -> dict[str, Datum | None]:
    """Store texts, together or else one by one; return those that could not be stored."""
    some = [each for each in texts if each.ops]
    left = {each.id: each.datum for each in some}
    if not some:
        return {}
    if universe.degraded is not None or universe.is_read_only:
        return left
    try:
        await universe.commit([op for each in some for op in each.ops])
    except Conflict:
        if len(some) == 1:
            return left
        parts = [await _store(universe, [each]) for each in some]
        return {id: datum for part in parts for id, datum in part.items()}
    except StorageError:
        return left
    return {}
