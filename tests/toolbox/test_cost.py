"""What an everyday tool costs: functions that run between the call and the answer, and records decoded."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import dgent
from dgent.doors.tools.toolbox import Toolbox
from dgent.universe.gate import Principal
from tests.calls import Calls

EVERYDAY: dict[str, tuple[dict[str, Any], int, int]] = {
    "block_get": ({"label": "notes"}, 350, 4),
    "block_append": ({"label": "notes", "text": "More.\n"}, 650, 4),
    "memory": ({}, 300, 3),
    "work_ready": ({}, 700, 8),
    "remember": ({"data": {"text": "a short note"}}, 300, 2),
}


@pytest.mark.parametrize("tool", EVERYDAY)
async def test_an_everyday_tool_runs_few_functions(tmp_path: Path, tool: str) -> None:
    given, functions, decoded = EVERYDAY[tool]
    with Calls() as calls:
        async with dgent.open(f"sqlite:///{tmp_path}/a.db", durability="relaxed") as u:
            toolbox = Toolbox(
                u.acting(Principal("scout", "friend")), tools=(*EVERYDAY, "block_create", "work_add")
            )
            assert (await toolbox.call("block_create", {"label": "notes", "text": "The parser is slow.\n"}))[
                "ok"
            ]
            assert (await toolbox.call("work_add", {"name": "Fix the parser"}))["ok"]
            for _ in range(3):
                assert (await toolbox.call(tool, given))["ok"]
            with calls.counting():
                answer = await toolbox.call(tool, given)
            assert answer["ok"]
            assert (calls.python < functions, calls.decoded <= decoded) == (True, True), (
                calls.python,
                calls.decoded,
            )
