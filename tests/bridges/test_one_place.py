"""One store for all bridges of one agent system: search, log, backup and forgetting see everything."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any, TypedDict

import pytest
from langchain_core.messages import AIMessage, AnyMessage, HumanMessage
from langgraph.graph import START, StateGraph
from langgraph.graph.message import add_messages
from langgraph.types import CachePolicy
from pydantic_ai.conversation import Conversation
from pydantic_ai.messages import ModelRequest, UserPromptPart

import dgent
from dgent.bridges.anthropic import DgentAsyncMemoryTool
from dgent.bridges.langgraph import DgentCache, DgentSaver, DgentStore
from dgent.bridges.openai_agents import DgentSession
from dgent.bridges.pydantic_ai import DgentConversationStore
from dgent.cupboard import Cupboard
from dgent.errors import InputError
from dgent.exchange.backup import backup, restore
from dgent.exchange.user import forget_user
from dgent.verbs.path import invoke
from tests.cli.terminal import Terminal

USERS = {"ada": "zebra4711", "bob": "giraffe0815"}  # and the word that only this user says
SCHEMAS = {
    "langgraph.checkpoint",
    "langgraph.item",
    "openai_agents.item",
    "pydantic_ai.entry",
    "block.text",
    "cupboard.crumb",
    "cupboard.metadata",
    "desk.note",
}


class State(TypedDict):
    messages: Annotated[list[AnyMessage], add_messages]


class Desk:
    """An agent system: every bridge on one universe."""

    def __init__(self, u: dgent.Universe) -> None:
        self.u = u
        u.register(dgent.Schema("desk.note", text={"text": 1}))
        index: Any = {"dims": 2, "embed": lambda texts: [[len(text), 1.0] for text in texts]}
        self.saver, self.cache = DgentSaver(u), DgentCache[Any](u)
        self.store = DgentStore(u, index=index)
        self.conversations = DgentConversationStore(u)
        builder = StateGraph(State)
        builder.add_node("answer", self.answer, cache_policy=CachePolicy())
        builder.add_edge(START, "answer")
        self.graph: Any = builder.compile(checkpointer=self.saver, store=self.store, cache=self.cache)

    @staticmethod
    def answer(state: State) -> dict[str, Any]:
        return {"messages": [AIMessage(f"I heard {state['messages'][-1].content}")]}

    def files(self, user: str) -> DgentAsyncMemoryTool:
        return DgentAsyncMemoryTool(self.u, folder=f"memories/{user}")

    async def serve(self, user: str) -> None:
        """Keep something of a user by each framework, some of it deleted again."""
        word = USERS[user]
        thread = {"configurable": {"thread_id": f"desk-{user}", "user_id": user}}
        for text in (f"{word} monday", f"{word} tuesday"):
            await self.graph.ainvoke({"messages": [HumanMessage(text)]}, thread)
        await self.store.aput(("users", user), "likes", {"text": f"likes {word}"}, ttl=None)
        await self.store.aput(("users", user), "gone", {"text": f"liked {word}"})
        await self.store.adelete(("users", user), "gone")
        session = DgentSession(f"support/{user}", self.u)
        await session.add_items([{"role": "user", "content": f"{word} {at}"} for at in range(3)])
        await session.pop_item()
        prompt = UserPromptPart(f"{word} here")
        conversation = Conversation(conversation_id=f"c-{user}", messages=[ModelRequest(parts=[prompt])])
        await self.conversations.save(conversation, scope=user)
        files = self.files(user)
        await files.call({"command": "create", "path": "/memories/a.md", "file_text": f"{word}\n"})
        edit = {"command": "str_replace", "path": "/memories/a.md", "old_str": word, "new_str": f"my {word}"}
        await files.call(edit)
        await files.call({"command": "create", "path": "/memories/b.md", "file_text": f"{word}\n"})
        await files.call({"command": "delete", "path": "/memories/b.md"})
        cupboard = Cupboard(self.u)
        crumb = await cupboard.add(f"call {word}", state="ready", properties={"labels": [f"user:{user}"]})
        await cupboard.comment(crumb, f"{word} was out")
        note = dgent.Datum.create(
            {"text": f"{word} called"}, schema="desk.note", schema_version=1, tags={f"user:{user}"}
        )
        await self.u.put(note)
        await self.u.delete((await self.u.put(note.replace(id=f"old-{user}"))).id)

    async def see(self, user: str) -> list[Any]:
        """Return what each framework has of a user."""
        config: Any = {"configurable": {"thread_id": f"desk-{user}"}}
        conversation = await self.conversations.load(f"c-{user}")
        crumbs = await Cupboard(self.u).crumbs.fetch(properties={"labels": f"user:{user}"})
        files = await self.files(user).call({"command": "view", "path": "/memories"})
        return [
            len([each async for each in self.saver.alist(config)]),
            len(await self.store.asearch(("users", user))),
            len(await self.store.asearch(("users", user), query="likes")),
            len(await DgentSession(f"support/{user}", self.u).get_items()),
            0 if conversation is None else len(conversation.messages),
            str(files).count(".md"),
            len(crumbs),
            await self.u.count(tags={f"user:{user}"}),
        ]

    async def find(self, user: str) -> set[str | None]:
        """Return the schemas in which a search finds a user's word."""
        return {hit.datum.schema for hit in await self.u.search(USERS[user], k=100)}


FULL, NONE = [6, 1, 1, 2, 1, 1, 1, 1], [0] * 8


def holds(folder: Path, word: str) -> list[str]:
    """Return the files that have a word."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    return [path.name for path in files if word.encode() in path.read_bytes()]


@pytest.mark.parametrize("engine", ["memory", "sqlite"])
async def test_forgetting_a_user_reaches_every_bridge(engine: str, tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    async with dgent.open("memory:" if engine == "memory" else f"sqlite:///{folder}/desk.db") as u:
        desk = Desk(u)
        for user in USERS:
            await desk.serve(user)
            assert await desk.see(user) == FULL
            assert await desk.find(user) == SCHEMAS
        planned = await forget_user(u, "ada", dry_run=True)
        assert planned.dry_run and not planned.erased and await desk.see("ada") == FULL
        done = await forget_user(u, "ada")
        assert done.erased and done.schemas == planned.schemas
        assert done.records == planned.records and done.versions >= done.records
        assert {each.rpartition(".")[0] for each in done.schemas} >= {"langgraph", "block", "cupboard"}
        assert await desk.see("ada") == NONE and not await desk.find("ada")
        assert await desk.see("bob") == FULL and await desk.find("bob") == SCHEMAS
        assert not await u.count(schema="langgraph.cache")
        again = await forget_user(u, "ada")
        assert (again.records, again.schemas, again.erased) == (0, {}, True)
        if engine == "sqlite":
            assert (await invoke(u, "self.store.doctor")).healthy
        await desk.serve("ada")  # a user may come back
        assert await desk.see("ada") == FULL
    assert engine == "memory" or holds(folder, USERS["ada"])


async def test_a_forgotten_user_is_in_no_file_and_in_no_restored_backup(tmp_path: Path) -> None:
    folder = tmp_path / "store"
    folder.mkdir()
    url = f"sqlite:///{folder}/membrane.db"
    async with dgent.open(url) as u:
        desk = Desk(u)
        for user in USERS:
            await desk.serve(user)
        assert holds(folder, USERS["ada"])
        await backup(u, folder, tmp_path / "before")
        assert (await forget_user(u, "ada")).erased
    assert not holds(folder, USERS["ada"]) and holds(folder, USERS["bob"])
    await restore(tmp_path / "before", folder, replace=True)
    async with dgent.open(url) as u:
        desk = Desk(u)
        assert await desk.see("bob") == FULL
        assert await desk.see("ada") == NONE


@pytest.mark.parametrize("user", ["", "a/b", "user:ada"])
async def test_a_name_that_cannot_be_a_part_is_refused(user: str) -> None:
    async with dgent.open("memory:") as u:
        with pytest.raises(InputError, match="valid user"):
            await forget_user(u, user)


async def test_only_whole_parts_of_names_are_a_user(tmp_path: Path) -> None:
    async with dgent.open("memory:") as u:
        desk = Desk(u)
        await desk.serve("bob")
        for user in ("bo", "bobby", "user", "Bob"):
            assert not {*(await forget_user(u, user, dry_run=True)).schemas} - {"langgraph.cache"}


async def test_what_has_expired_is_forgotten_too(tmp_path: Path) -> None:
    async with dgent.open(f"sqlite:///{tmp_path}/desk.db") as u:
        desk = Desk(u)
        await desk.cache.aset({(("n",), "k"): (USERS["ada"], 0)})
        await desk.store.aput(("users", "ada"), "soon", {"text": USERS["ada"]}, ttl=1e-9)
        note = dgent.Datum.create({"text": USERS["ada"]}, tags={"user:ada"})
        await u.put(note.replace(expires_at=dgent.clock.now()))
        assert await u.count() == 0 and holds(tmp_path, USERS["ada"])
        done = await forget_user(u, "ada")
        assert {"langgraph.cache", "langgraph.item", "langgraph.vector.2-cosine"} <= done.schemas.keys()
    assert not holds(tmp_path, USERS["ada"])


def test_the_log_is_the_timeline_of_a_thread(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    url = f"sqlite:///{tmp_path}/desk.db"
    with DgentSaver(url) as saver:
        builder = StateGraph(State)
        builder.add_node("answer", Desk.answer)
        builder.add_edge(START, "answer")
        graph: Any = builder.compile(checkpointer=saver)
        graph.invoke({"messages": [HumanMessage("hello")]}, {"configurable": {"thread_id": "monday"}})
        entries = saver.place.run(invoke, "self.data.log", schema="langgraph.checkpoint").items
    assert [each.note for each in entries] == [
        "thread monday: step 1, loop",
        "thread monday: step 0, loop",
        "thread monday: step -1, input",
    ]
    shown = entries[0].items[0].record
    assert shown.data["preview"] == "I heard hello"
    shown = Terminal(tmp_path / "home", monkeypatch)("--url", url, "log").out
    assert "thread monday: step 0, loop" in shown
