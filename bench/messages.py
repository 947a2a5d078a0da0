"""Messages: adding beside a put of the same record, and the newest page among ever more of them."""

from __future__ import annotations

from itertools import count
from tempfile import TemporaryDirectory

import dgent
from bench.measure import Growth, Row, Stopwatch, Took, compared, interleave, say
from bench.plan import Plan, size_text
from bench.stores import Stores
from dgent import ids
from dgent.messages import Messages
from dgent.messages.log import Log
from dgent.messages.record import BATCH, MESSAGE, BatchRecord, MessageRecord, place_of_batch
from dgent.store.backend import Op, Put

_AT_MOST = 1.3
_BLOCK = 64
_PAGE = 50
_TURNS = 20
_TEXT = "the keeper of the lighthouse writes a letter about the storm and the ships " * 3


async def messages(plan: Plan, stores: Stores) -> list[Row | Growth]:
    """Measure messages on SQLite."""
    say("  messages")
    with TemporaryDirectory(prefix="dgent-bench-") as folder:
        async with dgent.open(f"sqlite:///{folder}/store.db", durability="relaxed") as u:
            rows: list[Row | Growth] = [*await _adds(plan, Messages(u, "scout"))]
        async with dgent.open(f"sqlite:///{folder}/many.db", durability="relaxed") as u:
            rows += await _pages(plan, Messages(u, "scout"))
    return rows


async def _adds(plan: Plan, room: Messages) -> list[Row]:
    """Add messages, and put the same records."""
    log = room._log
    numbers = count(10_000_000)  # apart from those that are added
    u, batch = log.universe, await room.begin()

    async def add() -> Took:
        watch = Stopwatch()
        for _ in range(_BLOCK):
            await batch.add("user", _TEXT)
        return watch.each(_BLOCK)

    async def put() -> Took:
        watch = Stopwatch()
        for _ in range(_BLOCK):
            await u.put(_message(log, batch.id, "x", next(numbers)).datum)
        return watch.each(_BLOCK)

    async def add_alone() -> Took:
        watch = Stopwatch()
        for _ in range(_BLOCK):
            await room.add("user", _TEXT)
        return watch.each(_BLOCK)

    async def put_both() -> Took:
        watch = Stopwatch()
        for _ in range(_BLOCK):
            id = ids.new_id()
            await u.put_many([_batch(log, id, 0).datum, _message(log, id, "x", 1).datum])
        return watch.each(_BLOCK)

    one = await interleave({"add": add, "put": put}, plan.rounds)
    both = await interleave({"add": add_alone, "put": put_both}, plan.rounds)
    return [
        compared("a message in a batch / a put of the same record", one, "add", "put", at_most=_AT_MOST),
        compared("a message and its batch / a put of both", both, "add", "put", at_most=_AT_MOST),
    ]


def _message(log: Log, batch: str, place: str, number: int) -> Put:
    record = MessageRecord(log.agent, batch, f"{place}.{number:08d}", "user", _TEXT, "partner", tokens=60)
    return log.put(MESSAGE, f"{batch}/{number:08d}", record, 0)


def _batch(log: Log, id: str, order: int) -> Put:
    place = place_of_batch(log.agent, order, id)
    record = BatchRecord(log.agent, place, "user_request", "complete", order, "partner", count=10, tokens=600)
    return log.put(BATCH, id, record, 0)


async def _pages(plan: Plan, room: Messages) -> list[Growth]:
    """Read the newest page, and what a model is shown, among ever more messages."""
    pages: dict[str, float] = {}
    shown: dict[str, float] = {}
    adds: dict[str, float] = {}
    have = 0
    for size in plan.sizes:
        await fill(room, have, size)
        have, name = size, size_text(size)
        for _ in range(3):  # what was added is moved into the indexes by now
            await room.page(_PAGE)
            await room.history(messages=_PAGE)
        watch = Stopwatch()
        for _ in range(_TURNS):
            assert len((await room.page(_PAGE)).items) == _PAGE
        pages[name] = watch.each(_TURNS).cpu
        watch = Stopwatch()
        for _ in range(_TURNS):
            assert len((await room.history(messages=_PAGE)).messages) == _PAGE
        shown[name] = watch.each(_TURNS).cpu
        watch = Stopwatch()
        for _ in range(_TURNS):
            await room.add("user", "one more")
        adds[name] = watch.each(_TURNS).cpu
        await room.compress({"strategy": "truncate", "keep": 3 * _PAGE})
    return [
        Growth(f"the newest {_PAGE} messages (processor)", pages),
        Growth(f"the history of {_PAGE} messages for a model (processor)", shown),
        Growth("a message with its batch (processor)", adds),
    ]


async def fill(room: Messages, first: int, last: int) -> None:
    """Add batches of ten messages, a hundred in a commit."""
    log, ops, order = room._log, list[Op](), await room._log.universe.seq()
    for start in range(first, last, 10):
        id = ids.new_id()
        ops.append(batch := _batch(log, id, order))
        place = batch.datum.data["place"]
        ops += [_message(log, id, place, number) for number in range(1, 11)]
        if len(ops) >= 1000 or start + 10 >= last:
            await log.universe.commit(ops)
            ops, order = [], await log.universe.seq()
    await log.universe.indexed()
