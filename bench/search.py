"""Searching for words, against FTS5 on the same records: putting, indexing, finding, and the bytes."""

from __future__ import annotations

import asyncio
import itertools
import random
import statistics
from collections.abc import Awaitable, Callable, Iterator, Sequence
from contextlib import AsyncExitStack, closing
from dataclasses import dataclass
from functools import partial

import apsw

from bench.measure import (
    Block,
    Growth,
    Row,
    Stopwatch,
    Times,
    awaits,
    calls,
    compared,
    interleave,
    say,
    verdict,
)
from bench.plan import Plan, size_text
from bench.stores import Stores
from dgent import Datum, Schema, Universe, ids
from dgent import open as open_universe

_WORDS = 60
_TURNS = 50  # of a conversation
_VOCABULARY = 20_000
_GOALS = {1: 1.2, 3: 0.3, 5: 0.3}
_RARE = 40  # words of a search come from beyond the most frequent ones, as people's do
_WEIGHTS = list(itertools.accumulate(1 / (rank + 10) for rank in range(_VOCABULARY)))


@dataclass(frozen=True)
class Passage:
    """A record with a text."""

    body: str


TEXT = Schema("bench.passage", 1, Passage, text={"body": 1})
PLAIN = Schema("bench.passage", 1, Passage)


@dataclass(frozen=True)
class Turn:
    """A record of a conversation."""

    session: str
    body: str


TURNS = Schema("bench.turn", 1, Turn, text={"body": 1}, thread="session")


def make_bodies(seed: int) -> Iterator[str]:
    """Texts in which some words are frequent and most are rare, as in a language."""
    choose = random.Random(seed)
    names = [_name(n) for n in range(_VOCABULARY)]
    while True:
        yield " ".join(choose.choices(names, cum_weights=_WEIGHTS, k=_WORDS))


def _name(number: int) -> str:
    """A word that no stemmer touches."""
    letters = "bcdfgklmnprtvz"
    made = ""
    number += 1
    while number:
        number, digit = divmod(number, len(letters))
        made += letters[digit] + "ao"[digit % 2]
    return made + "x"


async def growth(plan: Plan, stores: Stores) -> list[Growth]:
    """Three words in stores of each size: among all turns, and in the newest conversation."""
    everywhere: dict[str, float] = {}
    newest: dict[str, float] = {}
    async with open_universe(f"sqlite:///{stores.path('turns')}", durability="relaxed") as u:
        u.register(TURNS)
        bodies, have = make_bodies(11), 0
        for size in plan.sizes:
            say(f"  search, {size:,} turns of conversations of {_TURNS}")
            for start in range(have, size, 10_000):
                turns = range(start, min(size, start + 10_000))
                await u.put_many([_make_turn(n // _TURNS, next(bodies)) for n in turns])
            have = size
            while await u.backend.fill(TURNS.name, u.contracts):
                await asyncio.sleep(0)
            last = {"session": str((size - 1) // _TURNS)}
            blocks: dict[str, Block] = {
                "everywhere": awaits(partial(u.search, schema=TURNS.name), _draw_three(5)),
                "newest": awaits(partial(u.search, schema=TURNS.name, where=last), _draw_three(5)),
            }
            times = await interleave(blocks, plan.read_rounds // 10, pause_s=0)
            for name, grown in (("everywhere", everywhere), ("newest", newest)):
                grown[size_text(size)] = statistics.median(times[name])
    return [
        Growth("search for 3 words, with what stands around the best", everywhere),
        Growth("search for 3 words in the newest conversation", newest),
    ]


def _make_turn(session: int, body: str) -> Datum:
    return Datum(
        ids.new_id(), data={"session": str(session), "body": body}, schema=TURNS.name, schema_version=1
    )


def _draw_three(seed: int) -> Callable[[], list[tuple[str]]]:
    return partial(_draw_texts, draw_as_texts, random.Random(seed))


async def search(plan: Plan, stores: Stores) -> list[Row]:
    """In stores of the middle size."""
    size = min(plan.middle, 100_000)
    say(f"  search, {size:,} records of {_WORDS} words")
    bodies = list(itertools.islice(make_bodies(1), size))
    async with AsyncExitStack() as stack:
        fts = apsw.Connection(stores.path("fts"))
        stack.callback(fts.close)
        watch = Stopwatch()
        fts.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")
        fts.execute("CREATE VIRTUAL TABLE f USING fts5(body, content='', tokenize='porter unicode61')")
        with fts:
            fts.executemany("INSERT INTO f (rowid, body) VALUES (?, ?)", enumerate(bodies, 1))
        indexed = {"fts": [watch.each(size)]}
        path = stores.path("text")
        u = await stack.enter_async_context(_open(path, TEXT))
        await u.put_many([make_datum(body) for body in bodies])
        watch = Stopwatch()
        while await u.backend.fill(TEXT.name, u.contracts):
            await asyncio.sleep(0)
        indexed["dgent"] = [watch.each(size)]
        rows = [compared("index records in bulk, against FTS5", indexed, "dgent", "fts", 6)]
        rows.append(_weigh(path, fts, size))
        rows += await _finding(plan, u, fts, bodies)
        rows.append(await _grow(plan, stores, u, bodies))
        rows += await _putting(plan, stores)
    return rows


def _weigh(path: str, fts: apsw.Connection, size: int) -> Row:
    """The bytes of the two indexes, as their pages have them."""
    fts.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    sql = "SELECT sum(pgsize) FROM dbstat WHERE name IN ('page', 'doc')"
    with closing(apsw.Connection(path)) as ours:
        (taken,) = ours.execute(sql).fetchall()[0]
    (base,) = fts.execute("SELECT sum(pgsize) FROM dbstat").fetchall()[0]
    ratio = taken / base
    work = f"bytes of the index, against FTS5 ({base / size:.0f} and {taken / size:.0f} a record)"
    return Row(work, "≤ 1.6 ×", ratio, ratio, ratio, verdict=verdict(ratio, ratio, ratio, 1.6))


def _open(path: str, schema: Schema[Passage]) -> Universe:
    u = open_universe(f"sqlite:///{path}", durability="relaxed")
    u.register(schema)
    return u


def make_datum(body: str) -> Datum:
    """Return a record with a text."""
    return Datum(ids.new_id(), data={"body": body}, schema=TEXT.name, schema_version=1)


async def _finding(plan: Plan, u: Universe, fts: apsw.Connection, bodies: Sequence[str]) -> list[Row]:
    rows = []
    for name, draw in DRAWS.items():
        for count, goal in _GOALS.items():
            times = await _race(plan, u, fts, partial(draw, count), " OR ")
            work = f"search for {count_words(count)} {name}, against FTS5"
            rows.append(compared(work, times, "dgent", "fts", goal))
    times = await _race(plan, u, fts, lambda choose: [_name(choose.randrange(200, 2_000))[:4] + "*"], "")
    rows.append(compared("search for the beginning of a word, against FTS5", times, "dgent", "fts", 1))

    def draw_phrase(choose: random.Random) -> list[str]:
        words = choose.choice(bodies).split()
        at = choose.randrange(len(words) - 1)
        return [f'"{words[at]} {words[at + 1]}"']

    times = await _race(plan, u, fts, draw_phrase, "", each=1)
    slow = {name: [statistics.quantiles(taken, n=20)[-1]] for name, taken in times.items()}
    return [*rows, compared("search for a phrase of two words, p95 against FTS5", slow, "dgent", "fts", 1.5)]


async def _grow(plan: Plan, stores: Stores, u: Universe, bodies: Sequence[str]) -> Row:
    """A search for three words among ten times as many records."""
    async with _open(stores.path("text-tenth"), TEXT) as tenth:
        await tenth.put_many([make_datum(body) for body in bodies[: len(bodies) // 10]])
        while await tenth.backend.fill(TEXT.name, tenth.contracts):
            await asyncio.sleep(0)
        systems: dict[str, Block] = {}
        for name, each in (("all", u), ("tenth", tenth)):
            choose = random.Random(7)
            systems[name] = awaits(each.search, partial(_draw_texts, draw_as_texts, choose))
        times = await interleave(systems, plan.read_rounds // 10, pause_s=0)
    return compared("search for 3 words among ten times as many records", times, "all", "tenth")


def _draw_texts(draw: Callable[[int, random.Random], list[str]], choose: random.Random) -> list[tuple[str]]:
    return [(" ".join(draw(3, choose)),) for _ in range(5)]


def draw_rare(count: int, choose: random.Random) -> list[str]:
    """Words that one record in a hundred to one in a thousand has."""
    return [_name(choose.randrange(_RARE, 3_000)) for _ in range(count)]


def draw_as_texts(count: int, choose: random.Random) -> list[str]:
    """Words as frequent as those of the texts: half of them are in one record of sixty or more."""
    return [_name(rank) for rank in choose.choices(range(_VOCABULARY), cum_weights=_WEIGHTS, k=count)]


DRAWS = {"that few records have": draw_rare, "as frequent as in texts": draw_as_texts}
"""How the words of a search are drawn."""


def count_words(count: int) -> str:
    """1 word, 3 words."""
    return f"{count} word{'s' if count > 1 else ''}"


async def _race(
    plan: Plan,
    u: Universe,
    fts: apsw.Connection,
    draw: Callable[[random.Random], list[str]],
    joint: str,
    each: int = 5,
) -> Times:
    sql = "SELECT rowid, bm25(f) FROM f WHERE f MATCH ? ORDER BY rank LIMIT 10"

    def ask(words: list[str]) -> None:
        fts.execute(sql, (joint.join(words),)).fetchall()

    async def search(words: list[str]) -> None:
        await u.search(" ".join(words))

    def some(seed: int) -> Callable[[], list[tuple[list[str]]]]:
        choose = random.Random(seed)
        return lambda: [(draw(choose),) for _ in range(each)]

    systems: dict[str, Block] = {"fts": calls(ask, some(3)), "dgent": awaits(search, some(3))}
    return await interleave(systems, plan.read_rounds // 5, pause_s=0)


async def _putting(plan: Plan, stores: Stores) -> list[Row]:
    """Puts of a schema with texts, as long as nobody indexes them, against the same without."""
    async with AsyncExitStack() as stack:
        systems: dict[str, Callable[[str], Awaitable[object]]] = {}
        for name, schema in (("text", TEXT), ("plain", PLAIN)):
            u = await stack.enter_async_context(_open(stores.path(f"put-{name}"), schema))
            await u.schemas()
            u._texts.clear()  # indexing is measured by itself, above
            systems[name] = lambda body, u=u: u.remember(Passage(body))  # type: ignore[misc]
        bodies = make_bodies(9)
        blocks: dict[str, Block] = {
            name: awaits(put, lambda: [(next(bodies),) for _ in range(plan.puts)])
            for name, put in systems.items()
        }
        times = await interleave(blocks, plan.rounds)
    return [compared("put with a text, against one without", times, "text", "plain", 1.15)]
