"""The cupboard for code without an event loop does what the async one does."""

from __future__ import annotations

import inspect
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent import cupboard as rooms
from dgent import sync
from dgent.cupboard import cupboard as cupboards
from dgent.cupboard.lease import lease_id
from dgent.cupboard.tables.table import Table
from dgent.errors import Closed, InputError
from dgent.sync import cupboard as blocking
from dgent.sync.cupboard import Config, Crumb, Cupboard, Link, Property, Stash, Trail, errors
from tests.cupboard.conftest import Frozen

TABLES = ["crumbs", "trails", "properties", "categories", "links", "stashes", "metadata", "schemas"]


@pytest.fixture
def cupboard(u: sync.Universe) -> Cupboard:
    """A cupboard on an open universe."""
    return Cupboard(u)


# -- the names --------------------------------------------------------------------------------


def test_the_same_names_and_only_what_waits_is_another() -> None:
    assert set(blocking.__all__) == set(rooms.__all__)
    other = {name for name in rooms.__all__ if getattr(blocking, name) is not getattr(rooms, name)}
    assert other == {"Cupboard", "Table"}


def test_every_method_is_there_and_blocks() -> None:
    twins = {kind.__name__: kind for kind in vars(blocking).values() if isinstance(kind, type)}
    for theirs in (cupboards.Cupboard, Table, *Table.__subclasses__()):
        ours = twins[theirs.__name__]
        public = {name for name in dir(theirs) if not name.startswith("_")}
        assert public <= set(dir(ours))
        assert ours.__module__ == "dgent.sync.cupboard"
        for name in public & {name for name, _ in inspect.getmembers(theirs, inspect.isfunction)}:
            method = getattr(ours, name)
            before = inspect.signature(getattr(theirs, name)).parameters
            assert list(inspect.signature(method).parameters) == list(before)
            assert not inspect.iscoroutinefunction(method)
            assert not {"async", "await"} & set((method.__doc__ or "").replace("`", " ").split())


def test_loading_the_blocking_names_does_not_load_the_room() -> None:
    code = "import sys; from dgent import sync; print([m for m in sys.modules if 'cupboard' in m])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"


# -- the tables -------------------------------------------------------------------------------


@pytest.mark.parametrize("name", TABLES)
def test_a_table_by_its_name_is_the_shortcut(cupboard: Cupboard, name: str) -> None:
    table = cupboard.table(name)
    assert type(table) is type(getattr(cupboard, name))
    assert isinstance(table, blocking.Table)
    assert table.name == name
    cupboard.add("a")
    there = {"crumbs": 1, "properties": 5, "categories": 12, "schemas": 2}
    assert len(table.fetch()) == there.get(name, 0)


def test_get_set_delete_and_fetch(cupboard: Cupboard) -> None:
    crumb = Crumb("wash", properties={"priority": "high"})
    id = cupboard.crumbs.set(None, crumb)
    assert (crumb.id, crumb.state) == (id, "draft")
    crumb.set_state("ready")
    cupboard.crumbs.set(id, crumb)
    found = cupboard.crumbs.get(id)
    assert (found.name, found.state, found.readable()["priority"]) == ("wash", "ready", "high")
    assert [each.id for each in cupboard.crumbs.fetch(states=["ready"])] == [id]
    cupboard.crumbs.delete(id)
    with pytest.raises(errors.EntityNotFound):
        cupboard.crumbs.get(id)


def test_what_tables_can_do_besides(cupboard: Cupboard) -> None:
    cupboard.properties.set(None, Property("mood", "categorical"))
    cupboard.properties.define_category("mood", "calm", 1)
    assert [each.name for each in cupboard.properties.get_categories("mood")] == ["calm"]
    counter = Stash("n", "counter")
    cupboard.stashes.set(None, counter)
    assert [cupboard.stashes.increment(counter.id, 2) for _ in range(3)] == [2, 4, 6]
    assert [entry.version for entry in cupboard.stashes.history(counter.id)] == [1, 2, 3, 4]
    crumb = cupboard.add("a")
    assert cupboard.comment(crumb, "hm").crumb_id == crumb.id
    assert [entry.content for entry in cupboard.metadata.fetch(crumb_id=crumb.id)] == ["hm"]


def test_work_is_taken_and_done(cupboard: Cupboard) -> None:
    first = cupboard.add("first", state="ready")
    second = cupboard.add("second", state="ready", parents=[first])
    assert [crumb.name for crumb in cupboard.ready()] == ["first"]
    assert cupboard.explain(second).waits_for == (first.id,)
    taken = cupboard.take("scout")
    assert taken is not None
    assert cupboard.take("other") is None
    cupboard.done(taken, token=taken.token)
    assert [crumb.name for crumb in cupboard.ready()] == ["second"]
    with pytest.raises(errors.Cycle):
        cupboard.links.set(None, Link("child_of", first.id, second.id))


def test_the_universe_of_a_cupboard_blocks_too(cupboard: Cupboard, u: sync.Universe) -> None:
    cupboard.add("a")
    assert isinstance(cupboard.universe, sync.Universe)
    assert cupboard.universe.seq() == u.seq() > 0


def test_a_universe_of_the_other_kind_is_refused(u: sync.Universe) -> None:
    with pytest.raises(InputError, match=r"dgent\.sync"):
        Cupboard(dgent.open("memory:"))  # type: ignore[arg-type]
    with pytest.raises(InputError, match="universe"):
        cupboards.Cupboard(u)  # type: ignore[arg-type]


# -- blocks -----------------------------------------------------------------------------------


def test_exploring_completes(cupboard: Cupboard) -> None:
    with cupboard.explore("try it", "see") as trail:
        crumb = cupboard.add("step", trail=trail)
        assert trail.state == "active"
    assert cupboard.trails.get(trail.id).state == "completed"
    origin = cupboard.origin(crumb)
    assert origin is not None
    assert origin.id == trail.id


@pytest.mark.parametrize(
    "error", [RuntimeError("boom"), KeyboardInterrupt(), StopIteration(3), SystemExit(2)]
)
def test_whatever_leaves_the_block_abandons_and_goes_on(cupboard: Cupboard, error: BaseException) -> None:
    with pytest.raises(type(error)) as caught, cupboard.explore("try it") as trail:
        cupboard.add("step", trail=trail)
        trail.lesson = "not like this"
        raise error
    assert caught.value is error
    ended = cupboard.trails.get(trail.id)
    assert (ended.state, ended.lesson) == ("abandoned", "not like this")
    assert type(error).__name__ in (ended.reason or "")
    assert cupboard.crumbs.fetch() == []
    assert cupboard.add("the loop still serves").id


def test_a_block_that_cannot_be_entered_says_why(cupboard: Cupboard) -> None:
    with pytest.raises(errors.EntityNotFound), cupboard.explore("try", branches_from="nowhere"):
        raise AssertionError("never entered")
    assert cupboard.trails.fetch() == []


def test_blocks_of_many_threads_do_not_meet(cupboard: Cupboard) -> None:
    def work(n: int) -> None:
        with cupboard.explore(f"try {n}") as trail:
            cupboard.add(f"step {n}", trail=trail)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [len(trail.crumbs) for trail in cupboard.trails.fetch(state="completed")] == [1] * 8


def test_a_block_that_is_given_up_abandons(cupboard: Cupboard) -> None:
    manager = cupboard.explore("try")
    trail = manager.__enter__()
    del manager
    deadline = time.monotonic() + 20
    while cupboard.trails.get(trail.id).state == "active" and time.monotonic() < deadline:
        time.sleep(0.01)
    assert cupboard.trails.get(trail.id).reason == "CancelledError"


INTERRUPTED = """
import os, random, signal, sys, threading, time
from dgent.sync.cupboard import Config, Cupboard

cupboard = Cupboard.attach(Config("sqlite", sys.argv[1]))
for n in range(40):
    alarm = threading.Timer(random.random() * 0.02, os.kill, (os.getpid(), signal.SIGINT))
    try:
        try:
            alarm.start()
            with cupboard.explore(f"try {n}") as trail:
                cupboard.add("step", trail=trail)
        finally:
            alarm.cancel()
    except KeyboardInterrupt:
        pass
    while True:
        try:
            alarm.join()
            time.sleep(0.001)
            break
        except KeyboardInterrupt:
            pass
deadline = time.monotonic() + 20
while cupboard.trails.fetch(state="active") and time.monotonic() < deadline:
    time.sleep(0.01)
print(len(cupboard.trails.fetch(state="active")), cupboard.audit().ok)
cupboard.detach()
"""


def test_a_block_interrupted_at_any_moment_ends_its_trail(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", INTERRUPTED, str(tmp_path)], capture_output=True, text=True, timeout=120
    )
    assert (done.stdout, done.stderr) == ("0 True\n", "")


@pytest.fixture
def lock(cupboard: Cupboard) -> str:
    """A lock that is free."""
    return cupboard.stashes.set(None, Stash("lock", "lock"))


def test_a_lock_is_held_for_a_block(cupboard: Cupboard, lock: str) -> None:
    with cupboard.stashes.held(lock, "me") as token:
        assert token > 0
        with pytest.raises(errors.LockHeld):
            cupboard.stashes.acquire(lock, "you")
    with cupboard.stashes.held(lock, "you") as later:
        assert later > token
    assert cupboard.stashes.get(lock).value is None


def test_signs_of_life_keep_a_lock_longer_than_its_lease(
    cupboard: Cupboard, lock: str, frozen: Frozen
) -> None:
    def lease_end() -> int:
        end: int = cupboard.universe.get(lease_id(lock)).value.ends_us
        return end

    with cupboard.stashes.held(lock, "me", lease_s=0.3):
        for _ in range(4):
            before, until = lease_end(), time.monotonic() + 60
            frozen.pass_by(0.2)
            while lease_end() == before and time.monotonic() < until:
                time.sleep(0.02)
        with pytest.raises(errors.LockHeld):
            cupboard.stashes.acquire(lock, "you")


def test_a_lost_lock_is_told_at_the_end_of_the_block(cupboard: Cupboard, lock: str) -> None:
    with pytest.raises(errors.NotLockHolder), cupboard.stashes.held(lock, "me", lease_s=0.3):
        cupboard.stashes.release(lock, "me")
        cupboard.stashes.acquire(lock, "you")
        time.sleep(0.4)
    assert cupboard.stashes.get(lock).value["holder"] == "you"


def test_a_universe_closed_inside_a_block() -> None:
    with sync.open("memory:") as u:
        cupboard = Cupboard(u)
        with pytest.raises(Closed), cupboard.explore("try"):
            u.close()


# -- a store of its own -----------------------------------------------------------------------


@pytest.fixture(params=["sqlite", "jsonl"])
def config(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Config]:
    """A store of its own."""
    yield Config(request.param, tmp_path / "here")


def test_attach_and_detach(config: Config) -> None:
    cupboard = Cupboard.attach(config)
    crumbs, id = cupboard.crumbs, cupboard.add("a").id
    with pytest.raises(errors.AlreadyAttached):
        cupboard.attach(config)
    assert crumbs.get(id).name == "a"
    cupboard.detach()
    cupboard.detach()
    for call in (cupboard.ready, crumbs.fetch, lambda: cupboard.add("b"), lambda: cupboard.table("crumbs")):
        with pytest.raises(errors.Detached):
            call()
    cupboard.attach(config)
    assert crumbs.get(id).name == "a"
    cupboard.detach()


def test_a_cupboard_that_was_never_attached() -> None:
    cupboard = Cupboard()
    for call in (cupboard.ready, cupboard.crumbs.fetch, lambda: cupboard.universe):
        with pytest.raises(errors.Detached):
            call()
    cupboard.detach()
    with cupboard.attach(Config("memory")):
        assert cupboard.ready() == []
    with pytest.raises(errors.Detached):
        cupboard.ready()


def test_a_cupboard_on_a_universe_leaves_it_open(u: sync.Universe) -> None:
    with Cupboard(u) as cupboard:
        cupboard.trails.set(None, Trail("a"))
        with pytest.raises(errors.AlreadyAttached):
            cupboard.attach(Config("memory"))
    assert u.seq() > 0
    with pytest.raises(errors.Detached):
        cupboard.trails.fetch()
    u.close()
    cupboard.detach()


def test_a_wrong_configuration_attaches_nothing(tmp_path: Path) -> None:
    cupboard: Any = Cupboard()
    with pytest.raises(errors.BackendUnknown):
        cupboard.attach(Config("tape", tmp_path))
    with pytest.raises(InputError):
        cupboard.attach("memory")
    cupboard.attach(Config("memory")).detach()


def test_what_nobody_detached_is_closed_at_the_end(tmp_path: Path) -> None:
    code = (
        "from dgent.sync.cupboard import *;"
        f"c = Cupboard.attach(Config('jsonl', {str(tmp_path)!r}, 'on_close')); c.add('a', state='ready')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stderr == ""
    with Cupboard.attach(Config("jsonl", tmp_path)) as cupboard:
        assert [crumb.name for crumb in cupboard.ready()] == ["a"]
