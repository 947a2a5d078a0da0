"""Parts of a record: small records that hold what changed since one of its versions.

The id of a part is the id of its record, a plus, the key of the version, and a number. So it is forgotten
with its record, and pruned when no version of this key is kept any more.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import TYPE_CHECKING

from dgent import codec, ids
from dgent.model.datum import Datum
from dgent.model.query import Query

if TYPE_CHECKING:
    from dgent.universe.universe import Universe

SCHEMA, OF = "flow.delta", "flow.state"
OWNER = ":state"  # the end of the ids of records with parts
MOST = 128  # parts of a version: they are read to load a record
AGAIN = "again"  # in `extra`: tells a version from an earlier one with the same data


def version_key(datum: Datum) -> str:
    """Return what names a version of a record: the same in every copy of a store."""
    again = str((datum.extra or {}).get(AGAIN, ""))
    return codec.blake2b(codec.canonical(datum.data), size=8, key=again.encode()[:64]).hexdigest()


def part_id(id: str, key: str, number: int) -> str:
    """Return the id of a part of a record."""
    return f"{id}+{key}.{number}"


def can_have_parts(id: str) -> bool:
    """Return whether a record is one that has parts, by its id, and theirs are short enough to be stored."""
    return id.endswith(OWNER) and len(id.encode()) <= ids.MAX_ID_BYTES - 32


async def find_parts(universe: Universe, id: str) -> list[Datum]:
    """Return the live parts of a record, of all its versions, in no order."""
    if not can_have_parts(id):
        return []
    found = await universe.query(Query(schema=SCHEMA, prefix=f"{id}+", limit=None), raw=True)
    return [part for part in found if split_id(part.id)[0] == id]  # the id of another record may begin so


async def find_part_ids(universe: Universe, ids_: Iterable[str]) -> list[str]:
    """Return the ids of the parts of some records, deleted ones among them: their history has content too."""
    found: set[str] = set()
    for id in ids_:
        live = [part.id for part in await find_parts(universe, id)]
        keys = {split_id(part)[1] for part in live}
        for version in await universe.history(id) if can_have_parts(id) else ():
            if version.datum is not None and version.datum.schema == OF:
                keys.add(version_key(version.datum))
        wanted = [part_id(id, key, number) for key in sorted(keys) for number in range(1, MOST + 1)]
        ranks = await universe.backend.ranks(wanted) if wanted else []
        found.update(live, (part for part, rank in zip(wanted, ranks, strict=True) if rank is not None))
    return sorted(found)


async def find_later_parts(universe: Universe, ids_: Iterable[str]) -> list[str]:
    """Return the live parts that come right after one of these records, and build on it."""
    after: list[str] = []
    for id in ids_:
        owner, key = split_id(id)
        number = id.rpartition(".")[2]
        if owner and number.isdigit() and id == part_id(owner, key, int(number)):
            after.append(part_id(owner, key, int(number) + 1))
    found = await universe.backend.get_many(after) if after else []
    return [part.id for part in found if part is not None and part.schema == SCHEMA]


def split_id(part: str) -> tuple[str, str]:
    """Return the id of the record and the key of the version that a part belongs to."""
    id, _, rest = part.rpartition("+")
    return id, rest.partition(".")[0]


async def prune_parts(universe: Universe) -> None:
    """Erase parts of versions that are no longer kept."""
    owned: dict[str, dict[str, list[str]]] = defaultdict(lambda: defaultdict(list))
    async for part in universe.iterate(Query(schema=SCHEMA, limit=None), raw=True):
        id, key = split_id(part.id)
        owned[id][key].append(part.id)
    gone: list[str] = []
    for id, by_key in owned.items():
        versions = await universe.history(id)
        kept = {version_key(version.datum) for version in versions if version.datum is not None}
        gone += [part for key, parts in by_key.items() if key not in kept for part in parts]
    if gone:
        await universe.forget(*gone)
