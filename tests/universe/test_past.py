"""The past of a store: what is read there is what was read then, and nothing can be changed."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import suppress
from typing import Any

import pytest

import dgent
from dgent import Datum, Universe
from dgent.blocks import Library
from dgent.blocks.errors import BlockNotFound, VersionNotFound
from dgent.cupboard import Cupboard
from dgent.errors import Denied, InputError
from dgent.model.query import Query
from dgent.universe.gate import Principal
from dgent.verbs.caller import Caller
from dgent.verbs.path import invoke
from tests.soak import some, times

AGENTS = ("scout", "critic")
SCOUT = Caller("here", "scout", "partner")


@pytest.fixture
async def u(url: str) -> AsyncIterator[Universe]:
    """A store of each engine."""
    async with dgent.open(url, author="ann") as opened:
        yield opened


async def look(u: Universe) -> dict[str, Any]:
    """Return what somebody sees of a store who looks at all of it."""
    seen: dict[str, Any] = {"count": await u.count(schema="note"), "seq": await u.seq()}
    seen["notes"] = [each.data for each in await u.query(schema="note", limit=None, raw=True)]
    for agent in AGENTS:
        library = Library(u, agent)
        found = await library.list(shared=True)
        seen[agent] = {
            f"{each.owner}/{each.label}": [
                each.kind,
                each.permission,
                *(await library.sizes([each])).values(),
                await each.text(),
                [version.number for version in await each.history()],
            ]
            for each in found
        }
        seen[f"prompt of {agent}"] = await library.render(changes=False)
        seen[f"deleted by {agent}"] = await library.list_deleted()
    work = Cupboard(u)
    seen["crumbs"] = {each.name: (each.state, each.holder) for each in await work.crumbs.fetch()}
    seen["ready"] = [each.name for each in await work.ready()]
    seen["blocked"] = [(each.crumb.name, each.reasons) for each in await work.blocked()]
    seen["trails"] = {each.name: (each.state, each.lesson) for each in await work.trails.fetch()}
    seen["nodes"] = sorted(node.name for node in (await work.graph()).nodes)
    return seen


class Story:
    """Random changes of notes, blocks and work, by two agents."""

    def __init__(self, u: Universe, seed: int) -> None:
        self.u, self.rng, self.work = u, random.Random(seed), Cupboard(u)
        self.libraries = [Library(u, agent) for agent in AGENTS]

    async def begin(self) -> None:
        """Make the agents known, so that they can share."""
        for agent in AGENTS:
            await self.libraries[0].agents.create(agent)

    async def step(self, number: int) -> None:
        """Change something."""
        choice = self.rng.choice((self.note, self.write, self.write, self.manage, self.plan, self.try_out))
        with suppress(dgent.errors.NotFound, dgent.errors.Conflict, Denied, InputError):  # it is not there
            await choice(number)

    async def note(self, number: int) -> None:
        if self.rng.random() < 0.3:
            await self.u.delete(f"note-{self.rng.randrange(6)}")
        else:
            id, data = f"note-{self.rng.randrange(6)}", {"number": number}
            await self.u.put(Datum(id, schema="note", schema_version=1, data=data))

    async def write(self, number: int) -> None:
        library, label = self.rng.choice(self.libraries), self.rng.choice("abc")
        try:
            block = await library.get(label)
        except BlockNotFound:
            block = await library.create(label, text="", kind=self.rng.choice(("core", "working")))
        for part in range(self.rng.choice((1, 1, 1, 40))):  # enough of them are packed
            await block.append(f"{number}.{part}\n")

    async def manage(self, number: int) -> None:
        library, label = self.rng.choice(self.libraries), self.rng.choice("abc")
        other = next(name for name in AGENTS if name != library.agent)
        what = self.rng.randrange(6)
        if what == 0:
            await library.delete(label)
        elif what == 1:
            await library.restore(label)
        elif what == 2:
            await library.rename(label, self.rng.choice("abcd"))
        elif what == 3:
            await library.unshare(label, with_agent=other)
        else:
            await library.share(label, with_agent=other, permission="read_write")

    async def plan(self, number: int) -> None:
        crumbs = await self.work.crumbs.fetch()
        if len(crumbs) < 3 or self.rng.random() < 0.4:
            parents = [self.rng.choice(crumbs)] if crumbs and self.rng.random() < 0.5 else []
            await self.work.add(f"crumb {number}", state="ready", parents=parents)
        elif self.rng.random() < 0.5:
            await self.work.take(self.rng.choice(AGENTS), lease_s=self.rng.choice((None, 1000)))
        else:
            await self.work.finish([self.rng.choice(crumbs).id], "done", agent="scout", force=True)

    async def try_out(self, number: int) -> None:
        active = await self.work.trails.fetch(state="active")
        if active:
            await self.work.abandon(active[0], reason="no", lesson=f"lesson {number}")
        else:
            trail = await self.work.start(f"trail {number}")
            await self.work.add(f"tried {number}", trail=trail, state="ready")


async def test_the_past_is_what_was_seen_then(u: Universe) -> None:
    story = Story(u, 2)
    await story.begin()
    seen = [await look(u)]
    for number in range(times(16)):
        await story.step(number)
        seen.append(await look(u))
    assert len({each["seq"] for each in seen}) > 10
    for then in some(seen, 5):
        assert await look(await u.at(then["seq"])) == then


async def test_packed_versions_have_a_past_too(u: Universe) -> None:
    library = Library(u, "scout")
    block = await library.create("log", text="")
    seen = {await u.seq(): ("", 1)}
    for number in range(170):
        made = await block.append(f"{number} ")
        seen[await u.seq()] = await block.text(), made.number
    assert block._version_log.last_packed > 100
    for seq in [*seen][::20]:
        then = await Library(await u.at(seq), "scout").get("log")
        assert (await then.text(), then.version) == seen[seq]
        assert len(await then.history()) == then.version
        with pytest.raises(VersionNotFound):
            await then.at(then.version + 1)


async def test_a_time_is_a_moment_too(u: Universe) -> None:
    first = await u.put(Datum("a", data={"n": 1}))
    await u.put(Datum("a", data={"n": 2}))
    assert first.updated_at is not None
    then = await u.at(first.updated_at)
    assert (await then.get("a")).data == {"n": 1}
    assert then.past is not None
    assert then.past.seq == first.seq
    assert u.past is None
    assert (await then.present().get("a")).data == {"n": 2}
    assert await (await u.at(0)).count() == 0
    assert (await (await u.at(10_000)).get("a")).data == {"n": 2}
    with pytest.raises(InputError, match="as_of"):
        await u.at(-1)


async def test_nothing_is_changed_in_the_past(u: Universe) -> None:
    library, work = Library(u, "scout"), Cupboard(u)
    await library.create("plan", text="one\n")
    crumb = await work.add("write", state="ready")
    await u.put(Datum("a", data={}))
    before = await u.seq()
    past = await u.at(before)
    old, block = Library(past, "scout"), await Library(past, "scout").get("plan")
    done = Cupboard(past)
    for attempt in (
        lambda: past.put(Datum("b", data={})),
        lambda: past.remember({"text": "b"}),
        lambda: past.put_many([Datum("b", data={})]),
        lambda: past.delete("a"),
        lambda: past.undo(1),
        lambda: past.forget("a"),
        lambda: past.compact(1),
        lambda: old.create("other", text=""),
        lambda: old.delete("plan"),
        lambda: old.share("plan", with_agent="critic"),
        lambda: old.context(mark=True),
        lambda: block.append("two\n"),
        lambda: block.rollback(1),
        lambda: block.undo(),
        lambda: block.checkpoint("now"),
        lambda: done.add("other"),
        lambda: done.take_one(crumb.id, "scout"),
        lambda: done.crumbs.delete(crumb.id),
    ):
        with pytest.raises(Denied, match="nothing can be changed"):
            await attempt()
    assert await u.seq() == before


async def test_history_and_relations_end_there(u: Universe) -> None:
    await u.put(Datum("root", data={}))
    await u.put(Datum("leaf", data={"n": 1}, parent_id="root"))
    then = await u.at(2)
    await u.put(Datum("leaf", data={"n": 2}, parent_id="root"))
    await u.associate("leaf", "root")
    assert [each.rev for each in await then.history("leaf")] == [1]
    assert [each.seq for each in await then.changes()] == [1, 2]
    assert await then.associated("leaf") == []
    assert [each.id for each in await then.causal_chain("leaf")] == ["root", "leaf"]
    stats = await then.stats()
    assert (stats.records, stats.seq) == (2, 2)
    async with then.transaction() as tx:  # one that only reads
        assert (await tx.get("leaf")).data == {"n": 1}
    assert [each.id async for each in then.iterate(Query(limit=None))] == ["leaf", "root"]


async def test_a_search_finds_blocks_as_they_were(u: Universe) -> None:
    library = Library(u, "scout")
    block = await library.create("plan", text="the cache is slow\n")
    then = await u.at(await u.seq())
    await block.write("an index is quick\n")
    assert [hit.record.id for hit in await u.search("cache")] == []
    found = await Library(then, "scout").search("cache")
    assert [each.label for each in found] == ["plan"]
    assert await Library(then, "scout").search("index") == []


async def test_who_lost_a_share_lost_its_past(u: Universe) -> None:
    owner = Library(u, "scout")
    await owner.agents.create("critic")
    block = await owner.create("plan", text="secret\n")
    await owner.create("own", text="mine\n")
    await owner.share("plan", with_agent="critic", permission="read_only")
    await owner.create("common", text="for all\n", owner="_constellation_")
    then = await u.at(await u.seq())
    handle = u.acting(Principal("critic", "friend"))
    critic = Library(await handle.at(await u.seq()), "critic", trust="friend")
    kept = await critic.get("plan", owner="scout")
    assert sorted(each.label for each in await critic.list(shared=True)) == ["common", "plan"]
    assert await kept.text() == "secret\n"
    await owner.unshare("plan", with_agent="critic")
    await owner.delete("common", owner="_constellation_")
    assert await critic.list(shared=True) == []
    with pytest.raises(BlockNotFound):
        await critic.get("plan", owner="scout")
    with pytest.raises(Denied):
        await kept.text()
    assert "secret" not in await critic.render()
    assert await critic.search("secret") == []
    past = await handle.at(then.past.seq if then.past else 0)
    assert await past.get(block.id, raw=True) is None
    # Its owner still sees what it deleted, and a partner everything.
    await owner.delete("own")
    own = await u.acting(Principal("scout", "friend")).at(then.past.seq if then.past else 0)
    assert await (await Library(own, "scout", trust="friend").get("own")).text() == "mine\n"
    assert len(await Library(then, "critic").list(shared=True)) == 2


async def test_verbs_take_a_moment(u: Universe) -> None:
    library, work = Library(u, "scout"), Cupboard(u)
    block = await library.create("plan", text="one\n", kind="core")
    crumb = await work.add("write", state="ready")
    trail = await work.start("try")
    seq = str(await u.seq())
    await block.append("two\n")
    await library.create("more", text="x")
    await work.take_one(crumb.id, "scout")
    await work.add("later")
    await work.abandon(trail, lesson="no")

    async def ask(verb: str, **given: Any) -> Any:
        return await invoke(u, f"self.{verb}", caller=SCOUT, as_of=seq, **given)

    assert [(each.label, each.version) for each in (await ask("block.list")).items] == [("plan", 1)]
    assert (await ask("block.get", label="plan")).text == "one\n"
    assert (await ask("block.history", label="plan")).total == 1
    assert (await ask("block.info", label="plan")).version == 1
    assert "two" not in (await ask("block.render")).text
    columns = {each.state: each.count for each in (await ask("crumb.board")).columns}
    assert (columns["ready"], columns["taken"], columns["draft"]) == (1, 0, 0)
    assert [each.name for each in (await ask("crumb.ready")).items] == ["write"]
    assert (await ask("crumb.get", id=crumb.id)).state == "ready"
    assert len((await ask("crumb.history", id=crumb.id)).items) == 1
    assert [each.state for each in (await ask("trail.list")).items] == ["active"]
    assert (await ask("trail.get", id=trail.id)).state == "active"
    assert (await ask("trail.lessons")).items == []
    assert len((await ask("cupboard.graph")).graph.nodes) == 2
    status = await ask("store.status", all=True, days=2)
    assert (status.seq, sum(each.commits for each in status.days)) == (int(seq), int(seq))
    assert status.commits[0].seq == int(seq)
    now = {each.name: each.records for each in (await invoke(u, "self.data.schemas")).items}
    then = {each.name: each.records for each in (await ask("data.schemas")).items}
    assert (now["block.block"], then["block.block"]) == (2, 1)
