"""Kill or hinder a job at every step in which it writes.

`python -m tests.jsonl.steps MODE JOB FROM TO FIRST EVERY`. A step is a call that changes files: of the system
for the lines, of SQLite for the cache. For each chosen step the folder FROM is copied to TO/<number>, and a
forked child does the job there until it comes to the step.
"""

from __future__ import annotations

import asyncio
import errno
import json
import os
import shutil
import signal
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import apsw

from dgent.errors import DgentError
from dgent.store.backend import Keep
from dgent.store.jsonl.backend import JSONLBackend
from dgent.testing.contract import put, record, typed_record

CALLS = ("write", "rename", "fsync", "fdatasync", "unlink", "truncate", "mkdir")


class Steps:
    """Counts steps, and acts before one of them."""

    def __init__(self, at: int, act: Callable[[bool], None]) -> None:
        self.at, self.act = at, act
        self.count = 0
        self.on = False
        self.told: dict[str, Any] = {}

    def step(self, name: str, cache: bool = False) -> None:
        """One more step, of the cache or of the lines."""
        if self.on:
            self.count += 1
            if self.count == self.at:
                self.told["step"] = name
                self.act(cache)

    def install(self) -> None:
        """Count from here on."""
        for name in CALLS:
            setattr(os, name, self._counted(getattr(os, name)))
        self._vfs = _counting(self)  # it must live as long as its connections

    def _counted(self, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*args: Any, **options: Any) -> Any:
            self.step(call.__name__)
            return call(*args, **options)

        return counted


def _counting(steps: Steps) -> apsw.VFS:
    class File(apsw.VFSFile):
        def xWrite(self, data: bytes, offset: int) -> None:
            steps.step("cache", cache=True)
            super().xWrite(data, offset)

        def xSync(self, flags: int) -> None:
            steps.step("cache", cache=True)
            super().xSync(flags)

        def xTruncate(self, size: int) -> None:
            steps.step("cache", cache=True)
            super().xTruncate(size)

    class System(apsw.VFS):
        def __init__(self) -> None:
            super().__init__("counting", "unix", makedefault=True)

        def xOpen(self, name: Any, flags: list[int]) -> apsw.VFSFile:
            return File("unix", name, flags)

        def xDelete(self, name: str, sync: bool) -> None:
            steps.step("cache", cache=True)
            super().xDelete(name, sync)

    return System()


def _kill(_: bool) -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _fail(cache: bool) -> None:
    if cache:
        raise apsw.IOError("it was hindered")
    raise OSError(errno.EIO, "it was hindered")


# -- jobs ---------------------------------------------------------------------------------


async def compact(store: JSONLBackend) -> None:
    """The canonical form, with history."""
    await store.rewrite(history=True)


async def thin(store: JSONLBackend) -> None:
    """The canonical form, without history."""
    await store.rewrite(history=False)


async def redact(store: JSONLBackend) -> None:
    """Forget what must be found nowhere."""
    await store.forget(["secret", "1.secret"], "tester", None)


async def repeat(store: JSONLBackend) -> None:
    """Write again what must be found nowhere later, in commits over several files."""
    for n in range(3):
        told = {"text": f"the-secret-word-3141592653 again {n}"}
        await put(
            store, typed_record("secret", data=told), typed_record("1.secret", data=told, schema="1note")
        )


async def write(store: JSONLBackend) -> None:
    """Some commits, so that there is something to do at the end."""
    for n in range(3):
        await put(store, typed_record(f"new{n}", n), record(f"plain{n}", n))
    await store.compact(Keep(versions=1))


async def wait_for_the_timer(store: JSONLBackend) -> None:
    """A commit that is synced by the timer, and one after it."""
    await put(store, typed_record("new0", 0))
    await asyncio.sleep(0.2)
    await put(store, typed_record("new1", 1))


JOBS = {
    "compact": compact,
    "thin": thin,
    "redact": redact,
    "repeat": repeat,
    "write": write,
    "batch": write,
    "on_close": write,
    "timer": wait_for_the_timer,
}
OPTIONS: dict[str, dict[str, Any]] = {
    "batch": {"sync": "batch", "sync_interval": 60},
    "on_close": {"sync": "on_close"},
    "timer": {"sync": "batch", "sync_interval": 0.05},
}


def _run(job: str, folder: str, steps: Steps, told: Path) -> None:
    """Do a job, and tell what was raised where: by the job, by the close, and in threads."""
    raised: dict[str, Any] = {"job": None, "close": None, "threads": [], "raw": []}
    steps.told = raised

    def note(where: str, error: BaseException) -> None:
        raised[where] = f"{type(error).__name__}: {error}"
        if not isinstance(error, DgentError):
            raised["raw"].append(f"{where}: {error!r}")

    threading.excepthook = lambda args: raised["threads"].append(repr(args.exc_value))

    async def work() -> None:
        store = JSONLBackend(folder, **OPTIONS.get(job, {}))
        await store.open()
        steps.on = True
        try:
            await JOBS[job](store)
        except Exception as error:
            note("job", error)
        try:
            await store.close()
        except Exception as error:
            note("close", error)

    asyncio.run(work())
    steps.on = False
    told.write_text(json.dumps({**raised, "steps": steps.count}))


def main(mode: str, job: str, origin: str, target: str, first: str, every: str) -> None:
    """Do the job once for each chosen step, until it ends before it comes to the step."""
    number, done = int(first), False
    while not done:
        folder, told = Path(target) / str(number), Path(target) / f"{number}.json"
        shutil.copytree(origin, folder)
        child = os.fork()
        if not child:
            steps = Steps(number, _kill if mode == "kill" else _fail)
            steps.install()
            try:
                _run(job, str(folder), steps, told)
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        done = told.exists() and json.loads(told.read_text())["steps"] < number
        number += int(every)


if __name__ == "__main__":
    main(*sys.argv[1:])
