"""Look for crumbs: by words, untouched for long, and twice the same."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Any

from dgent.cupboard.kind import FINISHED
from dgent.cupboard.record import CRUMB, LINK, METADATA, CrumbRecord
from dgent.cupboard.tables.crumb import Crumb, load_crumbs
from dgent.model.crystal import Crystal
from dgent.model.query import Query

if TYPE_CHECKING:
    from dgent.cupboard.cupboard import Cupboard

MOST = 1000  # records that a search by words looks at
ALIKE = 0.75  # of the words of two names that are the same in both
COMMON = 50  # crumbs that share a word at most, for it to count as a trace
_WORD = re.compile(r"\w+")


async def search_crumbs(
    cupboard: Cupboard,
    words: str,
    filters: dict[str, Any],
    since: datetime | None,
    limit: int,
    offset: int = 0,
) -> list[Crumb]:
    """Return the crumbs whose names, descriptions, labels or comments have the words, best first.

    Without words, the newest first. `since` is the time of the last change.
    """
    universe = await cupboard._ready()
    test = await cupboard.crumbs._condition(universe, filters)

    def fits(found: Crystal[CrumbRecord]) -> bool:
        return (since is None or found.value.updated_at >= since) and test(found)

    if not words:
        found = []
        async for each in universe.iterate(Query(schema=CRUMB.name, limit=None)):
            if isinstance(each, Crystal) and fits(each):
                found.append(each)
                if len(found) == offset + limit:
                    break
        return [cupboard.crumbs._build(each) for each in found[offset:]]
    ranks: dict[str, float] = {}
    for schema in (CRUMB, METADATA):
        for hit in await universe.search(words, schema=schema.name, k=MOST, mode="text"):
            value = getattr(hit.record, "value", None)
            id = hit.record.id if schema is CRUMB else str(getattr(value, "crumb_id", ""))
            ranks[id] = max(ranks.get(id, 0.0), hit.score)
    some = [each for each in await load_crumbs(universe, ranks) if fits(each)]
    some.sort(key=lambda each: -ranks[each.id])
    return [cupboard.crumbs._build(each) for each in some[offset : offset + limit]]


async def find_stale(cupboard: Cupboard, before: datetime, limit: int | None) -> list[Crumb]:
    """Return the unfinished crumbs that were not changed since a time, the longest untouched first."""
    universe = await cupboard._ready()
    query = Query(schema=CRUMB.name, where={"state": {"$nin": list(FINISHED)}}, limit=None)
    found = [each for each in await universe.recall(query) if each.value.updated_at < before]
    found.sort(key=lambda each: (each.value.updated_at, each.id))
    return [cupboard.crumbs._build(each) for each in found[:limit]]


async def find_duplicates(cupboard: Cupboard) -> list[list[Crumb]]:
    """Return groups of unfinished crumbs with nearly the same names, without those linked as duplicates."""
    universe = await cupboard._ready()
    query = Query(schema=CRUMB.name, where={"state": {"$nin": list(FINISHED)}}, descending=False, limit=None)
    crumbs = {each.id: each for each in await universe.recall(query)}
    linked = await universe.recall(
        Query(schema=LINK.name, any_tags=frozenset(("duplicate_of", "supersedes")), limit=None)
    )
    known = {frozenset((each.value.from_id, each.value.to_id)) for each in linked}
    words = {id: frozenset(_WORD.findall(each.value.name.casefold())) for id, each in crumbs.items()}
    groups: dict[str, list[str]] = {id: [id] for id in crumbs}
    for one, other in _pairs(words):
        if frozenset((one, other)) not in known and groups[one] is not groups[other]:
            groups[one] += groups[other]
            for each in groups[other]:
                groups[each] = groups[one]
    found = dict.fromkeys(tuple(sorted(group)) for group in groups.values() if len(group) > 1)
    return [[cupboard.crumbs._build(crumbs[each]) for each in group] for group in found]


def _pairs(words: dict[str, frozenset[str]]) -> Iterable[tuple[str, str]]:
    """Yield pairs of ids whose words are nearly the same; only those that share a rare word are compared."""
    counts = Counter(word for some in words.values() for word in some)
    having: dict[str, list[str]] = defaultdict(list)
    for id, some in words.items():
        rare = sorted(some, key=lambda word: (counts[word], word))
        # Two names that have enough words in common share one of the rarest of either.
        for word in rare[: len(rare) - int(ALIKE * len(rare)) + 1]:
            near = having[word]
            for other in near[-COMMON:]:
                both = words[id] | words[other]
                if len(words[id] & words[other]) >= ALIKE * len(both):
                    yield other, id
            near.append(id)
