"""Requests and answers of searches by words and by vectors."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeAlias, overload

import msgspec

from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.vector import VectorSpec
from dgent.search.wanted import Wanted

if TYPE_CHECKING:
    from dgent.store.backend import View


class LazyTexts(Sequence[str]):
    """Texts that are listed when somebody looks: hardly anybody looks at the passages of all hits."""

    def __init__(self, find: Callable[[], list[str]]) -> None:
        self._find = find

    @cached_property
    def _texts(self) -> list[str]:
        return self._find()

    def __len__(self) -> int:
        return len(self._texts)

    def __iter__(self) -> Iterator[str]:
        return iter(self._texts)

    @overload
    def __getitem__(self, place: int) -> str: ...
    @overload
    def __getitem__(self, place: slice) -> list[str]: ...
    def __getitem__(self, place: int | slice) -> str | list[str]:
        return self._texts[place]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and self._texts == [*other]

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return repr(self._texts)


class Found(msgspec.Struct, frozen=True):
    """A record that a search found, its score, the part of each word in that, and the texts it searched."""

    datum: Datum
    score: float
    parts: dict[str, float]
    texts: Sequence[str]


class SearchPage(msgspec.Struct, frozen=True):
    """The best records of a search; `building` while too many wait to be indexed to look at all.

    `behind` are the schemas of which enough wait that `fill` would index them, `schemas` all that were
    searched. `partial` as for a Page. `seq` is the moment of the search, where the engine says it.
    """

    items: list[Found]
    building: bool = False
    behind: list[str] = []
    schemas: list[str] = []
    partial: bool = False
    seq: int | None = None


OwnVersions: TypeAlias = Mapping[str, Datum | None]
"""Versions of records by id that only the caller knows yet; None for one that it has deleted."""

NONE_OWN: OwnVersions = MappingProxyType({})


class SearchRequest(msgspec.Struct, frozen=True):
    """A search by words: what to find, among which records, and how many of the best.

    Only records of the schemas `among` are searched; of all for None. The caller's `own` versions, which
    need not be stored, count instead of the stored ones.
    """

    wanted: Wanted
    query: Query
    view: View
    limit: int
    as_of: int | None = None
    own: OwnVersions = NONE_OWN
    among: Sequence[str] | None = None

    @property
    def schemas(self) -> Sequence[str] | None:
        """The names of the schemas to search; None for all."""
        return self.among if self.query.schema is None else (self.query.schema,)


class FoundVector(msgspec.Struct, frozen=True):
    """A record that a search for near vectors found, and its score: the greater, the nearer."""

    datum: Datum
    score: float


class VectorPage(msgspec.Struct, frozen=True):
    """The nearest records of a search, the nearest first; `building` and `behind` as for a SearchPage."""

    items: list[FoundVector]
    building: bool = False
    behind: bool = False


class WaitingVector(msgspec.Struct, frozen=True):
    """A version that waits for a model to make its vector.

    `key` is its place in the order of those that wait. `digest` identifies what the stored vector of its
    record was made from; empty if there is none.
    """

    key: bytes
    record_key: int
    datum: Datum
    digest: bytes


class GivenVector(msgspec.Struct, frozen=True):
    """The vector that a model made of a waiting version; None if the stored one is that of this version too.

    `key`, `record_key` and `rev` are those of the version, `digest` identifies what the vector was made from;
    it is empty for a version without texts, which has no vector.
    """

    key: bytes
    record_key: int
    rev: int
    digest: bytes
    vector: bytes | None  # as 32-bit numbers


class EmbeddedSchema(msgspec.Struct, frozen=True):
    """A schema whose texts a model embeds: which ones, in the shape of which version, and how far that is.

    `vectors` is how many records have one, `waiting` how many versions wait; while it is `building`, old
    records are yet to be noted as waiting.
    """

    name: str
    version: int
    spec: VectorSpec
    vectors: int
    waiting: int
    building: bool = False

    @property
    def complete(self) -> bool:
        """True if the newest version of each record is embedded."""
        return not self.waiting and not self.building
