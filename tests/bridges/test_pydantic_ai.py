"""Conversations of pydantic-ai, beside its own store in memory."""

from __future__ import annotations

import asyncio
import random
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import (
    ConversationConflict,
    ConversationStore,
    InMemoryConversationStore,
)
from pydantic_ai.exceptions import UserError
from pydantic_ai.messages import ModelRequest, ModelResponse, TextPart, ToolCallPart, UserPromptPart
from pydantic_ai.models.function import FunctionModel

import dgent
from dgent.bridges.pydantic_ai import DgentConversationStore
from tests.soak import times

NAMES = ("ann", "bob", "a\0b", "x" * 600, "~", "é/ü")


def say(text: str) -> ModelRequest:
    return ModelRequest(parts=[UserPromptPart(text, timestamp=datetime(2026, 1, 1, tzinfo=UTC))])


async def act(store: ConversationStore, kept: dict[str, Any], step: tuple[Any, ...]) -> Any:
    """Make one step of a program; entry ids, which are drawn by chance, become places in histories."""
    what, name, number, scope = step
    try:
        if what == "save":
            loaded = await store.load(name, limit=number or None) or Conversation(conversation_id=name)
            loaded.messages.append(say(f"{name} {number}"))
            return len(await store.save(loaded, scope=scope))
        if what == "rewrite":
            await store.save(
                Conversation(
                    conversation_id=name,
                    messages=[say(f"new {number}")],
                    revision=await revision(store, name),
                )
            )
        elif what == "stale":
            await store.save(Conversation(conversation_id=name, messages=[say("stale")], revision="none"))
        elif what == "branch":
            branched = await store.branch(name, at=number, expected_revision=await revision(store, name))
            return list(branched.messages)
        elif what == "fork":
            forked = await store.fork(name, at=number)
            kept.setdefault("forks", []).append(forked.conversation_id)
            forked.messages.append(say("forked"))
            await store.save(forked)
        elif what == "delete":
            await store.delete(name, scope=scope)
        elif what == "entries":
            found = await store.load_entries(name, limit=number or None)
            return None if found is None else [each.message for each in found]
    except (ConversationConflict, UserError, LookupError) as error:
        return type(error).__name__
    return None


async def revision(store: ConversationStore, name: str) -> str | None:
    record = await store.read_record(name)
    return None if record is None else record.revision


async def view(store: ConversationStore, kept: dict[str, Any]) -> Any:
    """Return all that can be seen of a store, in an order that does not depend on drawn ids."""
    seen = []
    for name in (*NAMES, *kept.get("forks", ())):
        loaded = await store.load(name)
        record = await store.read_record(name)
        if loaded is None or record is None:
            seen.append(None)
            continue
        branches = []
        for tip in record.branches:
            branches.append([each.message for each in await store.read_history(tip)])
        seen.append((loaded.messages, record.scope, branches))
    listed = [record.conversation_id for record in await store.read_records()]
    forks = kept.get("forks", [])
    order = [f"fork {forks.index(each)}" if each in forks else each for each in listed]
    return seen, order, len(await store.read_records(scope="s", limit=2))


@pytest.mark.parametrize("seed", range(times(6)))
async def test_random_programs(seed: int, tmp_path: Path) -> None:
    choose = random.Random(seed)
    url = choose.choice(["memory:", f"sqlite:///{tmp_path}/s.db", f"jsonl:{tmp_path}/folder"])
    ours, theirs = DgentConversationStore(url), InMemoryConversationStore()
    mine: dict[str, Any] = {}
    other: dict[str, Any] = {}
    kinds = ["save", "save", "save", "rewrite", "stale", "branch", "fork", "delete", "entries"]
    for _ in range(25):
        step = (
            choose.choice(kinds),
            choose.choice(NAMES),
            choose.randrange(4),
            choose.choice([None, None, "s"]),
        )
        expected = await act(theirs, other, step)
        assert await act(ours, mine, step) == expected, step
        assert await view(ours, mine) == await view(theirs, other), step
    await ours.aclose()


async def test_a_run_is_continued_found_and_looked_back_at(tmp_path: Path) -> None:
    def answer(messages: list[Any], _: Any) -> ModelResponse:
        return ModelResponse(parts=[TextPart(f"answer {len(messages)} about lighthouses")])

    agent = Agent(FunctionModel(answer))
    async with dgent.open(f"sqlite:///{tmp_path}/s.db") as u:
        store = DgentConversationStore(u)
        for number in range(3):
            conversation = await store.load("talk") or Conversation(conversation_id="talk")
            result = await agent.run(f"question {number}", conversation=conversation)
            await store.save(result, scope="ann")
        loaded = await store.load("talk")
        assert loaded is not None and len(loaded.messages) == 6
        assert (await u.search("lighthouses"))[0].datum.schema == "pydantic_ai.entry"
        saved = await u.history("pydantic_ai.conversation/talk")
        assert len({each.datum.data["revision"] for each in saved}) == 3
        await store.aclose()


async def test_one_of_two_savers_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    stores = [DgentConversationStore(url), DgentConversationStore(url)]
    await stores[0].save(Conversation(conversation_id="c", messages=[say("begin")]))
    loaded = [await store.load("c") for store in stores]
    for each in loaded:
        assert each is not None
        each.messages.append(say("next"))
    done = await asyncio.gather(
        *(store.save(each) for store, each in zip(stores, loaded, strict=True)), return_exceptions=True
    )
    assert sorted(isinstance(each, ConversationConflict) for each in done) == [False, True]
    async with dgent.open(url) as u:
        assert await u.count(schema="pydantic_ai.entry") == 2
    for store in stores:
        await store.aclose()


async def test_numbers_that_json_does_not_have() -> None:
    store = DgentConversationStore("memory:")
    call = ToolCallPart("t", {"nan": float("inf"), "large": 2**70})
    await store.save(Conversation(conversation_id="c", messages=[ModelResponse(parts=[call])]))
    loaded = await store.load("c")
    assert loaded is not None
    assert loaded.messages[0].parts[0].args == {"nan": float("inf"), "large": 2**70}  # type: ignore[union-attr]
    await store.aclose()
