"""Application tables that a universe knows: other stores of datums, whose causes its chains follow."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from dgent.errors import InputError, NotFound
from dgent.model.datum import Datum

if TYPE_CHECKING:
    from dgent.store.backend import Backend


@runtime_checkable
class TableStore(Protocol):
    """A table as a store of datums: `dgent.tables.TableAdapter` is one."""

    @property
    def table_name(self) -> str:
        """The name of the table."""
        ...

    async def get(self, id: str) -> Datum | None:
        """Return a row as a datum; None when there is none."""
        ...

    async def causal_chain(self, id: str, *, limit: int | None = ...) -> Sequence[Datum]:
        """Return a row and its causes in the same table, oldest first."""
        ...


class Adapters:
    """The tables of a universe by name: `u.adapters.register(TableAdapter(Note, place.sessions))`."""

    def __init__(self) -> None:
        self._by_name: dict[str, TableStore] = {}

    def register(self, adapter: TableStore, name: str | None = None) -> None:
        """Add a table under its name, or another one; it replaces what was there."""
        if not isinstance(adapter, TableStore):
            raise InputError(
                f"{type(adapter).__name__} is not an adapter of a table",
                hint="give a dgent.tables.TableAdapter",
                field="adapter",
            )
        self._by_name[adapter.table_name if name is None else name] = adapter

    def remove(self, name: str) -> None:
        """Forget a table; it stays as it is."""
        self.get(name)
        del self._by_name[name]

    def get(self, name: str) -> TableStore:
        """Return the table of a name; raises NotFound naming those there are."""
        try:
            return self._by_name[name]
        except KeyError:
            known = ", ".join(self._by_name) or "none"
            raise NotFound(
                f"no table {name!r} is registered here (registered: {known})",
                hint="use u.adapters.register(adapter)",
            ) from None

    def __iter__(self) -> Iterator[str]:
        return iter(tuple(self._by_name))

    def __len__(self) -> int:
        return len(self._by_name)


async def follow_chain(adapters: Adapters, source: Backend, id: str, most: int) -> list[Datum]:
    """Return a record or row and its causes, nearest first, through records and tables; a cycle ends it."""
    found: list[Datum] = []
    seen: set[tuple[str | None, str]] = set()
    at: str | None = id
    while at is not None and len(found) < most:
        part: list[Datum] = await source.ancestors(at, most - len(found))
        home: str | None = None
        if not part:
            for home in adapters:
                part = [*reversed(await _chain_of(adapters.get(home), at, most - len(found)))]
                if part:
                    break
        new = []
        for datum in part:
            if (home, datum.id) in seen:
                break
            seen.add((home, datum.id))
            new.append(datum)
        found += new
        at = new[-1].parent_id if new and len(new) == len(part) else None
    return found


async def _chain_of(adapter: TableStore, id: str, limit: int) -> Sequence[Any]:
    try:
        return await adapter.causal_chain(id, limit=limit)
    except InputError:  # the ids of this table are of another kind
        return []
