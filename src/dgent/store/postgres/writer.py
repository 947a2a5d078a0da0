"""Commits of all tasks, in groups: one round trip each, done once whatever happens to the reply.

Every group carries its writer's name and a number. When a reply is lost the same group is sent again
with the same number; the store refuses the second one, and what the first came to is read back.
"""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable

import asyncpg
from msgspec.structs import replace

from dgent import clock
from dgent.errors import Closed, DgentError, OutcomeUnknown, Unavailable
from dgent.store.backend import Commit, Committed, View
from dgent.store.kernel import Wrap
from dgent.store.ledger import Ledger, Prepared
from dgent.store.postgres import bulk, trouble
from dgent.store.postgres.bridge import run
from dgent.store.postgres.pool import ATTEMPTS, FIRST_PAUSE_S, LONGEST_PAUSE_S, Pool
from dgent.store.postgres.proposal import Proposal
from dgent.store.postgres.reading import Catalogs
from dgent.store.postgres.sql import Texts

MAX_COMMITS = 256
MAX_BYTES = 1 << 20
OPS_A_SECOND = 1000  # a large commit gets so much more time
GUESSES = 2  # so often commits are worked out without the lock


class Job:
    """One commit that waits for its answer."""

    __slots__ = ("answer", "failed", "names", "offered", "prepared", "result", "taken", "view")

    def __init__(self, prepared: Prepared, view: View, answer: asyncio.Future[Committed]) -> None:
        self.prepared, self.view, self.answer = prepared, view, answer
        self.taken = False
        self.offered = False  # worked out and maybe sent: from here on it may happen
        self.result: Committed | None = None
        self.failed: Exception | None = None
        # Commits that share one of these must not be in one group.
        self.names: list[str | bytes] = [op.id for op in prepared.commit.ops]
        if prepared.key is not None:
            self.names.append(prepared.key)

    @property
    def extra_s(self) -> float:
        """How much longer than others this may take, because it is large."""
        return len(self.prepared.drafts) / OPS_A_SECOND

    @property
    def commit(self) -> Commit:
        """What was asked for."""
        return self.prepared.commit


class Writer:
    """Takes commits in the order they come and sends them together."""

    def __init__(
        self, pool: Pool, texts: Texts, catalogs: Catalogs, wrap: Wrap, seen: Callable[[int], None]
    ) -> None:
        self.pool, self.texts, self._seen = pool, texts, seen
        self.proposal = Proposal(texts, catalogs)
        self.ledger = Ledger(wrap(self.proposal))
        self._name = os.urandom(16)
        self._count = 0  # of the group that is under way
        self._queue: list[Job] = []
        self._sent = False  # whether the group at hand may have happened
        self._task: asyncio.Task[None] | None = None

    # -- from outside ---------------------------------------------------------------------

    async def commit(self, prepared: Prepared, view: View) -> Committed:
        """Hand in a commit and wait for its answer, no longer than calls may take."""
        loop = asyncio.get_running_loop()
        job = Job(prepared, view, loop.create_future())
        self._queue.append(job)
        if self._task is None:
            self._task = loop.create_task(self._drain(), name="dgent-postgres-writer")
        timer = loop.call_later(self.pool.address.timeout + job.extra_s, self._expire, job)
        try:
            return await job.answer
        except asyncio.CancelledError:
            if not job.taken:
                self._queue.remove(job)
            raise
        finally:
            timer.cancel()

    def _expire(self, job: Job) -> None:
        if job.answer.done():
            return
        place = self.pool.address.place
        if job.offered:
            job.answer.set_exception(unknown(job.commit, place))
            return
        if not job.taken:
            self._queue.remove(job)
        job.answer.set_exception(Unavailable(f"{place} took no commit in time", hint="try again"))

    async def close(self) -> None:
        """Finish what was handed in."""
        if self._task is not None:
            await asyncio.wait([self._task])

    # -- groups ---------------------------------------------------------------------------

    async def _drain(self) -> None:
        try:
            while self._queue:
                group = self._next_group()
                try:
                    await self._settle(group)
                except BaseException as error:
                    self._fail(group, error)
                    if not isinstance(error, Exception):
                        raise
        finally:
            self._task = None
            if self._queue:  # only when this task was cancelled with its loop
                self._fail(self._queue, Closed("the event loop ended"))

    def _next_group(self) -> list[Job]:
        group: list[Job] = []
        left: list[Job] = []
        names: set[str | bytes] = set()
        size = 0
        for job in self._queue:
            size += job.prepared.size
            full = len(group) >= MAX_COMMITS or (group and size > MAX_BYTES)
            # Also behind one that waits: commits about one record stay in their order.
            if full or not names.isdisjoint(job.names):
                left.append(job)
            else:
                group.append(job)
                job.taken = True
            names.update(job.names)
        self._queue = left
        return group

    async def _settle(self, group: list[Job]) -> None:
        """See a group through: by guesses, then under the lock; one by one if it fails as a whole."""
        group = [job for job in group if not job.answer.done()]
        if not group:
            return
        locked: list[Job] = []
        for guess in range(GUESSES):
            try:
                await self._attempt(group, sure=guess > 0, locked=False)
                break
            except _Again as again:
                if again.job is not None:
                    locked.append(again.job)
                    group = [job for job in group if job is not again.job]
            except (*trouble.FAILURES, ValueError, OverflowError):
                # Something in it cannot be stored; nothing of it was.
                if len(group) == 1:
                    raise
                await self._one_by_one(group)
                break
        else:
            locked += group
        for job in locked:
            try:
                await self._attempt([job], sure=True, locked=True)
            except Exception as error:
                self._fail([job], error)

    async def _one_by_one(self, group: list[Job]) -> None:
        for job in group:
            try:
                await self._settle([job])
            except Exception as error:
                self._fail([job], error)

    def _fail(self, jobs: list[Job], error: BaseException) -> None:
        told = error if isinstance(error, Exception) else Unavailable("the writer was interrupted")
        for job in jobs:
            if not job.answer.done():
                job.answer.set_exception(trouble.told(told, self.pool.address.place))

    # -- one attempt ----------------------------------------------------------------------

    async def _attempt(self, group: list[Job], sure: bool, locked: bool) -> None:
        """Work a group out and send it; `_Again` if the store is not what was assumed."""
        self._count += 1
        loop = asyncio.get_running_loop()
        end = loop.time() + self.pool.address.timeout + sum(job.extra_s for job in group)
        pause, self._sent = FIRST_PAUSE_S, False
        while True:
            if not self._sent:
                for job in group:
                    job.offered = False
            try:
                given = await self._try(group, sure, locked)
                break
            except trouble.FAILURES as failure:
                error = failure
            if trouble.is_done(error):
                continue  # it had happened: the next round reads what it came to
            if not locked and (trouble.is_stale(error) or trouble.collision(error) is not None):
                raise _Again from None
            if not trouble.is_gone(error) and not trouble.is_waiting(error):
                raise error
            if loop.time() + pause >= end:
                if not self._sent or trouble.is_waiting(error):
                    raise trouble.told(error, self.pool.address.place) from None
                for job in group:  # not to be tried again under another number
                    self._fail([job], unknown(job.commit, self.pool.address.place))
                return
            self.pool.drop_idle()
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(LONGEST_PAUSE_S, pause * 2)
        self._answer(group, given)

    async def _try(self, group: list[Job], sure: bool, locked: bool) -> tuple[int, int] | None:
        """One try on one connection; what the store gave: the seq before, and the time."""
        address = self.pool.address
        async with asyncio.timeout(address.timeout):
            connection = await self.pool.take()
        whole = False
        try:
            async with asyncio.timeout(address.timeout / ATTEMPTS + sum(job.extra_s for job in group)):
                if locked:
                    given = await self._locked(connection, group)
                else:
                    given = await self._guess(connection, group, sure)
                whole = True
                return given
        except TimeoutError:
            raise ConnectionError("no answer") from None
        except (asyncpg.PostgresError, ValueError, DgentError, _Again) as error:
            broken = trouble.is_gone(error) or connection.is_closed() or connection.is_in_transaction()
            whole = not broken
            raise
        finally:
            if whole:
                self.pool.give(connection)
            else:
                self.pool.drop(connection)

    async def _guess(
        self, connection: asyncpg.Connection, group: list[Job], sure: bool
    ) -> tuple[int, int] | None:
        if self._sent:
            found = await connection.fetchrow(self.texts.happened, self._name, self._count)
            if found is not None:
                return found["seq"], found["at"]
        else:
            await run(lambda: self._work_out(connection, group, sure, False))
        if not self.proposal.changes:
            return None
        if len(self.proposal.changes.fresh) > bulk.MANY:
            self._sent = True
            return await bulk.send(connection, self.texts, self.proposal, self._name, self._count)
        return await self._send(connection)

    async def _locked(self, connection: asyncpg.Connection, group: list[Job]) -> tuple[int, int] | None:
        async with connection.transaction():
            if self._sent:
                # Whoever lost the reply may still be at it: only the clock's holder sees how it ended.
                await connection.fetchrow(self.texts.lock)
                found = await connection.fetchrow(self.texts.once, self._name, self._count)
                if found is not None:
                    return found["seq"], found["at"]
            await run(lambda: self._work_out(connection, group, True, True))
            if not self.proposal.changes:
                return None
            given = await self._send(connection)
        self.proposal.publish()
        return given

    async def _send(self, connection: asyncpg.Connection) -> tuple[int, int]:
        values = self.proposal.arguments(self._name, self._count, clock.now_us())
        self._sent = True
        record = await connection.fetchrow(self.texts.commit, *values)
        return record["seq"], record["at"]

    def _work_out(self, connection: asyncpg.Connection, group: list[Job], sure: bool, locked: bool) -> None:
        """Run the ledger over the proposal; a commit that is refused leaves nothing in it."""
        proposal = self.proposal
        group = [job for job in group if not job.answer.done()]  # not for those who gave up
        for job in group:
            job.offered = True
        proposal.begin_group(connection, sure, locked)
        proposal.look_up(job.prepared for job in group)
        for job in group:
            job.result = job.failed = None
            try:
                job.result = self.ledger.commit(job.prepared, job.view)
            except trouble.FAILURES:
                raise  # it is about the connection, not about this commit
            except Exception as error:
                if proposal.needs_lock:
                    raise _Again(job) from None
                job.failed = error  # a refusal, or a bug in the caller's view: his alone
        proposal.work_out()

    # -- answers --------------------------------------------------------------------------

    def _answer(self, group: list[Job], given: tuple[int, int] | None) -> None:
        proposal = self.proposal
        before = proposal.base
        ahead = 0 if given is None else given[0] - before
        proposal.base = before + ahead + (proposal.tip.seq - before)
        self._seen(proposal.base)
        for job in group:
            if job.answer.done():
                continue
            if job.failed is not None:
                job.answer.set_exception(job.failed)
            else:
                assert job.result is not None
                job.answer.set_result(_moved(job.result, before, ahead) if ahead else job.result)


class _Again(Exception):
    """The store is not what was assumed; `job` if one commit needs the lock."""

    def __init__(self, job: Job | None = None) -> None:
        self.job = job


def _moved(result: Committed, before: int, ahead: int) -> Committed:
    """The answer with the numbers that the store gave instead of those that were assumed."""
    if result.repeated:
        return result

    def real(seq: int | None) -> int | None:
        return seq + ahead if seq is not None and seq > before else seq

    written = tuple(replace(w, seq=real(w.seq)) if w.changed else w for w in result.written)
    return replace(result, seq=real(result.seq), written=written)


def unknown(commit: Commit, place: str) -> OutcomeUnknown:
    """What to say when nobody can tell whether a commit happened."""
    if commit.key is None:
        hint = "read the records to find out; a commit with a key can be asked for or repeated"
        return OutcomeUnknown(f"{place} did not say whether the commit happened", hint=hint)
    return OutcomeUnknown(f"{place} did not say whether the commit happened", key=commit.key)
