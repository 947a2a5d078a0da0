"""The cupboard against a model of its rules, step by step: the same answers and the same refusals."""

from __future__ import annotations

import asyncio
import copy
import shutil
import tempfile
from collections.abc import Callable, Coroutine
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, cast

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)

import dgent
from dgent import clock
from dgent.cupboard import Crumb, Cupboard, Link, Property, Stash, Trail
from dgent.cupboard.tables.entity import Entity
from dgent.errors import Conflict, UndoConflict
from tests.contract.columns import SETTINGS
from tests.cupboard.model import KINDS, Model, ModelCrumb, ModelStash, Refused
from tests.scratch import find_memory
from tests.soak import examples

CRUMBS = st.sampled_from([f"c{n}" for n in range(6)])
TRAILS = st.sampled_from([f"t{n}" for n in range(3)])
STASHES = st.sampled_from([f"s{n}" for n in range(4)])
STATES = st.sampled_from(["draft", "ready", "ready", "taken", "pebble", "dust"])
ENDS = {"crumbs": CRUMBS, "trails": TRAILS, "stashes": STASHES}
LEASE_S = 100.0


class Machine(RuleBasedStateMachine):
    """Does every step on a cupboard and on the model."""

    engine: str

    def __init__(self) -> None:
        super().__init__()
        self.stack = ExitStack()
        self.time = datetime(2026, 1, 1, tzinfo=UTC)
        for name in ("now", "since_boot_us"):
            self.stack.callback(setattr, clock, name, getattr(clock, name))
            setattr(clock, name, getattr(self, name))
        self.runner = self.stack.enter_context(asyncio.Runner())
        self.folder = Path(tempfile.mkdtemp(dir=find_memory()))
        self.stack.callback(shutil.rmtree, self.folder)
        url = SETTINGS[self.engine][0].url(self.folder)
        options = {} if self.engine == "memory" else {"durability": "relaxed"}
        self.universe = self.runner.run(self._open(url, options))
        self.cupboard = Cupboard(self.universe)
        self.model = Model()
        self.first = self.runner.run(self._prepare())
        self.read: list[tuple[str, Entity]] = []  # entities of earlier, with the names of their tables

    async def _prepare(self) -> int:
        await self.cupboard.prepare()
        return await self.universe.seq()

    async def _open(self, url: str, options: dict[str, Any]) -> dgent.Universe:
        return await dgent.open(url, **options)

    def now(self) -> datetime:
        """Every look at the clock is a microsecond later: ages are told apart."""
        self.time += timedelta(microseconds=1)
        return self.time

    def since_boot_us(self) -> int:
        return clock.to_us(self.time)

    def teardown(self) -> None:
        self.runner.run(self.universe.close())
        self.stack.close()

    def both(self, change: Callable[[Model], None], call: Callable[[], Coroutine[Any, Any, Any]]) -> Any:
        """One step on both: it succeeds on both, or is refused by both for the same reason."""
        wanted, error = copy.deepcopy(self.model), None
        try:
            change(wanted)
        except Refused as refused:
            error = refused.error
        try:
            result = self.runner.run(call())
        except dgent.DgentError as given:
            assert type(given).__name__ == error, given
            return None
        assert error is None, f"{error} was expected"
        self.model = wanted
        return result

    @initialize()
    def something_to_begin_with(self) -> None:
        """Most steps need two ends: without this, most examples would be refusals."""
        for n in range(4):
            self.put_crumb(f"c{n}", "ready", None, False)
        for n in range(2):
            self.put_trail(f"t{n}", "active")
        for n in range(1, 4):
            self._link("part_of" if n == 2 else "child_of", f"c{n}", f"c{n - 1}")
        self._link("belongs_to", "c1", "t0")

    # -- crumbs -------------------------------------------------------------------------------

    @rule(id=CRUMBS, state=STATES, priority=st.sampled_from([None, "high", "low"]), later=st.booleans())
    def put_crumb(self, id: str, state: str, priority: str | None, later: bool) -> None:
        defer = self.time + timedelta(seconds=LEASE_S / 2) if later else None

        def change(model: Model) -> None:
            if id not in model.crumbs:
                model.crumbs[id] = ModelCrumb(state, model.born())
            model.set_state(id, state)
            model.crumbs[id].priority, model.crumbs[id].defer = priority, defer

        crumb = Crumb(id, state, defer, properties={"priority": priority})
        self.both(change, lambda: self.cupboard.crumbs.set(id, crumb))

    @precondition(lambda self: self.model.crumbs)
    @rule(data=st.data(), state=STATES)
    def change_state(self, data: st.DataObject, state: str) -> None:
        id = data.draw(st.sampled_from(sorted(self.model.crumbs)))

        async def call() -> None:
            crumb = await self.cupboard.crumbs.get(id)
            crumb.set_state(state)
            await self.cupboard.crumbs.set(id, crumb)

        self.both(lambda model: model.set_state(id, state), call)

    @precondition(lambda self: self.model.crumbs)
    @rule(data=st.data())
    def delete_crumb(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.model.crumbs)))
        self.both(lambda model: model.remove_crumb(id), lambda: self.cupboard.crumbs.delete(id))

    @rule(agent=st.sampled_from(["ann", "bob"]), leased=st.booleans())
    def take(self, agent: str, leased: bool) -> None:
        ready = self.model.ready(self.time)
        taken = self.runner.run(self.cupboard.take(agent, lease_s=LEASE_S if leased else None))
        if not ready:
            assert taken is None
            return
        assert taken is not None and taken.id == ready[0]
        crumb = self.model.crumbs[taken.id]
        crumb.state, crumb.token, crumb.lease = "taken", crumb.token + 1, taken.lease_until
        crumb.holder = agent
        assert (taken.holder, taken.token) == (agent, crumb.token)

    @precondition(lambda self: any(c.state == "taken" for c in self.model.crumbs.values()))
    @rule(
        data=st.data(),
        how=st.sampled_from(["done", "drop", "release"]),
        agent=st.sampled_from([None, "ann", "bob"]),
        force=st.booleans(),
    )
    def finish(self, data: st.DataObject, how: str, agent: str | None, force: bool) -> None:
        """By the token, or in the name of an agent: only the holder's is enough."""
        taken = sorted(id for id, crumb in self.model.crumbs.items() if crumb.state == "taken")
        id = data.draw(st.sampled_from(taken))
        crumb = self.model.crumbs[id]
        token = crumb.token if agent is None else None
        state = {"done": "pebble", "drop": "dust", "release": "ready"}[how]
        call = getattr(self.cupboard, how)

        def change(model: Model) -> None:
            if agent is not None and crumb.holder not in (None, agent) and not force:
                raise Refused("NotLockHolder")
            model.set_state(id, state)

        self.both(change, lambda: call(id, token=token, agent=agent, force=force))

    @rule(seconds=st.sampled_from([1.0, LEASE_S / 2, LEASE_S + 1]))
    def wait(self, seconds: float) -> None:
        self.time += timedelta(seconds=seconds)

    # -- trails and links -----------------------------------------------------------------------

    @rule(id=TRAILS, state=st.sampled_from(["active", "active", "draft", "completed", "abandoned"]))
    def put_trail(self, id: str, state: str) -> None:
        trail = Trail(id, state=state)
        self.both(lambda model: model.set_trail(id, state), lambda: self.cupboard.trails.set(id, trail))

    @precondition(lambda self: self.model.trails)
    @rule(data=st.data())
    def delete_trail(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.model.trails)))
        self.both(lambda model: model.remove_trail(id), lambda: self.cupboard.trails.delete(id))

    @rule(
        data=st.data(),
        kind=st.sampled_from([*KINDS, "child_of", "child_of", "part_of", "part_of", "belongs_to"]),
    )
    def link(self, data: st.DataObject, kind: str) -> None:
        start, end = (data.draw(ENDS[table]) for table in KINDS[kind])
        self._link(kind, start, end)

    def _link(self, kind: str, start: str, end: str) -> None:
        made = Link(kind, start, end)
        self.both(
            lambda model: model.add_link(kind, start, end, ""), lambda: self.cupboard.links.set(None, made)
        )
        if made.id:
            self.model.links[kind, start, end] = made.id

    @precondition(lambda self: self.model.links)
    @rule(data=st.data())
    def unlink(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from(sorted(self.model.links)))
        id = self.model.links[link]
        self.both(lambda model: model.remove_link(link), lambda: self.cupboard.links.delete(id))

    @precondition(lambda self: self.model.links)
    @rule(data=st.data())
    def point_elsewhere(self, data: st.DataObject) -> None:
        link = data.draw(st.sampled_from(sorted(self.model.links)))
        kind, start, _ = link
        id, end = self.model.links[link], data.draw(ENDS[KINDS[kind][1]])

        def change(model: Model) -> None:
            if (kind, start, end) != link:
                del model.links[link]
                model.add_link(kind, start, end, id)

        async def call() -> None:
            found = await self.cupboard.links.get(id)
            found.to_id = end
            await self.cupboard.links.set(id, found)

        self.both(change, call)

    # -- properties and stashes -------------------------------------------------------------------

    @rule(name=st.sampled_from(["p0", "p1"]))
    def define(self, name: str) -> None:
        def change(model: Model) -> None:
            if name in model.properties:
                raise Refused("DuplicateName")
            model.properties.add(name)

        self.both(change, lambda: self.cupboard.properties.set(None, Property(name, "integer")))

    @precondition(lambda self: self.model.properties)
    @rule(data=st.data())
    def undefine(self, data: st.DataObject) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.properties)))

        def change(model: Model) -> None:
            model.properties.remove(name)
            for crumb in model.crumbs.values():
                crumb.values.pop(name, None)

        async def call() -> None:
            [found] = await self.cupboard.properties.fetch(name=name)
            await self.cupboard.properties.delete(found.id)

        self.both(change, call)

    @precondition(lambda self: self.model.properties and self.model.crumbs)
    @rule(data=st.data(), value=st.integers(-3, 3))
    def set_value(self, data: st.DataObject, value: int) -> None:
        name = data.draw(st.sampled_from(sorted(self.model.properties)))
        id = data.draw(st.sampled_from(sorted(self.model.crumbs)))

        async def call() -> None:
            crumb = await self.cupboard.crumbs.get(id)
            crumb.set_property(name, value)
            await self.cupboard.crumbs.set(id, crumb)

        self.both(lambda model: model.crumbs[id].values.update({name: value}), call)
        having = {i for i, c in self.model.crumbs.items() if c.values.get(name, 0) == value}
        found = self.runner.run(self.cupboard.crumbs.fetch(properties={name: value}))
        assert {crumb.id for crumb in found} == having

    @rule(id=STASHES, name=st.sampled_from(["n0", "n1"]), kind=st.sampled_from(["counter", "lock"]))
    def put_stash(self, id: str, name: str, kind: str) -> None:
        if id in self.model.stashes:
            return

        def change(model: Model) -> None:
            model.stashes[id] = ModelStash(name, kind, model.born())
            model.check_name(id, None)

        self.both(change, lambda: self.cupboard.stashes.set(id, Stash(name, kind)))

    @precondition(lambda self: self.model.stashes)
    @rule(data=st.data(), agent=st.sampled_from(["ann", "bob"]))
    def operate(self, data: st.DataObject, agent: str) -> None:
        id = data.draw(st.sampled_from(sorted(self.model.stashes)))
        stash, table = self.model.stashes[id], self.cupboard.stashes
        if stash.kind == "counter":

            def grow(model: Model) -> None:
                model.stashes[id].number += 2
                model.stashes[id].version += 1

            assert self.both(grow, lambda: table.increment(id, 2)) == stash.number + 2
            return
        if stash.holder == agent and data.draw(st.booleans()):

            def free(model: Model) -> None:
                model.stashes[id].holder, model.stashes[id].until = None, None
                model.stashes[id].version += 1

            self.both(free, lambda: table.release(id, agent))
            return
        alive = stash.holder and stash.until is not None and stash.until > self.time

        def hold(model: Model) -> None:
            if alive and stash.holder != agent:
                raise Refused("LockHeld")
            if not alive:
                model.stashes[id].holder = agent
                model.stashes[id].version += 1

        token = self.both(hold, lambda: table.acquire(id, agent, lease_s=LEASE_S))
        if token is not None:
            held = self.runner.run(table.get(id)).value
            self.model.stashes[id].until = datetime.fromisoformat(held["lease_until"])
            assert token == held["token"]
            # Who holds it already keeps the token, whatever else of the stash was changed since.
            assert alive or token == self.model.stashes[id].version

    @precondition(lambda self: self.model.stashes)
    @rule(data=st.data())
    def delete_stash(self, data: st.DataObject) -> None:
        id = data.draw(st.sampled_from(sorted(self.model.stashes)))
        now = self.time
        self.both(lambda model: model.remove_stash(id, now), lambda: self.cupboard.stashes.delete(id))

    # -- what is old by now -----------------------------------------------------------------------

    @rule(data=st.data(), table=st.sampled_from(["crumbs", "trails", "stashes", "links"]))
    def read_one(self, data: st.DataObject, table: str) -> None:
        found = self.runner.run(self.cupboard.table(table).fetch())
        if found:
            self.read.append((table, data.draw(st.sampled_from(found))))

    @precondition(lambda self: self.read)
    @rule(data=st.data())
    def store_what_was_read(self, data: st.DataObject) -> None:
        """It changes what is there, or is a Conflict: nothing comes back by it."""
        table, entity = data.draw(st.sampled_from(self.read))
        entity.extra["step"] = self.time.microsecond
        now = self.runner.run(self.cupboard.table(table).fetch(id=entity.id))
        gone = not now or now[0].created_at != entity.created_at
        try:
            self.runner.run(self.cupboard.table(table).set(entity.id, entity))
        except Conflict as error:
            assert gone == ("was deleted since" in error.message), error
            return
        assert not gone
        if table == "stashes":
            self.model.stashes[entity.id].version = cast(Stash, entity).version

    @rule(back=st.integers(0, 12), force=st.booleans())
    def undo(self, back: int, force: bool) -> None:
        """Whatever an undo does, what holds after each step holds after it; what it refuses, it leaves."""
        seq = self.runner.run(self.universe.seq()) - back
        if seq <= self.first:
            return
        try:
            self.runner.run(self.universe.undo(seq, force=force))
        except UndoConflict:
            return
        self.runner.run(self._learn())

    async def _learn(self) -> None:
        """Have the model hold what the cupboard holds: what follows from it is still worked out apart."""
        model = self.model
        crumbs = sorted(await self.cupboard.crumbs.fetch(), key=lambda each: (each.created_at, each.id))
        properties = await self.cupboard.properties.fetch()
        model.properties = {each.name for each in properties if each.name in ("p0", "p1")}
        model.crumbs = {
            each.id: ModelCrumb(
                each.state,
                model.born(),
                each.readable()["priority"],
                each.defer_until,
                each.lease_until,
                each.token,
                {name: each.get_property(name) for name in model.properties},
                each.holder,
            )
            for each in crumbs
        }
        model.trails = {each.id: each.state for each in await self.cupboard.trails.fetch()}
        links = await self.cupboard.links.fetch()
        model.links = {(each.link_type, each.from_id, each.to_id): each.id for each in links}
        model.stashes = {
            each.id: ModelStash(
                each.name,
                each.stash_type,
                model.born(),
                _number(each),
                each.version,
                (each.value or {}).get("holder"),
                _end_of(each),
            )
            for each in await self.cupboard.stashes.fetch()
        }

    # -- what holds after each step -----------------------------------------------------------------

    @invariant()
    def same_things(self) -> None:
        assert self.runner.run(self._picture()) == self.model.picture()

    @invariant()
    def same_work(self) -> None:
        wanted = self.model.ready(self.time)
        assert [crumb.id for crumb in self.runner.run(self.cupboard.ready())] == wanted
        blocked = self.runner.run(self.cupboard.blocked())
        assert {each.crumb.id for each in blocked} == self.model.blocked()
        for each in blocked:
            assert set(each.waits_for) == self.model.open_parents(each.crumb.id)

    @invariant()
    def nothing_against_the_rules(self) -> None:
        assert self.runner.run(self.cupboard.audit()).findings == ()

    async def _picture(self) -> dict[str, Any]:
        names = self.model.properties
        return {
            "crumbs": {
                c.id: (c.state, c.readable()["priority"], c.token, {p: c.get_property(p) for p in names})
                for c in await self.cupboard.crumbs.fetch()
            },
            "trails": {t.id: t.state for t in await self.cupboard.trails.fetch()},
            "links": {(k.link_type, k.from_id, k.to_id) for k in await self.cupboard.links.fetch()},
            "stashes": {
                s.id: (s.name, s.stash_type, _number(s), s.version, (s.value or {}).get("holder"))
                for s in await self.cupboard.stashes.fetch()
            },
        }


def _number(stash: Stash) -> int:
    number: int = stash.value["value"] if stash.stash_type == "counter" else 0
    return number


def _end_of(stash: Stash) -> datetime | None:
    until = (stash.value or {}).get("lease_until")
    return None if until is None else datetime.fromisoformat(until)


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
def test_the_rules(engine: str) -> None:
    kind = type("EngineMachine", (Machine,), {"engine": engine})
    quick = settings.get_profile("dgent")
    run_state_machine_as_test(
        kind, settings=settings(quick, max_examples=examples(8), stateful_step_count=30)
    )
