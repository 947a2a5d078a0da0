"""The tracks are apart: a change of agents' memory changes no table, and no other way round."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa

import dgent
from dgent.tables import Brain, connect, ensure_migrations
from dgent.tables.models import Crystal


async def test_a_change_on_one_track_leaves_the_other_alone(tmp_path: Path) -> None:
    async with dgent.open(f"sqlite:///{tmp_path / 'store.db'}") as u, await connect(u) as place:
        await ensure_migrations(place)
        brain = Brain(u, place)
        made = await brain.capture("a kettle", ["tea"])

        async def rows() -> list[tuple[object, ...]]:
            async with place.engine.connect() as connection:
                return [tuple(row) for row in await connection.execute(sa.select(Crystal.__table__))]

        before = await rows()
        await u.put(dgent.Datum("note", data={"n": 1}))
        await u.update(await u.get(made.id), content="a pot")
        await u.undo(await u.seq())
        await u.delete("note")
        assert await rows() == before

        seq, datum = await u.seq(), await u.get(made.id, raw=True)
        async with place.sessions.begin() as session:
            await session.execute(sa.update(Crystal).values(summary="another one", access_count=9))
            session.add(Crystal(id="own", content_hash="h", summary="only a row"))
        assert (await u.seq(), await u.get(made.id, raw=True)) == (seq, datum)
        assert await u.get("own") is None
