"""Jobs of a nursery that embed, to be killed or to work beside each other."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence
from contextlib import redirect_stderr
from io import StringIO

import dgent
from dgent import Schema
from dgent.embedder import HashedEmbedder
from tests.fault.nursery import say

NOTE = Schema("note", text=("body",), embed=("body",))


class Slow(HashedEmbedder):
    """Says how many texts it was asked for, and kills the program at a given one."""

    def __init__(self, dim: int, kill_at: int, name: str) -> None:
        super().__init__(dim)
        self.name, self.seen, self._kill_at = name, 0, kill_at

    def embed(self, texts: Sequence[str], /) -> list[list[float]]:
        for _ in texts:
            self.seen += 1
            if self.seen == self._kill_at:
                os.kill(os.getpid(), signal.SIGKILL)
        return super().embed(texts)


async def embed(url: str, kill_at: int, step: str, model: str) -> None:
    """Embed what waits; killed in the embedder, or before or after a write of vectors."""
    async with dgent.open(url, embedder=Slow(32, kill_at if step == "embed" else 0, model)) as u:
        u.register(NOTE)
        if step != "embed":
            store, count = u.backend.store_vectors, 0

            async def killing(*args: object) -> int:
                nonlocal count
                count += 1
                if step == "before" and count == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                done: int = await store(*args)  # type: ignore[arg-type]
                if step == "after" and count == kill_at:
                    os.kill(os.getpid(), signal.SIGKILL)
                return done

            u.backend.store_vectors = killing  # type: ignore[method-assign, assignment]
        await u.embedded()
    say("done")


async def crowd(url: str, name: str, count: int) -> None:
    """Write and search while others do the same; nothing is there to be complained of."""
    with redirect_stderr(StringIO()) as complaints:
        async with dgent.open(url, embedder=HashedEmbedder(32)) as u:
            u.register(NOTE)
            for number in range(count):
                await u.remember({"body": f"{name} says {number}"}, schema="note", id=f"{name}-{number}")
                hits = await u.search(f"{name} says {number}", k=3)
                assert any(hit.id == f"{name}-{number}" for hit in hits), hits
            await u.embedded()
    assert complaints.getvalue() == ""
    say("done")
