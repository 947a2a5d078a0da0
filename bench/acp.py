"""The door for editors: the round trip of a prompt beside an empty agent of the same SDK."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from bench.measure import Block, Row, Stopwatch, Took, cpu_of, interleave, say, servers_us, within
from bench.plan import Plan
from bench.stores import Stores

_OVER_MS = 5.0
_IN_BLOCK = 20  # prompts
_PROGRAM = "import sys; from dgent.doors.cli.main import main; main(sys.argv[1:])"
_EMPTY = """
import asyncio, acp
from acp import schema

class Agent:
    def on_connect(self, conn): self.client = conn
    async def initialize(self, protocol_version, **_): return schema.InitializeResponse(protocol_version=1)
    async def new_session(self, cwd, **_): return schema.NewSessionResponse(session_id="s")
    async def prompt(self, session_id, prompt, **_):
        await self.client.session_update(session_id=session_id, update=acp.update_agent_message_text("ok"))
        return schema.PromptResponse(stop_reason="end_turn")

asyncio.run(acp.run_agent(Agent()))
"""


class _Client:
    """An editor that throws away what it is told."""

    async def session_update(self, session_id: str, update: Any, **_: Any) -> None:
        pass

    def on_connect(self, conn: Any) -> None:
        pass


async def acp(plan: Plan, _stores: Stores) -> list[Row]:
    """Measure prompts over standard input and output, as editors send them."""
    say("  the door for editors")
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder)
        script = home / "script.jsonl"
        script.write_text('{"text": "ok"}\n' * 20_000)
        words = ("--url", f"sqlite:///{home}/s.db", "acp", "--model", f"script:{script}")
        async with AsyncExitStack() as stack:
            empty = await stack.enter_async_context(_connect(home, _EMPTY))
            ours = await stack.enter_async_context(_connect(home, _PROGRAM, *words))
            systems = {"empty": await _block(empty, home), "dgent": await _block(ours, home)}
            times = await interleave(systems, max(plan.rounds, 5), pause_s=0)
    rows = []
    for unit, found in (("processor of both ends", cpu_of(times)), ("by the clock", times)):
        over = [ours - base for ours, base in zip(found["dgent"], found["empty"], strict=True)]
        rows.append(within(f"prompt over an empty agent of the SDK, {unit}", over, found["empty"], _OVER_MS))
    return rows


@asynccontextmanager
async def _connect(home: Path, program: str, *words: str) -> AsyncIterator[Any]:
    import acp

    kept = {name: value for name, value in os.environ.items() if not name.startswith(("XDG_", "DGENT_"))}
    client: Any = _Client()
    async with acp.spawn_agent_process(
        client, sys.executable, "-c", program, *words, env={**kept, "HOME": str(home)}
    ) as (agent, _):
        await agent.initialize(protocol_version=1)
        yield agent


async def _block(agent: Any, home: Path) -> Block:
    """Return a block of prompts; counts the processor's time of this process and of all servers."""
    import acp

    session = (await agent.new_session(cwd=str(home), mcp_servers=[])).session_id
    said = [acp.text_block("hello")]

    async def block() -> Took:
        servers, watch = servers_us(), Stopwatch()
        for _ in range(_IN_BLOCK):
            await agent.prompt(session_id=session, prompt=said)
        took = watch.each(_IN_BLOCK)
        return Took(took, took.cpu + (servers_us() - servers) / _IN_BLOCK)

    return block
