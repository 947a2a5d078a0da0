"""The server: a get and what it is made of, many clients that write, and how soon subscribers hear."""

from __future__ import annotations

import asyncio
import os
import re
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from time import perf_counter
from typing import Any

import dgent
from bench.measure import (
    Block,
    Row,
    Stopwatch,
    Times,
    Took,
    compared,
    cpu_of,
    interleave,
    quartiles,
    say,
    servers_us,
    verdict,
    within,
)
from bench.plan import Plan
from bench.stores import Stores
from dgent.store.remote.address import address_of
from dgent.store.remote.connection import Pool
from dgent.universe.gate import Principal
from dgent.universe.token import create_token

_GET, _PUTS, _EVENT_MS = 3.0, 2_000.0, 50.0
_IN_BLOCK = 50  # calls
_CLIENTS, _WRITES = 64, 20
_SUBSCRIBERS, _COMMITS = 100, 20

_PROGRAM = "import sys; from dgent.doors.cli.main import main; main(sys.argv[1:])"
_EMPTY = """
import uvicorn
from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route
from dgent.doors.http.serve import listen

async def empty(request):
    await request.body()
    return Response(b"{}", media_type="application/json")

bound = listen("127.0.0.1", 0)
print(f"http://127.0.0.1:{bound.getsockname()[1]}", flush=True)
app = Starlette(routes=[Route("/empty", empty, methods=["POST"])])
uvicorn.Server(uvicorn.Config(app, log_level="warning", access_log=False)).run(sockets=[bound])
"""


async def http(plan: Plan, _stores: Stores) -> list[Row]:
    """Measure a real server, as a process of its own."""
    say("  the server")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        url = f"sqlite:///{home}/s.db"
        async with AsyncExitStack() as stack:
            here = await stack.enter_async_context(dgent.open(url))
            _, token = await create_token(here, Principal("bench", "partner"))
            served = await stack.enter_async_context(
                _process(home, _PROGRAM, "--url", url, "serve", "--port", "0", "--rate", "1000000")
            )
            rows = await _gets(plan, home, here, served, token)
            rows += await _many(plan, served, token)
            return [*rows, await _events(served, token)]


@asynccontextmanager
async def _process(home: Path, program: str, *words: str) -> AsyncIterator[str]:
    """Start a server, and yield the address that it prints."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "DGENT_"))}
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-c", program, *words, stdout=asyncio.subprocess.PIPE, env={**kept, "HOME": str(home)}
    )
    assert process.stdout is not None
    try:
        line = (await asyncio.wait_for(process.stdout.readline(), 60)).decode()
        found = re.search(r"http://127\.0\.0\.1:\d+", line)
        assert found, line
        yield found[0]
    finally:
        process.terminate()
        await process.wait()


async def _gets(plan: Plan, home: Path, here: Any, served: str, token: str) -> list[Row]:
    record = await here.remember({"text": "a short note", "n": 1, "tags": ["a", "b"]})
    async with AsyncExitStack() as stack:
        empty = Pool(address_of(await stack.enter_async_context(_process(home, _EMPTY)), "none"))
        stack.push_async_callback(empty.close)
        there = await stack.enter_async_context(dgent.open(served, token=token))

        async def ask_empty() -> None:
            assert (await empty.ask("/empty", b"{}", "application/json")).status == 200

        backend: Any = there.backend

        async def ask_verb() -> None:
            await backend.call_verb("data.get", {"id": record.id}, Any, reads=True)

        systems = {
            "python": _block(lambda: here.get(record.id)),
            "empty": _block(ask_empty),
            "get": _block(lambda: there.get(record.id)),
            "verb": _block(ask_verb),
        }
        times = await interleave(systems, max(plan.rounds, 7), pause_s=0)
    rows = []
    for name, work in (("get", 'get by `dgent.open("http…")`'), ("verb", "verb data.get over HTTP")):
        for kind, measured in (("CPU of both ends", cpu_of(times)), ("clock", times)):
            parts = _add(measured, "python", "empty")
            rows.append(
                compared(f"{work}, {kind}, against a Python get + an empty route", parts, name, "parts", _GET)
            )
    return rows


def _add(times: Times, left: str, right: str) -> Times:
    """Return the times with a system that takes as long as two of them."""
    return {**times, "parts": [a + b for a, b in zip(times[left], times[right], strict=True)]}


def _block(call: Any) -> Block:
    """A block of calls; counts the processor's time of this process and of all servers."""

    async def block() -> Took:
        servers, watch = servers_us(), Stopwatch()
        for _ in range(_IN_BLOCK):
            await call()
        took = watch.each(_IN_BLOCK)
        return Took(took, took.cpu + (servers_us() - servers) / _IN_BLOCK)

    return block


async def _many(plan: Plan, served: str, token: str) -> list[Row]:
    """Let many clients write at once, each one after another."""
    async with AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(dgent.open(served, token=token)) for _ in range(_CLIENTS)]

        async def write(u: Any, times: int) -> None:
            for n in range(times):
                await u.remember({"text": "a short note", "n": n})

        await asyncio.gather(*(write(each, 3) for each in clients))
        wall, busy = [], []
        for _ in range(max(plan.rounds // 2, 3)):
            servers, watch = servers_us(), Stopwatch()
            await asyncio.gather(*(write(each, _WRITES) for each in clients))
            took = watch.each(_CLIENTS * _WRITES)
            wall.append(1e6 / took)
            busy.append(1e6 / max(took.cpu, (servers_us() - servers) / (_CLIENTS * _WRITES)))
    return [
        _rate(f"puts a second of {_CLIENTS} clients over HTTP, clock", wall),
        _rate(f"puts a second of {_CLIENTS} clients over HTTP, CPU of the busier end", busy),
    ]


def _rate(work: str, rates: list[float]) -> Row:
    low, middle, high = quartiles(rates)
    judged = verdict(middle, low, high, at_least=_PUTS)
    return Row(work, f"≥ {_PUTS:,.0f}", middle, low, high, None, None, middle, judged, unit="/s")


async def _events(served: str, token: str) -> Row:
    """Return how long after a commit its event is there, of many subscribers."""
    heard: asyncio.Queue[float] = asyncio.Queue()
    port = int(served.rpartition(":")[2])
    head = f"GET /v1/changes HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n\r\n"

    async def follow(ready: asyncio.Event) -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        try:
            writer.write(head.encode())
            async for line in reader:
                if line.startswith(b": dgent"):
                    ready.set()
                elif line.startswith(b"event: commit"):
                    heard.put_nowait(perf_counter())
        finally:
            writer.close()

    begun = [asyncio.Event() for _ in range(_SUBSCRIBERS)]
    following = [asyncio.create_task(follow(each)) for each in begun]
    latencies: list[float] = []
    try:
        await asyncio.gather(*(each.wait() for each in begun))
        async with dgent.open(served, token=token) as u:
            await asyncio.sleep(0.5)
            for n in range(_COMMITS):
                await u.remember({"n": n})
                done = perf_counter()
                arrived = [await asyncio.wait_for(heard.get(), 30) for _ in range(_SUBSCRIBERS)]
                latencies += [max(each - done, 0.0) * 1e6 for each in arrived]
                await asyncio.sleep(0.02)
    finally:
        for each in following:
            each.cancel()
        await asyncio.gather(*following, return_exceptions=True)
    slow = sorted(latencies)[int(len(latencies) * 0.95)]
    return within(f"commit to event, p95 of {_SUBSCRIBERS} subscribers", [slow], [], _EVENT_MS)
