"""The caller's own vectors: numbers of one dimension under a name, each with metadata, found by nearness.

They are records like any other, of the schema `vector.<name>`: the metadata is their data, and the numbers
are their content. So history, undo, forgetting, exports and copies know them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from dgent import ids
from dgent.errors import InputError
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.model.vector import Metric, VectorSpec, check_spec
from dgent.store.backend import AsOf, Expect, Put
from dgent.store.engine.vector import require_numpy
from dgent.store.search import FoundVector
from dgent.universe.check import query_of
from dgent.universe.search import check_k

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from dgent.universe.universe import Universe

PREFIX = "vector."
BATCH = 10_000


class VectorRecord:
    """A stored vector: its id, its numbers, its metadata, and the record that holds them."""

    def __init__(self, datum: Datum) -> None:
        self.record = datum

    def __repr__(self) -> str:
        return f"{type(self).__name__}(id={self.id!r}, metadata={self.metadata!r})"

    @property
    def id(self) -> str:
        """The id of the record."""
        return self.record.id

    @property
    def metadata(self) -> Mapping[str, Any]:
        """The metadata that was stored with the vector."""
        return self.record.data

    @property
    def vector(self) -> NDArray[Any]:
        """The numbers, exactly as they were stored: a read-only array of 32-bit numbers."""
        from dgent.search.vectors import from_bytes

        return from_bytes(self.record.content)


class VectorHit(VectorRecord):
    """A vector that a search found.

    `score` is the cosine or the product of both vectors, or their distance below zero for `l2`: in each case
    the nearest has the greatest.
    """

    def __init__(self, found: FoundVector) -> None:
        super().__init__(found.datum)
        self.score = found.score

    def __repr__(self) -> str:
        return f"VectorHit(id={self.id!r}, score={self.score:.4f}, metadata={self.metadata!r})"


class VectorHits(list[VectorHit]):
    """Hits, nearest first; `building` while vectors wait to be indexed that the search could not look at."""

    building: bool = False


class Vectors:
    """The vectors under one name: `faces = u.vectors("faces", dim=512)`."""

    def __init__(
        self, universe: Universe, name: str, dim: int, metric: Metric, indexes: tuple[str, ...]
    ) -> None:
        require_numpy()
        self.name = ids.check_name(name, "name")
        self.spec: VectorSpec = check_spec(dim, metric)
        self.schema: Schema[Any] = Schema(PREFIX + name, indexes=indexes, vector=self.spec)
        self._universe = universe
        self._declared = False

    def __repr__(self) -> str:
        return f"<Vectors {self.name!r}: {self.spec.describe()}>"

    async def _ready(self) -> None:
        """Declare the vectors; raises SchemaError when the store has others under this name."""
        if not self._declared:
            await self._universe.declare_vectors(self.schema)
            self._declared = True

    # -- writing --------------------------------------------------------------------------

    async def add(
        self,
        vector: Any,
        id: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        tags: Iterable[str] = (),
        expect: Expect = None,
        note: str | None = None,
    ) -> str:
        """Store a vector and return its id; under an id that is there already, it takes that one's place.

        The numbers may be a list, a tuple or an array. NaN, infinity, another number of them, and zeros
        alone under the metric cosine raise InputError.
        """
        await self._ready()
        op = Put(self._datum(vector, id, metadata, tags), expect)
        done = await self._universe.commit([op], note=note)
        return done.written[0].id or op.id

    async def add_many(
        self,
        vectors: Any,
        ids: Sequence[str] | None = None,
        metadata: Sequence[Mapping[str, Any] | None] | None = None,
        *,
        tags: Iterable[str] = (),
        note: str | None = None,
    ) -> list[str]:
        """Store many vectors and return their ids; all are checked before the first is stored.

        `vectors` is a list of vectors or a matrix. They are stored in commits of up to 10,000.
        """
        await self._ready()
        count = len(vectors)
        for field, given in (("ids", ids), ("metadata", metadata)):
            if given is not None and len(given) != count:
                raise InputError(f"there are {count} vectors and {len(given)} {field}", field=field)
        shared = frozenset(tags)
        ops = [
            Put(
                self._datum(
                    vector,
                    None if ids is None else ids[at],
                    None if metadata is None else metadata[at],
                    shared,
                    f"vectors[{at}]",
                )
            )
            for at, vector in enumerate(vectors)
        ]
        for start in range(0, count, BATCH):
            await self._universe.commit(ops[start : start + BATCH], note=note)
        return [op.id for op in ops]

    def _datum(
        self,
        vector: Any,
        id: str | None,
        metadata: Mapping[str, Any] | None,
        tags: Iterable[str],
        field: str = "vector",
    ) -> Datum:
        from dgent.search.vectors import check_direction, read_vector

        made = read_vector(vector, self.spec.dim, field)
        check_direction(made, self.spec.metric, field)
        if metadata is not None and not isinstance(metadata, Mapping):
            raise InputError(f"metadata must be a dict, not {type(metadata).__name__}", field="metadata")
        return Datum(
            ids.new_id() if id is None else id,
            data=dict(metadata or {}),
            content=made.tobytes(),
            tags=frozenset((tags,)) if isinstance(tags, str) else frozenset(tags),
            schema=self.schema.name,
            schema_version=self.schema.version,
        )

    async def delete(self, id: str, *, expect: Expect = None, note: str | None = None) -> bool:
        """Delete a vector; False when there was none. `u.undo` brings it back, `u.forget` erases it."""
        await self._ready()
        if await self.get(id) is None:
            return False
        return await self._universe.delete(id, expect=expect, note=note)

    # -- reading --------------------------------------------------------------------------

    async def get(self, id: str, *, as_of: AsOf = None) -> VectorRecord | None:
        """Return one vector; None when there is none under this id and name."""
        await self._ready()
        found = await self._universe.get(id, as_of=as_of, raw=True)
        return None if found is None or found.schema != self.schema.name else VectorRecord(found)

    async def count(self, query: Query | None = None, **filters: Any) -> int:
        """Return how many vectors there are, or how many match: `faces.count(where={"who": "ann"})`."""
        await self._ready()
        return await self._universe.count(self._query(query, filters))

    async def search(
        self,
        vector: Any,
        k: int = 10,
        query: Query | None = None,
        *,
        as_of: AsOf = None,
        **filters: Any,
    ) -> VectorHits:
        """Return the nearest vectors; a query or filters (`where`, `tags`, `author`, …) narrow them.

        The filter comes first: the answer is the nearest of those that match, however few they are. `as_of`
        looks back: the vectors and metadata of then are compared.
        """
        from dgent.search.vectors import check_direction, read_vector

        await self._ready()
        made = read_vector(vector, self.spec.dim)
        check_direction(made, self.spec.metric)
        wanted = self._query(query, filters)
        found = await self._universe.search_vectors(made.tobytes(), wanted, check_k(k), as_of=as_of)
        hits = VectorHits(map(VectorHit, found.items))
        hits.building = found.building
        return hits

    def _query(self, query: Query | None, filters: dict[str, Any]) -> Query:
        asked = query_of(query, filters)
        if asked.schema not in (None, self.schema.name):
            raise InputError(
                f"{self.name!r} holds {self.schema.name!r}, not {asked.schema!r}", field="schema"
            )
        return asked.replace(schema=self.schema.name)
