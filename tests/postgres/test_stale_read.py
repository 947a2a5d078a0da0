"""Why a commit is a function: in one statement that waits for a lock, every read is from before the wait.

`dgent_commit` locks the clock first and each of its statements then sees what was committed while
it waited. Had it been one statement with CTEs, two writers could both find the rev they expect.
"""

from __future__ import annotations

import asyncio
from urllib.parse import urlsplit

import asyncpg

import dgent
from dgent.errors import VersionConflict


async def test_a_single_statement_reads_what_was(url: str) -> None:
    universe = urlsplit(url).query.partition("=")[2]
    async with dgent.open(url) as u:
        await u.put(dgent.Datum(id="x"))
    first, second = [await asyncpg.connect(url.partition("?")[0]) for _ in range(2)]
    holding = first.transaction()
    await holding.start()
    await first.execute(f"UPDATE {universe}.clock SET seq = seq + 1")
    await first.execute(f"UPDATE {universe}.datum SET rev = 2 WHERE id = 'x'")
    in_one = asyncio.ensure_future(
        second.fetchrow(
            f"WITH held AS (UPDATE {universe}.clock SET seq = seq + 1 RETURNING seq)"
            f" SELECT held.seq, (SELECT rev FROM {universe}.datum WHERE id = 'x') AS rev FROM held"
        )
    )
    await asyncio.sleep(0.1)
    assert not in_one.done(), "it waits for the clock"
    await holding.commit()
    seq, rev = await in_one
    assert seq == 3, "the clock itself is read anew after the wait"
    assert rev == 1, "and the record is not: this is why a commit is no single statement"
    assert await second.fetchval(f"SELECT rev FROM {universe}.datum WHERE id = 'x'") == 2
    await first.close()
    await second.close()


async def test_a_commit_that_waited_sees_the_truth(url: str) -> None:
    """The same race through dgent: the one that waited is refused, or works on what it finds."""
    universe = urlsplit(url).query.partition("=")[2]
    async with dgent.open(url) as u, dgent.open(url) as other:
        await u.put(dgent.Datum(id="x", data={"n": 0}))
        await other.get("x")
        holder = await asyncpg.connect(url.partition("?")[0])
        for n in range(1, 4):
            holding = holder.transaction()
            await holding.start()
            await holder.execute(f"SELECT FROM {universe}.clock FOR UPDATE")
            data = {"n": n}
            both = [
                asyncio.ensure_future(each.put(dgent.Datum(id="x", data={**data, "by": by}), expect=n))
                for by, each in enumerate((u, other))
            ]
            free = asyncio.ensure_future(other.put(dgent.Datum(id=f"free.{n}")))
            await asyncio.sleep(0.1)
            assert not any(put.done() for put in both)
            await holding.rollback()
            ends = await asyncio.gather(*both, return_exceptions=True)
            assert sorted(type(end).__name__ for end in ends) == ["Datum", VersionConflict.__name__]
            assert (await free).rev == 1 and (await u.get("x", raw=True)).rev == n + 1
        await holder.close()
