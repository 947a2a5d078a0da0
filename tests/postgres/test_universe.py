"""Universes in one database do not see each other, and a role sees those it was granted."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from pathlib import Path
from urllib.parse import quote, urlsplit

import asyncpg
import pytest

import dgent
from dgent.errors import Denied, InputError
from tests.postgres.lease import server_url, url_for
from tests.postgres.server import Server, with_universe

HOSTILE = [
    *(
        "",
        "A",
        "Ab",
        "1a",
        "_a",
        "a-b",
        "a b",
        "a.b",
        'a"b',
        "a'b",
        "a;b",
        "a\\b",
        "a\nb",
        "a\n",
        "ä",
        "a" * 49,
    ),
    *('x"; DROP SCHEMA public; --', "public", "pg_catalog", "pg_x", "information_schema", "a%b", "a$b", "ａ"),
]


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_name_is_refused(name: str) -> None:
    with pytest.raises(InputError) as refused:
        dgent.open(f"postgresql://u@h/d?universe={quote(name)}")
    assert refused.value.details["field"] == "universe"


@pytest.mark.parametrize("name", ["select", "user", "a" * 48])
async def test_names_that_are_words_of_sql_work(name: str, make_server: Callable[..., Server]) -> None:
    url = with_universe(make_server().create().start().url, name)
    async with dgent.open(url) as u:
        await u.put(dgent.Datum(id="x", data={"n": 1}))
        assert (await u.get("x", raw=True)).data == {"n": 1}
        assert (await u.stats()).details["universe"] == name


async def test_two_universes_are_two_worlds(tmp_path: Path) -> None:
    one, two = url_for(tmp_path / "one"), url_for(tmp_path / "two")
    async with dgent.open(one) as a, dgent.open(two) as b:
        await a.put(dgent.Datum(id="x", data={"of": "a"}, tags=frozenset({"t"})), key="k")
        assert await b.seq() == 0 and not await b.exists("x") and await b.count(dgent.Query()) == 0
        assert await b.outcome("k") is None and await b.changes(0) == []
        await b.put(dgent.Datum(id="x", data={"of": "b"}, tags=frozenset({"t"})), key="k")
        assert (await a.get("x", raw=True)).data == {"of": "a"}
        assert (await b.get("x", raw=True)).data == {"of": "b"}
        assert [each.id for each in await a.query(dgent.Query(tags={"t"}), raw=True)] == ["x"]
        await b.forget("x")
        assert await a.exists("x") and not await b.exists("x")
        page = await a.page(dgent.Query(limit=1))
        assert page.cursor is None
        # News of one are no news in the other.
        assert await a.backend.wait(1, 0.1) == 1


@pytest.fixture
async def role(tmp_path: Path) -> AsyncIterator[str]:
    """A role that may do nothing."""
    admin = await asyncpg.connect(server_url())
    name = f"role_{abs(hash(tmp_path))}"
    await admin.execute(f"CREATE ROLE {name} LOGIN")
    yield name
    await admin.execute(f"DROP OWNED BY {name}; DROP ROLE {name}")
    await admin.close()


def _as(url: str, role: str) -> str:
    parts = urlsplit(url)
    return parts._replace(netloc=f"{role}@{parts.hostname}:{parts.port}").geturl()


async def _grant(url: str, role: str, tables: str, functions: bool) -> None:
    name = dgent.open(url).backend.address.universe
    admin = await asyncpg.connect(server_url())
    await admin.execute(f'GRANT USAGE ON SCHEMA "{name}" TO {role}')
    await admin.execute(f'GRANT {tables} ON ALL TABLES IN SCHEMA "{name}" TO {role}')
    if functions:
        await admin.execute(f'GRANT EXECUTE ON ALL FUNCTIONS IN SCHEMA "{name}" TO {role}')
    await admin.close()


async def test_a_role_reads_what_it_was_granted(tmp_path: Path, role: str) -> None:
    mine, other = url_for(tmp_path / "mine"), url_for(tmp_path / "other")
    async with dgent.open(other) as u:
        await u.put(dgent.Datum(id="secret"))
    await _grant(mine, role, "SELECT, INSERT, UPDATE, DELETE", True)
    async with dgent.open(_as(mine, role)) as u:
        await u.put(dgent.Datum(id="x", schema="new", schema_version=1))
        await u.put_many([dgent.Datum(id=f"{i}") for i in range(1100)])
        assert await u.count(dgent.Query()) == 1101
    with pytest.raises(Denied):
        await dgent.open(_as(other, role)).open()
    # Not by way of the driver either.
    connection = await asyncpg.connect(_as(server_url(), role))
    name = dgent.open(other).backend.address.universe
    for table in ("datum", "past", "entry", "commits", "meta", "name", "clock", "once"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError):
            await connection.fetch(f'SELECT * FROM "{name}".{table}')
    with pytest.raises(asyncpg.InsufficientPrivilegeError):
        await connection.fetch(f'SELECT "{name}".dgent_commit(1)')
    await connection.close()


async def test_a_role_that_may_only_read(tmp_path: Path, role: str) -> None:
    url = url_for(tmp_path)
    async with dgent.open(url) as u:
        await u.put(dgent.Datum(id="x", data={"n": 1}))
    await _grant(url, role, "SELECT", False)
    async with dgent.open(_as(url, role)) as u:
        assert (await u.get("x", raw=True)).data == {"n": 1}
        assert len(await u.query(dgent.Query(where={"n": 1}), raw=True)) == 1
        assert len(await u.changes(0)) == 1
        for write in (u.put(dgent.Datum(id="y")), u.delete("x"), u.forget("x")):
            with pytest.raises(Denied):
                await write
        assert await u.exists("x")


async def test_a_role_that_may_make_nothing(role: str) -> None:
    with pytest.raises(Denied):
        await dgent.open(_as(server_url(), role) + "?universe=of_nobody").open()
