"""Sessions of the OpenAI Agents SDK, beside its own ones."""

from __future__ import annotations

import asyncio
import math
import random
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from agents import (
    Agent,
    Model,
    ModelResponse,
    OpenAIResponsesCompactionSession,
    RunConfig,
    Runner,
    Session,
    SQLiteSession,
    Usage,
)
from agents.extensions.memory.advanced_sqlite_session import AdvancedSQLiteSession
from openai.types.responses import ResponseOutputMessage, ResponseOutputText

import dgent
from dgent.bridges.openai_agents import DgentSession
from tests.command import python
from tests.postgres.lease import url_for
from tests.soak import times

NAMES = ("main", "a", "b", "é/ü", "~", "x" * 600)
TERMS = ("say", "SAY 1", "É", "%", "nothing", "\\", '"', "")
ENGINES = ("memory", "sqlite", "jsonl", "postgres")


def place(engine: str, folder: Path) -> str:
    if engine == "postgres":
        return url_for(folder)
    return {"memory": "memory:", "sqlite": f"sqlite:///{folder}/s.db", "jsonl": f"jsonl:{folder}/store"}[
        engine
    ]


def make_item(choose: random.Random) -> dict[str, Any]:
    number = choose.randrange(5)
    return choose.choice(
        [
            {"role": "user", "content": f'say {number} é% \\ "'},
            {"role": "user", "content": [{"type": "input_text", "text": f"Say {number}" + "y" * 120}]},
            {"role": "assistant", "content": f"answer {number}"},
            {"type": "function_call", "name": f"tool{number % 2}", "call_id": "c", "arguments": "{}"},
            {"type": "function_call", "name": "t", "namespace": "space", "call_id": "c", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "c", "output": "\ud800\0"},
            {"type": "mcp_call", "name": "n", "server_label": "server", "large": 2**70},
            {"type": "shell_call"},
            {"type": "tool_search_call"},
            {"type": "tool_search_output"},
            {"type": "reasoning", "summary": [], "number": math.inf},
            {},
        ]
    )


def make_usage(choose: random.Random) -> Any:
    usage = Usage(requests=1, input_tokens=choose.randrange(9), output_tokens=2, total_tokens=7)
    return SimpleNamespace(context_wrapper=SimpleNamespace(usage=usage))


def make_step(choose: random.Random) -> tuple[str, list[Any]]:
    kind = choose.choice(
        ["add_items"] * 5
        + ["pop_item"] * 3
        + ["create_branch_from_turn"] * 2
        + ["create_branch_from_content", "switch_to_branch", "switch_to_branch", "delete_branch"]
        + ["store_run_usage", "store_run_usage"]
        + (["clear_session"] if choose.random() < 0.3 else [])
    )
    arguments: dict[str, Any] = {
        "add_items": lambda: [[make_item(choose) for _ in range(choose.randrange(5))]],
        "create_branch_from_turn": lambda: [choose.randrange(5), choose.choice((*NAMES, " "))],
        "create_branch_from_content": lambda: [choose.choice(TERMS), choose.choice(NAMES)],
        "switch_to_branch": lambda: [choose.choice(NAMES)],
        "delete_branch": lambda: [choose.choice((*NAMES, "")), choose.random() < 0.5],
        "store_run_usage": lambda: [make_usage(choose)],
    }
    return kind, arguments.get(kind, list)()


async def act(session: Any, kind: str, arguments: list[Any]) -> Any:
    try:
        return await getattr(session, kind)(*arguments)
    except ValueError as error:
        return str(error)


def without(rows: list[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    return [{key: value for key, value in row.items() if key != name} for row in rows]


async def view(session: Any) -> dict[str, Any]:
    """Return all that can be seen of a session, except times."""
    branches = without(await session.list_branches(), "created_at")
    seen: dict[str, Any] = {"branches": sorted(branches, key=lambda each: each["branch_id"])}
    seen["usage"] = await session.get_session_usage()
    for limit in (0, 1, 3, -1, 2**63 - 1):
        seen[f"last {limit}"] = await session.get_items(limit)
    for name in (None, *NAMES):
        seen[f"items {name}"] = await session.get_items(branch_id=name)
        seen[f"turns {name}"] = without(await session.get_conversation_turns(name), "timestamp")
        seen[f"kinds {name}"] = await session.get_conversation_by_turns(name)
        seen[f"tools {name}"] = await session.get_tool_usage(name)
        seen[f"turn usage {name}"] = await session.get_turn_usage(branch_id=name)
        seen[f"one {name}"] = await session.get_turn_usage(1, name)
        seen[f"session usage {name}"] = await session.get_session_usage(name)
    for term in TERMS:
        seen[f"find {term}"] = without(await session.find_turns_by_content(term), "timestamp")
    return seen


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("seed", range(times(3)))
async def test_random_programs_with_branches(engine: str, seed: int, tmp_path: Path) -> None:
    choose = random.Random(f"{engine} {seed}")
    async with dgent.open(place(engine, tmp_path)) as u:
        ours = [DgentSession("s\0/é", u), DgentSession("s\0/é", u)]
        other = DgentSession("another", u)
        await other.add_items([{"role": "user", "content": "stays"}])
        file = tmp_path / "theirs.db"
        theirs = [AdvancedSQLiteSession(session_id="s", db_path=file, create_tables=True) for _ in range(2)]
        for _ in range(40):
            which = choose.choice((0, 0, 0, 1))
            kind, arguments = make_step(choose)
            expected = await act(theirs[which], kind, arguments)
            assert await act(ours[which], kind, arguments) == expected, (kind, arguments)
            assert await view(ours[which]) == await view(theirs[which]), (kind, arguments)
        reached = {
            json_item
            for branch in await ours[0].list_branches()
            for json_item in await ids_of(u, ours[0], branch["branch_id"])
        }
        stored = await u.query(schema="openai_agents.item", limit=None, raw=True)
        assert {each.id for each in stored if each.data["session"] != "another"} == reached
        assert len(await other.get_items()) == 1
        for session in (*ours, other):
            await session.aclose()
        for each in theirs:
            each.close()


async def ids_of(u: Any, session: DgentSession, branch: str) -> list[str]:
    return [each.id for each in await session._chain(u, branch)]


@pytest.mark.parametrize("seed", range(times(4)))
async def test_random_programs_with_compaction(seed: int, tmp_path: Path) -> None:
    choose = random.Random(seed)
    ours = DgentSession("s", place(choose.choice(ENGINES[:3]), tmp_path))
    theirs = SQLiteSession("s", tmp_path / "theirs.db")
    for _ in range(40):
        kind = choose.choice(["add_items", "add_items", "pop_item", "compact", "compact", "clear_session"])
        if kind == "compact":
            same = choose.random()
            expected, found = [await compact(each, random.Random(same)) for each in (theirs, ours)]
        else:
            arguments = [[make_item(choose) for _ in range(4)]] if kind == "add_items" else []
            if kind == "clear_session" and choose.random() < 0.7:
                continue
            expected = await act(theirs, kind, arguments)
            found = await act(ours, kind, arguments)
        assert found == expected, kind
        for limit in (None, 0, 1, 5, -1):
            assert await ours.get_items(limit) == await theirs.get_items(limit)
    await ours.aclose()
    theirs.close()


async def compact(session: Any, choose: random.Random) -> Any:
    prune = choose.choice([None, lambda item: item.get("role") != "user"])
    snapshot = await session._get_compaction_snapshot(choose.randrange(1, 8), prune_prefix=prune)
    if choose.random() < 0.3:
        await session.add_items([{"role": "user", "content": "meanwhile"}])
    start, output = choose.randrange(8), [make_item(choose) for _ in range(choose.randrange(3))]
    return snapshot.items, snapshot.complete, await snapshot.replace_suffix(start, output)


async def test_a_compaction_leaves_other_branches_alone() -> None:
    async with dgent.open("memory:") as u:
        session = DgentSession("s", u)
        for number in range(4):
            await session.add_items([{"role": "user", "content": f"{number}"}])
        await session.create_branch_from_turn(4, "other")
        before = await session.get_items()
        await session.switch_to_branch("main")
        snapshot = await session._get_compaction_snapshot(9, prune_prefix=lambda item: item["content"] == "0")
        assert await snapshot.replace_suffix(2, [{"type": "compaction"}])
        assert await session.get_items() == [{"role": "user", "content": "1"}, {"type": "compaction"}]
        assert await session.get_items(branch_id="other") == before
        await session.aclose()


class Scripted(Model):
    """A model that says how many items it was given."""

    async def get_response(self, system_instructions: Any, input: Any, *args: Any, **kwargs: Any) -> Any:
        text = ResponseOutputText(text=f"saw {len(input)}", type="output_text", annotations=[], logprobs=[])
        message = ResponseOutputMessage(
            id="m", type="message", role="assistant", status="completed", content=[text]
        )
        usage = Usage(requests=1, input_tokens=3, output_tokens=2, total_tokens=5)
        return ModelResponse(output=[message], usage=usage, response_id=None)

    def stream_response(self, *args: Any, **kwargs: Any) -> AsyncIterator[Any]:
        raise NotImplementedError


async def test_runs_go_on_and_are_found(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    agent, config = Agent("a", model=Scripted()), RunConfig(tracing_disabled=True)
    for number in range(3):
        session = DgentSession("talk", url)
        assert isinstance(session, Session)
        result = await Runner.run(agent, f"lighthouse {number}", session=session, run_config=config)
        assert result.final_output == f"saw {2 * number + 1}"
        await session.store_run_usage(result)
        await session.aclose()
    async with dgent.open(url) as u:
        session = DgentSession("talk", u)
        usage = await session.get_session_usage()
        assert usage is not None and (usage["total_turns"], usage["total_tokens"]) == (3, 15)
        assert (await u.search("lighthouse"))[0].datum.schema == "openai_agents.item"
        await session.aclose()


@pytest.mark.parametrize("engine", ENGINES)
async def test_a_cancelled_change_is_done(engine: str, tmp_path: Path) -> None:
    session = DgentSession("s", place(engine, tmp_path))
    for number in range(5):
        adding = asyncio.ensure_future(session.add_items([{"role": "user", "content": f"{number}"}]))
        await asyncio.sleep(0)
        adding.cancel()
        with pytest.raises(asyncio.CancelledError):
            await adding
        assert len(await session.get_items()) == number + 1
    await session.aclose()


@pytest.mark.parametrize("engine", ENGINES)
async def test_many_at_once_keep_their_order(engine: str, tmp_path: Path) -> None:
    session = DgentSession("s", place(engine, tmp_path))
    items = [{"role": "user", "content": f"{number}"} for number in range(30)]
    await asyncio.gather(*(session.add_items([item]) for item in items))
    assert await session.get_items() == items
    popped = await asyncio.gather(*(session.pop_item() for _ in range(31)))
    assert popped == [*reversed(items), None]
    await session.aclose()


async def test_a_change_does_not_overtake_those_before_the_store_was_open(tmp_path: Path) -> None:
    session = DgentSession("s", f"sqlite:///{tmp_path}/s.db")
    items = [{"role": "user", "content": f"{number}"} for number in range(12)]
    adding = []
    for item in items:  # the store opens on a thread of its own between some of these
        adding.append(asyncio.ensure_future(session.add_items([item])))
        await asyncio.sleep(0.002)
    await asyncio.gather(*adding)
    assert await session.get_items() == items
    await session.aclose()


async def test_two_stores_that_write_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    async with dgent.open(url) as u, dgent.open(url) as v:
        sessions = [DgentSession("s", u), DgentSession("s", v)]
        await asyncio.gather(
            *(sessions[n % 2].add_items([{"role": "user", "content": f"{n}"}] * 2) for n in range(20))
        )
        said = [item["content"] for item in await sessions[0].get_items()]
        assert said[::2] == said[1::2] and sorted(map(int, said[::2])) == [*range(20)]
        for session in sessions:
            await session.aclose()


OTHER = """
import asyncio, sys, dgent
from dgent.bridges.openai_agents import DgentSession, records

async def main():
    url, what = sys.argv[1:]
    session = DgentSession("s", url)
    if what == "pop":
        await session.pop_item()
    elif what == "add":
        await session.add_items([{"role": "user", "content": "another"}])
    await session.aclose()
    if what == "forget":
        async with dgent.open(url) as u:
            await u.forget(records.record_id(records.ITEM.name, "s", "000002"))

asyncio.run(main())
"""


async def test_what_another_program_did_is_seen_at_once(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path}/s.db"
    session = DgentSession("s", url)
    items: list[Any] = [{"role": "user", "content": f"{n}"} for n in range(4)]
    added: list[Any] = [{"role": "user", "content": "another"}]
    await session.add_items(items)
    for other, after in (("add", [*items, *added]), ("pop", items), ("forget", items[2:])):
        before = await session.get_items()
        assert before == await session.get_items(), "from memory"
        await asyncio.to_thread(subprocess.run, [python(), "-c", OTHER, url, other], check=True)
        assert await session.get_items() == after, other
    await session.aclose()


async def test_what_was_read_follows_own_changes() -> None:
    ours, theirs = DgentSession("s", "memory:own"), SQLiteSession("s")
    draw = random.Random(3)
    for n in range(times(300)):
        for session in (ours, theirs):
            if n % 3 == 0:
                await session.add_items([{"role": "user", "content": f"{n}/{k}"} for k in range(n % 4)])
            elif n % 7 == 0:
                await session.pop_item()
        limit = draw.choice((None, 1, 5))
        assert await ours.get_items(limit) == await theirs.get_items(limit)
    await ours.aclose()


async def test_the_compaction_of_the_sdk_works_on_it() -> None:
    async def answer(**_: Any) -> Any:
        return SimpleNamespace(output=[{"type": "compaction", "encrypted_content": "x"}], usage=None)

    session = DgentSession("s", "memory:")
    client: Any = SimpleNamespace(responses=SimpleNamespace(compact=answer))  # the real one needs a key
    compacting = OpenAIResponsesCompactionSession("s", session, client=client)
    await compacting.add_items([{"role": "user", "content": f"{number}"} for number in range(3)])
    await compacting.run_compaction({"force": True, "compaction_mode": "input"})
    assert await session.get_items() == [{"type": "compaction", "encrypted_content": "x"}]
    await session.aclose()


def test_without_the_sdk_the_error_names_the_extra() -> None:
    code = "import sys; sys.modules['agents'] = None; import dgent.bridges.openai_agents"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert "pip install 'dgent[openai-agents]'" in done.stderr


async def test_what_cannot_be_stored_stores_nothing() -> None:
    session = DgentSession("s", "memory:", session_settings={"limit": 1})
    with pytest.raises(TypeError):
        await session.add_items([{"role": "user", "content": "a"}, {"role": "user", "content": object()}])
    assert await session.get_items() == []
    await session.add_items([{"role": "user", "content": each} for each in "ab"])
    assert len(await session.get_items()) == 1 and len(await session.get_items(2)) == 2
    with pytest.raises(UnicodeEncodeError):
        DgentSession("\ud800", "memory:")
    await session.aclose()


async def test_calls_after_close_are_refused() -> None:
    session = DgentSession("s", "memory:")
    await session.aclose()
    session.close()
    for call in ("get_items", "pop_item", "clear_session", "list_branches", "get_session_usage"):
        with pytest.raises(RuntimeError, match="closed"):
            await getattr(session, call)()
    with pytest.raises(RuntimeError, match="closed"):
        await session.add_items([])
