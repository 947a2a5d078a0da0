"""The server as a host uses it, with both generations of the protocol."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from mcp.shared.exceptions import MCPError

import dgent
from tests.mcp.host import MODES, connect, inside, server

pytestmark = pytest.mark.parametrize("mode", MODES)


@pytest.fixture
async def u(store_path: Path) -> AsyncIterator[dgent.Universe]:
    async with dgent.open(f"sqlite:///{store_path}/s.db", author="ann") as universe:
        yield universe


async def test_the_default_tools(u: dgent.Universe, mode: str) -> None:
    """Few, short, and each says whether it only reads."""
    async with connect(inside(u), mode=mode) as host:
        tools = {each.name: each for each in (await host.client.list_tools()).tools}
        assert host.client.server_info is not None and host.client.server_info.name == "dgent"
        assert host.client.protocol_version == {"legacy": "2025-11-25", "auto": "2026-07-28"}[mode]
        assert "memory" in (host.client.instructions or "")
    assert len(tools) <= 12
    size = sum(len(each.model_dump_json(by_alias=True, exclude_none=True)) for each in tools.values())
    assert size <= 10_000, "about 2,500 tokens"
    reading = {name for name, each in tools.items() if each.annotations and each.annotations.read_only_hint}
    assert reading == {"memory", "block_get", "work_ready", "find"}
    for each in tools.values():
        assert each.output_schema is not None and each.input_schema["type"] == "object"
        assert each.annotations is not None and not each.annotations.destructive_hint
        assert not each.annotations.open_world_hint
        for argument in each.input_schema["properties"].values():
            assert "properties" not in argument and "anyOf" not in argument, "flat"


async def test_memory_work_and_records(store_path: Path, mode: str) -> None:
    async with connect(server(store_path / "s.db"), mode=mode) as host:
        await host.do("block_create", label="notes", text="The build is green.")
        await host.do("block_append", label="notes", text="\nTests take long.")
        await host.do("block_replace", label="notes", old="green", new="red")
        assert "The build is red.\nTests take long." in (await host.do("memory"))["text"]
        await host.do("work_add", name="Fix the crash", priority="high")
        (ready,) = (await host.do("work_ready"))["items"]
        taken = await host.do("work_take")
        assert taken["id"] == ready["id"] and taken["holder"] == "scout"
        await host.do("work_end", operation="done", id=taken["id"])
        await host.do("remember", data={"decision": "tabs", "why": ["so it was before"]}, tag=["style"])
        for words in ("tab", "so it was before", "red", "crash"):
            assert (await host.do("find", words=words))["items"], "records, memory and work by their words"
        trail = await host.do("trail", operation="start", name="Rewrite")
        await host.do("trail", operation="abandon", id=trail["id"], reason="slow", lesson="Measure first.")
        lessons = (await host.do("trail", operation="lessons"))["items"]
        assert [each["lesson"] for each in lessons] == ["Measure first."]
    async with dgent.open(f"sqlite:///{store_path}/s.db") as u:
        authors = {change.author for change in await u.changes(0) if change.kind == "data"}
        assert authors <= {"scout", "dgent"} and "scout" in authors, "every commit carries the agent"


async def test_a_mistake_is_an_answer_that_helps(u: dgent.Universe, mode: str) -> None:
    async with connect(inside(u), mode=mode) as host:
        await host.do("block_create", label="notes", text="a")
        answer = await host.call("block_get", label="note")
        assert answer["data"]["code"] == "block_not_found" and "'notes'" in answer["data"]["hint"]
        answer = await host.call("work_end", operation="finish", id="x")
        assert "operation" in answer["message"] and "done" in answer["data"]["hint"]
        answer = await host.call("block_append", label="notes", text=3.5, colour="red")
        assert "colour" in answer["message"]
        with pytest.raises(MCPError, match="there is no tool 'dance'"):
            await host.client.call_tool("dance", {})
        assert (await host.do("block_get", label="notes"))["text"] == "a"


async def test_trust(u: dgent.Universe, mode: str) -> None:
    """What an agent may do is said where the server is started; no request can widen it."""
    async with connect(inside(u, "conversant"), mode=mode) as host:
        answer = await host.call("block_create", label="notes", text="a")
        assert answer["data"]["code"] == "denied"
        assert (await host.do("remember", data={"a": 1}))["author"] == "scout"
    async with connect(inside(u, "untrusted"), mode=mode) as host:
        assert (await host.call("work_ready"))["data"]["code"] == "denied"
        with pytest.raises(MCPError):
            await host.read("dgent://memory")


async def test_the_agent_is_the_option_or_the_client(u: dgent.Universe, mode: str) -> None:
    async with connect(inside(u, agent="builder"), "Some IDE", mode) as host:
        assert (await host.do("remember", data={"a": 1}))["author"] == "builder"
    async with connect(inside(u), "Some/../IDE \u202e 9", mode) as host:
        assert (await host.do("remember", data={"a": 1}))["author"] == "Some-..-IDE-9"


async def test_resources(u: dgent.Universe, mode: str) -> None:
    async with connect(inside(u), mode=mode) as host:
        await host.do("block_create", label="to do/50% & more", text="Buy milk.")
        crumb = await host.do("work_add", name="Buy milk")
        record = await host.do("remember", data={"a": 1}, schema="shop.item")
        uris = {each.uri for each in (await host.client.list_resources()).resources}
        block = "dgent://block/scout/to%20do%2F50%25%20%26%20more"
        assert {"dgent://memory", "dgent://ready", "dgent://schema/shop.item", block} <= uris
        assert not any("cupboard." in uri or uri.endswith("/") for uri in uris)
        assert await host.read(block) == "Buy milk."
        assert "Buy milk." in await host.read("dgent://memory")
        assert json.loads(await host.read(f"dgent://crumb/{crumb['id']}"))["name"] == "Buy milk"
        assert json.loads(await host.read("dgent://ready"))["items"][0]["id"] == crumb["id"]
        assert json.loads(await host.read(f"dgent://record/{record['id']}"))["data"] == {"a": 1}
        assert json.loads(await host.read("dgent://schema/shop.item"))["name"] == "shop.item"
        for odd in ("dgent://block/scout", "dgent://block/scout/%ff", "file:///etc/passwd", "dgent://", ""):
            with pytest.raises(MCPError):
                await host.read(odd)
        with pytest.raises(MCPError, match="nobody"):
            await host.read("dgent://block/nobody/notes")


async def test_completion(u: dgent.Universe, mode: str) -> None:
    from mcp_types import ResourceTemplateReference

    async with connect(inside(u), mode=mode) as host:
        for label in ("plans", "persona", "notes"):
            await host.do("block_create", label=label, text="x")
        templates = [
            each.uri_template for each in (await host.client.list_resource_templates()).resource_templates
        ]
        assert "dgent://block/{owner}/{label}" in templates
        found = await host.client.complete(
            ResourceTemplateReference(type="ref/resource", uri="dgent://block/{owner}/{label}"),
            {"name": "label", "value": "p"},
            context_arguments={"owner": "scout"},
        )
        assert sorted(found.completion.values) == ["persona", "plans"]


async def test_prompts(u: dgent.Universe, mode: str) -> None:
    async with connect(inside(u), mode=mode) as host:
        await host.do("block_create", label="notes", text="Use {braces} and {prime}.")
        await host.do("work_add", name="Open the window")
        names = {each.name for each in (await host.client.list_prompts()).prompts}
        assert names == {"load-memory", "plan-with-a-trail", "hand-over"}
        (message,) = (await host.client.get_prompt("load-memory")).messages
        assert "Use {braces} and {prime}." in message.content.text
        assert "Open the window" in message.content.text and "You are scout." in message.content.text
        (message,) = (await host.client.get_prompt("plan-with-a-trail", {"task": "Paint"})).messages
        assert "The task: Paint" in message.content.text
        with pytest.raises(MCPError, match="needs task"):
            await host.client.get_prompt("plan-with-a-trail")


async def test_a_long_answer_is_bounded(u: dgent.Universe, mode: str) -> None:
    await u.put(dgent.Datum(id="long", data={"text": "word " * 200_000}))
    async with connect(inside(u, tools="data"), mode=mode) as host:
        result = await host.client.call_tool("data", {"operation": "get", "id": "long"})
        assert not result.is_error
        assert len(json.dumps(result.structured_content)) <= 101_000
        assert json.loads(await host.read("dgent://record/long"))["data"]["text"] == "word " * 200_000


async def test_many_requests_at_once_and_a_cancelled_one(u: dgent.Universe, mode: str) -> None:
    async with connect(inside(u), mode=mode) as host:
        tasks = [asyncio.create_task(host.do("remember", data={"n": n})) for n in range(50)]
        await asyncio.sleep(0)
        tasks[25].cancel()
        done = await asyncio.gather(*tasks, return_exceptions=True)
        assert sum(isinstance(each, dict) for each in done) >= 49
        assert (await host.do("memory")) is not None, "the connection goes on"
