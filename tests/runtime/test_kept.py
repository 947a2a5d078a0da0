"""What a builder keeps between turns: whatever others do, a context shows what a new reader finds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.blocks import Library
from dgent.cupboard import Cupboard
from dgent.messages import Messages
from dgent.runtime.agent import AgentRuntime
from dgent.runtime.context.budget import ContextBudget
from dgent.runtime.context.build import ContextBuilder
from dgent.runtime.model.script import ScriptedModel
from dgent.universe import tail as tails
from dgent.universe.universe import Universe
from tests.fault.nursery import Nursery
from tests.runtime.disturb import Others

BUDGET = ContextBudget(history=200)


class Plain:
    """A backend without an epoch, so that nothing is kept on it: everything is read from the records."""

    epoch = b""

    def __init__(self, backend: Any) -> None:
        self._backend = backend

    def __getattr__(self, name: str) -> Any:
        return getattr(self._backend, name)


async def check(u: Universe, builder: ContextBuilder) -> None:
    """Compare a context with one that is read anew."""
    messages = Messages(u, "scout")
    batch = await messages.begin()
    await batch.add("user", "what now?")
    plain = u._twin(backend=Plain(u.backend))
    kept = await builder.build(batch)
    assert await tails.follow(u) is not None and await tails.follow(plain) is None
    found = await ContextBuilder(plain, "scout", budget=BUDGET).build(batch)
    assert kept.write() == found.write() and kept == found
    assert await batch.messages() == await (await Messages(plain, "scout").get_batch(batch.id)).messages()
    await batch.complete()


@pytest.mark.parametrize("seed", range(6))
async def test_a_context_shows_what_others_did_since_the_last_one(tmp_path: Path, seed: int) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    async with dgent.open(url, author="ann") as u, dgent.open(url, author="bob") as other:
        builder, others = ContextBuilder(u, "scout", budget=BUDGET), Others(other, seed)
        for number in range(60):
            await others.act()
            if number % 3 == 0:
                await check(u, builder)


@pytest.mark.parametrize("seed", range(3))
async def test_a_short_tail_never_shows_less(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {"FIRST": 3, "PAGE": 2, "MOST": 6, "LARGE_BYTES": 600, "MOST_BYTES": 3_000}.items():
        monkeypatch.setattr(tails, name, value)
    async with dgent.open(f"sqlite:///{tmp_path}/store.db", author="ann") as u:
        builder, others = ContextBuilder(u, "scout", budget=BUDGET), Others(u, seed)
        for _ in range(30):
            await others.act()
            await check(u, builder)


async def test_a_context_shows_what_another_process_did(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/store.db"
    with Nursery("tests.runtime.disturb") as nursery:
        async with dgent.open(url, author="ann") as u:
            builder = ContextBuilder(u, "scout", budget=BUDGET)
            for seed in range(12):
                child = nursery.start("disturb", url=url, seed=seed, count=8)
                await asyncio.to_thread(nursery.finish, child)
                await check(u, builder)


async def test_many_agents_at_once_see_their_own_history_and_what_is_shared(tmp_path: Path) -> None:
    async with dgent.open(f"sqlite:///{tmp_path}/store.db", author="ann", durability="relaxed") as u:
        team = [
            AgentRuntime(u, f"agent-{number}", model=ScriptedModel(["It stands there."], repeat=True), own=())
            for number in range(30)
        ]
        for turn in range(3):
            await asyncio.gather(*(each.run(f"turn {turn} of {each.agent}") for each in team))
        library = Library(u, "agent-0")
        await library.create("news", text="a storm comes", kind="core", owner="_constellation_")
        await Cupboard(u).add("mend the nets", state="ready")
        for each in team:
            context = await each.builder.build()
            said = [message.text for message in context.history if message.role == "user"]
            assert said == [f"turn {turn} of {each.agent}" for turn in range(3)]
            assert "a storm comes" in context["core"].text and "mend the nets" in context["work"].text
            await each.close()
