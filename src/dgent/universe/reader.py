"""The reads of a universe."""

from __future__ import annotations

import builtins
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from dgent import clock, codec, ids
from dgent.errors import InputError, Unsupported
from dgent.model import path as paths
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.model.vector import Metric
from dgent.store.backend import AsOf, Backend, Page, View
from dgent.store.search import NONE_OWN, OwnVersions, SearchRequest, VectorPage
from dgent.store.tally import Counts, Tally
from dgent.universe import search
from dgent.universe.check import check_limit, check_query, query_of, seq_of, since_after
from dgent.universe.contract import Doubts, Recalled, raw_of
from dgent.universe.embedding import EmbeddingReport, report_embedding
from dgent.universe.gate import Gate
from dgent.universe.handle import UniverseHandle
from dgent.universe.meaning import Mode, Search, Searched, check_mode, search_both
from dgent.universe.search import MAX_K, Hits
from dgent.universe.vectors import Vectors

if TYPE_CHECKING:
    from dgent.system.progress import Progress
    from dgent.universe.universe import Universe


PAGE = 500  # records that `iterate` reads at a time


class UniverseReader(UniverseHandle):
    """The reads of a universe: by id, by query, by words, and by meaning."""

    def _source(self, partial: bool) -> Backend:
        """Return the backend of a read: the store, or for a partial answer the local copy."""
        take = partial or self._partial
        found: Backend = getattr(self.backend, "at_hand", self.backend) if take else self.backend
        return found

    async def get(self, id: str, *, as_of: AsOf = None, raw: bool = False, partial: bool = False) -> Any:
        """Return a record as a crystal; raw when its schema is unknown here; None when there is none.

        Raises UpgradeFailed or DecodeFailed when the record cannot become a value; `raw=True` always works.
        This and every other read raises Unavailable while the store is unavailable; with `partial=True` the
        local copy answers, which may lack records.
        """
        self._check()
        ids.check_id(id)
        seq = None if as_of is None else await seq_of(self.backend, as_of)
        datum = await self._source(partial).get(id, seq, lazy=not raw)
        if datum is not None and self.contracts.refreshed and seq is None:
            self._expiry.note_reads(self._as_universe(), (datum,))
        if raw or datum is None:
            return datum
        return None if self.contracts.is_foreign(datum, self._room) else self.contracts.crystal(datum)

    async def get_many(
        self, ids_: Sequence[str], *, as_of: AsOf = None, raw: bool = False, partial: bool = False
    ) -> builtins.list[Any]:
        """Return one answer for each id, all of one moment; unreadable records come back raw."""
        self._check()
        if isinstance(ids_, str) or not isinstance(ids_, Iterable):
            raise InputError(f"get_many takes ids, not {type(ids_).__name__}", field="ids")
        found = await self._source(partial).get_many(builtins.list(ids_), await seq_of(self.backend, as_of))
        if self.contracts.refreshed and as_of is None:
            self._expiry.note_reads(self._as_universe(), [datum for datum in found if datum is not None])
        if raw:
            return [*found]
        is_foreign, lenient = self.contracts.is_foreign, self.contracts.lenient
        return [None if d is None or is_foreign(d, self._room) else lenient(d) for d in found]

    async def exists(self, id: str, *, partial: bool = False) -> bool:
        """Return whether a live record has this id."""
        self._check()
        return await self._source(partial).get(ids.check_id(id)) is not None

    async def query(
        self,
        query: Query | None = None,
        *,
        as_of: AsOf = None,
        raw: bool = False,
        partial: bool = False,
        **filters: Any,
    ) -> builtins.list[Any]:
        """Return matching records: `u.query(Query(schema="note"))`, or `u.query(schema="note")` for short.

        A record that cannot become a value comes back raw with the reason.
        """
        self._check()
        return (await self.page(query_of(query, filters), as_of=as_of, raw=raw, partial=partial)).items

    async def page(
        self, query: Query, *, as_of: AsOf = None, raw: bool = False, partial: bool = False
    ) -> Page:
        """Return matching records with a cursor for the next page; a `partial` one says so."""
        self._check()
        page = await self._page(check_query(query), as_of, partial)
        made = [raw_of(datum) for datum in page.items] if raw else self.contracts.lenient_all(page)
        return Page(made, page.explain, page.further, partial=page.partial)

    async def recall(
        self, query: Query | str | None = None, *, as_of: AsOf = None, partial: bool = False, **filters: Any
    ) -> Recalled[Any]:
        """Return matching records that are typed values here; unreadable ones are in `.problems`.

        A text is the name of a schema, or words to search for: then the records that fit best come first.
        """
        self._check()
        if isinstance(query, str):
            schema = self.contracts.match_name(query)
            if schema is None and as_of is None:
                wanted = query_of(None, filters)
                hits = await self.search_among(None, query, wanted, min(wanted.limit or MAX_K, MAX_K))
                return self.contracts.pick_crystals(hit.record for hit in hits)
            query, filters = None, {**filters, "schema": schema or query}
        wanted = query_of(query, filters)
        doubts = None if wanted.where is None else Doubts(self.contracts, wanted)
        found = self.contracts.lenient_all(await self._page(wanted, as_of, partial, doubts))
        if doubts is not None:
            found += await doubts.load(self._as_universe(), as_of, partial)
        return self.contracts.pick_crystals(found)

    async def _page(self, query: Query, as_of: AsOf, partial: bool, view: View | None = None) -> Page:
        if self._undeclared:
            await self._ready()
        seq = None if as_of is None else await seq_of(self.backend, as_of)
        page = await self._source(partial).query(self.contracts.check(query), view or self.contracts, seq)
        if self.contracts.refreshed and as_of is None:
            self._expiry.note_reads(self._as_universe(), page.items)
        return page

    async def search(
        self,
        text: str,
        query: Query | None = None,
        *,
        k: int = 10,
        mode: Mode = "auto",
        as_of: AsOf = None,
        partial: bool = False,
        **filters: Any,
    ) -> Hits[Any]:
        """Return the records whose texts fit the words best; a query or filters narrow them.

        Any text is a search: `"…"` is a phrase, `word*` the beginning of a word. With an embedder and
        embedded texts they may also fit in meaning; `mode="text"` or `"meaning"` asks for one alone.
        """
        self._check()
        wanted = self.contracts.check(query_of(query, filters))
        return await self.search_among(None, text, wanted, search.check_k(k), as_of, partial, mode)

    async def search_among(
        self,
        among: Sequence[str] | None,
        text: str,
        query: Query,
        k: int,
        as_of: AsOf = None,
        partial: bool = False,
        mode: Mode = "auto",
    ) -> Hits[Any]:
        """Search records of some schemas as if they were one; of all for None, unless the query names one."""
        await self._ready()
        words, mode = search.parse(text), check_mode(mode)
        then = self.past
        seq = await seq_of(self.backend, then.seq if as_of is None and then is not None else as_of)
        request = SearchRequest(words, query, self.contracts, k, seq, among=among)
        found, legs, note = await self._search_fresh(Search(text, request), mode, partial)
        for schema in found.behind:
            self._texts.setdefault(schema, 0)  # one that nobody declared is kept up from now on
            view = self._room_texts.view_of(schema, self.contracts)
            self._builds.start(self.backend, schema, view)
        hits = await search.make_hits(self._as_universe(), self.contracts, words, found)
        hits.legs, hits.note = legs, note
        if self.contracts.refreshed and seq is None:
            self._expiry.note_reads(self._as_universe(), [hit.record for hit in hits])
        return hits

    async def _search_fresh(self, asked: Search, mode: Mode, partial: bool) -> Searched:
        """Search with the texts of rooms up to date; at once if nothing was committed since they were."""
        schemas, as_of = asked.request.schemas, asked.request.as_of
        source, texts, unlimited = self._source(partial), self._room_texts, self._unlimited()
        if as_of is not None:
            own = await self.refresh_texts(schemas)
            if self._as_universe().degraded is None:
                own = {**own, **await texts.find_at(unlimited, schemas, as_of)}
            return await search_both(self._embedding, source, asked.with_own(own), mode)
        steady = texts.steady_seq(unlimited, schemas) if self._embedding is None else None
        if steady is not None:
            found = await search_both(None, source, asked, mode)
            if found.page.seq == steady:
                return found
        before = texts.common_seq(unlimited, schemas)
        own = await self.refresh_texts(schemas)
        found = await search_both(self._embedding, source, asked.with_own(own), mode)
        texts.note_search(before, found.page.seq)
        return found

    def _unlimited(self) -> Universe:
        """Return the universe that shows everything."""
        return self.backend.universe if isinstance(self.backend, Gate) else self.present()

    async def surface(
        self,
        text: str | None = None,
        query: Query | None = None,
        *,
        seed: int | str = 0,
        entropy: float = 0.7,
        k: int = 1,
        seen: Mapping[str, datetime] | None = None,
        rest: timedelta = timedelta(days=1),
        now: datetime | None = None,
        **filters: Any,
    ) -> builtins.list[Any]:
        """Return up to `k` records that are related to a text, old, and were not seen within `rest`.

        `seen` has the time when each record was last seen, by id. `entropy` is how much chance counts, from 0
        (the best fit) to 1; the same `seed` draws the same. Without a text the oldest records are looked at.
        """
        from dgent.universe.surface import surface  # few programs use it

        whole = self._as_universe()
        return await surface(
            whole, text, query, seed=seed, entropy=entropy, k=k, seen=seen, rest=rest, now=now, **filters
        )

    async def embedded(self, *, progress: Progress | None = None) -> int:
        """Embed now all texts that wait, and return how many versions that were; raises EmbedderFailed."""
        await self._ready()
        if self._embedding is None:
            raise Unsupported("there is no embedder here", hint="give dgent.open(..., embedder=...)")
        return await self._embedding.run(self.backend, self.contracts, self._builds, progress)

    async def embedding(self, *, check: bool = False) -> EmbeddingReport:
        """Return how far embedding is, and what is wrong with it; `check` asks the embedder for a vector."""
        await self._ready()
        if check and self._embedding is not None:
            await self._embedding.check()
        return await report_embedding(self._embedding, self.backend)

    async def declare_vectors(self, schema: Schema[Any]) -> None:
        """Declare the schema of the caller's own vectors; SchemaError when the store has others there."""
        await self._ready()
        async with self._declaring:
            await self._builds.declare(self.backend, schema, self.contracts)
        if self.contracts.by_name(schema.name) is None:
            self.contracts.add(schema)
        self._watch_folds(schema)

    async def search_vectors(self, vector: bytes, query: Query, k: int, *, as_of: AsOf = None) -> VectorPage:
        """Return the matching records of a schema whose vectors are nearest to one, as 32-bit numbers."""
        await self._ready()
        seq = None if as_of is None else await seq_of(self.backend, as_of)
        wanted = self.contracts.check(query)
        found = await self.backend.search_vectors(vector, wanted, self.contracts, k, seq)
        if found.behind and query.schema is not None:
            self._builds.start(self.backend, query.schema, self.contracts)
        return found

    def vectors(
        self, name: str, *, dim: int, metric: Metric = "cosine", indexes: Iterable[str] = ()
    ) -> Vectors:
        """Return the caller's own vectors under a name: numbers of one dimension, each with metadata.

        `metric` is `"cosine"`, `"dot"` or `"l2"`; `indexes` are fields of the metadata that `where` finds
        quickly. Needs numpy: `pip install 'dgent[vectors]'`.
        """
        return Vectors(self._as_universe(), name, dim, metric, tuple(indexes))

    async def refresh_texts(self, schemas: Sequence[str] | None) -> OwnVersions:
        """Bring the texts of rooms up to date for a search of some schemas, or of all.

        Returns texts that could not be stored, and count instead of the stored ones.
        """
        if not getattr(self.backend, "holds_rooms", True):
            return NONE_OWN  # the server does
        return await self._room_texts.prepare(self._unlimited(), self._builds, schemas)

    async def count(
        self, query: Query | None = None, *, as_of: AsOf = None, partial: bool = False, **filters: Any
    ) -> int:
        """Return how many records match; all of them without a query."""
        await self._ready()
        wanted = self.contracts.check(query_of(query, filters))
        return await self._source(partial).count(wanted, self.contracts, await seq_of(self.backend, as_of))

    async def values(
        self,
        schema: str | type,
        path: str,
        *,
        prefix: str | None = None,
        limit: int | None = None,
        as_of: AsOf = None,
        partial: bool = False,
        **filters: Any,
    ) -> Counts:
        """Return the distinct values at a path of records of a schema, in order, each with their number.

        `path` may end with `*`, for the items of lists. `prefix` is the beginning of the texts to return;
        filters are those of queries, as `where`. Without filters an index of the path answers.
        """
        await self._ready()
        name = schema if isinstance(schema, str) else self.schema_for(schema).name
        parsed = paths.text(paths.parse(path))
        return await self._tally(
            query_of(None, {"schema": name, **filters}), parsed, prefix, limit, as_of, partial
        )

    async def tags(
        self,
        schema: str | type | None = None,
        *,
        prefix: str | None = None,
        limit: int | None = None,
        as_of: AsOf = None,
        partial: bool = False,
        **filters: Any,
    ) -> Counts:
        """Return the tags of records, of one schema or of all, in order, each with the number of records."""
        await self._ready()
        name = schema if isinstance(schema, str | None) else self.schema_for(schema).name
        wanted = query_of(None, filters if name is None else {"schema": name, **filters})
        return await self._tally(wanted, None, prefix, limit, as_of, partial)

    async def _tally(
        self,
        query: Query,
        path: str | None,
        prefix: str | None,
        limit: int | None,
        as_of: AsOf,
        partial: bool,
    ) -> Counts:
        if prefix is not None and (not isinstance(prefix, str) or not codec.is_text(prefix)):
            raise InputError(f"prefix must be a text, not {prefix!r}", field="prefix")
        seq = await seq_of(self.backend, as_of)
        tally = Tally(self.contracts.check(query), path, prefix, check_limit(limit))
        return await self._source(partial).tally(tally, self.contracts, seq)

    # Named as in the protocol; inside this class the type is therefore `builtins.list`.
    async def list(
        self,
        prefix: str | None = None,
        *,
        after: datetime | None = None,
        limit: int | None = 100,
        partial: bool = False,
    ) -> builtins.list[Datum]:
        """Return raw records, newest first, whose id has a prefix and that were created after a time."""
        self._check()
        since = None if after is None else since_after(after)
        if since is None and after is not None:
            return []
        wanted = Query(prefix=prefix or None, since=since, limit=limit)
        return await self.query(wanted, raw=True, partial=partial)

    async def iterate(
        self,
        query: Query | None = None,
        *,
        as_of: AsOf = None,
        raw: bool = False,
        partial: bool = False,
        **filters: Any,
    ) -> AsyncIterator[Any]:
        """Yield every matching record as of one moment, however many, a page at a time.

        All of them unless the query, or `limit`, says how many.
        """
        await self._ready()
        query = query_of(query, {"limit": None, **filters} if query is None else filters)
        # What is at hand of an unavailable store is of no one moment.
        partial = partial or self._partial
        now = None if partial and self._as_universe().degraded is not None else await self.seq()
        seq = now if as_of is None else await seq_of(self.backend, as_of)
        left, start = check_query(query).limit, clock.now()
        page_query = query.replace(limit=PAGE if left is None else min(PAGE, left))
        while True:
            page = await self.page(page_query, as_of=seq, raw=raw, partial=partial)
            for found in page.items:
                if as_of is None and found.expires_at is not None and found.expires_at <= start:
                    continue  # others commit meanwhile, and at the time of `seq` it had not expired yet
                yield found
            left = None if left is None else left - len(page.items)
            if page.cursor is None or left == 0:
                return
            page_query = page_query.replace(
                cursor=page.cursor, offset=0, limit=PAGE if left is None else min(PAGE, left)
            )

    async def seq(self) -> int:
        """Return the newest commit's number."""
        self._check()
        return await self.backend.last_seq()
