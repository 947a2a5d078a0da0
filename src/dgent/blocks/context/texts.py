"""Keep the texts of blocks up to date for searches.

Each block has a TextRecord, from which the store indexes its words. Edits leave it alone. A search first
proves which of these records are current, as a reader of the block would: by the newest version. It makes the
others again, and stores them where nothing came in between. What it cannot store counts in this search only.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from dgent.blocks.access.actor import Header
from dgent.blocks.context import bulk
from dgent.blocks.context.bulk import RenderedBlock
from dgent.blocks.document.fulltext import fulltext
from dgent.blocks.record import BLOCK, TEXT, VERSION, TextRecord, redaction_id, text_id
from dgent.errors import Conflict, HistoryGone, StorageError
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Check, Delete, Op, Put
from dgent.universe import write
from dgent.universe.universe import Universe

LOOK_BACK = 500  # commits; if there were more, all blocks are looked at
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
    headers, texts = await _read(universe, touched)
    left: dict[str, Datum | None] = {}
    stale = [headers[id] for id in await _find_stale(universe, headers, texts)]
    for start in range(0, len(stale), AT_ONCE):
        some = stale[start : start + AT_ONCE]
        left |= await _store(universe, await _make_texts(universe, some, texts))
    gone = [each for id, each in texts.items() if id not in headers]
    left |= await _store(universe, [_Text(each.id, None, [Delete(each.id, each.rev)]) for each in gone])
    return left


async def _find_touched(universe: Universe, since: int) -> list[str] | None:
    """Return the blocks that changed since a commit; None if that cannot be told, or was long ago."""
    try:
        changes = await universe.changes(since, limit=LOOK_BACK + 1)
    except HistoryGone:
        return None
    items = [item for change in changes for item in change.items]
    if len(changes) > LOOK_BACK or any(item.id is None for item in items):
        return None
    ids = (str(item.id) for item in items if item.schema in (BLOCK.name, VERSION.name))
    return list(dict.fromkeys(id.partition("/")[0] for id in ids))


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
    if universe.degraded is not None:
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
