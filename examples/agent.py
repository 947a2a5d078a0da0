"""Two agents that share one memory by way of `DataMixin`: `python examples/agent.py`."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

import dgent


@dataclass(frozen=True)
class Finding:
    """Something an agent learned."""

    topic: str
    text: str


FINDING = dgent.Schema("team.finding", contract=Finding, indexes=("topic",))


class Agent(dgent.DataMixin):
    """Learns things, and knows what the others learned."""

    def __init__(self, name: str) -> None:
        self.name = name

    async def learn(self, topic: str, text: str) -> None:
        await self.remember(Finding(topic, text), author=self.name)

    async def answer(self, topic: str) -> str:
        found = await self.recall(dgent.Query(schema="team.finding", where={"topic": topic}, limit=1))
        return f"{found[0].author} says: {found[0].value.text}" if found else "nobody knows"


async def main() -> None:
    async with dgent.open("memory:") as u:
        u.register(FINDING)
        dgent.set_universe(u)
        scout, critic = Agent("scout"), Agent("critic")
        await scout.learn("harbour", "the tide turns at six")
        print(await critic.answer("harbour"))
        print(await critic.answer("weather"))
        print(f"{await scout.data.count()} finding is kept")
        dgent.set_universe(None)


if __name__ == "__main__":
    asyncio.run(main())
