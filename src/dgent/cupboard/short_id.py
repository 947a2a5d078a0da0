"""Short ids of crumbs and trails, such as `dg-a3f8`, beside the ids of their records.

A short id is the store's prefix and the beginning of a hash of the record's id: 4 digits, and one more for
each 36 times as many records. A crumb that is made as a part of another one is numbered: `dg-a3f8.1`. It is
stored with the record in the commit that creates it, and never given to another one. Two copies of a store
can still give the same one: then the later record gets the next free one and keeps the old one as former.

A caller who may only add, not change, gets a hash for a part: the number is counted in the crumb above.
A record with an id that its creator chose, such as an issue of another tracker, is known by that id.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from dgent.cupboard import errors
from dgent.cupboard.record import CRUMB, TRAIL, CrumbRecord, TrailRecord
from dgent.errors import Ambiguous
from dgent.model.crystal import Crystal
from dgent.model.query import Query

if TYPE_CHECKING:
    from dgent.cupboard.change import Changeset
    from dgent.cupboard.cupboard import Cupboard
    from dgent.universe.transaction import Transaction
    from dgent.universe.universe import Universe

PREFIX = "dg"
SHORTEST = 4
SMALL = 1000  # records that have short ids of the shortest length
SHOWN = 5
AT_ONCE = 500  # records of an older store that get short ids in one commit
NOTE = "cupboard"  # of commits that no undo takes back

_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_SHORT = re.compile(r"(?P<stem>[a-z][a-z0-9]*-[a-z0-9]+)(?P<parts>(\.[0-9]+)*)(-(?P<more>[a-z0-9]+))?")
_PREFIX = re.compile(r"[a-z][a-z0-9]{0,15}")


def check_prefix(prefix: object) -> str:
    """Return the prefix of a store's short ids; raises InvalidData."""
    if not isinstance(prefix, str) or not _PREFIX.fullmatch(prefix):
        raise errors.InvalidData(
            f"{prefix!r} is not a valid prefix", hint="use up to 16 small letters and digits", field="prefix"
        )
    return prefix


def digest(id: str) -> str:
    """Return the hash of a record's id, of which a short id is the beginning."""
    number = int.from_bytes(hashlib.sha256(id.encode()).digest()[:16])
    digits = ""
    while len(digits) < 24:
        number, rest = divmod(number, 36)
        digits += _DIGITS[rest]
    return digits


def needs_short_id(id: str) -> bool:
    """Check whether a record gets a short id: its id was generated, not chosen."""
    return _UUID.fullmatch(id) is not None


def can_be_short_id(given: str) -> bool:
    """Check whether a text has the form of a short id."""
    return _SHORT.fullmatch(given) is not None and _UUID.fullmatch(given) is None


def handle_of(found: Crystal[Any]) -> str:
    """Return the id by which users know a crumb or trail."""
    return found.value.short_id or found.id


def _length(size: int) -> int:
    """Return the number of digits of a new short id in a store with so many records."""
    length = SHORTEST
    while size > SMALL:
        size, length = size // 36, length + 1
    return length


# -- give short ids -----------------------------------------------------------------------------


async def give_short_ids(changeset: Changeset, cupboard: Cupboard) -> None:
    """Give the records that a change writes their short ids, where they have none yet."""
    for kind, schema in ((CrumbRecord, CRUMB), (TrailRecord, TRAIL)):
        pending = {
            id: record
            for id, record, _ in changeset.changes()
            if isinstance(record, kind) and not record.short_id and needs_short_id(id)
        }
        if not pending:
            continue
        numbers = kind is CrumbRecord and cupboard._may_change()
        wholes = {id: await _find_whole(changeset, id) for id in pending} if numbers else {}
        hashed = [id for id in pending if not wholes.get(id)]
        for whole in dict.fromkeys(filter(None, wholes.values())):  # one of an older store may have none yet
            above = await changeset.find(CrumbRecord, whole)
            if whole not in pending and above is not None and not above.short_id and needs_short_id(whole):
                hashed.append(whole)
        await _give_hashes(changeset, schema.name, hashed, await cupboard._naming(schema))
        for id in pending:
            await _give_numbers(changeset, id, wholes)


async def name_older_records(cupboard: Cupboard) -> None:
    """Give short ids to the records of a store from before there were any, some in each commit.

    The definitions are written last, in their new version: what was stopped is gone on with.
    """
    universe = cupboard._universe
    for schema in (CRUMB, TRAIL):
        naming = await cupboard._naming(schema)
        query = Query(schema=schema.name, descending=False, limit=None)
        todo = [each.id async for each in universe.iterate(query, raw=True) if not each.data.get("short_id")]
        todo = [id for id in todo if needs_short_id(id)]
        for start in range(0, len(todo), AT_ONCE):
            await _name_some(universe, cupboard, schema.name, todo[start : start + AT_ONCE], naming)

    async def finish(tx: Transaction) -> None:
        changeset = cupboard._open_changeset(tx)
        changeset.mark_redefined()
        await changeset.flush()

    await universe.transact(finish, note=NOTE)


async def _name_some(
    universe: Universe, cupboard: Cupboard, schema: str, some: list[str], naming: tuple[str, int]
) -> None:
    async def work(tx: Transaction) -> None:
        changeset = cupboard._open_changeset(tx)
        await changeset.load(some)
        found = {id: changeset.record(id) for id in some}
        unnamed = [id for id, record in found.items() if record is not None and not record.short_id]
        await _give_hashes(changeset, schema, unnamed, naming)
        await changeset.flush()

    await universe.transact(work, note=NOTE)


async def _find_whole(changeset: Changeset, id: str) -> str:
    """Return the crumb that a new crumb is part of; empty if none, or none that can number its parts."""
    if not changeset.is_new(id):
        return ""
    for link in (await changeset.links("from_id", id, "part_of")).values():
        if needs_short_id(link.to_id) or can_be_short_id(link.to_id):
            return link.to_id
    return ""


async def _give_hashes(changeset: Changeset, schema: str, wanted: list[str], naming: tuple[str, int]) -> None:
    """Give records the shortest free beginnings of their hashes."""
    prefix, size = naming
    length = _length(size + len(wanted))
    given: dict[str, str] = {}
    while wanted:
        tried = {id: f"{prefix}-{digest(id)[:length]}" for id in wanted}
        stored = await changeset.select(schema, "short_id", sorted(set(tried.values())))
        taken = {each.value.short_id for each in stored} | set(given)
        for id, short in tried.items():
            if short not in taken:
                given[short] = id
                taken.add(short)
        wanted = [id for id, short in tried.items() if given.get(short) != id]
        length += 1
    for short, id in given.items():
        changeset.put(id, replace(changeset.record(id), short_id=short))


async def _give_numbers(changeset: Changeset, id: str, wholes: dict[str, str]) -> None:
    """Number a part, after the crumb that it is part of; the numbers of deleted parts stay theirs."""
    todo = [id]
    while todo:
        part = todo[-1]
        record, whole = changeset.record(part), wholes.get(part, "")
        if record.short_id or not whole:
            todo.pop()
            continue
        above = await changeset.get(CrumbRecord, whole, "crumb")
        if wholes.get(whole) and not above.short_id:
            todo.append(whole)
            continue
        number = 1 + (above.parts or await _last_number(changeset, whole, above))
        stem = above.short_id or whole
        while await changeset.select(CRUMB.name, "short_id", [f"{stem}.{number}"]):  # given by another copy
            number += 1
        changeset.put(whole, replace(above, parts=number))
        changeset.put(part, replace(record, short_id=f"{stem}.{number}"))
        todo.pop()


async def _last_number(changeset: Changeset, whole: str, above: CrumbRecord) -> int:
    """Return the last number that an imported crumb has below another one."""
    if above.short_id:
        return 0
    query = Query(schema=CRUMB.name, prefix=f"{whole}.", limit=None)
    tails = [each.id.removeprefix(f"{whole}.") for each in await changeset.tx.recall(query)]
    return max((int(tail) for tail in tails if tail.isascii() and tail.isdigit()), default=0)


def separate(known: Iterable[tuple[str, str]]) -> dict[str, str]:
    """Return new short ids, by id, for all but the first of those that have the same one."""
    pairs = [(id, short) for id, short in known if short]
    taken = {short for _, short in pairs}
    first: dict[str, str] = {}
    given: dict[str, str] = {}
    for id, short in pairs:
        if first.setdefault(short, id) != id:
            given[id] = _next_free(id, short, taken)
            taken.add(given[id])
    return given


def _next_free(id: str, short: str, taken: set[str]) -> str:
    stem, dot, number = short.rpartition(".")
    if dot:
        count = int(number) + 1
        while f"{stem}.{count}" in taken:
            count += 1
        return f"{stem}.{count}"
    prefix, _, digits = short.partition("-")
    length = len(digits) + 1
    while f"{prefix}-{digest(id)[:length]}" in taken:
        length += 1
    return f"{prefix}-{digest(id)[:length]}"


# -- find by short ids --------------------------------------------------------------------------


async def resolve_id(reader: Universe | Transaction, schema: str, given: str) -> str:
    """Return the id of the crumb or trail that a short id names; any other text as it is.

    Raises Ambiguous where two records had the same short id.
    """
    if not can_be_short_id(given) or await reader.exists(given):
        return given
    found = await find_by_short_id(reader, schema, given)
    if len(found) > 1:
        raise make_ambiguous(schema, given, found)
    return found[0].id if found else given


async def find_by_short_id(reader: Universe | Transaction, schema: str, given: str) -> list[Crystal[Any]]:
    """Return the records that have or had a short id.

    More digits of the hash than the short id has are understood: all of it follows from the record's id. A
    short id that two records had is told apart by digits behind a dash.
    """
    parts = _SHORT.fullmatch(given)
    if parts is None:
        return []
    found = await _find_exact(reader, schema, [given])
    if not found and parts["more"]:
        some = await _find_exact(reader, schema, [parts["stem"] + parts["parts"]])
        found = [each for each in some if digest(each.id).startswith(parts["more"])]
    elif not found and not parts["parts"]:
        prefix, _, digits = given.partition("-")
        shorter = [f"{prefix}-{digits[:length]}" for length in range(SHORTEST, min(len(digits), 24))]
        some = await _find_exact(reader, schema, shorter) if shorter else []
        found = [each for each in some if digest(each.id).startswith(digits)]
    return found


async def _find_exact(reader: Universe | Transaction, schema: str, wanted: list[str]) -> list[Crystal[Any]]:
    now = await reader.recall(Query(schema=schema, where={"short_id": {"$in": wanted}}, limit=None))
    former = await reader.recall(Query(schema=schema, any_tags=frozenset(wanted), limit=None))
    return list({each.id: each for each in (*now, *former)}.values())


def make_ambiguous(schema: str, given: str, found: Iterable[Crystal[Any]]) -> Ambiguous:
    """Return the error for a short id of several records, with an unambiguous name for each."""
    some = list(found)[:SHOWN]
    noun = schema.removeprefix("cupboard.")
    names = []
    for each in some:
        shared = each.value.short_id == given and len(some) > 1
        name = f"{given}-{digest(each.id)[:SHORTEST]}" if shared else handle_of(each)
        names.append(f"{name} {each.value.name!r}")
    return Ambiguous(
        f"{given!r} is the id of more than one {noun}: {', '.join(names)}",
        hint="use one of these ids",
        candidates=[each.id for each in some],
    )
