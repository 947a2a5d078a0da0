"""Work that needs the truth is refused while the store is away, and goes on when it is back."""

from __future__ import annotations

from pathlib import Path

import pytest

from dgent.cupboard import Cupboard, Stash
from dgent.errors import Degraded, Unavailable
from tests.offline.cable import Cable, connected
from tests.offline.world import back


@pytest.fixture
def cable(tmp_path: Path) -> Cable:
    return Cable(tmp_path / "store.db")


@pytest.mark.filterwarnings("ignore::dgent.errors.Degraded")
async def test_nobody_takes_completes_or_locks_without_the_store(cable: Cable, tmp_path: Path) -> None:
    async with connected(cable, tmp_path / "outbox.db") as u:
        cupboard = Cupboard(u)
        trail = await cupboard.start("try")
        await cupboard.add("work", trail=trail, state="ready")
        lock = Stash("lock", "lock")
        await cupboard.stashes.set(None, lock)
        cable.cut()
        with pytest.warns(Degraded):
            await u.count(partial=True)
        for refused in (
            lambda: cupboard.take("ann"),
            lambda: cupboard.complete(trail),
            lambda: cupboard.abandon(trail),
            lambda: cupboard.stashes.acquire(lock.id, "ann"),
            lambda: cupboard.add("more", trail=trail),
        ):
            with pytest.raises(Unavailable):
                await refused()
        cable.mend()
        await back(u)
        taken = await cupboard.take("ann")
        assert taken is not None and taken.name == "work"
        assert (await cupboard.complete(trail)).crumbs == (taken.id,)
        assert await cupboard.stashes.acquire(lock.id, "ann") > 1
        assert len(await cupboard.crumbs.fetch()) == 1
