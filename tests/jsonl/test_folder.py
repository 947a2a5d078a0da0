"""What is around the lines: forgotten bytes, a broken cache, many files, settings."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from dgent.errors import InputError, NoBackendAvailable
from dgent.model.query import Query
from dgent.store.backend import Declaration
from dgent.store.registry import backend_for
from dgent.testing.contract import STORED, find_ids, put, record, typed_record
from tests.contract.test_forgotten_bytes import SECRET, _write_secrets
from tests.jsonl.stores import data_of, odd, opened, without_cache


def _bytes(folder: Path) -> dict[str, bytes]:
    return {str(path): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("rewritten", [None, True, False], ids=["as it is", "history", "newest"])
async def test_forgotten_bytes_are_in_no_file(tmp_path: Path, rewritten: bool | None) -> None:
    async with opened(tmp_path / "store") as store:
        ids = await _write_secrets(store)
        await store.declare(Declaration("note", 2, indexes=("n",)))
        if rewritten is not None:
            await store.rewrite(history=rewritten)
        assert any(SECRET.encode() in raw for raw in _bytes(tmp_path).values())
        done = await store.forget(ids, "tester", None)
        assert done.erased
        for name, raw in _bytes(tmp_path).items():
            assert SECRET.encode() not in raw, (name, raw[raw.index(SECRET.encode()) - 60 :][:160])
        assert len(await find_ids(store, limit=None)) == 36
        again = await put(store, typed_record(ids[0], 1))
        assert again.written[0].rev > 5
    without_cache(tmp_path / "store")
    async with opened(tmp_path / "store") as store:
        assert len(await find_ids(store, limit=None)) == 37
        assert await odd(store) == []
        assert (await store.outcome("00")) is not None, "a retry must not bring it back"


async def test_what_a_killed_forget_left_is_erased_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "store"
    async with opened(folder) as store:
        await put(store, typed_record("keep", 1), typed_record(SECRET, 1))
        await put(store, typed_record(SECRET, 2))
        monkeypatch.setattr("dgent.store.jsonl.kernel.JSONLKernel._purge", lambda self, ids: None)
        done = await store.forget([SECRET], "tester", None)
        assert not done.erased
        monkeypatch.undo()
    (folder / ".note.jsonl.1.tmp").write_text(SECRET)
    async with opened(folder) as store:
        assert await data_of(store, "keep", SECRET) == [{"n": 1}, None]
    assert all(SECRET.encode() not in raw for raw in _bytes(folder).values())


@pytest.mark.parametrize("raw", [b"", b"not a database at all" * 100, None], ids=["empty", "garbage", "gone"])
async def test_a_broken_cache_is_made_anew(tmp_path: Path, raw: bytes | None) -> None:
    async with opened(tmp_path / "store") as store:
        await put(store, typed_record("a", 1))
        await put(store, typed_record("a", 2))
    cache = tmp_path / "store" / ".cache" / "cache.db"
    cache.unlink()
    if raw is not None:
        cache.write_bytes(raw)
    async with opened(tmp_path / "store") as store:
        assert await data_of(store, "a") == [{"n": 2}]
        assert len(await store.history("a", None)) == 2
    assert (cache.parent / ".gitignore").read_text() == "*\n"


async def test_a_cache_of_another_store_is_not_believed(tmp_path: Path) -> None:
    for name in ("one", "two"):
        async with opened(tmp_path / name, cache=str(tmp_path / "cache")) as store:
            await put(store, typed_record("a", name))
            assert len(await find_ids(store, limit=None)) == 1
    async with opened(tmp_path / "one", cache=str(tmp_path / "cache")) as store:
        assert await data_of(store, "a") == [{"n": "one"}]


async def test_one_commit_over_three_hundred_files(tmp_path: Path) -> None:
    async with opened(tmp_path / "store") as store:
        await put(store, *(typed_record(f"r{n}", n, schema=f"s{n}") for n in range(300)))
        await put(store, *(typed_record(f"r{n}", n + 1, schema=f"s{n}") for n in range(300)))
    without_cache(tmp_path / "store")
    async with opened(tmp_path / "store") as store:
        page = await store.query(Query(limit=None), STORED)
        assert sorted(datum.data["n"] for datum in page.items) == list(range(1, 301))


@pytest.mark.parametrize("sync", ["immediate", "batch", "on_close"])
async def test_every_strategy_stores(tmp_path: Path, sync: str) -> None:
    store: Any = backend_for(f"jsonl:{tmp_path / 'store'}?sync={sync}&sync_every=3&sync_interval=0.01")
    await store.open()
    for n in range(10):
        await put(store, record(f"r{n}"))
    assert store.policy.loses == (await store.stats()).details["power_cut_loses"]
    await store.close()
    without_cache(tmp_path / "store")
    async with opened(tmp_path / "store") as store:
        assert len(await find_ids(store, limit=None)) == 10


@pytest.mark.parametrize("url", ["jsonl:", "jsonl:///", "jsonl:x?sync=never", "jsonl:x?wat=1",
                                 "jsonl:x?sync_every=many", "jsonl:x?sync_every=0"])  # fmt: skip
def test_settings_that_make_no_sense(url: str) -> None:
    with pytest.raises(InputError):
        backend_for(url)


async def test_places_that_cannot_be_opened(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("a file")
    for place in (tmp_path / "file", tmp_path / "no" / "folder"):
        with pytest.raises(NoBackendAvailable):
            async with opened(place):
                pass
    assert (tmp_path / "file").read_text() == "a file"


async def test_an_unchanged_store_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(tmp_path / "store") as store:
        await put(store, *(typed_record(f"r{n}", n) for n in range(500)))
    monkeypatch.setattr("dgent.store.jsonl.replay.FileScan", None)  # what reads a file
    os.chmod(tmp_path / "store" / "note.jsonl", 0o600)
    async with opened(tmp_path / "store") as store:
        assert await store.count(Query(), STORED) == 500
