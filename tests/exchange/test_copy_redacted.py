"""A copy and a mirror let go of what their source has forgotten or redacted, in every version and on disk."""

from __future__ import annotations

import asyncio
import subprocess
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.blocks import Library
from dgent.blocks.history import log
from dgent.exchange import copy as copying
from dgent.exchange.copy import MARK, copy, mirror

SECRET = "hunter2-very-secret"


@pytest.fixture(autouse=True)
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in (("PACK_SIZE", 8), ("KEEP", 2), ("STATE_EVERY", 2)):
        monkeypatch.setattr(log, name, value)


@pytest.fixture
async def source() -> AsyncIterator[dgent.Universe]:
    async with dgent.open("memory:", author="scout") as u:
        yield u


@pytest.fixture(params=["sqlite:///{}/target.db", "jsonl:{}/target", "memory:"])
async def target(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[dgent.Universe]:
    async with dgent.open(request.param.format(tmp_path), author="mirror") as u:
        yield u


async def fill(u: dgent.Universe) -> Library:
    """A block with secrets in a folded version and in a young one, and records with secrets."""
    library = Library(u, agent="scout")
    block = await library.create("notes", text="begin\n", limit=10**6)
    for n in range(2, 31):
        await block.append(f"{SECRET}-{n}\n" if n in (5, 29) else f"line {n}\n", message=f"m {n}")
    for id in ("kept", "gone", "gone earlier"):
        for n in range(3):
            await u.put(dgent.Datum(id=id, data={"n": n, "text": f"{SECRET}-{id}"}))
    await u.delete("gone earlier")
    return library


async def redact(library: Library) -> None:
    block = await library.get("notes")
    await block.redact(5)
    await block.redact(29)
    await library._universe.forget("gone", "gone earlier")


async def check(u: dgent.Universe, folder: Path, gone: list[str]) -> None:
    """Nothing of the secrets that are gone is in any version of any record, nor on the disk."""
    found = []
    for change in await u.changes(limit=10_000):
        for item in change.items:
            for datum in (item.datum, item.last):
                said = "" if datum is None else f"{datum.data}{datum.content!r}"
                found += [secret for secret in gone if secret in said]
        found += [secret for secret in gone if secret in (change.note or "")]
    assert not found
    for secret in gone:
        on_disk = subprocess.run(["grep", "-rlaF", secret, str(folder)], capture_output=True, text=True)
        assert not on_disk.stdout, secret
    assert await kept(u, "kept") == [2, 1, 0]
    assert await u.get("gone") is None and await u.history("gone") == []
    assert await u.history("gone earlier") == []


async def kept(u: dgent.Universe, id: str) -> list[int]:
    """What the versions of a record say, newest first."""
    return [version.datum.data["n"] for version in await u.history(id) if version.datum is not None]


GONE = [f"{SECRET}-5", f"{SECRET}-29", f"{SECRET}-gone"]


async def check_block(u: dgent.Universe) -> None:
    block = await Library(u, agent="scout").get("notes")
    text = await block.text()
    assert SECRET not in text and text.startswith("begin\n") and "line 30\n" in text
    for version in await block.history():
        assert SECRET not in (await block.at(version.number)).text


async def test_a_copy_after_a_redact(source: dgent.Universe, target: dgent.Universe, tmp_path: Path) -> None:
    library = await fill(source)
    await copy(source, target)
    await redact(library)
    await source.put(dgent.Datum(id="later"))
    await copy(source, target)
    await check(target, tmp_path, GONE)
    assert (await copy(source, target)).commits == 0
    assert (await target.history("later"))[0].at == (await source.history("later"))[0].at
    await check_block(target)


async def found_blocks(u: dgent.Universe, words: str) -> int:
    """How many texts of blocks a search finds, beside the records that hold the same words."""
    return sum(hit.id.endswith("/text") for hit in await u.search(words))


@pytest.mark.parametrize("searched", ["source", "target", "both"])
async def test_texts_that_searches_made_go_too(
    source: dgent.Universe, target: dgent.Universe, tmp_path: Path, searched: str
) -> None:
    library = await fill(source)
    await copy(source, target)
    for u, name in ((source, "source"), (target, "target")):
        if searched in (name, "both"):
            assert await found_blocks(u, f"{SECRET}-5") == 1
    assert (await copy(source, target)).commits == 0
    await redact(library)
    await copy(source, target)
    await check(target, tmp_path, GONE)
    for u in (source, target):
        assert await found_blocks(u, "hunter2") == 0
        assert await found_blocks(u, '"line 30"') == 1
    await copy(source, target)
    await check(target, tmp_path, GONE)


async def test_a_mirror_follows_a_redact(
    source: dgent.Universe, target: dgent.Universe, tmp_path: Path
) -> None:
    library = await fill(source)
    following = mirror(source, target)
    await anext(following)
    await redact(library)
    last = await source.seq()
    async with asyncio.timeout(60):
        async for seq in following:
            if seq >= last:
                break
    await following.aclose()
    await check(target, tmp_path, GONE)
    await copy(source, target)
    await check_block(target)


async def test_cut_off_before_it_forgets(
    source: dgent.Universe, target: dgent.Universe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = await fill(source)
    await copy(source, target)
    await redact(library)

    async def cut_off(*_: Any) -> None:
        raise InterruptedError

    with monkeypatch.context() as patch:
        patch.setattr(copying, "sync_forgotten", cut_off)
        for _ in range(2):
            with pytest.raises(InterruptedError):
                await copy(source, target)
    await copy(source, target)
    await check(target, tmp_path, GONE)


async def test_a_copy_from_before_forgets_were_followed(
    source: dgent.Universe, target: dgent.Universe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    library = await fill(source)
    await copy(source, target)
    await redact(library)
    with monkeypatch.context() as patch:
        patch.setattr(copying, "sync_forgotten", _nothing)
        await copy(source, target)
    (mark,) = await target.query(schema=MARK.name, raw=True)
    older = {name: each for name, each in mark.data.items() if name in ("source", "seq", "step")}
    await target.put(mark.replace(data=older))
    await copy(source, target)
    await check(target, tmp_path, GONE)


async def _nothing(*_: Any) -> None:
    pass


async def test_what_was_made_anew_keeps_its_new_history(
    source: dgent.Universe, target: dgent.Universe, tmp_path: Path
) -> None:
    await fill(source)
    await copy(source, target)
    await source.forget("gone")
    for n in (7, 8):
        await source.put(dgent.Datum(id="gone", data={"n": n}))
    await copy(source, target)
    await source.forget("gone earlier")
    await copy(source, target)
    assert await kept(target, "gone") == [8, 7]
    await source.forget("gone")
    await copy(source, target)
    assert await target.history("gone") == []
