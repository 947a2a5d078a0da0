"""Commits of all tasks, in groups: few round trips, and one group is worked out while another is sent."""

from __future__ import annotations

import asyncio

from dgent.errors import Closed
from dgent.store.backend import Committed, View
from dgent.store.engine.commit import Prepared
from dgent.store.engine.kernel import Wrap
from dgent.store.postgres.lane import CommitJob, Lane
from dgent.store.postgres.pool import Pool
from dgent.store.postgres.read import Catalogs
from dgent.store.postgres.seen import NewestSeen
from dgent.store.postgres.sql import Texts

MAX_COMMITS = 256
MAX_BYTES = 1 << 20
LANES = 2
AT_ONCE = 32  # so many are sent before the loop comes round: the server works while more are handed in
SPLIT = 16  # so many that wait are sent in two halves, so that server and client work at the same time
LOOKS = 20  # how often within its time a commit is looked after


class GroupWriter:
    """Takes commits in the order they come and sends them together."""

    def __init__(self, pool: Pool, texts: Texts, catalogs: Catalogs, wrap: Wrap, seen: NewestSeen) -> None:
        self.pool = pool
        self._free = [Lane(pool, texts, catalogs, wrap, seen) for _ in range(LANES)]
        self._queue: list[CommitJob] = []
        self._groups: dict[asyncio.Task[None], list[CommitJob]] = {}
        self._names: set[str | bytes] = set()  # what the groups under way are about
        self._soon = False
        self._looking = False

    def commit(self, prepared: Prepared, view: View) -> asyncio.Future[Committed]:
        """Submit a commit; cancelled before it is on its way, it never happens."""
        loop = asyncio.get_running_loop()
        answer = loop.create_future()
        self._queue.append(CommitJob(prepared, view, answer, loop.time() + self.pool.address.timeout))
        if self._free and len(self._queue) % AT_ONCE == 0:  # not at each one, if what waits cannot go yet
            self._send(at_once=True)
        elif not self._soon:
            self._soon = True
            loop.call_soon(self._send)  # together with all others of this tick
        if not self._looking:
            self._looking = True
            loop.call_later(self.pool.address.timeout / LOOKS, self._look)
        return answer

    async def close(self) -> None:
        """Finish submitted commits."""
        while self._soon or self._groups:
            await (asyncio.wait(self._groups) if self._groups else asyncio.sleep(0))

    # -- groups ---------------------------------------------------------------------------

    def _send(self, at_once: bool = False) -> None:
        """Send waiting commits, as far as there are lanes."""
        self._soon = self._soon and at_once
        while self._free and self._queue:
            group = self._next_group(at_once)
            if not group:
                return
            lane = self._free.pop()
            if at_once:
                lane.begin(group)
            task = asyncio.get_running_loop().create_task(
                self._run(lane, group), name="dgent-postgres-commit"
            )
            self._groups[task] = group

    async def _run(self, lane: Lane, group: list[CommitJob]) -> None:
        try:
            await lane.settle(group)
        except BaseException as error:
            lane.fail(group, error)
            if not isinstance(error, Exception):
                # The loop ends, and with it everyone who could have waited.
                for job in self._queue:
                    job.fail(Closed("the event loop ended"))
                raise
        finally:
            self._names.difference_update(*(job.names for job in group))
            task = asyncio.current_task()
            assert task is not None
            del self._groups[task]
            self._free.append(lane)
        self._send()

    def _next_group(self, whole: bool) -> list[CommitJob]:
        """Return the next commits that may travel together; those about one record keep their order."""
        alone = not self._groups
        if self._queue[0].commit.guard is not None and not alone:
            return []  # it holds only if nobody commits in between, not even this process
        halve = alone and not whole and len(self._queue) >= SPLIT
        most = (len(self._queue) + 1) // 2 if halve else MAX_COMMITS
        group: list[CommitJob] = []
        left: list[CommitJob] = []
        names = set(self._names)
        size = 0
        for job in self._queue:
            if job.answer.done():
                continue
            mine = job.names
            size += job.prepared.size
            full = len(group) >= most or (group and size > MAX_BYTES)
            if full or not names.isdisjoint(mine) or (job.commit.guard is not None and not alone):
                left.append(job)
            else:
                group.append(job)
                self._names.update(mine)
            names.update(mine)
        self._queue = left
        return group

    # -- time -----------------------------------------------------------------------------

    def _look(self) -> None:
        """Answer jobs whose time is up; a periodic look costs less than a timer for each."""
        loop = asyncio.get_running_loop()
        now = loop.time()
        waiting = [job for jobs in (self._queue, *self._groups.values()) for job in jobs]
        for job in waiting:
            if now >= job.end:
                job.expire(self.pool.address.place)
        self._looking = any(not job.answer.done() for job in waiting)
        if self._looking:
            loop.call_later(self.pool.address.timeout / LOOKS, self._look)
