"""Two agents that work together: one asks the other through its queue, and both write to a shared block.

Run it as it is: scripts play the models. With `dgent[agent]` and a key, name a model instead.
"""

from __future__ import annotations

import asyncio
import tempfile
from typing import Any

import dgent
from dgent.blocks import Library
from dgent.runtime import AgentRuntime, ScriptedModel


def call(name: str, /, **arguments: Any) -> dict[str, Any]:
    """Return a step of a script that calls a tool."""
    return {"calls": [{"name": name, "arguments": arguments}]}


SCOUT = [
    call("block_append", label="map", text="\nlighthouse: on the coast"),
    call("send_message", to="keeper", text="How high is the lighthouse? Write it into the map."),
    "I marked it on the map, and asked the keeper how high it is.",
    "It is on the coast, and 40 metres high.",
]
KEEPER = [
    call("block_append", label="map", text="\nlighthouse: 40 metres high"),
    "I wrote it into the map.",
]


async def main() -> None:
    """Let scout and keeper find out about a lighthouse."""
    with tempfile.TemporaryDirectory() as folder:
        async with dgent.open(f"sqlite:///{folder}/memory.db", author="ann") as u:
            await Library(u, "scout").create("map", owner="_constellation_", text="What we know:")
            async with (
                AgentRuntime(u, "scout", model=ScriptedModel(SCOUT)) as scout,
                AgentRuntime(u, "keeper", model=ScriptedModel(KEEPER)) as keeper,
            ):
                print("scout: ", (await scout.run("Find out about the lighthouse.")).text)
                answered = await keeper.work()
                assert answered is not None
                print("keeper:", answered.text)
                print("scout: ", (await scout.run("What do we know?")).text)
            print(await (await Library(u, "scout").get("map")).text())


if __name__ == "__main__":
    asyncio.run(main())
