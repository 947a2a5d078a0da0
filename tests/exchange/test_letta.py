"""Agent files of Letta, in both of their formats."""

from __future__ import annotations

import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.blocks import Library
from dgent.errors import InputError
from dgent.exchange.foreign.letta import import_letta
from dgent.messages import Messages

MESSAGES: list[Any] = [
    {
        "id": "message-0",
        "role": "system",
        "content": "You are Sam.",
        "created_at": "2026-01-31T11:59:00+00:00",
    },
    {
        "id": "message-1",
        "role": "user",
        "content": [{"type": "text", "text": "hello"}],
        "created_at": "2026-01-31T12:00:00+00:00",
    },
    {
        "id": "message-2",
        "role": "assistant",
        "content": [{"type": "reasoning", "reasoning": "hm"}, {"type": "text", "text": "let me look"}],
        "tool_calls": [
            {"id": "call-1", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}},
            {"id": "call-2", "type": "function", "function": {"name": "lost", "arguments": "{"}},
        ],
        "created_at": "2026-01-31T12:00:01+00:00",
    },
    {
        "id": "message-3",
        "role": "tool",
        "tool_call_id": "call-1",
        "content": [{"type": "text", "text": "seen"}],
        "created_at": "2026-01-31T12:00:02+00:00",
    },
    {
        "id": "message-4",
        "role": "tool",
        "tool_call_id": "unknown",
        "content": "stray",
        "created_at": "2026-01-31T12:00:03+00:00",
    },
    {"id": "message-5", "role": "user", "content": "and now?", "created_at": "2026-01-31T12:01:00+00:00"},
    {"id": "message-6", "role": "robot", "content": "?"},
    "not a message",
]

FILE: dict[str, Any] = {
    "agents": [
        {
            "id": "agent-0",
            "name": "sam",
            "system": "You are Sam.",
            "llm_config": {"model": "m"},
            "block_ids": ["block-0", "block-1"],
            "messages": MESSAGES,
            "tool_exec_environment_variables": {"KEY": "secret"},
            "passages": [
                {"text": "Ann likes tea", "tags": ["ann"], "created_at": "2026-01-01T00:00:00Z"},
                {"text": " "},
            ],
        },
        {"id": "agent-1", "name": "ann", "block_ids": ["block-1"], "messages": []},
    ],
    "blocks": [
        {
            "id": "block-0",
            "label": "persona",
            "value": "I answer briefly.",
            "limit": 5000,
            "description": "Me.",
        },
        {"id": "block-1", "label": "facts", "value": "x" * 300, "limit": 100, "read_only": True},
        {"id": "block-2", "label": "unused", "value": "", "limit": 100},
    ],
    "tools": [{"id": "tool-0", "name": "look", "source_code": "def look(): ..."}],
    "mcp_servers": [{"id": "mcp-0", "token": "secret"}],
    "groups": [],
}


def write(path: Path, value: Any) -> str:
    path.write_text(json.dumps(value))
    return hashlib.sha256(path.read_bytes()).hexdigest()


def counts(found: Any) -> dict[str, tuple[int, int, int, int]]:
    return {each.kind: (each.read, each.written, each.already_there, each.left_out) for each in found.kinds}


@pytest.mark.parametrize("engine", ("memory", "sqlite"))
async def test_agent_file(engine: str, tmp_path: Path) -> None:
    path = tmp_path / "sam.af"
    before = write(path, FILE)
    async with dgent.open("memory:" if engine == "memory" else f"sqlite:///{tmp_path}/d.db") as u:
        dry = await import_letta(u, path, dry_run=True)
        assert await u.count(dgent.Query()) == 0
        found = await import_letta(u, path)
        expected = {
            "blocks": (3, 2, 0, 1),
            "messages": (8, 6, 0, 2),
            "passages": (2, 1, 0, 1),
            "settings": (3, 2, 0, 1),
            "tools": (1, 1, 0, 0),
            "mcp_servers": (1, 0, 0, 1),
        }
        assert counts(found) == counts(dry) == expected
        assert "secret" not in str([each.data for each in await u.query(limit=None, raw=True)])
        library = Library(u, agent="sam")
        persona = await library.get("persona")
        assert await persona.text() == "I answer briefly."
        assert await (await Library(u, agent="ann").get("facts", owner="sam")).text() == "x" * 300
        (entry,) = await library.search("tea", kind="entry")
        assert (await library.get_archived(entry.id)).at.year == 2026
        messages = Messages(u, "sam")
        page = (await messages.page()).items
        assert [(each.role, each.text) for each in reversed(page)] == [
            ("system", "You are Sam."),
            ("user", "hello"),
            ("assistant", 'let me look\n\nlost({"arguments": "{"})'),
            ("tool", "seen"),
            ("tool", "stray"),
            ("user", "and now?"),
        ]
        assert str(page[0].at) == "2026-01-31 12:01:00+00:00"
        calls = [part for each in page for part in each.parts if part.type in ("tool_call", "tool_result")]
        assert [(part.type, part.call) for part in calls] == [
            ("tool_result", "call-1"),
            ("tool_call", "call-1"),
        ]
        assert len((await messages.history()).messages) == 6
        await persona.replace("briefly", "at length")
        again = await import_letta(u, path)
        assert counts(again) == {kind: (all, 0, new, left) for kind, (all, new, _, left) in expected.items()}
        assert await persona.text() == "I answer at length."
        await messages.add("user", "later")
        assert (await messages.page(1)).items[0].text == "later"
        assert hashlib.sha256(path.read_bytes()).hexdigest() == before


async def test_older_format_and_a_new_name(tmp_path: Path) -> None:
    path = tmp_path / "old.af"
    write(
        path,
        {
            "name": "old",
            "core_memory": [{"label": "human", "value": "Ann", "limit": 10}],
            "messages": MESSAGES[:2],
            "tools": [{"name": "t"}],
            "system": "s",
        },
    )
    async with dgent.open("memory:") as u:
        found = await import_letta(u, path, agent="new")
        assert (found.read, found.written, found.left_out) == (5, 5, 0)
        assert await (await Library(u, agent="new").get("human")).text() == "Ann"
        assert await Messages(u, "new").count() == 2


async def test_later_file_adds_what_is_new(tmp_path: Path) -> None:
    path, given = tmp_path / "sam.af", {"agents": [{"name": "sam", "messages": MESSAGES[:3]}]}
    more = {"id": "message-9", "role": "user", "content": "later", "created_at": "2026-02-01T00:00:00Z"}
    async with dgent.open("memory:") as u:
        write(path, given)
        await import_letta(u, path)
        given["agents"][0]["messages"] = [*MESSAGES[1:4], more]  # type: ignore[index]
        write(path, given)
        found = await import_letta(u, path)
        assert counts(found)["messages"] == (4, 1, 2, 1)
        assert "was imported without it" in found.problems[0].message


@pytest.mark.parametrize("content", ("[1]", "{}", "{", '{"agents": 5}'))
async def test_other_files_are_refused(content: str, tmp_path: Path) -> None:
    (tmp_path / "x.af").write_text(content)
    async with dgent.open("memory:") as u:
        with pytest.raises(InputError, match="is not"):
            await import_letta(u, tmp_path / "x.af")


async def test_hostile_values_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "bad.af"
    agents = [
        {"name": 5},
        {"name": ""},
        {"name": "ok", "block_ids": 5, "messages": {"a": 1}, "deep": [2**80]},
    ]
    write(path, {"agents": [*agents, None], "blocks": [5, {"label": 3}], "tools": "x"})
    async with dgent.open("memory:") as u:
        found = await import_letta(u, path)
        assert found.written == 0 and found.left_out == found.read >= 3
