"""What worker processes do with messages; each function is one job, named by the test that starts it."""

from __future__ import annotations

import asyncio

from dgent.messages import Inbox, Part
from dgent.universe.universe import open as open_universe
from tests.fault.nursery import say


def answer_all(url: str, lease_s: float) -> None:
    """Answer what is in the queue; say each step after it was acknowledged."""

    async def main() -> None:
        async with open_universe(url, author="worker") as u:
            inbox = Inbox(u, "scout")
            while (found := await inbox.take(lease_s=lease_s, wait_s=2 * lease_s)) is not None:
                batch = await found.begin()
                say(["begun", found.message.text])
                calls = {part.call for each in await batch.messages() for part in each.parts if part.call}
                for number in range(4):
                    if f"c{number}" not in calls:
                        await batch.add("assistant", [Part("tool_call", call=f"c{number}", name="n")])
                        say(["called", found.message.text, number])
                for call in await batch.pending():
                    await batch.add_result(call, "done")
                async with u.transaction() as tx:
                    await batch.complete(tx=tx)
                    await found.done(tx=tx)
                say(["done", found.message.text])

    asyncio.run(main())
