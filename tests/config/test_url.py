"""Spellings of URLs that other tools use."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import dgent
from dgent import Datum, sync
from dgent.config.url import resolve_url, spell_url
from dgent.errors import InputError
from dgent.store.registry import backend_for, contents_for, relational_for, telemetry_for
from tests.cli.terminal import Terminal
from tests.config.house import House


@pytest.mark.parametrize(
    ("url", "spelled"),
    [
        ("postgres://me@host/db?universe=x", "postgresql://me@host/db?universe=x"),
        ("postgresql://host/db", "postgresql://host/db"),
        ("sqlite:///:memory:", "memory:"),
        ("sqlite:///a/:memory:", "sqlite:///a/:memory:"),
        ("sqlite:////:memory:", "sqlite:////:memory:"),
        ("memory:name", "memory:name"),
        ("postgress://host", "postgress://host"),
    ],
)
def test_spelling(url: str, spelled: str) -> None:
    assert spell_url(url) == spelled
    assert spell_url(spelled) == spelled
    if not url.startswith("sqlite:///a"):
        assert resolve_url(url, Path("/base"), inside=False) == spelled


async def test_every_place_understands_them() -> None:
    postgres = "postgres://me@host/db"
    assert backend_for(postgres).address == backend_for("postgresql://me@host/db").address  # type: ignore[attr-defined]
    for url in (postgres, "sqlite:///:memory:"):
        assert relational_for(url) is not None
        assert telemetry_for(url) is not None
        assert contents_for(url) is not None
    assert backend_for("sqlite:///:memory:").name == "memory"
    with pytest.raises(InputError, match="not an engine"):
        backend_for("postgress://host/db")


async def test_sqlite_in_memory_is_a_private_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with dgent.open("sqlite:///:memory:") as a, dgent.open("sqlite:///:memory:") as b:
        await a.put(Datum(id="x", data={}))
        assert not await b.exists("x")
        async with a.storage.relational.transaction() as tx:
            await tx.execute("CREATE TABLE t (n INTEGER)")
        await a.storage.telemetry.append([])
    assert os.listdir(tmp_path) == []


def test_handles_anywhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with sync.anywhere("sqlite:///:memory:") as a, sync.anywhere("sqlite:///:memory:") as b:
        a.run(dgent.Universe.put, Datum(id="x", data={}))
        assert not b.run(dgent.Universe.exists, "x")
    assert os.listdir(tmp_path) == []


def test_settings(house: House) -> None:
    assert house.load(url="postgres://host/db").url == "postgresql://host/db"
    assert house.load(DGENT_URL="sqlite:///:memory:").url == "memory:"
    house.user(
        'url = "postgres://host/db"\nstand_in = "sqlite:///:memory:"\n[storage.telemetry]\nurl = "postgres://host/x"\n'
    )
    settings = house.load()
    assert settings.urls == ["postgresql://host/db", "memory:"]
    assert settings.storage["telemetry"]["url"] == "postgresql://host/x"
    house.ours('url = "sqlite:///:memory:"\n')
    assert house.load().url == "memory:"


def test_the_command_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    terminal = Terminal(tmp_path / "home", monkeypatch)
    assert terminal("--url", "sqlite:///:memory:", "data", "count").code == 0
    assert terminal("store", "copy", "sqlite:///:memory:").code != 0
    assert not list((tmp_path / "home").rglob("*memory:*"))
