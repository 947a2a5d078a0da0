"""Statements on callers' own tables that a commit runs, and what each of them must change and answer.

A transaction reads tables long before it commits. So the commit runs these reads again, and compares the
hashes of their rows: another answer means that what the transaction decided rests on rows that have changed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from dgent.errors import Conflict, QueryError, TransactionConflict
from dgent.store.port.relational import is_broken_rule
from dgent.store.port.statement import Dialect, Params, Statement, bind, one

ATTACHED_S = 5.0  # for statements inside a commit, since every other writer of the store waits for them
_READS = ("select", "values", "with")
_WRITES = ("insert", "update", "delete", "replace", "with")
_SHOWN = 80  # characters of a statement in an error
_HASHES = 1 << 256

MARK = Statement("SAVEPOINT dgent_repeat", (), ("savepoint",))
"""Begins statements that a session ran and took back: what it read there is proven, what it wrote is not."""
BACK = Statement("ROLLBACK TO dgent_repeat; RELEASE dgent_repeat", (), ("rollback",))
"""Undoes everything since the last `MARK`."""


class RowHash:
    """The hash of an answer; without `ordered` its rows may come in any order.

    The columns `skipped` do not count: the database makes their values anew each time.
    """

    def __init__(self, ordered: bool, skipped: frozenset[int] = frozenset()) -> None:
        self.ordered, self._skipped = ordered, skipped
        self.count = self._sum = 0
        self._all = hashlib.blake2b(digest_size=32)

    def add(self, rows: Iterable[Sequence[Any]]) -> None:
        """Add rows as the driver gives them."""
        skipped = self._skipped
        for row in rows:
            values = [_plain(value) for at, value in enumerate(row) if at not in skipped]
            text = repr(values).encode("utf-8", "surrogatepass")
            self.count += 1
            if self.ordered:
                self._all.update(text)
            else:
                self._sum += int.from_bytes(hashlib.blake2b(text, digest_size=32).digest())

    def digest(self) -> bytes:
        """Return the hash of the rows so far, with their number."""
        hashed = self._all.digest() if self.ordered else (self._sum % _HASHES).to_bytes(32)
        return self.count.to_bytes(8) + hashed


class ExpectedAnswer(NamedTuple):
    """The rows that a statement must answer, as a hash, and how to hash them.

    The columns `json` were hashed as values; a driver that gives them as texts has to decode them first.
    """

    digest: bytes
    ordered: bool
    skipped: frozenset[int] = frozenset()
    json: frozenset[int] = frozenset()

    @property
    def length(self) -> int:
        """The number of rows."""
        return int.from_bytes(self.digest[:8])

    def hash(self) -> RowHash:
        """Return an empty hash of the same kind."""
        return RowHash(self.ordered, self.skipped)


class Repeat(NamedTuple):
    """A statement that a session ran and took back, once for each of `params`, for a commit to run again.

    Together they changed `rows` rows; None if nobody knows. `reads` if it writes nothing.
    """

    query: str | Statement
    params: Sequence[Params | None] = (None,)
    rows: int | None = None
    answer: ExpectedAnswer | None = None
    reads: bool = False


class BoundStatement(NamedTuple):
    """A statement with its parameters, checked: it runs inside a commit, after the records are written.

    It runs again for each of `more`. `rows` is how many rows it must change, None if any number will do;
    `repeats` if it ran before in a session, `reads` if it writes nothing.
    """

    statement: Statement
    params: Params | None
    rows: int | None = None
    answer: ExpectedAnswer | None = None
    more: Sequence[Params | None] = ()
    repeats: bool = False
    reads: bool = False

    @property
    def is_mark(self) -> bool:
        """True for a savepoint, or the end of one."""
        return self.statement is MARK or self.statement is BACK

    def check(self, changed: int, found: RowHash | None) -> None:
        """Raise TransactionConflict if it did not change or answer what it must."""
        if self.rows is not None and self.rows != changed:
            raise TransactionConflict(
                f"a statement of the commit changed {changed} rows, and {self.rows} were expected",
                hint="someone else changed them meanwhile, and nothing was done: run the transaction again",
            )
        if self.answer is not None and found is not None and self.answer.digest != found.digest():
            raise TransactionConflict(
                f"rows that this transaction read have changed since: {self.statement.sql[:_SHOWN]}",
                hint="run the transaction again; values that change by themselves, such as now() and"
                " random(), are given as parameters",
            )

    def explain(self, error: Exception) -> Exception:
        """Return the error to raise; a rule that only the second run breaks was broken by somebody else."""
        if self.repeats and isinstance(error, Conflict) and is_broken_rule(error):
            return TransactionConflict(str(error), hint="run the transaction again")
        return error


def check_attached(
    query: str, params: Params | None, dialect: Dialect, reads: bool = False
) -> BoundStatement:
    """Return a statement that a commit may run; raises QueryError unless it changes rows, or reads some."""
    statement = one(query, dialect)
    if statement.first not in (_READS if reads else _WRITES):
        raise QueryError(
            f"{statement.first.upper()} cannot be part of a transaction of the universe",
            hint="use INSERT, UPDATE or DELETE there, and storage.relational for the rest",
            field="query",
        )
    return BoundStatement(statement, bind(statement, params), reads=reads)


def split_reads(
    statements: Sequence[BoundStatement],
) -> tuple[Sequence[BoundStatement], Sequence[BoundStatement]]:
    """Return the reads that come before everything else, and the rest."""
    first = next((at for at, each in enumerate(statements) if not each.reads), len(statements))
    return statements[:first], statements[first:]


def has_reads(statements: Sequence[BoundStatement]) -> bool:
    """Return whether statements prove what a transaction read."""
    return any(each.answer is not None for each in statements)


def refuse_long() -> QueryError:
    """Return the error for a statement that held a commit for too long."""
    return QueryError(
        f"a statement in the commit took more than {ATTACHED_S:g} s, so nothing of it was done",
        hint="others wait for a commit: run what takes long with storage.relational",
        field="query",
    )


def _plain(value: object) -> object:
    """Return a value whose text shows all of it; that of a string of bits is cut."""
    bits = getattr(value, "as_string", None)
    return value if bits is None else bits()
