"""The smaller bridges beside what their frameworks bring: sessions, memory files, conversations, a cache."""

from __future__ import annotations

import importlib.util
import itertools
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from bench.measure import Block, Row, Stopwatch, Took, compared, interleave, say
from bench.plan import Plan
from bench.stores import Stores

OURS, BASE = "dgent", "framework"
_CALLS, ITEMS, _ROUNDS = 10, 200, 16
GOAL = 1.0
_PARTS = {
    "agents": "openai-agents",
    "anthropic": "anthropic",
    "pydantic_ai": "pydantic-ai",
    "langgraph": "langgraph",
}

Work = Mapping[str, Callable[[Any], Awaitable[Any]]]
"""Calls by name; each takes a system."""


async def bridges(plan: Plan, stores: Stores) -> list[Row]:
    """Measure the calls of each bridge whose framework is installed."""
    say("  bridges beside what their frameworks bring")
    rows: list[Row] = []
    for (module, extra), measure in zip(
        _PARTS.items(), (_sessions, _files, _conversations, _cache), strict=True
    ):
        if importlib.util.find_spec(module) is None:
            rows.append(Row(extra, verdict=f"skipped: pip install 'dgent[{extra}]' brings it"))
            continue
        with TemporaryDirectory() as folder:
            async with AsyncExitStack() as stack:
                rows += await measure(plan, Path(folder), stack)
    return rows


async def compare_calls(
    plan: Plan, what: str, base: str, systems: Mapping[str, Any], work: Work, at_most: float | None = None
) -> list[Row]:
    """Compare calls of a bridge with those of what its framework brings, in turns."""
    rows = []
    for name, call in work.items():

        def block(system: Any, call: Any = call) -> Block:
            async def run() -> Took:
                watch = Stopwatch()
                for _ in range(_CALLS):
                    await call(system)
                return watch.each(_CALLS)

            return run

        blocks = {key: block(system) for key, system in systems.items()}
        times = await interleave(blocks, min(plan.rounds, _ROUNDS))
        rows.append(compared(f"{what}: {name} / {base}", times, OURS, BASE, at_most=at_most))
    return rows


async def _sessions(plan: Plan, folder: Path, stack: AsyncExitStack) -> list[Row]:
    from agents import SQLiteSession

    from dgent.bridges.openai_agents import DgentSession

    ours, theirs = DgentSession("s", f"sqlite:///{folder}/ours.db"), SQLiteSession("s", folder / "theirs.db")
    stack.push_async_callback(ours.aclose)
    stack.callback(theirs.close)
    count = itertools.count()

    def items(number: int) -> list[Any]:
        return [{"role": "user", "content": f"message {next(count)} " * 12} for _ in range(number)]

    systems = {OURS: ours, BASE: theirs}
    for session in systems.values():
        for _ in range(ITEMS // 2):
            await session.add_items(items(2))
    work: Work = {
        "add two items": lambda session: session.add_items(items(2)),
        "get the last 20": lambda session: session.get_items(20),
        f"get more than {ITEMS}": lambda session: session.get_items(),
        "pop an item": lambda session: session.pop_item(),
    }
    return await compare_calls(plan, "OpenAI session", "its SQLiteSession", systems, work, GOAL)


async def _files(plan: Plan, folder: Path, stack: AsyncExitStack) -> list[Row]:
    from anthropic.lib.tools._beta_builtin_memory_tool import BetaAsyncLocalFilesystemMemoryTool
    from anthropic.types import beta

    from dgent.bridges.anthropic import DgentAsyncMemoryTool

    ours = DgentAsyncMemoryTool(f"sqlite:///{folder}/ours.db")
    stack.push_async_callback(ours.close)
    systems = {OURS: ours, BASE: BetaAsyncLocalFilesystemMemoryTool(str(folder))}
    count = itertools.count()
    path, text = "/memories/notes.md", "a line of notes\n" * 100
    create, view = beta.BetaMemoryTool20250818CreateCommand, beta.BetaMemoryTool20250818ViewCommand
    insert, replace = beta.BetaMemoryTool20250818InsertCommand, beta.BetaMemoryTool20250818StrReplaceCommand
    for tool in systems.values():
        await tool.create(create(command="create", path=path, file_text=f"{text}turn 0\n"))

    async def edit(tool: Any) -> None:
        line = f"turn {next(count)}"
        await tool.insert(insert(command="insert", path=path, insert_line=1, insert_text=f"{line}\n"))
        await tool.str_replace(replace(command="str_replace", path=path, old_str=f"{line}\n", new_str=""))

    work: Work = {
        "create a file": lambda tool: tool.create(
            create(command="create", path=f"/memories/{next(count)}.md", file_text=text)
        ),
        "view a file": lambda tool: tool.view(view(command="view", path=path)),
        "insert and replace": edit,
    }
    return await compare_calls(plan, "Anthropic memory", "its files, not synced", systems, work)


async def _conversations(plan: Plan, folder: Path, stack: AsyncExitStack) -> list[Row]:
    from pydantic_ai.conversation import Conversation
    from pydantic_ai.conversation_store import InMemoryConversationStore
    from pydantic_ai.messages import ModelRequest, UserPromptPart

    from dgent.bridges.pydantic_ai import DgentConversationStore

    ours = DgentConversationStore(f"sqlite:///{folder}/ours.db")
    stack.push_async_callback(ours.aclose)
    systems: dict[str, Any] = {OURS: ours, BASE: InMemoryConversationStore()}

    async def save(store: Any) -> None:
        talk = await store.load("c", limit=1)
        talk.messages.append(ModelRequest(parts=[UserPromptPart("a message " * 12)]))
        await store.save(talk)

    for store in systems.values():
        await store.save(Conversation(conversation_id="c"))
        for _ in range(50):
            await save(store)
    work: Work = {
        "load the last, add one, save": save,
        "load the last 20": lambda store: store.load("c", limit=20),
    }
    return await compare_calls(plan, "pydantic-ai conversation", "its store in memory", systems, work)


async def _cache(plan: Plan, folder: Path, stack: AsyncExitStack) -> list[Row]:
    if importlib.util.find_spec("langgraph.cache.sqlite") is None:
        return []
    from langgraph.cache.sqlite import SqliteCache

    from dgent.bridges.langgraph import DgentCache

    ours: Any = DgentCache(f"sqlite:///{folder}/ours.db")
    stack.push_async_callback(ours.aclose)
    systems = {OURS: ours, BASE: SqliteCache(path=str(folder / "theirs.db"))}
    count = itertools.count()
    for cache in systems.values():
        await cache.aset({(("node",), f"k{at}"): ({"answer": "x" * 200}, 3600) for at in range(ITEMS)})
    work: Work = {
        "set": lambda cache: cache.aset({(("node",), f"n{next(count)}"): ({"answer": "x" * 200}, 3600)}),
        "get": lambda cache: cache.aget([(("node",), "k7")]),
    }
    return await compare_calls(plan, "LangGraph node cache", "its SqliteCache", systems, work, GOAL)
