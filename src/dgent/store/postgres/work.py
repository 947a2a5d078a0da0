"""Upkeep inside one transaction that holds the clock, done once even if its end was not heard."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import TypeVar

import asyncpg

from dgent.store.kernel import Wrap
from dgent.store.ledger import Ledger
from dgent.store.postgres.bridge import run
from dgent.store.postgres.kernel import PostgresKernel
from dgent.store.postgres.pool import Pool
from dgent.store.postgres.sql import Texts

R = TypeVar("R")


async def write(pool: Pool, texts: Texts, wrap: Wrap, work: Callable[[Ledger], R]) -> R:
    """Run work over a kernel that holds the clock; its result once all of it is committed."""
    writer = os.urandom(16)
    done: list[R] = []

    async def attempt(connection: asyncpg.Connection) -> R:
        async with connection.transaction():
            kernel = PostgresKernel(connection, texts)

            def do() -> R:
                kernel.begin()
                if done and kernel.happened(writer):
                    return done[0]  # the last attempt was committed; only the word of it was lost
                result = work(Ledger(wrap(kernel)))
                kernel.end(writer)
                return result

            result = await run(do)
            done[:] = [result]
        return result

    return await pool.call(attempt)
