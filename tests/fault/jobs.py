"""What worker processes do; each function is one job, named by the test that starts it."""

from __future__ import annotations

import asyncio
import os
import random
import signal
import time
from dataclasses import dataclass
from typing import Any

import apsw

import dgent
from dgent.errors import Conflict, StorageFull, TransactionConflict, VersionConflict
from dgent.model.lens import field
from dgent.store.backend import Delete, Put
from dgent.store.engine import prune
from dgent.store.engine.kernel import no_wrap
from dgent.store.sqlite import format as storage
from dgent.store.sqlite import kernel, shared, writer
from dgent.store.sqlite.backend import SQLiteBackend
from dgent.store.upgrade import Step
from dgent.universe.universe import open as open_universe  # here, so that no worker spends its life importing
from tests.fault.forking import (  # noqa: F401 - jobs too
    fork_after_close,
    fork_anew,
    fork_exit,
    fork_inherited,
    fork_mid_write,
    fork_storm,
    fork_while_busy,
    fork_while_opening,
)
from tests.fault.nursery import say


@dataclass(frozen=True)
class Note:
    """The contract that the workers write; two declared indexes, so that commits touch many pages."""

    n: int
    owner: str
    text: str = ""


NOTE = dgent.Schema("fault.note", contract=Note, indexes=("n", "owner"))
ACCOUNTS = 6


# -- kill -9 ------------------------------------------------------------------------------


def scribble(path: str, name: str, durability: str) -> None:
    """Write everything there is to write until killed, saying so after each call has returned."""
    # Checkpoints every few commits, so that many kills hit one.
    writer.GROWN_PAGES = 30
    kernel.MOVE_AT = random.choice((2, 10, 256))  # and many hit a move of index entries
    shared.SCRUB_S = 0.1
    asyncio.run(_scribble(path, name, durability))


async def _scribble(path: str, name: str, durability: str) -> None:
    n = 0
    while True:
        async with open_universe(f"sqlite:///{path}", author=name, durability=durability) as u:
            u.register(NOTE)
            for _ in range(random.randrange(5, 60)):
                async with asyncio.TaskGroup() as tasks:
                    for _ in range(random.randrange(1, 6)):
                        n += 1
                        tasks.create_task(random.choice(_STROKES)(u, name, n))
            # Closing and opening again is a moment to be killed in, too.


async def _put(u: Any, name: str, n: int) -> None:
    note = Note(n, name, "x" * random.randrange(2000))
    made = await u.remember(note, id=f"one.{name}.{n}", tags={f"t{n % 7}"}, key=f"{name}.{n}")
    say(["one", made.id, made.rev, n])


async def _update(u: Any, name: str, n: int) -> None:
    """Count one of this worker's own records up; its rev and its number go together."""
    id = f"own.{name}.{n % 5}"
    found = await u.get(id)
    try:
        if found is None:
            stored = await u.remember(Note(1, name), id=id, expect=0)
        else:
            stored = await u.store(found.replace(value=Note(found.rev + 1, name)), expect=found.rev)
    except VersionConflict:
        return
    say(["own", id, stored.rev])


async def _batch(u: Any, name: str, n: int) -> None:
    size = random.randrange(2, 40)
    data = {"n": n, "owner": name, "size": size}
    datums = [
        dgent.Datum(id=f"many.{name}.{n}.{i}", data=data, schema=NOTE.name, schema_version=1)
        for i in range(size)
    ]
    await u.put_many(datums)
    say(["many", f"many.{name}.{n}.", size])


async def _transfer(u: Any, name: str, n: int) -> None:
    """Move one coin between two shared accounts; the sum over all accounts never changes."""
    one, two = random.sample(range(ACCOUNTS), 2)

    async def work(tx: Any) -> None:
        for account, change in ((one, -1), (two, 1)):
            found = await tx.get(f"account.{account}")
            await tx.store(found.replace(value=Note(found.value.n + change, "bank")))

    try:
        await u.transact(work)
    except TransactionConflict:
        return
    say(["transfer"])


async def _delete(u: Any, name: str, n: int) -> None:
    """Make two records and remove them again, each in one commit; or undo what made them."""
    ids = [f"gone.{name}.{n}.{i}" for i in range(2)]
    datums = [
        dgent.Datum(id=id, data={"n": n, "owner": name}, schema=NOTE.name, schema_version=1) for id in ids
    ]
    done = await u.commit([Put(datum) for datum in datums])
    if n % 2:
        await u.commit([Delete(id) for id in ids])
    else:
        await u.undo(done.seq)
    say(["gone", ids])


async def _forget(u: Any, name: str, n: int) -> None:
    """Make two records in one commit and forget one of them; rarely, as it writes the whole file anew."""
    if n % 8:
        return
    kept, lost = (
        dgent.Datum(id=f"{kind}.{name}.{n}", data={"text": f"secret.{kind}.{name}.{n}."})
        for kind in ("kept", "lost")
    )
    await u.put_many([kept, lost])
    done = await u.forget(lost.id)
    say(["lost", lost.id, done.erased])


_STROKES = [_put, _put, _update, _update, _batch, _transfer, _delete, _forget]


# -- holding locks ------------------------------------------------------------------------


def hold(path: str, seconds: float) -> None:
    """Hold the write lock for a while."""
    other = apsw.Connection(path)
    other.execute("BEGIN IMMEDIATE")
    say("held")
    time.sleep(seconds)
    other.execute("ROLLBACK")
    other.close()


def hold_new(path: str) -> None:
    """Be in the middle of making a file until killed."""
    other = apsw.Connection(path)
    other.execute("BEGIN EXCLUSIVE")
    say("held")
    time.sleep(30)


def hold_snapshot(path: str) -> None:
    """Read one moment until killed."""
    other = apsw.Connection(path)
    other.execute("BEGIN")
    other.execute("SELECT count(*) FROM datum").fetchall()
    say("held")
    time.sleep(30)


def fill_up(path: str) -> None:
    """Write until the disk is full, say so, and hold everything open."""

    async def work() -> None:
        async with open_universe(f"sqlite:///{path}") as u:
            for n in range(100_000):
                try:
                    say((await u.put(dgent.Datum(id=f"{n}", data={"text": "x" * 3000}))).id)
                except StorageFull:
                    break
            say("full")
            await asyncio.sleep(30)

    asyncio.run(work())


# -- many processes, one file -------------------------------------------------------------


def crowd(path: str, name: str, tasks: int, each: int, durability: str) -> None:
    """Many tasks that put; says how many, how long it took, and the longest wait of one."""
    asyncio.run(_crowd(path, name, tasks, each, durability))


async def _crowd(path: str, name: str, tasks: int, each: int, durability: str) -> None:
    longest = 0.0
    async with open_universe(f"sqlite:///{path}", author=name, durability=durability) as u:
        u.register(NOTE)

        async def work(task: int) -> None:
            nonlocal longest
            for i in range(each):
                started = time.monotonic()
                await u.remember(Note(i, name), id=f"{name}.{task}.{i}", tags={"crowd", f"t{task % 8}"})
                longest = max(longest, time.monotonic() - started)

        started = time.monotonic()
        await asyncio.gather(*(work(task) for task in range(tasks)))
        say({"puts": tasks * each, "s": time.monotonic() - started, "longest_s": longest})


def count_up(path: str, way: str, tasks: int, each: int) -> None:
    """Read, add one, write: by compare-and-set, in a transaction, or through a lens."""
    asyncio.run(_count_up(path, way, tasks, each))


async def _count_up(path: str, way: str, tasks: int, each: int) -> None:
    gave_up = 0
    async with open_universe(f"sqlite:///{path}") as u:
        u.register(NOTE)

        async def by_cas() -> None:
            while True:
                found = await u.get("counter")
                try:
                    await u.store(found.replace(value=Note(found.value.n + 1, "c")), expect=found.rev)
                    return
                except VersionConflict:
                    await asyncio.sleep(random.uniform(0, 0.005))

        async def by_transaction() -> None:
            async def work(tx: Any) -> None:
                found = await tx.get("counter")
                await tx.store(found.replace(value=Note(found.value.n + 1, "c")))

            await u.transact(work, attempts=100, lock="counter")

        async def by_lens() -> None:
            await u.focus("counter", field("n")).modify(lambda n: n + 1)

        step = {"cas": by_cas, "transact": by_transaction, "lens": by_lens}[way]

        async def work() -> None:
            nonlocal gave_up
            for _ in range(each):
                done = False
                while not done:
                    try:
                        await step()
                        done = True
                    except Conflict:
                        gave_up += 1  # as often as it may try, it lost; nothing was changed

        await asyncio.gather(*(work() for _ in range(tasks)))
    say({"steps": tasks * each, "gave_up": gave_up})


# -- making and migrating -----------------------------------------------------------------


def create(path: str, name: str, step: str | None = None) -> None:
    """Open a store that is not there yet, or old; put one record; say which store it is."""
    if step is not None:
        storage.FORMAT += 1
        storage.STEPS += (Step(storage.FORMAT, "mark it", step),)

    async def work() -> None:
        async with open_universe(f"sqlite:///{path}") as u:
            await u.put(dgent.Datum(id=name))
            say(u.backend.epoch.hex())

    asyncio.run(work())


def put_and_die(path: str, name: str) -> None:
    """Put one record, say so, and be killed before the log is checkpointed."""

    async def work() -> None:
        async with open_universe(f"sqlite:///{path}") as u:
            await u.put(dgent.Datum(id=name))
            say(name)
            os.kill(os.getpid(), signal.SIGKILL)

    asyncio.run(work())


def hold_open(path: str) -> None:
    """Have a store open as another dgent would, and do nothing with it."""
    other = apsw.Connection(path)
    other.execute("SELECT count(*) FROM meta").fetchall()
    say("open")
    time.sleep(600)


def upgrade_killed(path: str, at: str, step: str) -> None:
    """Upgrade a store, and be killed at a point of it."""

    def die(*_: object) -> None:
        os.kill(os.getpid(), signal.SIGKILL)

    def die_if(point: str) -> None:
        if at == point:
            die()

    def first(connection: apsw.Connection, _: object) -> None:
        die_if("after the backup")
        connection.execute(step).fetchall()
        die_if("in the first step")

    def second(connection: apsw.Connection, _: object) -> None:
        die_if("between two steps")
        connection.execute("CREATE TABLE second (n)").fetchall()
        die_if("in the last step")

    storage.STEPS += tuple(Step(storage.FORMAT + n, "mark it", run) for n, run in ((1, first), (2, second)))
    storage.FORMAT += 2
    if at == "before the backup has its name":
        os.replace = die
    backend = SQLiteBackend(path)
    if at == "in the backup":
        backend.progress = die
    asyncio.run(backend.open())
    say("open")


def execute(path: str, sql: list[str]) -> None:
    """Do to a store what no one should, as another program would."""
    other = apsw.Connection(path)
    other.set_busy_timeout(3000)
    with other:
        for statement in sql:
            other.execute(statement)
    other.close()


def stampede(folder: str, rounds: int) -> None:
    """Again and again, eight processes make the same file at the same instant; says what went wrong."""
    wrong: list[str] = []
    for turn in range(rounds):
        path, go = f"{folder}/{turn}.db", time.monotonic() + 0.015
        reading, writing = os.pipe()
        for _ in range(8):
            if os.fork() == 0:
                _make_at(path, go, writing)
        os.close(writing)
        with os.fdopen(reading) as told:
            wrong += told.read().splitlines()
        for _ in range(8):
            os.wait()
    say(wrong[:10])


def _make_at(path: str, go: float, told: int) -> None:
    try:
        while time.monotonic() < go:
            pass
        shared.share(path, "full", no_wrap)
    except BaseException as error:
        os.write(told, f"{type(error).__name__}: {error}\n".encode())
    finally:
        os._exit(0)


# -- indexing old records -----------------------------------------------------------------


def index(path: str, version: int) -> None:
    """Declare a version with other indexes, and fill them in small steps until done or killed."""
    prune.FILL_BATCH = prune.STALE_BATCH = 20

    async def work() -> None:
        async with open_universe(f"sqlite:///{path}") as u:
            u.register(indexed_note(version))
            await u.indexed()

    asyncio.run(work())


def indexed_note(version: int) -> dgent.Schema[Note]:
    """The contract in some version; every version is indexed by something else."""
    indexes = [("n",), ("owner",), ("text", "n"), ("owner", "text")][version % 4]
    steps = {v: lambda data: {**data, "n": data["n"] + 1} for v in range(1, version)}
    return dgent.Schema("fault.note", version=version, contract=Note, migrations=steps, indexes=indexes)
