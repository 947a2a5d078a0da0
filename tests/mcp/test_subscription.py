"""Clients hear of changes that anybody makes, in this process or another."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from mcp.shared.exceptions import MCPError

import dgent
from dgent.blocks import Library
from tests.mcp.host import Host, connect, server

NOTES = "dgent://block/scout/notes"
HEARD_S = 5.0  # of a machine that is busy; it takes some milliseconds


async def heard(host: Host, uri: str) -> None:
    async with asyncio.timeout(HEARD_S):
        while not any(_uri_of(message) == uri for message in host.heard):
            await asyncio.sleep(0.005)
    host.heard.clear()


def _uri_of(message: Any) -> str | None:
    uri: str | None = getattr(getattr(message, "params", None), "uri", None)
    return uri


@pytest.mark.filterwarnings(
    "ignore:resources/subscribe is removed", "ignore:resources/unsubscribe is removed"
)
async def test_by_subscribing(store_path: Path) -> None:
    async with connect(server(store_path / "s.db")) as host:
        await host.do("block_create", label="notes", text="a")
        crumb = await host.do("work_add", name="Paint")
        for uri in (NOTES, "dgent://ready", f"dgent://crumb/{crumb['id']}"):
            await host.client.subscribe_resource(uri)
        async with dgent.open(f"sqlite:///{store_path}/s.db", author="ann") as u:
            notes = await Library(u, "scout").get("notes")
            await notes.append("b")
            await heard(host, NOTES)
            await host.client.unsubscribe_resource(NOTES)
            await notes.append("c")
            await host.do("work_end", operation="comment", id=crumb["id"], text="blue")
            await heard(host, f"dgent://crumb/{crumb['id']}")
            assert all(_uri_of(message) != NOTES for message in host.heard)
        with pytest.raises(MCPError):
            await host.client.subscribe_resource("dgent://block/scout/nothing")


async def test_by_listening(store_path: Path) -> None:
    async with connect(server(store_path / "s.db"), mode="auto") as host:
        await host.do("block_create", label="notes", text="a")
        async with (
            dgent.open(f"sqlite:///{store_path}/s.db", author="ann") as u,
            host.client.listen(resource_subscriptions=[NOTES]) as events,
            asyncio.timeout(HEARD_S),
        ):
            await (await Library(u, "scout").get("notes")).append("b")
            async for event in events:
                assert getattr(event, "uri", None) == NOTES
                break
        with pytest.raises(MCPError):
            async with host.client.listen(resource_subscriptions=["dgent://block/scout/nothing"]):
                pass
        assert (await host.do("block_get", label="notes"))["text"] == "ab"
