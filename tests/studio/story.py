"""A store that looks lived in: two weeks of three agents, with memory, work, data and a mistake or two."""

from __future__ import annotations

from contextlib import AsyncExitStack
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace

import dgent
from dgent import clock, ids
from dgent.blocks import Library
from dgent.cupboard import Cupboard

END = datetime(2026, 3, 16, 15, 30, tzinfo=UTC)
"""When somebody looks at it."""


class Moment:
    """A clock that stands still until it is set, for all of dgent in this process."""

    def __init__(self, at: datetime) -> None:
        self.at = at
        self._kept = clock.now, clock.now_us, ids.time

    def __enter__(self) -> Moment:
        clock.now = lambda: self.at
        clock.now_us = lambda: clock.to_us(self.at)
        ids.time = SimpleNamespace(time_ns=lambda: clock.to_us(self.at) * 1000)  # type: ignore[assignment]
        return self

    def __exit__(self, *_: object) -> None:
        clock.now, clock.now_us, ids.time = self._kept

    def set(self, days: int, hour: int, minute: int = 0) -> None:
        """Set it to an hour, so many days before the end."""
        self.at = (END - timedelta(days=days)).replace(hour=hour, minute=minute)

    def tick(self, minutes: int = 4) -> None:
        """Let some minutes pass."""
        self.at += timedelta(minutes=minutes)


async def tell(url: str) -> None:
    """Fill a store."""
    with Moment(END) as moment:
        async with AsyncExitStack() as stack:
            agents = [
                await stack.enter_async_context(dgent.open(url, author=name))
                for name in ("scout", "critic", "archivist")
            ]
            story = _Story(moment, *agents)
            await story.read()
            await story.introduce()
            await story.plan()
            await story.disagree()
            await story.decide()


class _Story:
    """What happened, oldest first: the times of commits never go back."""

    def __init__(
        self, moment: Moment, scout: dgent.Universe, critic: dgent.Universe, archivist: dgent.Universe
    ) -> None:
        self.moment, self.scout, self.critic, self.archivist = moment, scout, critic, archivist
        self.memory, self.critics_memory = Library(scout, "scout"), Library(critic, "critic")
        self.work, self.critics_work = Cupboard(scout), Cupboard(critic)
        self.at, self.tick = moment.set, moment.tick

    async def read(self) -> None:
        """Put what was read into records."""
        schema = dgent.Schema[object]("research.source", indexes=("year",), text={"title": 2, "note": 1})
        self.archivist.register(schema)
        for place, (title, year, note) in enumerate(SOURCES):
            self.at(13 - place // 3, 9 + place % 3 * 2, place)
            about = {"agents"} if "agent" in note else set()
            datum = dgent.Datum(
                f"source-{place + 1:02}",
                schema="research.source",
                schema_version=1,
                data={"title": title, "year": year, "note": note, "read": place % 3 != 1},
                tags=frozenset({"reading"} | about),
                author="archivist",
            )
            await self.archivist.put(datum, note="reading list")

    async def introduce(self) -> None:
        """Give the agents their first memory; one edit was a mistake."""
        self.at(10, 17)
        agents = self.memory.agents
        await agents.create("archivist", description="keeps the reading list")
        await agents.create("critic", description="asks what could go wrong")
        await agents.create("scout", description="tries things first, and reports")
        lines = "I am scout.\nI answer briefly.\nI ask before I delete.\n"
        persona = await self.memory.create("persona", description="who I am", kind="core", text=lines)
        self.at(9, 14)
        await persona.append("I write tests first.\n", message="after the review")
        self.tick(30)
        await persona.replace("I ask before I delete.\n", "I never ask.\n", message="quicker this way?")
        self.tick(9)
        await persona.undo()
        self.tick(3)
        await persona.append("I name what I measured.\n", message="the critic asked for figures")

    async def plan(self) -> None:
        """Plan a release, and try something that does not help."""
        add = self.work.add
        self.at(8, 10)
        release = await add("Release 2.0", state="pending", properties={"type": "epic", "priority": "high"})
        high = {"priority": "high"}
        self.measure = await add("Measure the search", state="ready", part_of=release, properties=high)
        self.tick()
        self.notes = await add("Write the release notes", state="ready", part_of=release)
        ship = await add("Ship it", state="ready", parents=[self.measure, self.notes], part_of=release)
        await add("Tell Ann", state="ready", parents=ship)
        await add("Rename the settings page", state="draft")
        self.at(7, 9)
        cache = await self.work.start("try a cache", "pages in 100 ms")
        await self.work.add_many(["start a cache", "fill it at night", "measure a day of it"], trail=cache)
        self.at(6, 11)
        about = {"description": "who I work for", "kind": "core"}
        human = await self.memory.create("human", **about, text="Ann ships on Thursdays.\n")
        await human.append("She reads diffs on her phone: keep them short.\n", message="told me today")
        lines = "# Release 2.0\n\n1. Measure the search\n2. Ask the critic\n3. Ship\n"
        await self.memory.create("plan", description="what comes next", text=lines)
        await self.memory.share("plan", with_agent="critic", permission="read_write")
        self.at(5, 17)
        lesson = "A cache does not help here: every page differs."
        await self.work.abandon(cache, reason="no page was quicker", lesson=lesson)
        self.at(4, 9)
        index = await self.work.start("try an index on dates", "search by month in 10 ms")
        self.first = await add("build it on a copy", state="ready", trail=index)
        await add("compare both on last month", state="ready", trail=index, parents=self.first)
        await add("write down the figures", state="draft", trail=index)

    async def disagree(self) -> None:
        """Let the critic change the plan, and finish some work."""
        self.at(3, 16)
        theirs = await self.critics_memory.get("plan", owner="scout")
        await theirs.replace(
            "Ask the critic\n", "Ask the critic, with figures\n", message="no figures, no release"
        )
        self.tick()
        create = self.critics_memory.create
        await create("persona", kind="core", text="I am critic.\nI ask for the number behind each claim.\n")
        lines = "We write down why.\nWe undo rather than hide.\n"
        await create("charter", text=lines, owner="_constellation_", description="what all of us agree on")
        await self.memory.create(
            "scratchpad", template="scratchpad", value="tokenizer: 3 of 4 languages done\n"
        )
        self.at(2, 10)
        await self.work.done(await self.work.take_one(self.measure.id, "scout"))
        self.tick()
        low = {"priority": "low"}
        typo = await self.critics_work.add("Fix the typo in the guide", state="ready", properties=low)
        await self.critics_work.done(await self.critics_work.take_one(typo.id, "critic"))
        await self.critics_work.drop(await self.critics_work.add("Support floppy disks", state="ready"))

    async def decide(self) -> None:
        """Record decisions and what they came from; one is deleted by mistake."""
        self.at(1, 11)
        await self._mark(self.scout, "measure", None, action="measure before the release", weight=5)
        self.tick()
        await self._mark(
            self.critic, "wait", "measure", action="wait a day", weight=2, because=["tests are young"]
        )
        self.tick()
        await self._mark(self.scout, "ship", "wait", action="ship it", weight=3)
        self.at(0, 14)
        await self._mark(
            self.scout,
            "ship",
            "wait",
            action="ship it on Thursday",
            weight=8,
            because=["tests pass", "Ann agrees"],
        )
        self.tick(20)
        await self.critic.delete("wait", note="no longer needed")
        self.tick(2)
        await self.critic.undo(await self.critic.seq())
        self.tick(2)
        await self.scout.associate("ship", "source-03", "because of")
        self.at(0, 15, 10)
        await self.work.take_one(self.first.id, "scout", lease_s=3600)
        self.tick(2)
        await self.work.comment(self.notes, "Ann wants one screen, not three.")

    async def _mark(self, by: dgent.Universe, id: str, parent: str | None, **data: object) -> None:
        datum = dgent.Datum(
            id,
            data=data,
            author=by.author,
            parent_id=parent,
            tags=frozenset({"decision"}),
            schema="witness.mark",
            schema_version=1,
        )
        await by.put(datum)


SOURCES = (
    ("A log is a database", 2013, "one order of events, many views of them"),
    ("Memory for agents", 2023, "an agent pages its context in and out"),
    ("Local-first software", 2019, "documents merge instead of locking"),
    ("The end of an era", 2007, "one size does not fit all"),
    ("Undo, redo and trees", 2008, "nothing that was typed is ever lost"),
    ("Plan and act", 2022, "an agent writes its reasons between its steps"),
    ("What makes tests flaky", 2014, "time, order, and the network"),
    ("Time, clocks and order", 1978, "happened before, without a clock"),
    ("Ranking words", 1994, "how often, how rare, how long the text"),
    ("Small vectors", 2024, "one bit for each dimension is enough to begin"),
    ("How agents fail", 2025, "an agent forgets why it began"),
    ("Readable diffs", 1986, "few changes, and where a person would put them"),
)
