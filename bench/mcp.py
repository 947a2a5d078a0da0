"""The MCP door: tool calls beside an empty tool of the same SDK, the start, the tools, many clients."""

from __future__ import annotations

import asyncio
import json
import os
import resource
import statistics
import sys
import tempfile
import warnings
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

from bench.measure import (
    Block,
    Row,
    Stopwatch,
    Took,
    compared,
    cpu_of,
    interleave,
    quartiles,
    say,
    servers_us,
    verdict,
)
from bench.plan import Plan
from bench.stores import Stores

_CALL, _TOKENS, _START_MS = 1.3, 2_500.0, 1_200.0
_CHARACTERS = 4  # of a token; no tokenizer is installed, and English with JSON has a few more
_CLIENTS, _WRITES = 16, 20
_IN_BLOCK = 20  # calls
_NOTES = "dgent://block/bench/notes"

_PROGRAM = "import sys; from dgent.doors.cli.main import main; main(sys.argv[1:])"
_EMPTY = """
import asyncio
import mcp_types as types
from mcp.server import Server
from mcp.server.stdio import stdio_server

async def list_tools(request, params):
    return types.ListToolsResult(tools=[types.Tool(name="empty", input_schema={"type": "object"})])

async def call_tool(request, params):
    return types.CallToolResult(content=[types.TextContent(type="text", text="")])

async def main():
    server = Server("empty", version="1", on_list_tools=list_tools, on_call_tool=call_tool)
    async with stdio_server() as (read, write):
        await server.run(read, write, server.create_initialization_options())

asyncio.run(main())
"""


async def mcp(plan: Plan, _stores: Stores) -> list[Row]:
    """Measure the door, over standard input and output as hosts use it."""
    say("  the MCP door")
    with tempfile.TemporaryDirectory() as folder, warnings.catch_warnings():
        warnings.simplefilter("ignore")  # subscriptions of the older protocol
        home = Path(folder)
        rows = await _calls(plan, home)
        rows.append(await _tokens(home))
        rows += await _starts(min(plan.starts, 7), home)
        return [*rows, *await _many(home), await _latency(home)]


@asynccontextmanager
async def _connect(home: Path, program: str, *words: str, **rest: Any) -> AsyncIterator[Any]:
    import mcp_types as types
    from mcp import Client, StdioServerParameters

    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "DGENT_"))}
    environment = {**kept, "HOME": str(home), "PYTHONPYCACHEPREFIX": str(home / "cache")}
    environment.pop("PYTHONDONTWRITEBYTECODE", None)  # an installed dgent has its bytecode
    server = StdioServerParameters(command=sys.executable, args=["-c", program, *words], env=environment)
    info = types.Implementation(name="bench", version="1")
    async with Client(server, mode="legacy", client_info=info, cache=None, **rest) as client:
        yield client


def _dgent(home: Path, **rest: Any) -> Any:
    return _connect(home, _PROGRAM, "--url", f"sqlite:///{home}/s.db", "mcp", **rest)


async def _calls(plan: Plan, home: Path) -> list[Row]:
    work = {
        "block_get": {"label": "notes"},
        "memory": {},
        "work_ready": {},
        "find": {"words": "parser"},
        "remember": {"data": {"text": "a short note"}},
    }
    async with _connect(home, _EMPTY) as empty, _dgent(home) as ours:
        await ours.call_tool("block_create", {"label": "notes", "text": "The parser is slow. " * 10})
        for name in ("Fix the parser", "Write the release notes"):
            await ours.call_tool("work_add", {"name": name})
        systems = {"empty": _block(empty, "empty", {})}
        for tool, given in work.items():
            answer = await ours.call_tool(tool, given)
            assert not answer.is_error, answer
            systems[tool] = _block(ours, tool, given)
        times = cpu_of(await interleave(systems, max(plan.rounds, 5), pause_s=0))
    return [
        compared(
            f"tool {tool} over stdio, CPU of both ends, against an empty tool", times, tool, "empty", _CALL
        )
        for tool in work
    ]


def _block(client: Any, tool: str, given: dict[str, Any]) -> Block:
    """A block of calls; counts the processor's time of this process and of all servers."""

    async def block() -> Took:
        servers, watch = servers_us(), Stopwatch()
        for _ in range(_IN_BLOCK):
            await client.call_tool(tool, given)
        took = watch.each(_IN_BLOCK)
        return Took(took, took.cpu + (servers_us() - servers) / _IN_BLOCK)

    return block


async def _tokens(home: Path) -> Row:
    async with _dgent(home) as ours:
        listed = await ours.list_tools()
    sent = json.dumps(
        listed.model_dump(by_alias=True, exclude_none=True, mode="json")["tools"], separators=(",", ":")
    )
    tokens = len(sent) / _CHARACTERS
    return Row(
        f"list of the {len(listed.tools)} everyday tools, {len(sent):,} characters / {_CHARACTERS}",
        f"≤ {_TOKENS:,.0f} tokens",
        tokens,
        verdict=verdict(tokens, tokens, tokens, _TOKENS),
        unit="tokens",
    )


async def _starts(starts: int, home: Path) -> list[Row]:
    """CPU of a server from its start to its first answer and end, and of an empty one."""
    cpu: dict[str, list[float]] = {"dgent": [], "empty": []}
    for turn in range(-1, starts):
        for name in cpu:
            before = _children_ms()
            async with _dgent(home) if name == "dgent" else _connect(home, _EMPTY) as client:
                await client.call_tool("memory" if name == "dgent" else "empty", {})
            if turn >= 0:
                cpu[name].append(_children_ms() - before)
    low, middle, high = quartiles(cpu["dgent"])
    base = statistics.median(cpu["empty"])
    judged = verdict(middle, low, high, _START_MS)
    row = Row(
        "start to first answer, CPU; base: an empty server",
        f"≤ {_START_MS:g} ms",
        middle,
        low,
        high,
        base=base,
        ours=middle,
        verdict=judged,
        unit="ms",
    )
    return [row]


def _children_ms() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return (used.ru_utime + used.ru_stime) * 1e3


async def _many(home: Path) -> list[Row]:
    """Many clients, each with a server of its own, that write to one store at once; none loses a write."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(_dgent(home)) for _ in range(_CLIENTS)]
        waits: list[float] = []

        async def write(client: Any, number: int) -> None:
            for n in range(_WRITES):
                began = perf_counter()
                answer = await client.call_tool("remember", {"data": {"n": n}, "tag": ["many", f"c{number}"]})
                waits.append((perf_counter() - began) * 1e3)
                assert not answer.is_error, answer

        began = perf_counter()
        await asyncio.gather(*(write(client, number) for number, client in enumerate(clients)))
        took = perf_counter() - began
    import dgent

    async with dgent.open(f"sqlite:///{home}/s.db") as u:
        assert await u.count(dgent.Query(tags={"many"})) == _CLIENTS * _WRITES
    low, middle, high = quartiles(waits)
    work = f"{_CLIENTS} clients and servers on one store, a write each at once"
    slowest = Row(f"  the slowest of {len(waits)} writes", measured=max(waits), unit="ms")
    rate = Row("  writes a second", measured=len(waits) / took, unit="/s")
    return [Row(work, measured=middle, low=low, high=high, unit="ms"), slowest, rate]


async def _latency(home: Path) -> Row:
    """From a commit in another process to the notification."""
    import dgent
    from dgent.blocks import Library

    heard = asyncio.Event()

    async def hear(message: Any) -> None:
        if getattr(getattr(message, "params", None), "uri", None) == _NOTES:
            heard.set()

    waits = []
    async with _dgent(home, message_handler=hear) as client:
        await client.subscribe_resource(_NOTES)
        async with dgent.open(f"sqlite:///{home}/s.db") as u:
            notes = await Library(u, "bench").get("notes")
            for n in range(30):
                await asyncio.sleep(0.05)
                heard.clear()
                await notes.append(f" {n}")
                began = perf_counter()
                async with asyncio.timeout(10):
                    await heard.wait()
                waits.append((perf_counter() - began) * 1e3)
    low, middle, high = quartiles(waits)
    return Row(
        "commit in another process to the notification", measured=middle, low=low, high=high, unit="ms"
    )
