"""Connections to one server: a few, shared by all tasks, replaced when they break.

Work given to `call` is tried again on another connection until it succeeds or its time is up. So it must
be work that may be done twice, or that finds out by itself whether it was done.
"""

from __future__ import annotations

import asyncio
import math
import random
from collections import deque
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, ClassVar, TypeVar
from weakref import WeakKeyDictionary

import asyncpg

from dgent.errors import Busy, Closed, StorageError
from dgent.store.postgres import errors
from dgent.store.postgres.address import Address, one_by_one
from dgent.store.postgres.sql import Texts

R = TypeVar("R")

FIRST_PAUSE_S = 0.02
LONGEST_PAUSE_S = 0.5
ATTEMPTS = 3  # a silent connection is given up after this part of the time there is
FULL_S = 0.5  # so long a server that has no room is not asked for one more connection
OWN_TYPES = 10_000  # types of a lower number are the same on every server
MOST_TYPES = 64  # answers about types that are kept
LOOKS = 20  # how often within its time a connection with a limit is looked after


class Connection(asyncpg.Connection):  # type: ignore[misc]
    """A connection that knows types from the connections before it.

    Each one would ask the server for the types of its lists: most of the work of a short connection.
    """

    __slots__ = ("pool",)
    _known: ClassVar[dict[tuple[str, frozenset[int]], Any]] = {}

    async def _introspect_types(self, typeoids: Iterable[int], timeout: float | None) -> Any:
        wanted = frozenset(typeoids)
        place = "" if max(wanted) < OWN_TYPES else self.pool.types_of
        if place is None:
            return await super()._introspect_types(typeoids, timeout)
        found = self._known.get((place, wanted))
        if found is None:
            found = await super()._introspect_types(typeoids, timeout)
            if len(self._known) >= MOST_TYPES:
                self._known.clear()
            self._known[place, wanted] = found
        return found


class Pool:
    """Up to a number of connections; a task that needs one more waits for the next that is free."""

    def __init__(
        self, address: Address, dsn: str, writes: bool = True, settings: dict[str, str] | None = None
    ) -> None:
        self.address, self._writes = address, writes
        self._settings = address.settings() if settings is None else settings
        self._hosts = one_by_one(dsn)  # the one that answered last comes first
        self._idle: list[asyncpg.Connection] = []
        self._out: dict[asyncpg.Connection, float] = {}  # those in use, each until when it may be silent
        self._looking = False
        self._grow_at = 0.0  # the server had no room for more connections; by the loop's clock
        self._making = 0
        self._waiting: deque[asyncio.Future[asyncpg.Connection | None]] = deque()
        self._closed = False
        self.types_of: str | None = None  # the universe, once its tables are known to be of this format

    @property
    def size(self) -> int:
        """The number of connections."""
        return len(self._idle) + len(self._out) + self._making

    def _may_grow(self) -> bool:
        """Return whether to make one more connection: there is room for it here, and maybe on the server."""
        if self.size >= self.address.pool:
            return False
        return not self.size or asyncio.get_running_loop().time() >= self._grow_at

    # -- one connection -------------------------------------------------------------------

    async def connect(self) -> asyncpg.Connection:
        """Return one more connection, outside the count; of several servers, to one that takes writes."""
        failed: list[BaseException] = []
        for dsn in tuple(self._hosts):
            try:
                connection = await self._connect(dsn)
            except errors.FAILURES as error:
                failed.append(error)
            else:
                if dsn != self._hosts[0]:
                    self._hosts.sort(key=dsn.__ne__)
                return connection
        # The error of a server that refuses says more than that of one that is unavailable.
        raise next((error for error in failed if not errors.is_gone(error)), failed[0])

    async def _connect(self, dsn: str) -> asyncpg.Connection:
        several = len(self._hosts) > 1
        # Each has its share of the time: one that is silent must not use up that of the others.
        share = self.address.timeout / ATTEMPTS / len(self._hosts)
        connection = await asyncpg.connect(
            dsn,
            timeout=max(0.5, share),
            server_settings=self._settings,
            statement_cache_size=0 if self.address.pgbouncer else 200,
            max_cached_statement_lifetime=0,
            target_session_attrs="read-write" if several and self._writes else None,
            connection_class=Connection,
        )
        connection.pool = self
        return connection

    def take_idle(self, limit: float = math.inf) -> asyncpg.Connection | None:
        """Return a free connection, if nobody waits for one.

        It is broken if it is not given back before the limit, by the loop's clock.
        """
        while self._idle and not self._waiting:
            connection = self._idle.pop()
            if not connection.is_closed():
                self._out[connection] = limit
                if limit < math.inf and not self._looking:
                    self._look_later()
                return connection
        return None

    def _look_later(self) -> None:
        self._looking = True
        pause = self.address.timeout / ATTEMPTS / LOOKS
        asyncio.get_running_loop().call_later(pause, self._look)

    def _look(self) -> None:
        """Break connections silent for too long; a periodic look costs less than a timer for each read."""
        self._looking = False
        now = asyncio.get_running_loop().time()
        for connection, limit in self._out.items():
            if limit <= now:
                connection.terminate()  # a task that waits for its answer gets an error
        if any(now < limit < math.inf for limit in self._out.values()):
            self._look_later()

    async def take(self) -> asyncpg.Connection:
        """Return a connection for exclusive use until `give`; the task that waits longest is next."""
        if self._closed:
            raise Closed("this store was closed")
        connection = self.take_idle()
        if connection is not None:
            return connection
        if not self._waiting and self._may_grow():
            try:
                return await self._make()
            except errors.NO_ROOM:
                if not self.size:
                    raise
                self._grow_at = asyncio.get_running_loop().time() + FULL_S  # until then, share what there is
        turn: asyncio.Future[asyncpg.Connection | None] = asyncio.get_running_loop().create_future()
        self._waiting.append(turn)
        self._wake()
        try:
            connection = await turn
        except BaseException:
            if turn.done() and not turn.cancelled():
                self._hand_on(turn.result())  # it was this one's turn, and it will not use it
            raise
        return connection or await self._make(reserved=True)

    async def _make(self, reserved: bool = False) -> asyncpg.Connection:
        self._making += not reserved
        try:
            if self._closed:
                raise Closed("this store was closed")
            connection = await self.connect()
        except BaseException:
            self._making -= 1
            self._wake()
            raise
        self._making -= 1
        if self._closed:
            connection.terminate()
            raise Closed("this store was closed")
        self._out[connection] = math.inf
        return connection

    def give(self, connection: asyncpg.Connection) -> None:
        """Hand a connection back in the state it was taken."""
        self._out.pop(connection, None)
        if self._closed or connection.is_closed():
            connection.terminate()
        else:
            self._idle.append(connection)
        self._wake()

    def drop(self, connection: asyncpg.Connection) -> None:
        """Close a connection that is broken, silent, or in the middle of something."""
        self._out.pop(connection, None)
        connection.terminate()
        self._wake()

    def _hand_on(self, connection: asyncpg.Connection | None) -> None:
        """Give back a connection, or the room to make one, that was handed to a task that left."""
        if connection is not None:
            self.give(connection)
        else:
            self._making -= 1
            self._wake()

    def _wake(self) -> None:
        """Hand free connections, or the room to make one, to waiting tasks."""
        while self._waiting:
            if self._waiting[0].done():
                self._waiting.popleft()
            elif self._idle:
                connection = self._idle.pop()
                if not connection.is_closed():
                    self._out[connection] = math.inf
                    self._waiting.popleft().set_result(connection)
            elif self._closed or self._may_grow():
                self._making += 1
                self._waiting.popleft().set_result(None)
            else:
                return

    def drop_idle(self) -> None:
        """Close idle connections: after one broke, the others likely did too."""
        idle, self._idle = self._idle, []
        for connection in idle:
            connection.terminate()
        self._wake()

    async def close(self) -> None:
        """Close all connections; politely, but not for long."""
        self._closed = True
        idle, self._idle = self._idle, []
        self._wake()
        await asyncio.gather(*(_part_with(connection) for connection in idle))
        for connection in list(self._out):
            connection.terminate()

    # -- work -----------------------------------------------------------------------------

    async def call(
        self,
        work: Callable[[asyncpg.Connection], Awaitable[R]],
        *,
        quick: bool = False,
        patient: bool = True,
        end: float | None = None,
    ) -> R:
        """Run work with a connection, again if that breaks, until `end` by the loop's clock.

        `quick` gives up on a silent connection early; without `patient` an absent server is not waited for,
        only one that is just starting.
        """
        loop = asyncio.get_running_loop()
        end = end or loop.time() + self.address.timeout
        pause = FIRST_PAUSE_S
        while True:
            try:
                return await self._once(work, end, self.address.timeout / ATTEMPTS if quick else None)
            except errors.FAILURES as error:
                left = end - loop.time()
                absent = not patient and isinstance(error, OSError)
                # Where only reads go, somebody else can be asked at once.
                absent = absent or not self._writes
                if absent or not errors.is_gone(error) or left <= pause:
                    raise errors.translate(error, self.address.place) from None
                if not isinstance(error, errors.NO_ROOM):
                    self.drop_idle()
            await asyncio.sleep(pause * random.uniform(0.5, 1.0))
            pause = min(LONGEST_PAUSE_S, pause * 2)

    async def _once(
        self, work: Callable[[asyncpg.Connection], Awaitable[R]], end: float, attempt: float | None
    ) -> R:
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout_at(end):
                connection = await self.take()
        except TimeoutError:
            if loop.time() < end:
                raise ConnectionError("no answer") from None  # to one attempt to connect
            if self.size >= self.address.pool:
                raise Busy(
                    f"all {self.address.pool} connections were in use for {self.address.timeout:g} s",
                    hint="raise `pool=` in the URL, or do less at once",
                ) from None
            raise errors.translate(TimeoutError(), self.address.place) from None
        limit = end if attempt is None else min(end, loop.time() + attempt)
        # Leaving a transaction, the driver waits to be heard, maybe forever; not on what is closed.
        closing = loop.call_at(limit, connection.terminate)
        try:
            async with asyncio.timeout_at(limit):
                answer = await work(connection)
        except TimeoutError:
            self.drop(connection)
            if limit < end:
                raise ConnectionError("no answer") from None
            self.drop_idle()  # the others are likely silent, too
            raise errors.translate(TimeoutError(), self.address.place) from None
        except asyncio.CancelledError:
            self.drop(connection)  # it may be in the middle of an answer; a new one costs little
            raise
        except BaseException as error:
            if errors.is_gone(error) or connection.is_closed() or connection.is_in_transaction():
                self.drop(connection)
            else:
                self.give(connection)
            if isinstance(error, AttributeError) and loop.time() >= limit:
                raise ConnectionError("no answer") from None  # closed between two of the driver's steps
            raise
        finally:
            closing.cancel()
        self.give(connection)
        return answer


async def _part_with(connection: asyncpg.Connection) -> None:
    try:
        await asyncio.wait_for(connection.close(), 2)
    except errors.FAILURES:
        connection.terminate()


PATIENCE_S = 0.2  # so long a read waits for the replica to catch up before it goes to the primary
PAUSE_S = 0.01
REACH_S = 1.0  # so long it may take to get a connection that has caught up
LEAVE_S = 5.0  # a replica that failed is left alone for so long


class _Behind(Exception):
    """The replica cannot answer this now; ask the primary."""


class Replica:
    """A replica, which answers reads when it has what the reader has already seen."""

    def __init__(self, pool: Pool, texts: Texts) -> None:
        self.pool, self._texts = pool, texts
        # By connection: behind one name there may be several servers, each with its own past.
        self._seqs: WeakKeyDictionary[asyncpg.Connection, int] = WeakKeyDictionary()
        self._leave_until = 0.0

    async def ask(
        self,
        seq: int,
        work: Callable[[asyncpg.Connection], Awaitable[R]],
        instead: Callable[[], Awaitable[R]],
    ) -> R:
        """Read here if this seq is known here, now or very soon; else run `instead`."""
        try:
            return await self._ask(seq, work)
        except _Behind:
            return await instead()

    async def _ask(self, seq: int, work: Callable[[asyncpg.Connection], Awaitable[R]]) -> R:
        loop = asyncio.get_running_loop()
        if loop.time() < self._leave_until:
            raise _Behind

        async def caught_up(connection: asyncpg.Connection) -> R:
            await self._catch_up(connection, seq)
            limit.reschedule(loop.time() + self.pool.address.timeout / ATTEMPTS)
            return await work(connection)

        try:
            async with asyncio.timeout(REACH_S) as limit:
                return await self.pool.call(caught_up)
        except (StorageError, TimeoutError):
            self._leave_until = loop.time() + LEAVE_S
            raise _Behind from None

    async def _catch_up(self, connection: asyncpg.Connection, seq: int) -> None:
        loop = asyncio.get_running_loop()
        end = loop.time() + PATIENCE_S
        while self._seqs.get(connection, -1) < seq:
            found = self._seqs[connection] = await connection.fetchval(
                f"SELECT seq FROM {self._texts.u}.clock"
            )
            if found < seq:
                if loop.time() >= end:
                    raise _Behind
                await asyncio.sleep(PAUSE_S)
