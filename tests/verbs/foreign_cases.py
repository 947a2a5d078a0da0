"""Cases of the verbs that import the stores of other frameworks, and small files of each."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path

from tests.verbs.case import Case


def _cases(name: str) -> list[Case]:
    path = f"{{foreign}}/{name}"
    return [
        Case({"source": path}, [path]),
        Case({"source": path, "dry_run": True}, [path, "--dry-run"]),
        Case({"source": "{new}"}, ["{new}"], "not_found"),
        Case({"source": "{crumbs}/issues.jsonl"}, ["{crumbs}/issues.jsonl"], "input"),
    ]


FOREIGN_CASES: dict[str, list[Case]] = {
    "langgraph.import": _cases("store.sqlite"),
    "openai-agents.import": _cases("sessions.db"),
    "letta.import": _cases("scout.af"),
    "mem0.import": _cases("memories.json"),
}


def fill_foreign(path: Path) -> None:
    """A store of LangGraph with an item, a session with a message, an agent with a block, and a memory."""
    path.mkdir(parents=True)
    agent = {"name": "scout", "block_ids": ["b"]}
    blocks = [{"id": "b", "label": "imported", "value": "hello", "limit": 100}]
    (path / "scout.af").write_text(json.dumps({"agents": [agent], "blocks": blocks}))
    (path / "memories.json").write_text(json.dumps([{"id": "m1", "memory": "Likes tea"}]))
    for name, table, row in (
        ("store.sqlite", "store (prefix, key, value, created_at, updated_at)", ("a", "k", "{}", None, None)),
        ("sessions.db", "agent_messages (id, session_id, message_data)", (1, "s", "{}")),
    ):
        connection = sqlite3.connect(path / name)
        connection.execute(f"CREATE TABLE {table}")
        places = ", ".join("?" * len(row))
        connection.execute(f"INSERT INTO {table.partition(' ')[0]} VALUES ({places})", row)
        connection.commit()
        connection.close()
