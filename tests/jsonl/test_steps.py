"""Killed or hindered at every step of rewriting files: all is done, or nothing, and errors are heard."""

from __future__ import annotations

import asyncio
import json
import os
import random
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from dgent.model.query import Query
from dgent.store.jsonl.backend import JSONLBackend
from dgent.testing.contract import STORED, delete, put, typed_record
from tests.command import python
from tests.jsonl.stores import odd, opened, without_cache

ROOT = Path(__file__).parents[2]
EVERY = int(os.environ.get("DGENT_STEPS", "11"))  # one of so many steps; 1 for all of them
SECRET = b"the-secret-word-3141592653"


async def _fill(folder: Path) -> None:
    """Records with a past in files that come before and after all others, some of them deleted."""
    async with opened(folder, sync="on_close") as store:
        for schema in ("1note", "note", "zebra"):
            for n in range(3):
                await put(store, typed_record(f"{schema}.{n}", n, schema=schema))
                await put(store, typed_record(f"{schema}.{n}", n + 10, schema=schema))
            await delete(store, f"{schema}.1")
            await delete(store, f"{schema}.2")
            await put(store, typed_record(f"{schema}.2", 99, schema=schema))
        told = {"text": SECRET.decode()}
        await put(
            store,
            typed_record("secret", data=told),
            typed_record("1.secret", data=told, schema="1note"),
            key="k",
        )
        await put(store, typed_record("secret", data={"text": "more", **told}))


@pytest.fixture(scope="module")
def origin(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("steps") / "origin"
    asyncio.run(_fill(folder))
    return folder


def _at_steps(mode: str, job: str, origin: Path, target: Path) -> list[Path]:
    """The folders in which a job was killed or hindered at some steps; the first step differs each time."""
    target.mkdir()
    command = [python(), "-m", "tests.jsonl.steps", mode, job, str(origin), str(target)]
    first = random.randrange(EVERY) + 1
    done = subprocess.run([*command, str(first), str(EVERY)], cwd=ROOT, capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr.decode()
    return sorted((path for path in target.iterdir() if path.is_dir()), key=lambda path: int(path.name))


async def _holdings(store: JSONLBackend, ids: list[str]) -> Any:
    page = await store.query(Query(limit=None), STORED)
    live = {each.id: (each.rev, each.data) for each in page.items}
    past = {
        id: [(v.rev, v.datum.data if v.op == "put" else None) for v in await store.history(id, None)]
        for id in ids
    }
    return live, past


@pytest.mark.parametrize("job", ["compact", "thin"])
async def test_a_rewriting_that_is_killed_changes_no_answer(origin: Path, tmp_path: Path, job: str) -> None:
    ids = [f"{schema}.{n}" for schema in ("1note", "note", "zebra") for n in range(3)]
    async with opened(origin) as store:
        before = await _holdings(store, ids)
    for folder in _at_steps("kill", job, origin, tmp_path / "runs"):
        for anew in (False, True):
            if anew:
                without_cache(folder)
            async with opened(folder) as store:
                live, past = await _holdings(store, ids)
                assert live == before[0], folder.name
                if job == "compact":
                    assert past == before[1], folder.name
                assert await odd(store) == [], folder.name
        assert not list(folder.glob(".*.tmp")), folder.name
        shutil.rmtree(folder)


async def test_what_was_forgotten_is_nowhere_after_a_kill(origin: Path, tmp_path: Path) -> None:
    for folder in _at_steps("kill", "redact", origin, tmp_path / "runs"):
        async with opened(folder) as store:
            gone = await store.get("secret") is None
            assert gone == (await store.get("1.secret") is None), folder.name
            findings = await store.upkeep().inspect(deep=True)
        left = {each.message for each in findings if each.level != "ok" and each.subject == "forgetting"}
        places = [path for path in folder.rglob("*") if path.is_file() and SECRET in path.read_bytes()]
        if gone:
            assert not places, f"{folder.name}: {places}"
            assert not left
        else:
            assert places
        shutil.rmtree(folder)


async def test_what_a_killed_writer_left_is_forgotten_too(origin: Path, tmp_path: Path) -> None:
    seen = set()
    for folder in _at_steps("kill", "repeat", origin, tmp_path / "runs"):
        async with opened(folder) as store:
            seen |= {kind for _, _, kind in await odd(store)}
            assert (await store.forget(["secret", "1.secret"], "tester", None)).erased, folder.name
            assert await odd(store) == [], folder.name
        places = [path for path in folder.rglob("*") if path.is_file() and SECRET in path.read_bytes()]
        assert not places, f"{folder.name}: {places}"
        without_cache(folder)
        async with opened(folder) as store:
            assert await store.get("secret") is None, folder.name
            assert await store.get("1.secret") is None, folder.name
        shutil.rmtree(folder)
    assert EVERY > 1 or seen == {"incomplete commit"}


# -- errors -------------------------------------------------------------------------------


@pytest.mark.parametrize("job", ["write", "batch", "on_close", "timer", "compact", "redact"])
async def test_whoever_waits_hears_of_an_error(origin: Path, tmp_path: Path, job: str) -> None:
    for folder in _at_steps("fail", job, origin, tmp_path / "runs"):
        told = json.loads(folder.with_suffix(".json").read_text())
        assert not told["threads"], told
        assert not told["raw"], told
        heard = told["job"] or told["close"]
        if told.get("step") in ("fsync", "fdatasync") and job in ("batch", "on_close", "timer"):
            assert heard, told
        async with opened(folder) as store:
            if job == "timer" and told["job"] is None:
                assert await store.get("new1") is not None
            if job in ("write", "batch", "on_close") and not heard:  # what failed was done again
                assert all([await store.get(f"{kind}{n}") for kind in ("new", "plain") for n in range(3)])
            await put(store, typed_record("after", 1))
            assert {kind for _, _, kind in await odd(store)} <= {"cut off", "bad line", "incomplete commit"}
        shutil.rmtree(folder)
