"""Backends that give records their origin: for principals, and for one tool call.

They stand between a universe and its backend, as the gate does, so that no verb and no room has to know of
them. `universe/origin.py` has what a record says of its origin, and who finds out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from dgent.errors import HistoryGone, InputError, Unavailable
from dgent.model import reserved
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.store.backend import NEW, Backend, Commit, Committed, Op, Page, Put, View
from dgent.store.search import SearchPage, SearchRequest
from dgent.universe.gate import Gate, Trust
from dgent.universe.origin import (
    ORIGIN,
    find_marks,
    lower_source,
    lowest_trust,
    mark_id,
    read_origin,
    read_source,
    whole_of,
)

if TYPE_CHECKING:
    from dgent.universe.universe import Universe


class Stamp:
    """A backend whose records are of a trust, and came from a place.

    `raises` says whether a record that is written again may claim more trust than its stored version does.
    """

    put_fresh = None  # a way around `commit`

    def __init__(self, inner: Backend, trust: str, place: str = "", *, raises: bool = False) -> None:
        self.inner, self.trust, self.place, self.raises = inner, trust, place, raises

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    async def commit(self, commit: Commit, view: View) -> Committed:
        """Do all ops or none; each record says what it came from."""
        ops = await self._keep_marks(commit)
        if self.trust != "partner":
            ops = [_set_source(op, lower_source(_source(op), self.trust, self.place)) for op in ops]
            parts = [op.datum for op in ops if isinstance(op, Put) and op.datum.schema in reserved.WHOLES]
            ops += [
                Put(Datum(mark_id(id, self.trust), schema=ORIGIN, schema_version=1))
                for id in dict.fromkeys(map(whole_of, parts))
                if id is not None
            ]
        done = await self.inner.commit(msgspec.structs.replace(commit, ops=ops), view)
        return msgspec.structs.replace(done, written=done.written[: len(commit.ops)])

    async def _keep_marks(self, commit: Commit) -> list[Op]:
        """Return ops by which no record claims more trust than its stored version does."""
        ops = commit.ops
        ids = [op.id for op in ops if isinstance(op, Put) and op.expect not in (0, NEW)]
        if self.raises or not ids:
            return list(ops)
        try:
            # A key that was used before is for the same ops, which had the marks of that time.
            done = None if commit.key is None else await self.inner.outcome(commit.key)
            stored = await self.inner.get_many(ids, done.seq - 1 if done and done.seq else None)
        except (Unavailable, HistoryGone):
            stored = await getattr(self.inner, "at_hand", self.inner).get_many(ids)
        sources = {each.id: each.source for each in stored if each is not None}
        return [_keep_mark(op, sources.get(op.id)) for op in ops]


def _source(op: Op) -> str | None:
    return op.datum.source if isinstance(op, Put) else None


def _set_source(op: Op, source: str | None) -> Op:
    if not isinstance(op, Put) or op.datum.source == source:
        return op
    return msgspec.structs.replace(op, datum=op.datum.replace(source=source), raw=None)


def _keep_mark(op: Op, stored: str | None) -> Op:
    trust, place = read_source(stored)
    return op if trust == "partner" else _set_source(op, lower_source(_source(op), trust, place))


def lower_handle(universe: Universe, trust: str) -> Universe:
    """Return a handle that writes for somebody of a trust: it ends no mark, and a stranger's words get one.

    A friend writes in its own name, which is mark enough. A handle with a stamp is returned as it is.
    """
    if trust == "partner" or universe.past is not None or isinstance(universe.backend, Gate | Stamp):
        return universe
    backend: Any = Stamp(universe.backend, "partner" if trust == "friend" else trust)
    return universe._twin(backend=backend)


class CallStamp(Stamp):
    """The backend of one tool call: its commits have a key, and the origins of what it reads are recorded.

    The first commit has the key of the call, later ones have their number behind it: after a crash, the store
    knows whether the call reached it.
    """

    def __init__(self, inner: Backend, key: str | None, trust: str, place: str = "") -> None:
        super().__init__(inner, trust, place, raises=trust == "partner")
        self.key = key
        self._read: Trust = "partner"
        self._wholes: set[str] = set()
        self._made = 0

    async def commit(self, commit: Commit, view: View) -> Committed:
        """Do all ops or none, under the key of the call unless the commit has one."""
        if commit.key is None and self.key is not None:
            key = f"{self.key}/{self._made + 1}" if self._made else self.key
            commit = msgspec.structs.replace(commit, key=key)
        done = await super().commit(commit, view)
        self._made += 1
        return done

    async def find_read(self, universe: Universe) -> Trust:
        """Return the lowest class of origin of all that was read."""
        return lowest_trust(self._read, *(await find_marks(universe, self._wholes)).values())

    def _note(self, datums: Iterable[Datum | None]) -> None:
        for datum in datums:
            if datum is None:
                continue
            if (whole := whole_of(datum)) is not None:
                self._wholes.add(whole)
            else:
                self._read = lowest_trust(self._read, read_origin(datum))

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


def stamp_handle(universe: Universe, key: str | None, trust: str, place: str = "") -> Universe:
    """Return a handle for one tool call at a trust, made for somebody at a place."""
    if isinstance(universe.backend, Gate):
        raise InputError("this handle acts for a principal", hint="stamp the handle that it was made of")
    backend: Any = CallStamp(universe.backend, key, trust, place)
    return universe._twin(backend=backend)
