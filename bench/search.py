"""Searching for words, against FTS5 on the same records: putting, indexing, finding, and the bytes."""

from __future__ import annotations

import asyncio
import itertools
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial

import apsw

from bench.measure import Block, Row, Stopwatch, Times, awaits, calls, compared, interleave, say
from bench.plan import Plan
from bench.stores import Stores
from dgent import Datum, Schema, Universe, ids
from dgent import open as open_universe

_WORDS = 60
_VOCABULARY = 20_000
_QUERIES = {"1 word": (1, 1.2), "3 words": (3, 0.3), "5 words": (5, 0.3)}
_RARE = 40  # words of a search come from beyond the most frequent ones, as people's do


@dataclass(frozen=True)
class Passage:
    """A record with a text."""

    body: str


TEXT = Schema("bench.passage", 1, Passage, text={"body": 1})
PLAIN = Schema("bench.passage", 1, Passage)


def _bodies(seed: int) -> Iterator[str]:
    """Texts in which some words are frequent and most are rare, as in a language."""
    choose = random.Random(seed)
    weights = list(itertools.accumulate(1 / (rank + 10) for rank in range(_VOCABULARY)))
    names = [_name(n) for n in range(_VOCABULARY)]
    while True:
        yield " ".join(choose.choices(names, cum_weights=weights, k=_WORDS))


def _name(number: int) -> str:
    """A word that no stemmer touches."""
    letters = "bcdfgklmnprtvz"
    made = ""
    number += 1
    while number:
        number, digit = divmod(number, len(letters))
        made += letters[digit] + "ao"[digit % 2]
    return made + "x"


async def search(plan: Plan, stores: Stores) -> list[Row]:
    """In stores of the middle size."""
    size = min(plan.middle, 100_000)
    say(f"  search, {size:,} records of {_WORDS} words")
    bodies = list(itertools.islice(_bodies(1), size))
    async with AsyncExitStack() as stack:
        fts = apsw.Connection(stores.path("fts"))
        stack.callback(fts.close)
        watch = Stopwatch()
        fts.execute("PRAGMA journal_mode = WAL; PRAGMA synchronous = NORMAL")
        fts.execute("CREATE VIRTUAL TABLE f USING fts5(body, content='', tokenize='porter unicode61')")
        with fts:
            fts.executemany("INSERT INTO f (rowid, body) VALUES (?, ?)", enumerate(bodies, 1))
        indexed = {"fts": [watch.each(size)]}
        u = await stack.enter_async_context(_open(stores.path("text"), TEXT))
        await u.put_many([_datum(body) for body in bodies])
        watch = Stopwatch()
        while await u.backend.fill(TEXT.name, u.contracts):
            await asyncio.sleep(0)
        indexed["dgent"] = [watch.each(size)]
        rows = [compared("index records in bulk, against FTS5", indexed, "dgent", "fts", 6)]
        rows += await _finding(plan, u, fts)
        rows += await _putting(plan, stores)
    return rows


def _open(path: str, schema: Schema[Passage]) -> Universe:
    u = open_universe(f"sqlite:///{path}", durability="relaxed")
    u.register(schema)
    return u


def _datum(body: str) -> Datum:
    return Datum(ids.new_id(), data={"body": body}, schema=TEXT.name, schema_version=1)


async def _finding(plan: Plan, u: Universe, fts: apsw.Connection) -> list[Row]:
    rows = []
    for name, (count, limit) in _QUERIES.items():
        times = await _race(plan, u, fts, partial(_draw, count), " OR ")
        rows.append(compared(f"search for {name}, against FTS5", times, "dgent", "fts", limit))
    times = await _race(plan, u, fts, lambda choose: [_name(choose.randrange(200, 2_000))[:4] + "*"], "")
    return [*rows, compared("search for the beginning of a word, against FTS5", times, "dgent", "fts", 1)]


def _draw(count: int, choose: random.Random) -> list[str]:
    return [_name(choose.randrange(_RARE, 3_000)) for _ in range(count)]


async def _race(
    plan: Plan, u: Universe, fts: apsw.Connection, draw: Callable[[random.Random], list[str]], joint: str
) -> Times:
    sql = "SELECT rowid, bm25(f) FROM f WHERE f MATCH ? ORDER BY rank LIMIT 10"

    def ask(words: list[str]) -> None:
        fts.execute(sql, (joint.join(words),)).fetchall()

    async def search(words: list[str]) -> None:
        await u.search(" ".join(words))

    def some(seed: int) -> Callable[[], list[tuple[list[str]]]]:
        choose = random.Random(seed)
        return lambda: [(draw(choose),) for _ in range(5)]

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
        bodies = _bodies(9)
        blocks: dict[str, Block] = {
            name: awaits(put, lambda: [(next(bodies),) for _ in range(plan.puts)])
            for name, put in systems.items()
        }
        times = await interleave(blocks, plan.rounds)
    return [compared("put with a text, against one without", times, "text", "plain", 1.15)]
