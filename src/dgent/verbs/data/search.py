"""The verb that searches: everything with texts, in one list."""

from __future__ import annotations

import asyncio
from typing import Annotated

from dgent.errors import InputError, Unsupported
from dgent.model.query import Query
from dgent.model.reserved import is_reserved
from dgent.universe.meaning import Mode
from dgent.universe.room import find_titles
from dgent.universe.universe import Universe
from dgent.verbs import parse
from dgent.verbs.context import Context
from dgent.verbs.data.answer import SearchHit, SearchHits, record_of
from dgent.verbs.origin import mark_of
from dgent.verbs.registry import Ask, AsOf, argument, option, verb

WAIT_S = 3.0  # for an index that is being built


class SearchRecords(Ask):
    """Input of `data.search`."""

    words: Annotated[str, argument('the words to look for; "a phrase", begin*', words=True)]
    schema: Annotated[str | None, option("only records of this schema", complete="schema")] = None
    tag: Annotated[tuple[str, ...], option("with this tag; more than one: with all of them", short="t")] = ()
    where: Annotated[tuple[str, ...], option("weight>=3, author=ann, or JSON", short="w")] = ()
    author: Annotated[str | None, option("by this author")] = None
    since: Annotated[str | None, option("made then or later: a time, or 2h for two hours ago")] = None
    until: Annotated[str | None, option("made before then")] = None
    as_of: AsOf = None
    limit: Annotated[int, option("at most so many", short="k")] = 10
    mode: Annotated[Mode, option("by words, by meaning, or by both where texts are embedded")] = "auto"
    explain: Annotated[bool, option("say how much of a score comes from each word")] = False


@verb("data.search", effect="read", errors=(InputError, Unsupported))
async def search(context: Context, ask: SearchRecords) -> SearchHits:
    """Find records, crumbs, blocks and all else by their words, the best first."""
    u = await context.universe()
    wanted = Query(
        schema=ask.schema,
        tags=frozenset(ask.tag),
        where=parse.where(ask.where),
        author=ask.author,
        since=None if ask.since is None else parse.moment(ask.since, "since"),
        until=None if ask.until is None else parse.moment(ask.until, "until"),
    )
    return await search_words(u, ask.words, wanted, ask.limit, ask.explain, ask.mode, ask.as_of)


async def search_words(
    u: Universe,
    words: str,
    wanted: Query,
    limit: int,
    with_parts: bool,
    mode: Mode = "auto",
    as_of: str | None = None,
) -> SearchHits:
    """Search for words; with the part of each word in a score, if that is wanted."""
    moment = parse.point(as_of)
    found = await u.search(words, wanted, k=limit, mode=mode, as_of=moment)
    if found.building and await _wait_for_index(u):
        found = await u.search(words, wanted, k=limit, mode=mode, as_of=moment)
    titles = await find_titles(u, [hit.datum for hit in found])
    items = [
        SearchHit(
            *title,
            record_of(hit.datum, origin=hit.origin),
            hit.score,
            hit.snippet,
            hit.marks,
            hit.parts if with_parts else {},
            mark_of(hit.origin),
        )
        for hit, title in zip(found, titles, strict=True)
    ]
    explain = "" if items or await _has_texts(u, wanted.schema) else "no schema here has texts to search"
    return SearchHits(items, found.building, explain, found.legs, found.note)


async def _wait_for_index(u: Universe) -> bool:
    """Wait a little for what is being indexed: who asks once would miss it. Return whether it is done."""
    waiting = asyncio.ensure_future(u.indexed())
    done, _ = await asyncio.wait((waiting,), timeout=WAIT_S)
    waiting.cancel()
    return bool(done) and waiting.exception() is None


async def _has_texts(u: Universe, schema: str | None) -> bool:
    found = [each for each in await u.schemas() if schema in (None, each.name)]
    return any(each.text or not (each.index_version or is_reserved(each.name)) for each in found)
