"""The answers of a search: records with a score, and the passage that shows why."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

from dgent import clock
from dgent.errors import InputError
from dgent.model.crystal import Crystal
from dgent.model.datum import Datum
from dgent.model.path import EVERY
from dgent.model.query import Query
from dgent.search.record import count_record
from dgent.search.snippet import Snippet, choose_snippet
from dgent.search.wanted import Wanted, parse_search
from dgent.store.search import Found, SearchPage
from dgent.universe.contract import Contracts, date_source
from dgent.universe.gate import Trust
from dgent.universe.origin import find_origins

if TYPE_CHECKING:
    from dgent.universe.universe import Universe

T = TypeVar("T")

FOLD_AT = 256  # so many records are written before their texts are indexed in the background
MAX_K = 1_000


class RecordHit(Generic[T]):
    """A record that a search found.

    `score` is 1 for the best one, `parts` says how much of it comes from each word. `origin` is the trust of
    those whose words the record was made from.
    """

    origin: Trust = "partner"

    def __init__(
        self, found: Found, score: float, parts: dict[str, float], contracts: Contracts, wanted: Wanted
    ) -> None:
        self.score, self.parts = score, parts
        self._found, self._contracts, self._wanted = found, contracts, wanted

    def __repr__(self) -> str:
        return f"RecordHit(id={self.id!r}, score={self.score:.3f}, snippet={self.snippet!r})"

    # The typed value and the passage are made when somebody looks: both take as long as finding the record.

    @cached_property
    def record(self) -> Crystal[T] | Datum:
        """The record as a typed value, or raw where this program cannot read it."""
        return self._contracts.lenient(self._found.datum)

    @cached_property
    def _passage(self) -> Snippet:
        return choose_snippet(self._found.texts, self._wanted)

    @property
    def snippet(self) -> str:
        """The passage that fits the words best."""
        return self._passage.text

    @property
    def marks(self) -> tuple[tuple[int, int], ...]:
        """The places of the words in the snippet: start and end of each."""
        return self._passage.marks

    @property
    def id(self) -> str:
        """The id of the record."""
        return self._found.datum.id

    @property
    def datum(self) -> Datum:
        """The record as it is stored."""
        return self.record if isinstance(self.record, Datum) else self.record.datum

    @property
    def value(self) -> T:
        """The value of the record; its data, if its schema is not known here."""
        if not isinstance(self.record, Datum):
            return self.record.value
        if self.record.problem is not None:
            raise InputError(f"{self.record.id!r} is not a typed value here", hint="use hit.record")
        return cast(T, self.record.data)


class Hits(list[RecordHit[T]]):
    """Hits, best first; `building` while an index is built, so that the search looks at some records only.

    `cut` says that the text had more words than a search takes. `partial`: the store is unavailable, and
    these come from the local copy. `legs` are those that have answered, `text` and `meaning`; `note` says why
    the other has not.
    """

    building: bool = False
    cut: bool = False
    partial: bool = False
    legs: tuple[str, ...] = ("text",)
    note: str = ""


def parse(text: str) -> Wanted:
    """Return what a text asks for."""
    if not isinstance(text, str):
        raise InputError(f"search takes a text, not {type(text).__name__}", field="text")
    return parse_search(text)


def check_k(k: int) -> int:
    """Return how many hits are asked for."""
    if type(k) is not int or not 1 <= k <= MAX_K:
        raise InputError(f"k is {k!r}", hint=f"a whole number from 1 to {MAX_K}", field="k")
    return k


def guard_query(contracts: Contracts, query: Query, wanted: Wanted, schemas: Collection[str]) -> Query:
    """Return a query for the records that can be hits of a search, whatever else is stored.

    A transaction conflicts with commits whose records match it.
    """
    searched, before = frozenset(schemas), query.allow

    def can_be_hit(datum: Datum) -> bool:
        return (
            (datum.schema or "") in searched
            and (before is None or before(datum))
            and _has_words(contracts, wanted, datum)
        )

    return query.replace(limit=None, offset=0, allow=can_be_hit)


def _has_words(contracts: Contracts, wanted: Wanted, datum: Datum) -> bool:
    """Check whether a record has one of the words; True where this program cannot tell."""
    created_us = clock.to_us(datum.created_at)
    schema = contracts.by_name(datum.schema)
    if datum.schema is None:
        words = count_record(((EVERY, 1),), "", datum.data, created_us).codes
    elif schema is None or not schema.text or schema.thread is not None:
        return True  # in a thread it may be a hit by the words of others
    else:
        data = datum.data if datum.schema_version == schema.version else contracts.upgrade(datum)
        if data is None:
            return True
        words = count_record(tuple(schema.text.items()), date_source(schema), data, created_us).codes
    if any(word in words for word in wanted.words):
        return True
    return any(prefix.fits(word) for prefix in wanted.prefixes for word in words)


async def make_hits(universe: Universe, contracts: Contracts, wanted: Wanted, found: SearchPage) -> Hits[Any]:
    """Return what a search found, as the caller reads it."""
    origins = await find_origins(universe, [each.datum for each in found.items])
    best = found.items[0].score if found.items else 0.0
    hits: Hits[Any] = Hits(_make_hit(contracts, wanted, each, best) for each in found.items)
    for hit, origin in zip(hits, origins, strict=True):
        if origin != "partner":
            hit.origin = origin
    hits.building, hits.cut, hits.partial = found.building, wanted.cut, found.partial
    return hits


def _make_hit(contracts: Contracts, wanted: Wanted, found: Found, best: float) -> RecordHit[Any]:
    parts = {word: part / best for word, part in found.parts.items()} if best else {}
    score = found.score / best if best else 1.0  # all are as good as the best one
    return RecordHit(found, score, parts, contracts, wanted)
