"""Texts as memory and rows as application state, together: `python examples/brain.py`."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path
from tempfile import TemporaryDirectory

from sqlalchemy import func, select

import dgent
from dgent.tables import Brain, Gardener, Town, connect, ensure_migrations, find_halves, repair
from dgent.tables.models import Crystal, Tag


async def main(folder: Path) -> None:
    """Capture, search and surface; talk to a citizen; grow an idea; mend a half."""
    async with dgent.open(f"sqlite:///{folder / 'agents.db'}") as u, await connect(u) as place:
        await ensure_migrations(place)

        brain = Brain(u, place)
        for text, tags in (
            ("Water boils at 92 degrees in Bogota, so tea needs longer.", ["tea", "height"]),
            ("Ginger goes into the tea before the milk.", ["tea"]),
            ("The ferry leaves at ten past nine.", ["travel"]),
        ):
            await brain.capture(text, tags, source_type="example")
        print("search:  ", (await brain.search("boiling tea"))[0].summary)
        print("surface: ", (await brain.surface("tea", seed=1)).summary)
        again = await brain.surface("tea", seed=1)
        print("and then:", again.summary if again else "nothing")
        print("rest=0:  ", (await brain.surface("tea", seed=1, rest=timedelta(0))).summary)

        async with place.sessions() as session:
            counted = select(Tag.tag, func.count()).group_by(Tag.tag).order_by(Tag.tag)
            print("by tag:  ", {row[0]: row[1] for row in await session.execute(counted)})
            print("looks:   ", await session.scalar(select(func.sum(Crystal.access_count))))

        town = Town(u, place)
        await town.create_citizen("Ann", archetype="baker")
        talk = await town.start_conversation("Ann", "bread")
        await town.add_turn(talk.id, "user", "How long does it rise?")
        last = await town.add_turn(talk.id, "citizen", "Two hours, near the stove.")
        for turn in await town.transcript(talk.id):
            print(f"{turn.role:>9}: {turn.content}")
        print("chain:   ", len(await u.causal_chain(last.id)), "datums")

        garden = Gardener(u, place)
        idea = await garden.plant("bake with ginger", causal_parent=last.id)
        await garden.nurture(idea.id, "and orange peel")
        grown = await garden.harvest(idea.id)
        print("idea:    ", grown.lifecycle, grown.confidence, "in", len(await u.history(idea.id)), "versions")
        print("found:   ", sorted({hit.datum.schema for hit in await u.search("ginger")}))

        await u.delete(idea.id)  # on one track only
        print("half:    ", [(half.table, half.missing) for half in await find_halves(u, place)])
        print("mended:  ", [half.done for half in await repair(u, place, missing_datum="restore")])


with TemporaryDirectory() as folder:
    asyncio.run(main(Path(folder)))
