"""Bring old records up to a changed schema: rewrite them in its version, or index them."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from dgent.errors import Conflict, InputError, Unreadable
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.model.vector import VectorSpec
from dgent.store.backend import Backend, Declared, Put, View
from dgent.system.threads import on_loop
from dgent.universe.contract import declaration

if TYPE_CHECKING:
    from dgent.universe.universe import Universe

BATCH = 500


class Upgraded(msgspec.Struct):
    """The result of `upgrade_all`, or of its dry run."""

    schema: str
    version: int
    seen: int = 0
    upgraded: int = 0
    current: int = 0
    newer: int = 0
    changed_meanwhile: int = 0
    failed: dict[str, str] = msgspec.field(default_factory=dict)


async def upgrade_all(
    universe: Universe,
    schema: Schema[object],
    dry_run: bool,
    progress: Callable[[int, int], Awaitable[None] | None] | None,
) -> Upgraded:
    """Rewrite every older record of a schema; a run that was stopped is continued by the next."""
    await universe.seq()  # while the store is unavailable, the local copy is not complete
    report = Upgraded(schema.name, schema.version)
    # Not `iterate`: a rewritten record keeps its place in time, so a plain cursor meets each one once,
    # and reading as of the start would look at everything rewritten so far on every page.
    query: Query | None = Query(schema=schema.name, descending=False, limit=BATCH)
    total = await universe.count(query)
    while query is not None:
        page = await universe.page(query, raw=True)
        report.seen += len(page.items)
        ops = [_upgrade_op(schema, datum, report) for datum in page.items]
        await _flush(universe, [op for op in ops if op is not None], report, dry_run)
        if progress is not None:
            answer = progress(report.seen, max(total, report.seen))
            if inspect.isawaitable(answer):
                await answer
        await asyncio.sleep(0)  # an engine that never waits would keep the loop until the end
        query = None if page.cursor is None else query.replace(cursor=page.cursor)
    return report


def _upgrade_op(schema: Schema[object], datum: Datum, report: Upgraded) -> Put | None:
    if datum.problem is not None:
        report.failed[datum.id] = datum.problem
        return None
    version = datum.schema_version or schema.version
    if version == schema.version:
        report.current += 1
        return None
    if version > schema.version:
        report.newer += 1
        return None
    try:
        data = schema.upgrade(datum.data, version)
        schema.decode(data)
    except Unreadable as error:
        report.failed[datum.id] = str(error)
        return None
    return Put(datum.replace(data=data, schema_version=schema.version), datum.rev)


async def _flush(universe: Universe, batch: Sequence[Put], report: Upgraded, dry_run: bool) -> None:
    if dry_run or not batch:
        report.upgraded += len(batch)
        return
    try:
        await universe.commit(batch, kind="upgrade")
        report.upgraded += len(batch)
    except (Conflict, InputError) as error:
        if len(batch) > 1:
            for op in batch:
                await _flush(universe, [op], report, dry_run)
        elif isinstance(error, InputError):
            report.failed[batch[0].id] = str(error)
        else:
            # Someone else wrote it meanwhile; the next run looks at what they wrote.
            report.changed_meanwhile += 1


class IndexBuilds:
    """The indexing of old records in the background; queries are right meanwhile, only slower."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[None]] = set()
        self._running: set[str] = set()
        self._failed: set[str] = set()  # schemas whose indexing failed, until someone waits for it

    async def declare(
        self, backend: Backend, schema: Schema[Any], view: View, vector: VectorSpec | None = None
    ) -> Declared:
        """Declare a schema to a store, and start to index its records where that is to be done."""
        declared = await backend.declare(declaration(schema, vector))
        if declared.filling:
            self.start(backend, schema.name, view)
        return declared

    def start(self, backend: Backend, schema: str, view: View) -> None:
        """Start to index the records of a schema, unless that is going on."""
        if schema in self._running or on_loop(self.start, backend, schema, view):
            return
        self._running.add(schema)
        work = _build(backend, schema, view)
        task = asyncio.get_running_loop().create_task(work, name=f"dgent-fill-{schema}")
        self._tasks.add(task)
        task.add_done_callback(lambda task: self._end(schema, task))

    def _end(self, schema: str, task: asyncio.Task[None]) -> None:
        """Record a failure for those who wait for the index; nobody else needs it."""
        self._tasks.discard(task)
        self._running.discard(schema)
        if not task.cancelled() and task.exception() is not None:
            self._failed.add(schema)

    @property
    def running(self) -> bool:
        """True while any schema is being indexed."""
        return bool(self._running)

    async def wait(self, backend: Backend, view: View) -> None:
        """Wait until everything is indexed; where that has failed, try again."""
        while self._failed:
            self.start(backend, self._failed.pop(), view)
        if self._tasks:
            # Not `gather`: a caller that stops waiting must not stop the work.
            done, _ = await asyncio.wait(self._tasks)
            for task in done:
                task.result()

    async def cancel(self) -> None:
        """Stop all of it; what is not indexed yet is indexed when the store is opened again."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


async def _build(backend: Backend, schema: str, view: View) -> None:
    while await backend.fill(schema, view):
        await asyncio.sleep(0)
