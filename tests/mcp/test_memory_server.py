"""`dgent mcp --compat memory-server`: what the reference memory server does, on dgent's store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import mcp_types as types
import pytest
from mcp.shared.exceptions import MCPError

import dgent
from dgent.doors.mcp.client import Clients
from dgent.doors.mcp.memory_server import MemoryServer
from dgent.verbs.caller import Trust
from tests.mcp.host import MODES, Host, connect, server

URI = "memory://knowledge-graph"
COMPAT = ("--compat", "memory-server")
ANN = {"name": "Ann", "entityType": "person", "observations": ["likes Tea"]}
BOB = {"name": "Bob", "entityType": "person", "observations": []}
ACME = {"name": "Acme", "entityType": "company", "observations": ["sells tea", "old"]}
KNOWS = {"from": "Ann", "to": "Bob", "relationType": "knows"}
WORKS = {"from": "Bob", "to": "Acme", "relationType": "works at"}


@pytest.fixture
async def u(store_path: Path) -> AsyncIterator[dgent.Universe]:
    async with dgent.open(f"sqlite:///{store_path}/s.db", author="ann") as universe:
        yield universe


def inside(u: dgent.Universe, trust: Trust = "friend") -> Any:
    return MemoryServer(Clients(u, trust, None, ())).server()


async def call(host: Host, tool: str, **arguments: Any) -> Any:
    """Call a tool that must succeed: its structured content, which its text must fit."""
    result = await host.client.call_tool(tool, arguments)
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    assert not result.is_error, content.text
    found = result.structured_content
    assert found is not None
    if "message" in found:
        assert found == {"success": True, "message": content.text}
    else:
        shown = found if tool in ("read_graph", "search_nodes", "open_nodes") else next(iter(found.values()))
        assert content.text == json.dumps(shown, indent=2, ensure_ascii=False)
    return found


async def refusal(host: Host, tool: str, arguments: dict[str, Any]) -> str:
    result = await host.client.call_tool(tool, arguments)
    assert result.is_error and result.structured_content is None
    (content,) = result.content
    assert isinstance(content, types.TextContent)
    return content.text


async def fill(host: Host) -> None:
    await call(host, "create_entities", entities=[ANN, BOB, ACME])
    await call(host, "create_relations", relations=[KNOWS, WORKS])


def required(schema: Any) -> set[str]:
    assert schema["type"] == "object" and schema["additionalProperties"] is False
    return set(schema["required"])


async def test_the_nine_tools(u: dgent.Universe) -> None:
    async with connect(inside(u)) as host:
        tools = {each.name: each for each in (await host.client.list_tools()).tools}
        assert host.client.server_info is not None and host.client.server_info.name == "memory-server"
    takes = {name: required(each.input_schema) for name, each in tools.items()}
    assert takes == {
        "create_entities": {"entities"},
        "create_relations": {"relations"},
        "add_observations": {"observations"},
        "delete_entities": {"entityNames"},
        "delete_observations": {"deletions"},
        "delete_relations": {"relations"},
        "read_graph": set(),
        "search_nodes": {"query"},
        "open_nodes": {"names"},
    }
    inner = {name: next(iter(each.input_schema["properties"].values()), {}) for name, each in tools.items()}
    assert required(inner["create_entities"]["items"]) == {"name", "entityType", "observations"}
    assert required(inner["create_relations"]["items"]) == {"from", "to", "relationType"}
    assert required(inner["add_observations"]["items"]) == {"entityName", "contents"}
    assert required(inner["delete_observations"]["items"]) == {"entityName", "observations"}
    for name, each in tools.items():
        hints = each.annotations
        assert hints is not None and each.title == name.replace("_", " ").title()
        reads, deletes = name in ("read_graph", "search_nodes", "open_nodes"), name.startswith("delete_")
        assert (hints.read_only_hint, hints.destructive_hint) == (reads, deletes)
        assert (hints.idempotent_hint, hints.open_world_hint) == (reads or deletes, False)


@pytest.mark.parametrize("mode", MODES)
async def test_create_and_read(u: dgent.Universe, mode: str) -> None:
    async with connect(inside(u), mode=mode) as host:
        assert await call(host, "read_graph") == {"entities": [], "relations": []}
        assert await call(host, "create_entities", entities=[ANN, BOB]) == {"entities": [ANN, BOB]}
        other = {**ANN, "entityType": "cat"}
        assert await call(host, "create_entities", entities=[other, ACME, ACME]) == {"entities": [ACME]}
        assert await call(host, "create_relations", relations=[KNOWS, KNOWS]) == {"relations": [KNOWS]}
        assert await call(host, "create_relations", relations=[KNOWS, WORKS]) == {"relations": [WORKS]}
        whole = {"entities": [ANN, BOB, ACME], "relations": [KNOWS, WORKS]}
        assert await call(host, "read_graph") == whole
        assert json.loads(await host.read(URI)) == whole
        (resource,) = (await host.client.list_resources()).resources
        assert (resource.uri, resource.mime_type) == (URI, "application/json")
        with pytest.raises(MCPError):
            await host.read("memory://other")


async def test_observations(u: dgent.Universe) -> None:
    async with connect(inside(u)) as host:
        await fill(host)
        added = [
            {"entityName": "Ann", "contents": ["likes Tea", "is 40"]},
            {"entityName": "Bob", "contents": []},
        ]
        assert await call(host, "add_observations", observations=added) == {
            "results": [
                {"entityName": "Ann", "addedObservations": ["is 40"]},
                {"entityName": "Bob", "addedObservations": []},
            ]
        }
        unknown = [{"entityName": "Bob", "contents": ["x"]}, {"entityName": "Cy", "contents": ["x"]}]
        text = await refusal(host, "add_observations", {"observations": unknown})
        assert text == "Entity with name Cy not found"
        assert (await call(host, "open_nodes", names=["Bob"]))["entities"] == [BOB], "all or nothing"
        deleted = [
            {"entityName": "Ann", "observations": ["likes Tea", "nothing"]},
            {"entityName": "Cy", "observations": ["x"]},
        ]
        for _ in range(2):
            found = await call(host, "delete_observations", deletions=deleted)
            assert found["message"] == "Observations deleted successfully"
            (ann,) = (await call(host, "open_nodes", names=["Ann"]))["entities"]
            assert ann["observations"] == ["is 40"]


async def test_delete(u: dgent.Universe) -> None:
    async with connect(inside(u)) as host:
        await fill(host)
        for _ in range(2):
            found = await call(host, "delete_relations", relations=[KNOWS])
            assert found["message"] == "Relations deleted successfully"
            assert (await call(host, "read_graph"))["relations"] == [WORKS]
        for _ in range(2):
            found = await call(host, "delete_entities", entityNames=["Acme", "nobody"])
            assert found["message"] == "Entities deleted successfully"
            assert await call(host, "read_graph") == {"entities": [ANN, BOB], "relations": []}
        assert await call(host, "create_entities", entities=[ACME]) == {"entities": [ACME]}, "again"
        seq = await u.seq()
        await call(host, "create_entities", entities=[ACME])
        await call(host, "delete_relations", relations=[KNOWS])
        assert await u.seq() == seq, "what changes nothing is no commit"


async def test_search_and_open(u: dgent.Universe) -> None:
    async with connect(inside(u)) as host:
        await fill(host)
        assert await call(host, "search_nodes", query="TEA") == {
            "entities": [ANN, ACME],
            "relations": [KNOWS, WORKS],
        }
        assert await call(host, "search_nodes", query="pers") == {
            "entities": [ANN, BOB],
            "relations": [KNOWS, WORKS],
        }
        assert await call(host, "search_nodes", query="nothing") == {"entities": [], "relations": []}
        assert len((await call(host, "search_nodes", query=""))["entities"]) == 3
        found = await call(host, "open_nodes", names=["Acme", "Ann", "Ann", "nobody"])
        assert found == {"entities": [ANN, ACME], "relations": [KNOWS, WORKS]}, "in the order of creation"
        assert await call(host, "open_nodes", names=["Ann"]) == {"entities": [ANN], "relations": [KNOWS]}
        many = [{"name": f"n{n}", "entityType": "tea", "observations": []} for n in range(100)]
        await call(host, "create_entities", entities=many)
        assert await call(host, "search_nodes", query="tea") == {
            "entities": [ANN, ACME, *many],
            "relations": [KNOWS, WORKS],
        }
        await call(host, "delete_entities", entityNames=[each["name"] for each in many] + ["Bob"])
        assert await call(host, "read_graph") == {"entities": [ANN, ACME], "relations": []}


ODD = (
    "",
    "a/b",
    "a~1b",
    "%2F",
    "nul\0",
    "x" * 5000,
    "é" * 300,
    "日本",
    "graph.entity/Ann",
    "\u202e",
    "🙂\n",
    "~",
    "/",
)


async def test_odd_names(u: dgent.Universe) -> None:
    async with connect(inside(u)) as host:
        entities = [{"name": name, "entityType": name, "observations": [name]} for name in ODD]
        assert await call(host, "create_entities", entities=entities) == {"entities": entities}
        assert await call(host, "create_entities", entities=entities) == {"entities": []}
        parts = ("", "/", "~", "a/b", "x" * 600)
        relations = [
            {"from": a, "to": b, "relationType": c}
            for a in parts
            for b in parts
            for c in ("", "/", "~1", "\0")
        ]
        assert await call(host, "create_relations", relations=relations) == {"relations": relations}
        assert await call(host, "read_graph") == {"entities": entities, "relations": relations}
        for entity in entities:
            found = await call(host, "open_nodes", names=[entity["name"]])
            assert found["entities"] == [entity]
        await call(host, "delete_relations", relations=relations[1:])
        assert (await call(host, "read_graph"))["relations"] == relations[:1]
        await call(host, "delete_entities", entityNames=list(ODD))
        assert await call(host, "read_graph") == {"entities": [], "relations": []}


async def test_wrong_arguments(u: dgent.Universe) -> None:
    async with connect(inside(u)) as host:
        for tool, wrong in (
            ("create_entities", {}),
            ("create_entities", {"entities": "Ann"}),
            ("create_entities", {"entities": [{"name": "Ann"}]}),
            ("create_entities", {"entities": [{**ANN, "name": 3}]}),
            ("create_entities", {"entities": [None]}),
            ("create_relations", {"relations": [{**KNOWS, "from": None}]}),
            ("open_nodes", {"names": [["Ann"]]}),
            ("search_nodes", {"query": 3}),
        ):
            assert f"Invalid arguments for tool {tool}" in await refusal(host, tool, wrong)
        with pytest.raises(MCPError, match="dance"):
            await host.client.call_tool("dance", {})
        extra = [{**ANN, "colour": "red"}]
        assert await call(host, "create_entities", entities=extra, more=1) == {"entities": [ANN]}


async def test_trust(u: dgent.Universe) -> None:
    async with connect(inside(u, "conversant")) as host:
        await call(host, "create_entities", entities=[ANN])
        added = {"observations": [{"entityName": "Ann", "contents": ["x"]}]}
        assert "may not" in await refusal(host, "add_observations", added)
        assert "may not" in await refusal(host, "delete_entities", {"entityNames": ["Ann"]})
    async with connect(inside(u, "untrusted")) as host:
        assert "may not" in await refusal(host, "read_graph", {})


async def test_records_have_history_undo_and_search(u: dgent.Universe) -> None:
    async with connect(inside(u)) as host:
        await fill(host)
        await call(host, "delete_entities", entityNames=["Ann"])
        log = [(change.author, change.note) for change in await u.changes(0) if change.kind == "data"]
        assert log == [
            ("scout", "create Ann, Bob, Acme"),
            ("scout", "relate Ann knows Bob, Bob works at Acme"),
            ("scout", "delete Ann"),
        ]
        await u.undo(await u.seq())
        assert len((await call(host, "read_graph"))["entities"]) == 3
        assert [hit.record.value.name for hit in await u.search("sells")] == ["Acme"]
        assert len(await u.history("graph.entity/Ann")) == 3


async def test_two_processes_lose_nothing(store_path: Path) -> None:
    """The reference loses what another process writes while it does; here each call is a transaction."""
    both = [server(store_path / "s.db", *COMPAT) for _ in range(2)]
    async with connect(both[0], "one") as one, connect(both[1], "two", "auto") as two:
        await asyncio.gather(*(call(host, "create_entities", entities=[BOB]) for host in (one, two)))

        async def work(host: Host, name: str) -> None:
            for n in range(15):
                entity = {"name": f"{name}{n}", "entityType": "t", "observations": []}
                relation = {"from": f"{name}{n}", "to": "Bob", "relationType": "knows"}
                fact = {"entityName": "Bob", "contents": [f"{name} {n}"]}
                await asyncio.gather(
                    call(host, "create_entities", entities=[entity]),
                    call(host, "create_relations", relations=[relation]),
                    call(host, "add_observations", observations=[fact]),
                )

        await asyncio.gather(work(one, "a"), work(two, "b"))
        found = await call(one, "read_graph")
        assert found == await call(two, "read_graph")
    assert len(found["entities"]) == 31 and len(found["relations"]) == 30
    (bob,) = [each for each in found["entities"] if each["name"] == "Bob"]
    assert sorted(bob["observations"]) == sorted(f"{name} {n}" for name in "ab" for n in range(15))


@pytest.mark.filterwarnings("ignore:resources/subscribe is removed")
async def test_import_at_the_start_and_subscribe(store_path: Path) -> None:
    path = store_path / "memory.jsonl"
    lines = [{"type": "entity", **ANN}, {"type": "relation", **KNOWS}]
    path.write_text("\n".join(map(json.dumps, lines)))
    starting = server(store_path / "s.db", *COMPAT)
    starting.env = {**(starting.env or {}), "MEMORY_FILE_PATH": str(path)}
    async with connect(starting) as host:
        assert await call(host, "read_graph") == {"entities": [ANN], "relations": [KNOWS]}
        await host.client.subscribe_resource(URI)
        async with dgent.open(f"sqlite:///{store_path}/s.db") as u:
            await u.delete("graph.entity/Ann")
        async with asyncio.timeout(30):
            while not any(getattr(getattr(each, "params", None), "uri", None) == URI for each in host.heard):
                await asyncio.sleep(0.005)
    async with connect(starting) as host:
        found = await call(host, "read_graph")
        assert found == {"entities": [], "relations": [KNOWS]}, "what was deleted stays deleted"


async def test_listen(u: dgent.Universe) -> None:
    async with (
        connect(inside(u), mode="auto") as host,
        host.client.listen(resource_subscriptions=[URI]) as events,
        asyncio.timeout(30),
    ):
        await call(host, "create_entities", entities=[ANN])
        async for event in events:
            assert getattr(event, "uri", None) == URI
            break
