"""A SQLite store whose writes fail at any point: all of a change is undone, and the handle works on."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from dgent.errors import Corrupt
from dgent.store.backend import Backend, Declaration, Delete, Keep, Put
from dgent.store.sqlite.backend import SQLiteBackend
from dgent.testing.contract import commit, find_ids, put, record, typed_record
from tests.contract.reads import READS, comparable, fill_up

WRITES = ("insert", "replace", "archive", "add_entries", "remove_entries", "append", "mark_unindexed")
WRITES += (
    "add_records",
    "set_state",
    "make_number",
    "make_index",
    "set_keys",
    "drop_past",
    "erase",
    "drop_indexes",
    "raise_floor",
)


class Failing:
    """A kernel that fails at the n-th write; it stands in for a full disk or a damaged page."""

    left: int | None = None
    error: type[Exception] = RuntimeError

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel

    def __getattr__(self, name: str) -> Any:
        if name in WRITES and Failing.left is not None:
            Failing.left -= 1
            if Failing.left < 0:
                raise Failing.error("on purpose")
        return getattr(self._kernel, name)


CHANGES: dict[str, Callable[[Backend], Awaitable[Any]]] = {
    "commit": lambda s: commit(
        s,
        Put(typed_record("r1", 7, version=2, tags=frozenset({"new"}))),
        Delete("r2"),
        Put(typed_record("new", 1, version=1, source="new")),
        Put(typed_record("lags", version=2, data={"n": 5})),
        key="k",
    ),
    "forget": lambda s: s.forget(["r1", "lags"], "tester", None),
    "declare": lambda s: s.declare(Declaration("note", 3, indexes=("double",))),
    "drop_index": lambda s: s.drop_index("note", "n"),
    "compact": lambda s: s.compact(Keep(versions=0)),
}


@pytest.mark.parametrize("error", [RuntimeError, Corrupt], ids=["foreign", "ours"])
@pytest.mark.parametrize("change", CHANGES)
async def test_a_failure_at_any_write_undoes_the_whole_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str, error: type[Exception]
) -> None:
    store = SQLiteBackend(str(tmp_path / "store.db"), wrap=Failing)
    await store.open()
    await fill_up(store)
    before = {name: comparable(await read(store)) for name, read in READS.items()}
    monkeypatch.setattr(Failing, "error", error)
    for failing in range(200):
        monkeypatch.setattr(Failing, "left", failing)
        try:
            await CHANGES[change](store)
            break
        except error:
            Failing.left = None
            after = {name: comparable(await read(store)) for name, read in READS.items()}
            assert after == before, failing
            assert await store.outcome("k") is None
    monkeypatch.setattr(Failing, "left", None)
    assert 0 < failing < 199
    await put(store, record("afterwards"))
    assert "afterwards" in await find_ids(store)
    await store.close()
