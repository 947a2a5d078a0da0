"""Numbers and layouts that pages state are those of the code."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import apsw
import pytest

import dgent
from dgent import codec, ids
from dgent.model import order, where
from dgent.store.engine import kernel, prune, row, versions
from dgent.store.postgres import address, job, listen, pool
from dgent.store.postgres import format as postgres
from dgent.store.postgres import writer as postgres_writer
from dgent.store.sqlite import backend, connection, format, writer
from dgent.universe import transaction
from tests.docs import pages

MIB = 1024 * 1024
TRANSACT = inspect.signature(dgent.Universe.transact).parameters

CLAIMS = [
    ("concepts/datum-and-commit.md", f"at most {ids.MAX_ID_BYTES} bytes"),
    ("concepts/datum-and-commit.md", f"at most {ids.MAX_NAME_BYTES}"),
    ("concepts/datum-and-commit.md", f"{ids.MAX_TAGS} tags and {row.MAX_RECORD_BYTES // MIB} MiB"),
    ("concepts/datum-and-commit.md", f"nesting deeper than {codec.MAX_DEPTH}"),
    ("concepts/queries.md", f"`limit` is {dgent.Query().limit}"),
    ("concepts/queries.md", f"(at most {where.MAX_CHOICES})"),
    ("concepts/transactions.md", f"At most {transaction.MAX_READS:,} records"),
    ("concepts/transactions.md", f"({TRANSACT['attempts'].default} times unless"),
    ("concepts/durability.md", f"waits longer than {connection.WAIT_S:.0f} seconds"),
    ("concepts/durability.md", f"about {backend.POLL_S * 1000:.0f} milliseconds"),
    ("internals/architecture.md", f"up to {writer.GROUP_COMMITS} commits or {writer.GROUP_BYTES // MIB} MiB"),
    ("internals/storage-format.md", f"format **{format.FORMAT}**"),
    ("internals/storage-format.md", f"`0x{format.APPLICATION_ID:X}`"),
    ("internals/storage-format.md", f"cut at {order.CUT} bytes"),
    ("internals/storage-format.md", f"together under {versions.SMALL} bytes"),
    ("internals/storage-format.md", f"divisible by {versions.ANCHOR}"),
    ("internals/storage-format.md", f"stops at {versions.MAX_BYTES // MIB} MiB"),
    ("internals/storage-format.md", f"Batches of {prune.FILL_BATCH:,} rows"),
    ("internals/storage-format.md", f"Code {kernel.PUT} is a put, {kernel.DELETE} a delete, {kernel.SAME}"),
    ("internals/storage-format.md", f"{kernel.FORGET} a forget; {kernel.QUIET} is added"),
    ("internals/postgres-format.md", f"format **{postgres.FORMAT}**"),
    ("internals/postgres-format.md", f"More than {postgres_writer.MANY:,} new records"),
    ("guides/postgres.md", f"| `timeout` | {address.TIMEOUT_S:.0f} |"),
    ("guides/postgres.md", f"for each {job.OPS_A_SECOND:,} records"),
    ("guides/postgres.md", f"| `pool` | {address.POOL} |"),
    ("guides/postgres.md", "ten times a second" if listen.POLL_S == 0.1 else "?"),
    ("guides/scale-out.md", "a fifth of a second" if pool.PATIENCE_S == 0.2 else "?"),
]


@pytest.mark.parametrize(("page", "text"), CLAIMS)
def test_page_states_the_number_of_the_code(page: str, text: str) -> None:
    words = " ".join((pages.DOCS / page).read_text(encoding="utf-8").split())
    assert text in words


def _layout(database: apsw.Connection) -> dict[str, str]:
    found = database.execute("SELECT name, sql FROM sqlite_schema WHERE sql IS NOT NULL").fetchall()
    return {name: re.sub(r"\s+", " ", sql) for name, sql in found if not name.startswith("sqlite_")}


async def test_storage_format_page_has_the_tables_of_a_store(tmp_path: Path) -> None:
    page = pages.DOCS / "internals" / "storage-format.md"
    described = apsw.Connection(":memory:")
    for block in pages.blocks(page):
        if block.info == "sql":
            described.execute(block.text)
    async with dgent.open(f"sqlite:///{tmp_path / 'store.db'}"):
        pass
    stored = apsw.Connection(str(tmp_path / "store.db"))
    assert _layout(described) == _layout(stored)
    names = {name for (name,) in stored.execute("SELECT name FROM meta")}
    text = page.read_text(encoding="utf-8")
    assert all(f"| `{name}` |" in text for name in names)
    described.close()
    stored.close()


def test_the_postgres_page_has_the_tables_of_a_universe() -> None:
    page = pages.DOCS / "internals" / "postgres-format.md"
    (described,) = [block.text for block in pages.blocks(page) if block.info == "sql"]
    assert described.split() == postgres.TABLES.replace("{u}.", "").split()
