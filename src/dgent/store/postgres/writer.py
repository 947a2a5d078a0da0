"""Commits of all tasks, in groups: few round trips, and one group is worked out while another is sent."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Iterator, Sequence
from typing import Any

import asyncpg

from dgent.errors import Closed, DgentError, Unavailable, VersionConflict
from dgent.model.datum import Datum
from dgent.store.backend import Committed, View
from dgent.store.engine.commit import Ledger, Prepared
from dgent.store.engine.fresh import FreshKind
from dgent.store.engine.kernel import Wrap
from dgent.store.engine.row import Row, columns_of
from dgent.store.postgres import errors
from dgent.store.postgres.batch import with_ids
from dgent.store.postgres.bridge import Begun, run
from dgent.store.postgres.format import FRESH
from dgent.store.postgres.job import MAX_BYTES, CommitJob, FreshJob, Job
from dgent.store.postgres.listen import NewestSeen
from dgent.store.postgres.pool import ATTEMPTS, FIRST_PAUSE_S, LONGEST_PAUSE_S, Pool
from dgent.store.postgres.proposal import Proposal
from dgent.store.postgres.read import Catalogs
from dgent.store.postgres.relational import run_attached
from dgent.store.postgres.sql import Texts

MANY = 1000
MAX_COMMITS = 256
LANES = 2
AT_ONCE = 64  # so many are sent before the loop comes round: the server works while more are handed in
SPLIT = 128  # so many that wait are sent in two halves, so that server and client work at the same time
LOOKS = 20  # how often within its time a commit is looked after
GUESSES = 2  # so often commits are worked out without the lock
_RECORD_KEY, _SEQ, _AT = (Row._fields.index(name) for name in ("record_key", "seq", "at"))
_ENTRY = ("ix", "key", "t", "dk", "id")


async def send(
    connection: asyncpg.Connection, texts: Texts, proposal: Proposal, writer: bytes, n: int
) -> tuple[int, int]:
    """Lock the clock with everything but the new rows and entries, then stream those."""
    changes = proposal.changes
    fresh, added, records = changes.fresh, changes.added, changes.records
    entries = changes.list_entries()
    changes.fresh, changes.added, changes.records = [], [], []
    try:
        async with connection.transaction():
            await connection.execute(texts.patience)
            values = proposal.arguments(writer, n)
            seq, record_key, at = await connection.fetchrow(texts.commit, *values)
            ahead, shift = seq - proposal.base, record_key - FRESH
            await connection.copy_records_to_table(
                "datum",
                schema_name=texts.universe,
                columns=[*columns_of(Row), "trail"],
                records=_number_rows(fresh, ahead, shift, at),
            )
            await connection.copy_records_to_table(
                "entry",
                schema_name=texts.universe,
                columns=list(_ENTRY),
                records=_shift_entries(with_ids(entries, proposal.ids), shift),
            )
    finally:
        changes.fresh, changes.added, changes.records = fresh, added, records
    return seq, at


def _number_rows(rows: list[Row], ahead: int, shift: int, at: int) -> Iterator[list[Any]]:
    for row in rows:
        given: list[Any] = [*row, 0]
        given[_RECORD_KEY] += shift
        given[_SEQ] += ahead
        given[_AT] = at
        yield given


def _shift_entries(entries: Sequence[tuple[Any, ...]], shift: int) -> Iterator[tuple[Any, ...]]:
    for ix, key, created_at, record_key, id in entries:
        yield ix, key, created_at, record_key + shift if record_key < 0 else record_key, id


class Lane:
    """Processes one group at a time to its end."""

    def __init__(self, pool: Pool, texts: Texts, catalogs: Catalogs, wrap: Wrap, seen: NewestSeen) -> None:
        self.pool, self.texts, self.seen = pool, texts, seen
        self.proposal = Proposal(texts, catalogs)
        self.ledger = Ledger(wrap(self.proposal))
        self._name = os.urandom(16)
        self._count = 0  # of the group that is under way
        self._sent = False  # whether that group may have happened
        self._begun: tuple[asyncpg.Connection, Begun[tuple[int, int] | None]] | None = None

    def begin(self, group: Sequence[Job]) -> None:
        """Work a group out and send it now, if that needs no waiting; `settle` completes it.

        The server then works on it while those tasks run that are about to submit more.
        """
        if sum(job.records for job in group) > MANY or any(job.has_statements for job in group):
            return
        connection = self.pool.take_idle()
        if connection is not None:
            self._count += 1
            self._sent = False
            self._begun = connection, Begun(self._guess(connection, group, sure=False))

    async def settle(self, group: Sequence[Job]) -> None:
        """Complete a group: by guesses, then under the lock; one by one if it fails as a whole."""
        if isinstance(group[0], FreshJob):
            try:
                await self._attempt(group, sure=False, locked=False)
            except (_Again, *errors.FAILURES, ValueError, OverflowError) as error:
                if isinstance(error, asyncpg.UndefinedFunctionError):
                    self.texts.put = None  # a role that may not create it found an older universe
                group[0].answer.set_result(None)  # nothing of it was stored
            return
        await self._settle_commits([job for job in group if isinstance(job, CommitJob)])

    async def _settle_commits(self, group: list[CommitJob]) -> None:
        if self._begun is None:
            group = [job for job in group if not job.answer.done()]
        locked = [job for job in group if job.has_statements]
        group = [job for job in group if not job.has_statements]
        for guess in range(GUESSES if group else 0):
            try:
                await self._attempt(group, sure=guess > 0, locked=False)
                break
            except _Again as again:
                if again.job is not None:
                    locked.append(again.job)
                    group = [job for job in group if job is not again.job]
            except (*errors.FAILURES, ValueError, OverflowError):
                # Something in it cannot be stored; nothing of it was.
                if len(group) == 1:
                    raise
                await self._one_by_one(group)
                break
        else:
            locked += group
        for job in locked:
            if job.answer.done():
                continue  # its time was up meanwhile
            try:
                await self._attempt([job], sure=True, locked=True)
            except Exception as error:
                self.fail([job], error)

    async def _one_by_one(self, group: list[CommitJob]) -> None:
        for job in group:
            try:
                await self.settle([job])
            except Exception as error:
                self.fail([job], error)

    def fail(self, jobs: Sequence[Job], error: BaseException) -> None:
        """Report to tasks that still wait for these that they did not happen."""
        failure = error if isinstance(error, Exception) else Unavailable("the writer was interrupted")
        for job in jobs:
            job.fail(errors.translate(failure, self.pool.address.place))

    # -- one attempt ----------------------------------------------------------------------

    async def _attempt(self, group: Sequence[Job], sure: bool, locked: bool) -> None:
        """Work a group out and send it; `_Again` if the store is not in the assumed state."""
        if self._begun is None:
            self._count += 1
            self._sent = False
        loop = asyncio.get_running_loop()
        end = loop.time() + self.pool.address.timeout + sum(job.extra_s for job in group)
        pause = FIRST_PAUSE_S
        while True:
            if not self._sent and self._begun is None:
                for job in group:
                    job.offered = False
            try:
                given = await self._try(group, sure, locked)
                break
            except errors.FAILURES as failure:
                error = failure
            if errors.is_done(error):
                continue  # it had happened: the next round reads what it came to
            _check_repeatable(error, locked)
            if loop.time() + pause >= end:
                self._give_up(group, error)
                return
            if not isinstance(error, errors.NO_ROOM):
                self.pool.drop_idle()
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(LONGEST_PAUSE_S, pause * 2)
        self._answer(group, given)

    def _give_up(self, group: Sequence[Job], error: Exception) -> None:
        """Raise the last error; a group that may have happened fails with an unknown outcome instead."""
        if not self._sent or errors.is_waiting(error):
            raise errors.translate(error, self.pool.address.place) from None
        for job in group:  # not to be tried again under another number
            job.fail(job.unknown(self.pool.address.place))

    async def _try(self, group: Sequence[Job], sure: bool, locked: bool) -> tuple[int, int] | None:
        """Make one try on one connection; returns what the store gave: the seq before, and the time."""
        address = self.pool.address
        begun, self._begun = self._begun, None
        if begun is not None:
            connection, going = begun[0], begun[1]
        else:
            async with asyncio.timeout(address.timeout):
                connection = await self.pool.take()
        whole = False
        loop = asyncio.get_running_loop()
        limit = loop.time() + address.timeout / ATTEMPTS + sum(job.extra_s for job in group)
        # Leaving a transaction, the driver waits to be heard, maybe forever; not on what is closed.
        closing = loop.call_at(limit, connection.terminate)
        try:
            async with asyncio.timeout_at(limit):
                if begun is not None:
                    given = await going
                elif locked:
                    given = await self._attempt_locked(connection, group)
                else:
                    given = await self._guess(connection, group, sure)
                whole = True
                return given
        except TimeoutError:
            raise ConnectionError("no answer") from None
        except (asyncpg.PostgresError, ValueError, DgentError, _Again) as error:
            broken = errors.is_gone(error) or connection.is_closed() or connection.is_in_transaction()
            whole = not broken
            raise
        except AttributeError:
            if loop.time() < limit:
                raise
            raise ConnectionError("no answer") from None  # closed between two of the driver's steps
        finally:
            closing.cancel()
            if whole:
                self.pool.give(connection)
            else:
                self.pool.drop(connection)

    async def _guess(
        self, connection: asyncpg.Connection, group: Sequence[Job], sure: bool
    ) -> tuple[int, int] | None:
        if self._sent:
            found = await connection.fetchrow(self.texts.happened, self._name, self._count)
            if found is not None:
                return found["seq"], found["at"]
        else:
            await run(lambda: self._work_out(connection, group, sure, False))
        if not self.proposal.changes:
            return None
        if len(self.proposal.changes.fresh) > MANY:
            self._sent = True
            return await send(connection, self.texts, self.proposal, self._name, self._count)
        return await self._send(connection, isinstance(group[0], FreshJob))

    async def _attempt_locked(
        self, connection: asyncpg.Connection, group: Sequence[Job]
    ) -> tuple[int, int] | None:
        proves = any(job.proves_rows for job in group)
        # Rows are compared, and then written: a session of SQL must not change them in between.
        async with connection.transaction(isolation="serializable" if proves else None):
            if proves:
                # What such a transaction sees is settled by its first statement that reads, and not by this
                # one: so it sees all commits before it.
                await connection.execute(self.texts.lock_table)
            if self._sent:
                # The group whose reply was lost may still run: only the clock's holder sees how it ended.
                await connection.fetchrow(self.texts.lock)
                found = await connection.fetchrow(self.texts.once, self._name, self._count)
                if found is not None:
                    return found["seq"], found["at"]
            await run(lambda: self._work_out(connection, group, True, True))
            if proves:
                await self._explain_conflict(connection, group)
            statements = [each for job in group for each in job.due_statements()]
            if not self.proposal.changes and not statements:
                return None
            given = await self._send(connection, columns=False)
            if statements:
                await run_attached(connection, statements, self.pool.address)
        self.proposal.publish()
        return given

    async def _explain_conflict(self, connection: asyncpg.Connection, group: Sequence[Job]) -> None:
        """Raise TransactionConflict where what a refused commit expected rests on rows that have changed."""
        for job in group:
            if isinstance(job, CommitJob) and isinstance(job.failed, VersionConflict):
                await run_attached(connection, job.prepared.commit.statements, self.pool.address)
                raise job.failed  # undoes what was run

    async def _send(self, connection: asyncpg.Connection, columns: bool) -> tuple[int, int]:
        if columns and self.texts.put is not None:
            sql, values = self.texts.put, self.proposal.list_columns(self._name, self._count)
        else:
            sql, values = self.texts.commit, self.proposal.arguments(self._name, self._count)
        self._sent = True
        record = await connection.fetchrow(sql, *values)
        return record["seq"], record["at"]

    def _work_out(
        self, connection: asyncpg.Connection, group: Sequence[Job], sure: bool, locked: bool
    ) -> None:
        """Run the ledger over the proposal; a commit that is refused leaves nothing in it."""
        proposal = self.proposal
        waiting = [job for job in group if not job.answer.done()]  # not for those who gave up
        for job in waiting:
            job.offered = True
        proposal.begin_group(connection, sure, locked, self.seen.seq)
        if waiting and isinstance(waiting[0], FreshJob):
            self._place(waiting[0])
        else:
            self._work_out_commits([job for job in waiting if isinstance(job, CommitJob)])

    def _place(self, job: FreshJob) -> None:
        """Run the ledger for new records; `_Again` if something has to be decided for one of them."""
        self.proposal.look_up(())  # their ids were made here, a moment ago
        job.placed = job.answer.place(self.ledger)
        if job.placed is None:
            raise _Again

    def _work_out_commits(self, group: list[CommitJob]) -> None:
        proposal = self.proposal
        prepared = [job.prepared for job in group]
        proposal.look_up(prepared)
        together = self.ledger.put_together(prepared) if len(group) > 1 else None
        if together is not None:
            for job, result in zip(group, together, strict=True):
                job.result, job.failed = result, None
            return
        for job in group:
            job.result = job.failed = None
            try:
                job.result = self.ledger.commit(job.prepared, job.view)
            except errors.FAILURES:
                raise  # it is about the connection, not about this commit
            except Exception as error:
                if proposal.needs_lock:
                    raise _Again(job) from None
                job.failed = error  # a refusal, or a bug in the caller's view: his alone
        proposal.work_out()

    # -- answers --------------------------------------------------------------------------

    def _answer(self, group: Sequence[Job], given: tuple[int, int] | None) -> None:
        proposal = self.proposal
        before = proposal.base
        ahead = 0 if given is None else given[0] - before
        at = None if given is None else given[1]
        self.seen.advance(proposal.tip.seq + ahead)
        for job in group:
            if not job.answer.done():
                job.settle(before, ahead, at)


class _Again(Exception):
    """The store is not in the assumed state; `job` if one commit needs the lock."""

    def __init__(self, job: CommitJob | None = None) -> None:
        self.job = job


def _check_repeatable(error: Exception, locked: bool) -> None:
    """Raise the error of a try, unless the same try may work out later."""
    if not locked and (errors.is_stale(error) or errors.collision(error) is not None):
        raise _Again from None
    if not errors.is_gone(error) and not errors.is_waiting(error):
        raise error


class GroupWriter:
    """Takes commits in the order they come and sends them together."""

    def __init__(self, pool: Pool, texts: Texts, catalogs: Catalogs, wrap: Wrap, seen: NewestSeen) -> None:
        self.pool = pool
        self._free = [Lane(pool, texts, catalogs, wrap, seen) for _ in range(LANES)]
        self._queue: list[Job] = []
        self._groups: dict[asyncio.Task[None], Sequence[Job]] = {}
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
        self._send_soon(loop)
        return answer

    @property
    def has_queue(self) -> bool:
        """Return whether something waits to be sent."""
        return bool(self._queue)

    def put_fresh(
        self, kind: FreshKind, data: dict[str, Any], tags: frozenset[Any]
    ) -> asyncio.Future[Datum | None] | None:
        """Put a new record together with others of its kind; None if it has to go the usual way.

        The future gives None if that turns out later; then nothing was written.
        """
        job = self._queue[-1] if self._queue else None
        if type(job) is FreshJob and job.takes(kind):
            answer = job.add(data, tags)
            if job.records % AT_ONCE == 0 and self._free:
                self._send(at_once=True)
            return answer
        if kind.closed[0]:
            return None
        loop = asyncio.get_running_loop()
        job = FreshJob(kind, loop, loop.time() + self.pool.address.timeout)
        self._queue.append(job)
        self._send_soon(loop)
        return job.add(data, tags)

    def _send_soon(self, loop: asyncio.AbstractEventLoop) -> None:
        """Send what waits at the end of this tick."""
        if not self._soon:
            self._soon = True
            loop.call_soon(self._send)  # together with all others of this tick
        if not self._looking:
            self._looking = True
            loop.call_later(self.pool.address.timeout / LOOKS, self._look)

    async def settle_commits(self) -> None:
        """Wait until the groups under way are done; what was cancelled before is not sent any more."""
        if groups := list(self._groups):
            await asyncio.wait(groups)

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

    async def _run(self, lane: Lane, group: Sequence[Job]) -> None:
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

    def _next_group(self, whole: bool) -> Sequence[Job]:
        """Return the next commits that may travel together; those about one record keep their order."""
        while self._queue and isinstance(self._queue[0], FreshJob):
            fresh = self._queue.pop(0)
            assert isinstance(fresh, FreshJob)
            if fresh.encode():
                return [fresh]
        if not self._queue:
            return []
        alone = not self._groups
        if self._queue[0].guarded and not alone:
            return []  # it holds only if nobody commits in between, not even this process
        halve = alone and not whole and len(self._queue) >= SPLIT
        most = (len(self._queue) + 1) // 2 if halve else MAX_COMMITS
        group: list[Job] = []
        left: list[Job] = []
        names = set(self._names)
        taken: list[str | bytes] = []
        size = 0
        for job in self._queue:
            if job.answer.done():
                continue
            if not isinstance(job, CommitJob):
                left.append(job)
                continue
            mine = job.names
            size += job.prepared.size
            full = len(group) >= most or (group and size > MAX_BYTES)
            if full or not names.isdisjoint(mine) or (job.guarded and not alone):
                left.append(job)
            else:
                group.append(job)
                taken += mine
            names.update(mine)
        self._names.update(taken)
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
