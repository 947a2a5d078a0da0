"""A store as one tool call uses it: its commits have a key, and its records say what they came from.

It stands between a universe and its backend, as the gate does, so that no verb and no room has to know of it.
The first commit of a call has the key of the call, later ones have their number behind it: after a crash, the
store knows whether the call reached it.

A record says by its `source` what it came from. What is made of several records, as a block is of its
versions, gets an origin beside them: whoever reads it later finds out by its id (`find_origins`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from dgent.errors import InputError
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import Backend, Commit, Committed, Delete, Op, Page, Put, View
from dgent.store.search import SearchPage, SearchRequest
from dgent.universe.gate import TRUSTS, Gate

if TYPE_CHECKING:
    from dgent.universe.universe import Universe

ORIGIN = "dgent.origin"  # the schema of origins, and the beginning of their ids
Mark = Callable[[str | None], str | None]
"""Returns the source that a record is stored with, for the one that it was given."""


class Stamp:
    """A backend for one call at a trust: `mark` gives its records their source, `read` has what it read.

    `read` are sources of records, and ids of those that may have an origin beside them.
    """

    put_fresh = None  # a way around `commit`

    def __init__(self, inner: Backend, key: str | None, trust: str, mark: Mark | None) -> None:
        self.inner, self.key, self.trust, self.mark = inner, key, trust, mark
        self.read: tuple[set[str], set[str]] = set(), set()
        self._made = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def commit(self, commit: Commit, view: View) -> Committed:
        """Do all ops or none, under the key of the call unless the commit has one."""
        ops = commit.ops
        if self.mark is not None:
            ops = [_mark(op, self.mark) for op in ops]
            whole = dict.fromkeys(
                op.id.partition("/")[0] for op in ops if isinstance(op, Put) and "/" in op.id
            )
            ops += [Put(Datum(origin_id(id, self.trust), schema=ORIGIN, schema_version=1)) for id in whole]
        key = commit.key
        if key is None and self.key is not None:
            key = f"{self.key}/{self._made + 1}" if self._made else self.key
        done = await self.inner.commit(msgspec.structs.replace(commit, ops=ops, key=key), view)
        self._made += 1
        return msgspec.structs.replace(done, written=done.written[: len(commit.ops)])

    # -- reads, which are recorded ----------------------------------------------------------------

    def _note(self, datums: Iterable[Datum | None]) -> None:
        sources, ids = self.read
        for datum in datums:
            if datum is not None:
                if datum.source is not None:
                    sources.add(datum.source)
                if (datum.schema or "").startswith("message."):  # which have a trust of their own
                    sources.add(f"origin:{datum.data.get('trust', 'partner')}")
                ids.add(datum.id.partition("/")[0])

    async def get(self, id: str, as_of: int | None = None, lazy: bool = False) -> Datum | None:
        """Return a version."""
        found = await self.inner.get(id, as_of, lazy)
        self._note((found,))
        return found

    async def get_many(self, ids: Sequence[str], as_of: int | None = None) -> list[Datum | None]:
        """Return one answer for each id."""
        found = await self.inner.get_many(ids, as_of)
        self._note(found)
        return found

    async def query(self, query: Query, view: View, as_of: int | None = None) -> Page:
        """Return a page of records; lists of headers say nothing yet of what is in them."""
        page = await self.inner.query(query, view, as_of)
        if query.schema != "block.block":
            self._note(page.items)
        return page

    async def search(self, request: SearchRequest) -> SearchPage:
        """Return the best records."""
        page = await self.inner.search(request)
        self._note(each.datum for each in page.items)
        return page


def _mark(op: Op, mark: Mark) -> Op:
    if not isinstance(op, Put):
        return op
    return msgspec.structs.replace(op, datum=op.datum.replace(source=mark(op.datum.source)), raw=None)


def stamp_handle(universe: Universe, key: str | None, trust: str, mark: Mark | None) -> Universe:
    """Return a handle whose commits have a key, and whose records say what they came from."""
    if isinstance(universe.backend, Gate):
        raise InputError("this handle acts for a principal", hint="stamp the handle that it was made of")
    backend: Any = Stamp(universe.backend, key, trust, mark)
    return universe._twin(backend=backend)


# -- origins of what is made of several records ---------------------------------------------------


def origin_id(id: str, trust: str) -> str:
    """Return the id of the record which says that something was written to at a trust."""
    return f"{ORIGIN}/{trust}/{id}"


async def find_origins(universe: Universe, ids: Iterable[str]) -> dict[str, str]:
    """Return the lowest trust at which each of some things was written to; not those of partners alone."""
    wanted = [(id, trust) for id in ids for trust in TRUSTS[:0:-1]]
    found = await universe.get_many([origin_id(*each) for each in wanted], raw=True) if wanted else []
    lowest: dict[str, str] = {}
    for (id, trust), datum in zip(wanted, found, strict=True):
        if datum is not None:
            lowest.setdefault(id, trust)
    return lowest


async def drop_origins(universe: Universe, id: str) -> None:
    """Forget at which trust something was written to: somebody vouches for it as it is now."""
    await universe.commit([Delete(origin_id(id, trust)) for trust in TRUSTS[1:]], note=f"vouch for {id}")
