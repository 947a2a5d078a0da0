"""Embedding at the command line: how far it is, run it now, and what is wrong, without showing a key."""

from __future__ import annotations

from pathlib import Path

import pytest

import dgent
from dgent import Schema
from dgent.embedder import HashedEmbedder
from tests.cli.terminal import Terminal

NOTE = Schema("note", text=("body",), embed=("body",))


@pytest.fixture
async def url(tmp_path: Path) -> str:
    """A store with three records that are embedded, and one that waits."""
    url = f"sqlite:///{tmp_path}/app.db"
    async with dgent.open(url, embedder=HashedEmbedder()) as u:
        u.register(NOTE)
        for number, body in enumerate(("onion soup", "running shoes", "a broth of onions")):
            await u.remember({"body": body}, schema="note", id=f"n{number}")
        await u.embedded()
    async with dgent.open(url) as u:
        u.register(NOTE)
        await u.remember({"body": "later written"}, schema="note", id="n3")
    return url


def test_without_an_embedder(dgent_: Terminal, url: str) -> None:
    said = dgent_("embed", "status", "--url", url)
    assert "none is set" in said.out and "hashed-1024" in said.out
    assert "1 versions wait" in dgent_("doctor", "--url", url).out
    assert dgent_("embed", "run", "--url", url).code == 7
    found = dgent_("search", "soup", "--url", url, "--json").data
    assert (found["legs"], [hit["id"] for hit in found["items"]]) == (["text"], ["n0"])


def test_what_waits_is_embedded_now(dgent_: Terminal, url: str) -> None:
    assert dgent_("config", "set", "embedder", "hashed").code == 0
    assert dgent_("embed", "run", "--url", url, "--json").data["done"] == 1
    report = dgent_("embed", "status", "--url", url, "--json").data
    assert (report["waiting"], report["complete"], report["failing"]) == (0, True, "")
    found = dgent_("search", "soup", "--url", url, "--json").data
    assert found["legs"] == ["text", "meaning"] and found["items"][0]["id"] == "n0"
    assert "(meaning)" in dgent_("search", "soup", "--explain", "--url", url).out
    assert dgent_("search", "soup", "--mode", "words", "--url", url).code == 2


def test_an_embedder_that_does_not_work(dgent_: Terminal, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DGENT_EMBEDDER", "minilm")
    assert "dgent embed install" in dgent_("embed", "status", "--url", url).out
    assert "the embedder fails" in dgent_("doctor", "--url", url).out
    said = dgent_("search", "soup", "--url", url)
    assert "onion soup" in said.out and "found by words only" in said.out
    monkeypatch.setenv("DGENT_EMBEDDER", "http://127.0.0.1:9/v1")
    said = dgent_("remember", "still works", "--url", url)
    assert said.code == 0 and "no model is set" in said.err
    assert dgent_("remember", "not this", "--url", url, "--strict").code == 3


def test_a_key_is_not_shown(dgent_: Terminal, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert "sk-hidden" not in dgent_("config", "set", "embedder_key", "sk-hidden").out
    assert "sk-hidden" not in dgent_("config").out + dgent_("config", "get", "embedder_key", "--json").out
    monkeypatch.setenv("DGENT_EMBEDDER", "http://127.0.0.1:9/v1")
    monkeypatch.setenv("DGENT_EMBEDDER_MODEL", "hashed-1024")
    for words in (("embed", "status"), ("search", "soup"), ("doctor",), ("embed", "run")):
        said = dgent_(*words, "--url", url)
        assert "sk-hidden" not in said.out + said.err
