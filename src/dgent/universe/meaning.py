"""Search by words and by meaning at once: one ranking of both, and which of them have answered."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, TypeAlias, get_args

import msgspec

from dgent.errors import EmbedderFailed, InputError, Unavailable, Unsupported
from dgent.search.hybrid import CANDIDATES, JoinedScore, join_legs
from dgent.search.record import texts_at
from dgent.store.backend import Backend, View
from dgent.store.search import (
    EmbeddedSchema,
    Found,
    FoundVector,
    LazyTexts,
    OwnVersions,
    SearchPage,
    SearchRequest,
)

if TYPE_CHECKING:
    from dgent.universe.embedding import Embedding

Mode: TypeAlias = Literal["auto", "text", "meaning"]
MODES: tuple[Mode, ...] = get_args(Mode)
MEANING = "(meaning)"
"""The name of what meaning adds to a score; no word has brackets."""


class Search(NamedTuple):
    """A search as the user typed it, and the request that this makes."""

    text: str
    request: SearchRequest

    def with_own(self, own: OwnVersions) -> Search:
        """Return the search with the versions that only the caller knows."""
        return Search(self.text, msgspec.structs.replace(self.request, own=own))


class Searched(NamedTuple):
    """The answer of a search; `legs` have answered, and `note` says why another has not."""

    page: SearchPage
    legs: tuple[str, ...]
    note: str = ""


class _Near(NamedTuple):
    """The records that are nearest in meaning, best first, or why there are none."""

    items: Sequence[FoundVector] = ()
    schemas: Mapping[str, EmbeddedSchema] = {}
    note: str = ""


def check_mode(mode: Any) -> Mode:
    """Return how to search."""
    if mode not in MODES:
        raise InputError(f"mode is {mode!r}", hint=f"use one of {', '.join(MODES)}", field="mode")
    found: Mode = mode
    return found


async def search_both(embedding: Embedding | None, backend: Backend, asked: Search, mode: Mode) -> Searched:
    """Search as the mode says; `auto` is by words alone where the other leg has nothing to say."""
    if mode == "text" or (mode == "auto" and _is_for_words(embedding, asked)):
        return Searched(await backend.search(asked.request), ("text",))
    if asked.request.as_of is not None:
        raise Unsupported("a search by meaning cannot look back", hint="use mode='text'", field="mode")
    limit = max(asked.request.limit, CANDIDATES)
    looking = asyncio.ensure_future(_search_meaning(embedding, backend, asked, limit))
    words = SearchPage([])
    try:
        if mode == "auto":
            words = await backend.search(msgspec.structs.replace(asked.request, limit=limit))
        near = await looking
    finally:
        looking.cancel()
        await asyncio.gather(looking, return_exceptions=True)
    if near.schemas:
        legs = ("meaning",) if mode == "meaning" else ("text", "meaning")
        return Searched(_join(words, near, asked, limit), legs, near.note)
    if mode == "meaning":
        raise Unsupported(near.note or "no schema here has embedded texts", hint=_HOW, field="mode")
    best = words.items[: asked.request.limit]
    return Searched(msgspec.structs.replace(words, items=best), ("text",), near.note)


_HOW = "give Schema(embed=...) and dgent.open(embedder=...)"


def _is_for_words(embedding: Embedding | None, asked: Search) -> bool:
    """Check whether only words can answer: those that must stand so, and earlier moments."""
    return embedding is None or asked.request.as_of is not None or bool(asked.request.wanted.phrases)


async def _search_meaning(embedding: Embedding | None, backend: Backend, asked: Search, limit: int) -> _Near:
    if embedding is None:
        return _Near(note="there is no embedder")
    query, among = asked.request.query, asked.request.among
    try:
        known = [
            each
            for each in await backend.embedded_schemas(1)
            if query.schema in (None, each.name) and (among is None or each.name in among)
        ]
        ours = {each.name: each for each in known if embedding.is_ours(each.spec)}
        if not ours:
            models = sorted({each.spec.model for each in known})
            note = f"the vectors are those of {', '.join(models)}, not of {embedding.calls.name}"
            return _Near(note=note if models else "")
        dim = next(iter(ours.values())).spec.dim
        vector = await embedding.embed_query(asked.text, dim)
        pages = [
            await backend.search_vectors(
                vector, query.replace(schema=name), asked.request.view, limit, None, each.spec
            )
            for name, each in ours.items()
        ]
    except (EmbedderFailed, Unavailable, Unsupported) as error:
        return _Near(note=error.message)
    items = [each for page in pages for each in page.items]
    # Stable: those of one schema stay in their order.
    return _Near(sorted(items, key=lambda each: -each.score)[:limit], ours)


def _join(words: SearchPage, near: _Near, asked: Search, limit: int) -> SearchPage:
    """Return the records of both legs in one ranking."""
    by_words = {each.datum.id: each for each in words.items}
    by_meaning = {each.datum.id: each for each in near.items}
    complete = all(each.complete for each in near.schemas.values())
    scores = join_legs(
        {id: each.score for id, each in by_words.items()},
        {id: each.score for id, each in by_meaning.items()},
        limit,
        complete,
    )
    best = sorted(scores, key=lambda id: -scores[id].score)[: asked.request.limit]
    items = []
    for id in best:
        found = by_words.get(id)
        if found is None:
            texts = LazyTexts(partial(_texts, near.schemas, by_meaning[id], asked.request.view))
            found = Found(by_meaning[id].datum, 0.0, {}, texts)
        items.append(_rescore(found, scores[id]))
    return msgspec.structs.replace(words, items=items, building=words.building or not complete)


def _rescore(found: Found, joined: JoinedScore) -> Found:
    """Return a record with its joint score, and what each word and the meaning add to that."""
    whole = sum(found.parts.values())
    parts = (
        {word: part / whole * max(joined.words, 0.0) for word, part in found.parts.items()} if whole else {}
    )
    if joined.meaning > 0:
        parts[MEANING] = joined.meaning
    return msgspec.structs.replace(found, score=max(joined.score, 0.0), parts=parts)


def _texts(schemas: Mapping[str, EmbeddedSchema], found: FoundVector, view: View) -> list[str]:
    """Return the texts of a record that are embedded, for its snippet."""
    known = schemas.get(found.datum.schema or "")
    data = view.shape(found.datum)
    return [] if known is None else [text for path in known.spec.fields for text in texts_at(data, path)]
