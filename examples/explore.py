"""An agent tries two approaches, gives one up, and keeps the lesson: `python examples/explore.py`."""

from __future__ import annotations

import asyncio

import dgent
from dgent.cupboard import Crumb, Cupboard, Trail

MEASURED_MS = {"cache the page": 870, "index the table": 40}
GOAL_MS = 100


class TooSlow(Exception):
    """An approach that did not reach the goal."""


class Agent:
    """Tries approaches to a problem until one works, and never tries a dead end twice."""

    def __init__(self, name: str, cupboard: Cupboard) -> None:
        self.name, self.cupboard = name, cupboard

    async def solve(self, problem: Crumb, approaches: dict[str, list[str]]) -> Trail | None:
        for approach, steps in approaches.items():
            if await self.cupboard.lessons(approach):
                print(f"{self.name}: {approach} was tried before")
                continue
            try:
                return await self.explore(problem, approach, steps)
            except TooSlow as error:
                print(f"{self.name}: {approach} is a dead end: {error}")
        return None

    async def explore(self, problem: Crumb, approach: str, steps: list[str]) -> Trail:
        async with self.cupboard.explore(approach, problem.name, branches_from=problem) as trail:
            plan = [Crumb(step, "ready") for step in steps]
            await self.cupboard.add_many(
                plan, [("child_of", n, n - 1) for n in range(1, len(plan))], trail=trail
            )
            while (crumb := await self.cupboard.take(self.name, trail_id=trail.id)) is not None:
                print(f"{self.name}: {approach}: {crumb.name}")
                await self.cupboard.done(crumb, token=crumb.token)
            measured = MEASURED_MS[approach]
            if measured > GOAL_MS:
                trail.lesson = f"the pages differ too much, it was {measured} ms"
                raise TooSlow(f"{measured} ms, and {GOAL_MS} are allowed")
        return trail


async def main() -> None:
    async with dgent.open("memory:", author="scout") as u:
        cupboard = Cupboard(u)
        problem = await cupboard.add("the page is slow")
        approaches = {
            "cache the page": ["start a cache", "keep the answers there", "measure"],
            "index the table": ["find the query", "add an index", "measure"],
        }
        found = await Agent("scout", cupboard).solve(problem, approaches)
        assert found is not None
        print(f"solved by: {found.name}")

        # A week later, somebody else has the same idea.
        await Agent("newcomer", cupboard).solve(problem, {"cache the page": ["start a cache"]})
        for trail in await cupboard.lessons():
            print(f"lesson of {trail.name!r}: {trail.lesson}")
        kept = [crumb.name for crumb in await cupboard.crumbs.fetch(state="pebble")]
        print(f"kept: {', '.join(reversed(kept))}")


if __name__ == "__main__":
    asyncio.run(main())
