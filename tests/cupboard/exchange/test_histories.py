"""The histories of stashes on their way in."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.cupboard import Cupboard
from dgent.exchange.foreign import export_folder, import_folder, stash_history
from dgent.exchange.foreign.crumbs_import import _FolderImport, read_folder
from dgent.system.progress import ProgressReporter
from dgent.system.threads import Stopped
from tests.cupboard.exchange.folders import Folder, write

STEPS = [(1, 0, "create"), (2, 5, "increment"), (3, 8, "increment"), (4, 9, "increment")]


def folder(steps: list[tuple[int, int, str]], **more: Any) -> Folder:
    version, total, _ = steps[-1]
    return {
        "stashes": [
            {
                "stash_id": "s",
                "name": "n",
                "stash_type": "counter",
                "value": {"value": total},
                "version": version,
                "created_at": "2026-02-12T08:15:00Z",
                "updated_at": f"2026-02-12T08:15:0{version}Z",
            }
        ],
        "stash_history": [
            {
                "history_id": f"h{version}",
                "stash_id": "s",
                "version": version,
                "value": json.dumps({"value": total}),
                "operation": operation,
                "changed_by": "somebody" if version > 1 else None,
                "created_at": f"2026-02-12T08:15:0{version}Z",
                **more,
            }
            for version, total, operation in steps
        ],
    }


async def told(cupboard: Cupboard) -> list[tuple[Any, ...]]:
    return [
        (
            each.version,
            each.value["value"],
            each.operation,
            each.history_id,
            each.changed_by,
            each.created_at.second,
        )
        for each in await cupboard.stashes.history("s")
    ]


def wanted(steps: list[tuple[int, int, str]]) -> list[tuple[Any, ...]]:
    return [(v, n, op, f"h{v}", "somebody" if v > 1 else None, v) for v, n, op in steps]


async def test_a_history_is_the_stash_s_own(cupboard: Cupboard, tmp_path: Path) -> None:
    path = write(tmp_path / "in", folder(STEPS, shift="night"))
    assert (await import_folder(cupboard, path)).odd == 0
    assert await told(cupboard) == wanted(STEPS)
    assert (await import_folder(cupboard, path)).seq is None
    await cupboard.stashes.increment("s", 1)
    assert (await told(cupboard))[:4] == wanted(STEPS)
    await export_folder(cupboard, tmp_path / "out")
    rows = [json.loads(line) for line in (tmp_path / "out" / "stash_history.jsonl").read_bytes().splitlines()]
    assert [row.get("shift") for row in rows] == ["night"] * 4 + [None]
    assert [row["value"] for row in rows] == [{"value": n} for n in (0, 5, 8, 9, 10)]


async def test_a_longer_history_goes_on_where_the_shorter_ended(quick: Cupboard, tmp_path: Path) -> None:
    await import_folder(quick, write(tmp_path, folder(STEPS[:2])))
    done = await import_folder(quick, write(tmp_path, folder(STEPS)))
    assert (done.added, done.changed) == (0, 1)
    assert await told(quick) == wanted(STEPS)
    assert (await import_folder(quick, write(tmp_path, folder(STEPS[:3])))).skipped == 1
    assert await told(quick) == wanted(STEPS)


async def test_an_import_that_was_cut_short_goes_on(quick: Cupboard, tmp_path: Path) -> None:
    path = write(tmp_path, folder(STEPS))

    calls: list[None] = []

    def progress() -> None:
        calls.append(None)
        if len(calls) == 2:
            raise InterruptedError("cut short")

    plan = _FolderImport(read_folder(path, ProgressReporter(None), Stopped()), "newer")
    await plan.compare(quick)
    with pytest.raises(InterruptedError):
        await stash_history.replay(quick, plan.history_imports, progress)
    assert len(await quick.stashes.history("s")) == 2
    await import_folder(quick, path)
    assert await told(quick) == wanted(STEPS)


async def test_another_history_takes_its_place_only_if_it_is_newer(quick: Cupboard, tmp_path: Path) -> None:
    await import_folder(quick, write(tmp_path, folder(STEPS[:2])))
    other = [(1, 7, "create"), (2, 9, "increment"), (5, 20, "set")]
    await import_folder(quick, write(tmp_path, folder(other)), existing="skip")
    assert await told(quick) == wanted(STEPS[:2])
    await import_folder(quick, write(tmp_path, folder(other)))
    assert await told(quick) == wanted(other)


async def test_lines_that_do_not_fit_are_kept(quick: Cupboard, tmp_path: Path) -> None:
    broken = folder(STEPS[:2])
    extra = {"stash_id": "s", "operation": "set", "created_at": "2026-02-12T08:15:00Z"}
    broken["stash_history"] += [
        {"history_id": "later", "version": 9, "value": {"value": 1}, **extra},
        {"history_id": "other", "version": 2, "value": {"value": 1}, **extra},
        {"history_id": "again", "version": 1, "value": {"value": 1}, **extra},
    ]
    done = await import_folder(quick, write(tmp_path, broken))
    assert done.kept == 3
    assert [(each.version, each.history_id) for each in await quick.stashes.history("s")] == [
        (1, "again"),
        (2, "h2"),
    ]


def test_stashes_without_a_history_get_none_on_the_way_out(tmp_path: Path) -> None:
    async def main() -> None:
        async with dgent.open("memory:") as u:
            cupboard = Cupboard(u)
            await import_folder(cupboard, write(tmp_path / "in", {"stashes": folder(STEPS)["stashes"]}))
            await export_folder(cupboard, tmp_path / "out")

    asyncio.run(main())
    assert (tmp_path / "out" / "stash_history.jsonl").read_bytes() == b""
