"""Two agents share a block; one breaks it, the other sees what happened: `python examples/remember.py`."""

from __future__ import annotations

import asyncio

import dgent
from dgent.blocks import Library, Notice

PERSONA = """\
Ask before you delete anything.
Answer in plain words.
Keep the release notes up to date.
"""


class Agent:
    """An agent with a memory, some of which others may write."""

    def __init__(self, name: str, u: dgent.Universe) -> None:
        self.name, self.memory = name, Library(u, agent=name)

    async def look(self) -> None:
        """Read what others did since the last look, and take back what should not have happened."""
        for notice in await self.memory.notices(mark=True):
            print(f"{self.name} sees: {notice}")
            if any("Ask before" in line for line in removed(notice)):
                print(f"{self.name}: that was a promise, it goes back to version {notice.since}")
                block = await self.memory.get(notice.label, owner=notice.owner)
                await block.rollback(notice.since, message="promises stay")


def removed(notice: Notice) -> list[str]:
    """The lines that a change took away."""
    return [line for line in str(notice.diff).splitlines() if line.startswith("-") and line[1:2] != "-"]


async def main() -> None:
    async with dgent.open("memory:") as u:
        scout, scribe = Agent("scout", u), Agent("scribe", u)

        # Scout has a persona, and lets scribe work on it.
        await scout.memory.agents.create("scribe")
        persona = await scout.memory.create("persona", template="persona", text=PERSONA)
        await scout.memory.share("persona", with_agent="scribe", permission="read_write")
        print(f"scout remembers:\n{await scout.memory.render()}\n")

        # Scribe adds something, tidies up, and goes too far.
        shared = await scribe.memory.get("persona")
        await shared.append("Say who helped.\n", message="thanks matter")
        await shared.edit_range(1, 2, "Be brief.", message="shorter")

        # Scout looks at what changed, and takes it back. Nothing is lost by that.
        await scout.look()
        await shared.append("Say who helped.\n", message="once more")
        print(f"\nscout remembers:\n{await persona.text()}")
        for version in await persona.history():
            print(
                f"{version.number}  {version.by:6}  {version.op:10}  {version.diffstat:8}  {version.message}"
            )


if __name__ == "__main__":
    asyncio.run(main())
