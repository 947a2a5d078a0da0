"""The program that the spine was built for, as a user writes it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from pathlib import Path

import pytest

import dgent


@dataclass(frozen=True)
class Mark:  # version 3 of the contract
    action: str
    reasoning: str
    author: str
    tags: tuple[str, ...] = ()
    principles: tuple[str, ...] = ()


MARK = dgent.Schema(
    "witness.mark",
    version=3,
    contract=Mark,
    migrations={1: lambda d: {**d, "tags": ()}, 2: lambda d: {**d, "principles": ()}},
    indexes=("author",),
)


@pytest.mark.parametrize("url", ["sqlite:///memory.db", "memory:"])
async def test_the_program_of_the_issue(url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    async with dgent.open(url, author="scout") as u:
        u.register(MARK)
        mark = await u.remember(Mark("ship", "tests pass", "scout"), tags={"eureka"})
        assert isinstance(mark, dgent.Crystal)
        assert mark.value == Mark("ship", "tests pass", "scout")
        found = await u.recall(
            dgent.Query(schema="witness.mark", tags={"eureka"}, where={"author": "scout"}, limit=50)
        )
        assert found == [mark]
        same = await u.get(mark.id)
        assert same == mark
        assert same.datum == mark.datum

        faster = await u.store(mark.replace(value=Mark("wait", "one flaky", "scout")), expect=mark.rev)
        with pytest.raises(dgent.VersionConflict):
            await u.store(mark.replace(value=Mark("ship", "now!", "scout")), expect=mark.rev)

        async with u.transaction() as tx:
            first = await tx.remember(Mark("plan", "because", "scout"), parent=mark)
            await tx.remember(Mark("do", "because", "scout"), parent=first)
        seq = tx.committed.seq

        assert [version.rev for version in await u.history(mark.id)] == [2, 1]
        assert (await u.get(mark.id, as_of=mark.seq)).value == mark.value
        assert (await u.get(mark.id, as_of=faster.seq)).value.action == "wait"
        await u.undo(faster.seq)
        assert (await u.get(mark.id)).value == mark.value

        seen = []
        async with asyncio.timeout(10):
            async for change in u.watch(since=mark.seq):
                seen.append(change)
                if len(seen) == 3:
                    break
        assert [change.kind for change in seen] == ["data", "data", "undo"]
        assert [len(change.items) for change in seen] == [1, 2, 1]
        assert seen[1].seq == seq

        chain = await u.causal_chain(first.id)
        assert [link.id for link in chain] == [mark.id, first.id]
