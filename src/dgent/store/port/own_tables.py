"""The caller's own tables as a whole, for copies and inspections."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

EMPTY = "0:"
"""The digest of a table without rows begins so."""


class OwnTables(Protocol):
    """The own tables of one store; those of two stores of one engine can be copied."""

    async def names(self) -> list[str]:
        """Return the names of the tables; makes nothing where there are none."""
        ...

    async def digest(self, name: str) -> str:
        """Return the number of rows of a table and a hash of them: `12:ab3f…`."""
        ...

    async def shape(self) -> str:
        """Return a hash of all definitions that a copy brings: tables, indexes, views and the like."""
        ...

    async def copy_from(self, source: Any, replaced: Sequence[str]) -> tuple[dict[str, str], list[str]]:
        """Copy all tables of a store of the same engine, in one transaction.

        The tables in `replaced` are dropped first. Returns the digests of the copied tables by their names,
        before anybody else could change them, and what was left out.
        """
        ...

    async def find_broken(self) -> list[str]:
        """Return a sentence for each table with rows that refer to rows that are not there."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


def quote(name: str) -> str:
    """Return a name as it is written in SQL."""
    return '"' + name.replace('"', '""') + '"'
