"""Nothing leaks: files, threads, tasks and memory are flat over 500 opens and closes; exit is prompt."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
import threading
import time
from pathlib import Path

import dgent
from tests.fault.check import store_threads
from tests.fault.jobs import NOTE, Note
from tests.fault.nursery import ROOT
from tests.soak import times

TURNS = 500
WARM = 100


def descriptors() -> int:
    return len(os.listdir("/proc/self/fd"))


def resident() -> int:
    """Bytes of memory that this process holds."""
    with open("/proc/self/statm") as status:
        return int(status.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")


async def test_500_opens_and_closes(tmp_path: Path) -> None:
    started = time.monotonic()
    for turn in range(TURNS):
        if turn == WARM:
            gc.collect()
            before = descriptors(), resident()
        # A few files, both durabilities, and now and then a schema and a query on reader threads.
        url = f"sqlite:///{tmp_path / f'{turn % 3}.db'}"
        async with dgent.open(url, durability=("full", "relaxed")[turn % 2]) as u:
            if turn % 4 == 0:
                u.register(NOTE)
                await u.remember(Note(turn, "x"), id=f"note.{turn % 40}")
                await u.recall(dgent.Query(schema=NOTE.name, where={"n": {"$gt": 0}}, limit=None))
            await u.put(dgent.Datum(id=f"{turn % 50}", data={"turn": turn}))
            assert (await u.get(f"{turn % 50}", raw=True)).data["turn"] == turn
    gc.collect()
    files, memory = descriptors(), resident()
    print(
        f"\n{TURNS} opens and closes in {time.monotonic() - started:.1f} s: files {before[0]} -> {files}, "
        f"threads {len(store_threads())}, memory {before[1] >> 20} -> {memory >> 20} MB"
    )
    assert files <= before[0] and not store_threads()
    assert asyncio.all_tasks() == {asyncio.current_task()}
    assert memory - before[1] < 12 << 20
    assert sorted(os.listdir(tmp_path)) == ["0.db", "1.db", "2.db"]


def test_threads_that_come_and_go(tmp_path: Path) -> None:
    """One handle stays open; loops in other threads open the file, read, and end."""
    url = f"sqlite:///{tmp_path / 'stays.db'}"

    async def visit() -> None:
        async with dgent.open(url) as u:
            await u.put(dgent.Datum(id="x"))
            await u.get("x")
            await u.query(dgent.Query(limit=None))

    async def main() -> None:
        async with dgent.open(url) as u:
            await u.put(dgent.Datum(id="y"))
            counts = []
            gc.freeze()  # else each search goes through all that the tests before it left
            for _ in range(times(30)):
                thread = threading.Thread(target=lambda: asyncio.run(visit()))
                thread.start()
                while thread.is_alive():
                    await asyncio.sleep(0.001)
                thread.join()
                gc.collect()
                counts.append(descriptors())
            assert max(counts[10:]) <= max(counts[:10]), f"connections of ended threads stay open: {counts}"

    asyncio.run(main())


async def test_failed_opens_leak_nothing(tmp_path: Path) -> None:
    (tmp_path / "bad.db").write_text("not a store" * 100)
    before = None
    for turn in range(150):
        if turn == 50:
            before = descriptors()
        for place in (tmp_path / "bad.db", tmp_path / "no" / "folder.db", tmp_path):
            try:
                await dgent.open(f"sqlite:///{place}").open()
            except dgent.StorageError:
                continue
            raise AssertionError("it opened")
    assert before is not None and descriptors() <= before and not store_threads()


def test_exit_is_prompt(tmp_path: Path) -> None:
    """Closed or not, with work under way or not: the process ends when the program does."""
    script = (
        "import asyncio, sys, time\n"
        "import dgent\n"
        "async def main():\n"
        "    u = await dgent.open('sqlite:///' + sys.argv[1]).open()\n"
        "    await u.put(dgent.Datum(id='x'))\n"
        "    await u.query(dgent.Query(limit=None))\n"
        "    watching = asyncio.ensure_future(anext(u.watch()))\n"
        "    await asyncio.sleep(0.05)\n"
        "    if sys.argv[2] == 'closed':\n"
        "        watching.cancel()\n"
        "        await u.close()\n"
        "    if sys.argv[2] == 'raises':\n"
        "        raise SystemExit(3)\n"
        "    if sys.argv[2] == 'busy':\n"
        "        for i in range(2000): asyncio.ensure_future(u.put(dgent.Datum(id=f'{i}')))\n"
        "        await asyncio.sleep(0)\n"
        "try:\n"
        "    asyncio.run(main())\n"
        "finally:\n"
        "    print(time.time(), flush=True)\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT / "src")}
    for way in ("closed", "open", "raises", "busy"):
        command = [sys.executable, "-W", "error", "-c", script, str(tmp_path / f"{way}.db"), way]
        ran = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
        took = time.time() - float(ran.stdout)
        assert took < 10, f"{way}: {took:.1f} s from the end of the program to the end of the process"
        assert ran.returncode == (3 if way == "raises" else 0), ran.stderr
        assert not ran.stderr, ran.stderr
