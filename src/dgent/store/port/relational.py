"""The relational port: SQL over the caller's own tables, in the database that holds the store."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

from dgent.errors import Conflict, Denied, InputError
from dgent.store.port.statement import Dialect, Params

RESERVED = "dgent_"
"""Names that begin so are for tables of later versions of dgent."""

Row = dict[str, Any]


class Answer(NamedTuple):
    """All that a statement answers: names of columns, rows, how many it changed, and the last row's number.

    `names` is empty for a statement that gives no rows.
    """

    names: Sequence[str]
    rows: list[Any]
    changed: int
    last_id: int


class SQLRunner(Protocol):
    """Runs statements: a relational store, or a transaction of one."""

    async def execute(self, query: str, params: Params | None = None) -> int:
        """Run one statement, or several in one transaction, and return how many rows the last one changed."""
        ...

    async def execute_many(self, query: str, rows: Sequence[Params]) -> int:
        """Run one statement for each row of parameters, all or none; returns how many rows were given."""
        ...

    async def fetch_all(self, query: str, params: Params | None = None) -> list[Row]:
        """Return the rows of one statement, each as a dict by column."""
        ...

    async def fetch_one(self, query: str, params: Params | None = None) -> Row | None:
        """Return the first row of one statement; None when there is none."""
        ...


USUAL: Any = object()
"""The answer of a call that must not wait, and would have to: it goes the usual way."""


@runtime_checkable
class IRelationalStore(SQLRunner, Protocol):
    """The caller's own tables. Parameters are written `:name` and given by name.

    Tables of dgent itself cannot be read or written through it.
    """

    @property
    def dialect(self) -> Dialect:
        """The dialect of SQL."""
        ...

    def transaction(self) -> AbstractAsyncContextManager[SQLRunner]:
        """Run what is done inside in one transaction; an error inside undoes all of it.

        Statements of the store itself, run in the same task, are part of it.
        """
        ...

    def limit_to_reads(self) -> IRelationalStore:
        """Return a handle on the same tables that only reads."""
        ...

    async def close(self) -> None:
        """Close the store; statements under way end first."""
        ...


Isolation = Literal["READ COMMITTED", "SERIALIZABLE", "AUTOCOMMIT"]


class SQLSession(Protocol):
    """The statements of one connection, for a driver of SQL: a transaction ends by a call, not with a block.

    With `READ COMMITTED` a statement that only reads sees the newest commit, until the first one that
    writes begins the transaction. With `SERIALIZABLE` the first statement begins it, and nobody else writes
    until it ends. With `AUTOCOMMIT` each statement is a transaction.
    """

    isolation: Isolation

    @property
    def is_open(self) -> bool:
        """True while a transaction is open."""
        ...

    @property
    def own_names(self) -> frozenset[str]:
        """The names of dgent's own tables, in lower case."""
        ...

    async def run(self, query: str, params: Params | None = None) -> Answer:
        """Run one statement; the first one that writes begins a transaction."""
        ...

    async def run_many(self, query: str, rows: Sequence[Params]) -> int:
        """Run one statement for each row of parameters and return how many rows they changed."""
        ...

    async def mark(self, step: Literal["SAVEPOINT", "RELEASE", "ROLLBACK TO"], name: str) -> None:
        """Make, release or go back to a savepoint; the first one begins a transaction."""
        ...

    async def commit(self) -> None:
        """Commit the transaction, if one is open."""
        ...

    def rollback(self) -> None:
        """Undo the transaction, if one is open; waits for nothing."""
        ...


def row_maker(names: Sequence[str]) -> Sequence[str]:
    """Return the names of columns, if each is there once: a dict could not hold the others."""
    if len(set(names)) != len(names):
        double = next(name for at, name in enumerate(names) if name in names[:at])
        raise InputError(
            f"two columns of the answer are called {double!r}",
            hint="give one another name with AS",
            field=double,
        )
    return names


def refuse_row(message: str) -> Conflict:
    """Return the error for a row that would break a rule of its table."""
    return Conflict(message, hint="another row has it, or a rule of the table forbids it", rule=True)


def is_broken_rule(error: Conflict) -> bool:
    """Return whether an error is of a row that would break a rule of its table."""
    return bool(error.details.get("rule"))


def refuse_write() -> Denied:
    """Return the error for a statement that would change something on a handle that only reads."""
    return Denied("this handle only reads", hint="use the store itself, as a partner may")
