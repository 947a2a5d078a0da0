"""Texts and searches that nobody expects: all are found, and none takes long."""

from __future__ import annotations

import random
import time

import pytest

import dgent
from dgent import Schema
from dgent.search.wanted import MAX_TEXT, MAX_WORDS
from tests.search.test_text_index import fold_all, shrink
from tests.universe.conftest import engine, u, url

__all__ = ["engine", "u", "url"]
TEXT = Schema("text", text=("body",))
MIB = 1 << 20

TEXTS = {
    "long": ("lorem ipsum dolor sit amet, " * 400_000)[: 10 * MIB] + " needle",
    "distinct": " ".join(f"w{n:x}z" for n in range(100_000)),
    "repeated": "echo " * 1_000_000,
    "unbroken": "x" * MIB,
    "han": "東京都に住む" * 20_000,
    "emoji": "🎉👩‍👩‍👧‍👦🇳🇴" * 5_000,
    "right to left": "שָׁלוֹם עולם مَرْحَبًا بالعالم",
    "marks": "e" + "\u0301" * 100_000 + " accented",
    "controls": "a\u200bb\u202ec\x01d \ufeffbom",
    "quotes": '"' * 50_000 + "*" * 50_000 + "inside",
    "empty": "",
}
FINDS = {
    "needle": "long",
    "ipsum": "long",
    "w1869fz": "distinct",
    "w1869*": "distinct",
    "echo": "repeated",
    '"echo echo"': "repeated",
    "x" * 64: "unbroken",
    "京都": "han",
    "🎉": "emoji",
    "🇳🇴": "emoji",
    "שלום": "right to left",
    "مرحبا": "right to left",
    "accented": "marks",
    "bom": "controls",
    "inside": "quotes",
}


@pytest.mark.parametrize("folded", [False, True])
async def test_any_text_is_found(u: dgent.Universe, folded: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    if folded:
        monkeypatch.setattr("dgent.store.engine.fold.RUN_LEAST", 1)
        monkeypatch.setattr("dgent.store.engine.fold.MERGE_RUNS", 1)
    u.register(TEXT)
    texts = dict(TEXTS)
    if u.backend.name != "sqlite" or folded:
        # Enough pages for an engine; that there may be many more words is a matter of what all of them share.
        texts |= {id: texts[id][-30_000:] for id in ("long", "distinct", "repeated")}
    for id, body in texts.items():
        await u.remember({"body": body}, schema="text", id=id)
    if folded:
        await fold_all(u, "text")
    for words, id in FINDS.items():
        hits = await u.search(words)
        assert [hit.id for hit in hits] == [id], words[:80]
        assert len(hits[0].snippet) < 1_000
        assert hits[0].marks or words in ("needle", "w1869fz", "w1869*"), "these are far from the beginning"
    await u.delete("distinct")
    await u.forget("long")
    if folded:
        await fold_all(u, "text")
    assert await u.search("needle w1869*") == []


def hostile_searches() -> dict[str, str]:
    choose = random.Random(3)
    return {
        "many words": " ".join(f"word{n}" for n in range(5_000)),
        "many beginnings": " ".join(f"{letter}*" for letter in "abcdefghijklmnopqrstuvwxyz" * 9),
        "many phrases": '"word1 word2" ' * 1_000,
        "a long phrase": '"' + "word1 " * 3_000 + '"',
        "one long word": "a" * 1_000_000,
        "nested quotes": '"' * 100_000,
        "stars": "*" * 100_000,
        "noise": "".join(map(chr, choose.choices([*range(1, 0xD7FF), *range(0xE000, 0x1FFFF)], k=20_000))),
        "marks": "e" + "\u0301" * 100_000,
        "paired": "東" * 50_000,
        "stop words": "the of and to " * 10_000,
    }


@pytest.mark.parametrize("name", hostile_searches())
async def test_any_search_ends_soon(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    shrink(monkeypatch)
    asked = hostile_searches()[name]
    async with dgent.open("memory:") as u:
        u.register(Schema("text", text=("body",), thread="session"))
        for n in range(300):
            body = " ".join(f"word{(n * 7 + m) % 900}" for m in range(20))
            await u.remember({"body": body, "session": f"s{n % 9}"}, schema="text")
        await fold_all(u, "text")
        began = time.process_time()
        hits = await u.search(asked, k=50)
        assert all(hit.snippet is not None and hit.marks is not None for hit in hits)
        assert time.process_time() - began < 5, "a bound that a busy machine keeps"
        assert hits.cut is (len(asked) > MAX_TEXT or name in ("many words", "many phrases"))
        assert all(len(hit.parts) <= MAX_WORDS for hit in hits)
