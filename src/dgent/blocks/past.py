"""The past of a block: its folded versions, in pages.

A page has what each of its versions says and its update. Some have the state after the last of them, so that
an old version is built from the last state before it and the few updates since.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from dgent.blocks import errors
from dgent.blocks.document import Document
from dgent.blocks.page import Page, unpack
from dgent.blocks.record import PAGE, PageRecord
from dgent.blocks.version import Version
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.universe.universe import Universe


def readable(found: Any, id: str) -> Crystal[Any] | None:
    """A record of a block, None when there is none; DocumentCorrupt when it cannot be read."""
    if found is None or isinstance(found, Crystal):
        return found
    raise errors.DocumentCorrupt(f"the record {id!r} cannot be read: {found.problem}", id=id)


class Past:
    """The pages of one block."""

    def __init__(self, universe: Universe, block: str) -> None:
        self._universe, self._block = universe, block

    async def versions(self) -> list[Version]:
        """Every folded version, oldest first."""
        found: list[Version] = []
        for each in await self.records():
            found += self.read(each).versions
        return found

    async def find(self, number: int) -> Version | None:
        """One folded version; None when it is in no page."""
        for each in await self.records():
            if each.value.first <= number <= each.value.last:
                return self.read(each).versions[number - each.value.first]
        return None

    async def at(self, version: Version) -> Document:
        """The document as it was at a version: the last state before it, and the updates since."""
        if version.compacted:
            raise errors.VersionNotFound(
                f"version {version.number} was compacted: what it held is gone",
                hint="history tells who did what; versions with a checkpoint are kept",
                version=version.number,
            )
        try:
            return built(map(self.read, await self._needed(version.number)), version.number)
        except errors.DocumentCorrupt:
            return built(map(self.read, await self.records()), version.number)

    async def _needed(self, number: int) -> list[Crystal[PageRecord]]:
        """The pages that a version is built from."""
        query = Query(schema=PAGE.name, prefix=f"{self._block}/p/", limit=None, content=False)
        while True:
            listed = [each for each in await self._listed(query) if each.value.first <= number]
            states = [place for place, each in enumerate(listed) if each.value.state]
            start = max((place for place in states if listed[place].value.last <= number), default=0)
            ids = [each.id for each in listed[start:]]
            read = [*map(readable, await self._universe.get_many(ids), ids)]
            found = [each for each in read if each is not None]
            if len(found) == len(ids):  # else they were rewritten meanwhile
                return found

    async def records(self) -> list[Crystal[PageRecord]]:
        """The pages as they are stored, oldest first."""
        return await self._listed(Query(schema=PAGE.name, prefix=f"{self._block}/p/", limit=None))

    async def _listed(self, query: Query) -> list[Crystal[PageRecord]]:
        read = [readable(each, each.id) for each in await self._universe.query(query)]
        found = [each for each in read if each is not None]
        return sorted(found, key=lambda page: page.value.first)

    async def newest(self, count: int) -> list[Crystal[PageRecord]]:
        """The newest pages, without what they hold."""
        query = Query(schema=PAGE.name, prefix=f"{self._block}/p/", limit=count, content=False)
        return await self._universe.recall(query)

    def read(self, record: Crystal[PageRecord]) -> Page:
        """What a page holds."""
        return unpack(self._block, record.value.first, record.value.last, record.datum.content)


def built(pages: Iterable[Page], number: int) -> Document:
    """The document of a version, from some pages, oldest first.

    An update that was made beside a state builds on what came before it: then an older state must do.
    """
    updates: list[bytes] = []
    states: list[tuple[bytes, int]] = [(b"", 0)]  # and how many updates each of them has in it
    for page in pages:
        first, last = page.versions[0].number, page.versions[-1].number
        if first > number:
            break
        if number in page.kept:
            return Document.load(page.kept[number])
        updates += page.updates[: number - first + 1]
        if page.state and last <= number:
            states.append((page.state, len(updates)))
    for state, known in states[:0:-1]:
        try:
            return Document.load(state, updates[known:])
        except errors.DocumentCorrupt:
            continue
    return Document.load(b"", updates)
