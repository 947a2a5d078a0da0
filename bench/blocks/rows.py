"""What blocks promise about time and space."""

from __future__ import annotations

import random
from contextlib import AsyncExitStack
from itertools import count
from pathlib import Path
from time import perf_counter

import dgent
from bench.measure import Row, Times, compared, interleave, quartiles, say, timed, verdict, within
from bench.plan import Plan, size_text
from bench.stores import Stores
from dgent import Datum, Universe
from dgent.blocks import Block, Library
from dgent.blocks.document.document import Document

LONG = 6_000  # characters; then half of it goes
STEP = 50  # edits in a round
VIEWS = 60
EDITORS = 4


async def blocks(plan: Plan, stores: Stores) -> list[Row]:
    """All of it."""
    path = stores.path("blocks")
    rows = await _edits(plan, path, stores)
    together = stores.path("editors")
    await _write_together(plan, together)
    rows += await _looking(plan, together)
    rows += await _context(plan, stores)
    return rows


class Writer:
    """Edits of one block, of the kinds that an agent makes; each is one version."""

    def __init__(self, block: Block, *, alone: bool = True) -> None:
        self._block, self._choose, self._number = block, random.Random(1), count()
        self._alone = alone  # then what it has in memory is what there is

    async def edit(self) -> None:
        """One of them: most add a line, some change a word, and a text that is too long is cut."""
        number = next(self._number)
        text = self._block._version_log.document.text() if self._alone else await self._block.text()
        if len(text) > LONG:
            await self._block.edit_range(1, text[: LONG // 2].count("\n"), "")
        elif number % 3 == 2 and text:
            word = self._choose.choice(text.split())
            await self._block.replace(word, f"word{number}")
        else:
            await self._block.append(f"At step {number} the agent noted something worth keeping.\n")


async def _edits(plan: Plan, path: str, stores: Stores) -> list[Row]:
    """Many edits of one block, in turns with plain durable puts of as many bytes."""
    say(f"  {plan.edits:,} edits")
    plain = stores.path("plain")
    async with dgent.open(f"sqlite:///{path}") as ours, dgent.open(f"sqlite:///{plain}") as base:
        library = Library(ours, agent="scout")
        empty = _size(path)
        block = await library.create("notes", limit=10**6)
        await block.text()
        writer, sizes = Writer(block), _Sizes(block)

        async def edit() -> float:
            began = perf_counter()
            for _ in range(STEP):
                await writer.edit()
            return (perf_counter() - began) / STEP * 1e6

        async def put() -> float:
            batch = [Datum(content=bytes(size)) for size in sizes.newest(STEP)]
            began = perf_counter()
            for each in batch:
                await base.put(each)
            return (perf_counter() - began) / STEP * 1e6

        times = await interleave({"edit": edit, "put": put}, plan.edits // STEP, warm=0, pause_s=0)
        updates = await _updates(block)
    rows = [
        compared(f"blocks: an edit, of {size_text(plan.edits)} on one block, full", times, "edit", "put", 2)
    ]
    return [*rows, _flat(times), _disk(_size(path) - empty, updates)]


class _Sizes:
    """How many bytes the newest versions of a block needed."""

    def __init__(self, block: Block) -> None:
        self._block = block

    def newest(self, number: int) -> list[int]:
        found = [len(update) for update in self._block._version_log._updates[-number:]] or [80]
        return (found * number)[:number]


def _flat(times: Times) -> Row:
    """The last tenth of the edits against the first, each as a ratio to the puts beside them."""
    ratios = [ours / base for ours, base in zip(times["edit"], times["put"], strict=True)]
    tenth = max(1, len(ratios) // 10)
    first, last = (quartiles(part)[1] for part in (ratios[:tenth], ratios[-tenth:]))
    grown = last / first
    judged = verdict(grown, grown, grown, 1.25)
    return Row("  the last tenth against the first", "≤ 1.25 ×", grown, base=first, ours=last, verdict=judged)


def _disk(took: int, updates: int) -> Row:
    ratio = took / updates
    return Row(
        "  on disk, against the bytes of the updates",
        "≤ 3 ×",
        ratio,
        base=updates / 1e6,
        ours=took / 1e6,
        verdict=verdict(ratio, ratio, ratio, 3),
    )


async def _updates(block: Block) -> int:
    chain = block._version_log
    pages = [chain._packs.read(record) for record in await chain._packs.records()]
    return sum(map(len, chain._updates)) + sum(len(update) for page in pages for update in page.updates)


def _size(path: str) -> int:
    return sum(file.stat().st_size for file in Path(path).parent.glob(Path(path).name + "*"))


async def _write_together(plan: Plan, path: str) -> None:
    """A block with as many versions, by several programs that take turns as they please."""
    say(f"  {plan.edits:,} edits by {EDITORS} programs")
    choose = random.Random(3)
    async with AsyncExitStack() as opened:
        stores = [dgent.open(f"sqlite:///{path}", durability="relaxed") for _ in range(EDITORS)]
        libraries = [Library(await opened.enter_async_context(each), agent="scout") for each in stores]
        await libraries[0].create("notes", limit=10**6)
        writers = [Writer(await each.get("notes"), alone=False) for each in libraries]
        for _ in range(plan.edits):
            await choose.choice(writers).edit()


async def _looking(plan: Plan, path: str) -> list[Row]:
    """Loading that block anew, and viewing any of its versions."""
    say("  load and view")
    choose = random.Random(2)
    async with dgent.open(f"sqlite:///{path}") as universe:
        library = Library(universe, agent="scout")
        block = await library.get("notes")
        newest = (await block.history(1))[0].number
        snapshot = block._version_log.document.snapshot()

        async def load() -> None:
            await (await Library(universe, agent="scout").get("notes")).text()

        async def open_again() -> None:
            await (await library.get("notes")).text()

        async def in_memory() -> None:
            Document.load(snapshot).text()

        async def view() -> None:
            await block.at(choose.randrange(1, newest))

        systems = {"load": timed(load), "again": timed(open_again)}
        systems |= {"memory": timed(in_memory), "view": timed(view)}
        times = await interleave(systems, VIEWS, pause_s=0)
        slowest = max(times["view"]) / 1e3
    size = size_text(plan.edits)
    return [
        within(f"blocks: load one of {size} versions", times["load"], times["memory"], 10),
        within("  open it again", times["again"], (), 1),
        within("  view any of its versions", times["view"], times["memory"], 60),
        Row("    the slowest", "≤ 60 ms", slowest, verdict=verdict(slowest, slowest, slowest, 60), unit="ms"),
    ]


async def _context(plan: Plan, stores: Stores) -> list[Row]:
    """The memory part of a prompt, and a search, of many blocks: at the start of a program, and again."""
    say(f"  {plan.documents:,} blocks rendered")
    url = f"sqlite:///{stores.path('context')}"
    async with dgent.open(url, durability="relaxed") as universe:
        kept = await _filled(universe, plan.documents)
        edited = await kept.get("note 0")

        async def cold() -> None:
            await Library(universe, agent="scout").render(changes=False)

        async def warm() -> None:
            await kept.render(changes=False)

        async def told() -> None:
            await kept.render()

        async def search() -> None:
            await kept.search("something worth")

        async def search_edited() -> None:
            await edited.append("And more.\n")
            await kept.search("something worth")

        async def search_first() -> None:
            async with dgent.open(url, durability="relaxed") as again:
                await Library(again, agent="scout").search("something worth")

        await kept.search("something worth")
        await universe.indexed()
        systems = {"cold": timed(cold), "warm": timed(warm), "told": timed(told), "search": timed(search)}
        systems |= {"search_edited": timed(search_edited), "search_first": timed(search_first)}
        times = await interleave(systems, 15, pause_s=0)
    number = size_text(plan.documents)
    return [
        within(f"blocks: render {number} blocks at the start of a program", times["cold"], (), 200),
        within("  again", times["warm"], (), 200),
        within("  with what others changed", times["told"], (), 200),
        within(f"  search {number} blocks", times["search"], (), 80),
        within("    after an edit", times["search_edited"], (), 160),
        within("    at the start of a program", times["search_first"], (), 400),
    ]


async def _filled(universe: Universe, number: int) -> Library:
    library = Library(universe, agent="scout")
    for place in range(number):
        text = f"Note {place}. There is something worth keeping here, and it has some words.\n" * 5
        block = await library.create(f"note {place}", kind="core", text=text)
        for step in range(place % 4):
            await block.append(f"More at {step}.\n")
    return library
