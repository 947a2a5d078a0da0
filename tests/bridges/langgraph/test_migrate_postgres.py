"""A database of LangGraph's saver and store for Postgres, imported and read by ours."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import Any

import psycopg
import pytest
from langchain_core.messages import AIMessage, HumanMessage
from langgraph.checkpoint.postgres import PostgresSaver
from langgraph.graph import START, MessagesState, StateGraph
from langgraph.store.postgres import PostgresStore

import dgent
from dgent.bridges.langgraph import DgentSaver, DgentStore
from dgent.bridges.langgraph.migrate import import_langgraph
from dgent.errors import InputError, Unavailable
from tests.postgres.lease import server_url


@pytest.fixture
def database() -> Iterator[str]:
    """The URL of a database of its own."""
    name, url = f"lg_{uuid.uuid4().hex[:12]}", server_url()
    base, _, _ = url.partition("?")
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}")
        yield url.replace(base, base.rpartition("/")[0] + f"/{name}")
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)")


async def test_saver_and_store_of_postgres(database: str) -> None:
    chat = StateGraph(MessagesState)
    chat.add_node("say", lambda state: {"messages": [AIMessage("long " * 40)]})
    chat.add_edge(START, "say")
    with PostgresSaver.from_conn_string(database) as saver, PostgresStore.from_conn_string(database) as store:
        saver.setup()
        store.setup()
        app = chat.compile(checkpointer=saver)
        for turn in range(12):
            config: Any = {"configurable": {"thread_id": f"t{turn % 2}"}}
            app.invoke({"messages": [HumanMessage(f"hi {turn}")]}, config)
            store.put(
                ("users", "ann"), f"k{turn}", {"n": turn, "text": "é"}, ttl=5 if turn % 3 == 0 else None
            )
        with psycopg.connect(database) as connection:
            connection.execute(
                "INSERT INTO checkpoint_writes (thread_id, checkpoint_id, task_id, idx, channel, type, blob)"
                " VALUES ('bad', '1', 't', 0, 'c', 'pickle', '\\x80')"
            )
        async with dgent.open("memory:") as u:
            found = await import_langgraph(u, database)
            assert (found.left_out, found.already_there) == (1, 0) and "unpickled" in found.problems[
                0
            ].message
            again = await import_langgraph(u, database)
            assert (again.written, again.already_there) == (0, found.written)
            theirs = list(saver.list(None))
            assert len(theirs) == 36 and [each async for each in DgentSaver(u).alist(None)] == theirs
            items = await DgentStore(u).asearch(("users",), limit=50)
            assert [each.dict() for each in items] == [
                each.dict() for each in store.search(("users",), limit=50)
            ]


async def test_database_without_tables(database: str) -> None:
    async with dgent.open("memory:") as u:
        with pytest.raises(InputError, match="no tables of LangGraph"):
            await import_langgraph(u, database)
        with pytest.raises(Unavailable, match="cannot be read"):
            await import_langgraph(u, "postgresql://nobody:secret@127.0.0.1:1/none")
