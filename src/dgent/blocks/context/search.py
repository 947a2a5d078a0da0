"""Search in blocks and archival entries: what an agent may see of both, ranked as one.

The words are found by the store. Its texts of blocks are brought up to date by every search, so they are as
the blocks are now; what the agent may see is a filter that is worked out for each search.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from dgent.blocks.access.actor import BlockScope, find_scope
from dgent.blocks.record import ENTRY, TEXT
from dgent.errors import InputError
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.search.snippet import make_snippet
from dgent.search.wanted import Wanted
from dgent.universe import search
from dgent.universe.gate import Principal
from dgent.universe.universe import Universe

WIDTH = 240  # characters of a passage


@dataclass(frozen=True)
class Hit:
    """A search result. `score` is 1 for the best; `marks` are the places of the words in the snippet.

    `origin` is the trust of those whose words it has, empty for a partner.
    """

    kind: str
    id: str
    owner: str
    label: str
    score: float
    snippet: str
    marks: tuple[tuple[int, int], ...] = ()
    origin: str = ""


@dataclass(frozen=True)
class SearchFilter:
    """The blocks and entries that an agent searches."""

    agent: str
    kind: str | None
    owner: str | None
    tags: frozenset[str]

    @property
    def schemas(self) -> list[str]:
        """The schemas of the records that can match."""
        blocks = [TEXT.name] if self.kind != "entry" and not self.tags else []
        return [*blocks, ENTRY.name] if self.kind in (None, "entry") else blocks

    def allow(self, scope: BlockScope) -> Callable[[Datum], bool]:
        """Return the test whether a record is wanted, and one that the agent may see."""

        def is_wanted(datum: Datum) -> bool:
            schema, data = datum.schema or "", datum.data
            is_entry = schema == ENTRY.name
            owner = data.get("agent" if is_entry else "owner")
            fits = self.owner in (None, owner) and (is_entry or self.kind in (None, data.get("kind")))
            return fits and scope.sees(datum.id, schema, datum)

        return is_wanted


class BlockSearch:
    """The search of a library, with what its agent may see, until anything is committed."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._scope: tuple[tuple[str, int], BlockScope] | None = None

    async def find(self, text: str, wanted: SearchFilter, limit: int) -> list[Hit]:
        """Return the best hits."""
        if type(limit) is not int or limit < 1:
            raise InputError(f"expected a number from 1 for limit, got {limit!r}", field="limit")
        words = search.parse(text)
        if not words or not wanted.schemas:
            return []
        scope = await self._find_scope(wanted.agent)
        query = Query(tags=wanted.tags, allow=wanted.allow(scope))
        most = min(limit, search.MAX_K)
        found = await self._universe.search_among(wanted.schemas, text, query, most, partial=True)
        now = await self._find_scope(wanted.agent)
        seen = found if now is scope else [each for each in found if wanted.allow(now)(each.datum)]
        return [_make_hit(each, words) for each in seen]

    async def _find_scope(self, agent: str) -> BlockScope:
        if self._universe.degraded is not None:
            return await find_scope(self._universe, Principal(agent, "friend"))
        now = agent, await self._universe.present().seq()
        if self._scope is None or self._scope[0] != now:
            self._scope = now, await find_scope(self._universe, Principal(agent, "friend"))
        return self._scope[1]


def _make_hit(found: search.RecordHit[Any], words: Wanted) -> Hit:
    data = found.datum.data
    passage = make_snippet(str(data.get("text", "")), words, width=WIDTH)
    if found.datum.schema == ENTRY.name:
        kind, id, owner, label = "entry", found.id, str(data.get("agent", "")), ""
    else:
        kind, owner, label = (str(data.get(name, "")) for name in ("kind", "owner", "label"))
        id = found.id.partition("/")[0]
    origin = "" if found.origin == "partner" else found.origin
    return Hit(kind, id, owner, label, round(found.score, 4), passage.text, passage.marks, origin)
