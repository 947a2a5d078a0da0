"""Embed the texts of records in the background: after the commits, in batches, for as long as any wait.

The store says which versions wait, so nothing is lost when a program is killed, nor when its embedder fails:
what is not embedded waits on. Several programs may work at once; the same vector stored twice is stored once.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import msgspec

from dgent import codec
from dgent.embedder.embedder import Embedder, EmbedderCalls
from dgent.errors import EmbedderFailed, EmbedderRefused
from dgent.model.schema import Schema
from dgent.model.vector import VectorSpec
from dgent.search.record import texts_at
from dgent.store.backend import Backend, View
from dgent.store.search import EmbeddedSchema, GivenVector, WaitingVector
from dgent.store.upkeep import Finding
from dgent.system.progress import Progress, ProgressReporter
from dgent.system.threads import on_loop

if TYPE_CHECKING:
    from dgent.universe.upgrade import IndexBuilds

BATCH = 32  # texts that are embedded at once
BATCH_CHARS = 100_000  # and how long they may be together
MAX_CHARS = 20_000  # of a record's texts; the rest is not embedded
PAGE = 4 * BATCH  # versions that are read at once
CALL_S = 300.0  # for one batch
QUERY_S = 10.0  # for the text of a search
POLL_S = 15.0  # how often to look for what other programs wrote
GATHER_S = 0.05  # for records that are written one after another
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 60.0  # after a failure
PROBE = "dgent"
_DIGEST_BYTES = 16


class EmbeddingReport(msgspec.Struct, frozen=True):
    """The progress of embedding: the model of the embedder here, the schemas with vectors, and what is wrong.

    `waiting` is how many versions wait for their vectors; it is `complete` if none does. `failing` says why
    the embedder fails now, `refused` how many records it does not take. `replaced` are the schemas whose
    vectors are of another model than that of the embedder here.
    """

    model: str | None
    waiting: int
    complete: bool
    schemas: list[EmbeddedSchema]
    failing: str = ""
    refused: int = 0
    replaced: list[str] = []


class Embedding:
    """The embedder of a universe, and its work in the background."""

    def __init__(self, embedder: Embedder) -> None:
        self.calls = EmbedderCalls(embedder)
        self.failing = ""
        self._dim = embedder.dim
        self._undeclared: list[Schema[Any]] = []
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._working = asyncio.Lock()
        self._refused: dict[tuple[str, int, int | None], str] = {}
        self._resting_until = 0.0

    # -- the background -------------------------------------------------------------------

    def add(self, schema: Schema[Any], backend: Backend, view: View, builds: IndexBuilds) -> None:
        """Have the records of a schema embedded from now on."""
        self._undeclared.append(schema)
        if self._task is None:
            work = self._run(backend, view, builds)
            self._task = asyncio.get_running_loop().create_task(work, name="dgent-embed")
        self._wake.set()

    def wake(self) -> None:
        """Look for work: something was written."""
        if not on_loop(self._wake.set):
            self._wake.set()

    async def cancel(self) -> None:
        """Stop the work; what waits is embedded when the store is open again."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self, backend: Backend, view: View, builds: IndexBuilds) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            self._wake.clear()
            try:
                await self._declare(backend, view, builds)
                while await self.work(backend, view):
                    self.failing, pause_s = "", FIRST_PAUSE_S
                self.failing, pause_s = "", FIRST_PAUSE_S
                # While old records are being listed, there will be more to do in a moment.
                await self._sleep(GATHER_S if builds.running else POLL_S)
            except Exception as error:
                # Whatever it is, records wait on, and it shows in the stats.
                self.failing = str(error) or type(error).__name__
                await asyncio.sleep(pause_s * (0.5 + random.random()))
                pause_s = min(2 * pause_s, LONGEST_PAUSE_S)

    async def _sleep(self, most_s: float) -> None:
        """Sleep until something is written, or so long."""
        # Not `wait_for`, which may swallow that it is cancelled.
        timer = asyncio.get_running_loop().call_later(most_s, self._wake.set)
        try:
            await self._wake.wait()
        finally:
            timer.cancel()
        await asyncio.sleep(GATHER_S)

    async def _declare(self, backend: Backend, view: View, builds: IndexBuilds) -> None:
        """Declare the vectors of schemas; not before, because it may take an answer to know the dimension."""
        async with self._working:
            while self._undeclared:
                schema = self._undeclared[0]
                spec = VectorSpec(await self.dim(), "cosine", self.calls.name, schema.embed)
                await builds.declare(backend, schema, view, spec)
                self._undeclared.pop(0)

    async def dim(self) -> int:
        """Return how many numbers the vectors of the embedder have."""
        if not self._dim:
            self._dim = int((await self.calls.embed([PROBE], CALL_S)).shape[1])
        return self._dim

    # -- one step -------------------------------------------------------------------------

    async def work(self, backend: Backend, view: View) -> int:
        """Embed a batch of what waits; return how many versions were dealt with, 0 if none is left."""
        async with self._working:  # the background, or a caller who does not want to wait for it
            for each in await backend.embedded_schemas(1):
                if each.waiting and self.is_ours(each.spec):
                    done = await self._work_on(each, backend, view)
                    if done:
                        return done
        return 0

    def is_ours(self, spec: VectorSpec) -> bool:
        """Return whether vectors are those of the embedder here."""
        return spec.model == self.calls.name and self._dim in (0, spec.dim)

    async def _work_on(self, schema: EmbeddedSchema, backend: Backend, view: View) -> int:
        after = b""
        while page := await backend.waiting_vectors(schema.name, PAGE, after):
            todo = [each for each in page if self._key(schema, each) not in self._refused]
            if todo:
                return await self._embed(schema, self._pick(schema, todo, view), backend)
            after = page[-1].key
        await backend.fill(schema.name, view)  # deletions wait, too
        return 0

    def _key(self, schema: EmbeddedSchema, waiting: WaitingVector) -> tuple[str, int, int | None]:
        return schema.name, waiting.record_key, waiting.datum.rev

    def _pick(
        self, schema: EmbeddedSchema, todo: Sequence[WaitingVector], view: View
    ) -> list[tuple[WaitingVector, str]]:
        """Return some versions with their texts, from a random place on: other programs may work, too."""
        start = random.randrange(0, len(todo), BATCH)
        picked: list[tuple[WaitingVector, str]] = []
        size = 0
        for each in todo[start : start + BATCH]:
            text = find_text(schema, each, view)
            if text is None:
                self._refuse(schema, each, "this program does not know its schema")
                continue
            if picked and size + len(text) > BATCH_CHARS:
                break
            picked.append((each, text))
            size += len(text)
        return picked

    async def _embed(
        self, schema: EmbeddedSchema, picked: Sequence[tuple[WaitingVector, str]], backend: Backend
    ) -> int:
        digests = [_digest(text) for _, text in picked]
        new = [
            number
            for number, ((each, text), digest) in enumerate(zip(picked, digests, strict=True))
            if text and each.digest != digest
        ]
        vectors = await self._embed_each(schema, [picked[number] for number in new]) if new else {}
        given = [
            GivenVector(each.key, each.record_key, each.datum.rev or 0, digest, vectors.get(each.key))
            for number, ((each, _), digest) in enumerate(zip(picked, digests, strict=True))
            if number not in new or each.key in vectors
        ]
        if given:
            await backend.store_vectors(schema.name, schema.spec, given)
        return max(1, len(given))

    async def _embed_each(
        self, schema: EmbeddedSchema, some: Sequence[tuple[WaitingVector, str]]
    ) -> dict[bytes, bytes]:
        """Return the vectors of texts by the keys of their versions, without those that are refused."""
        try:
            made = await self.calls.embed([text for _, text in some], CALL_S, schema.spec.dim)
        except EmbedderFailed as error:
            if not isinstance(error, EmbedderRefused):
                # If it fails for any text, all wait; otherwise there is one here that it does not take.
                await self.calls.embed([PROBE], CALL_S, schema.spec.dim)
            if len(some) == 1:
                self._refuse(schema, some[0][0], str(error))
                return {}
            half = len(some) // 2
            first = await self._embed_each(schema, some[:half])
            return first | await self._embed_each(schema, some[half:])
        self._note_success()
        return {each.key: row.astype("<f4").tobytes() for (each, _), row in zip(some, made, strict=True)}

    def _note_success(self) -> None:
        """Record that the embedder has answered, so that searches ask it again."""
        self.failing, self._resting_until = "", 0.0

    def _refuse(self, schema: EmbeddedSchema, waiting: WaitingVector, reason: str) -> None:
        self._refused[self._key(schema, waiting)] = reason

    # -- for callers ----------------------------------------------------------------------

    async def check(self) -> None:
        """Ask the embedder for one vector, and record whether it fails."""
        try:
            await self.calls.embed([PROBE], QUERY_S, self._dim)
        except EmbedderFailed as error:
            self.failing = str(error)

    async def embed_query(self, text: str, dim: int) -> bytes:
        """Return the vector of a search's text; EmbedderFailed at once if it hung a moment ago."""
        began = time.monotonic()
        if began < self._resting_until:
            raise EmbedderFailed(f"the embedder {self.calls.name!r} failed a moment ago: {self.failing}")
        try:
            found = await self.calls.embed([text[:MAX_CHARS]], QUERY_S, dim)
        except EmbedderFailed as error:
            if time.monotonic() - began > 1:
                self.failing, self._resting_until = str(error), time.monotonic() + 3 * QUERY_S
            raise
        self._note_success()
        return bytes(found[0].astype("<f4").tobytes())

    async def run(self, backend: Backend, view: View, builds: IndexBuilds, progress: Progress | None) -> int:
        """Embed now all that waits; return how many versions were dealt with. Raises EmbedderFailed."""
        self._refused.clear()
        await self._declare(backend, view, builds)
        await builds.wait(backend, view)
        ours = [each for each in await backend.embedded_schemas() if self.is_ours(each.spec)]
        reporter = ProgressReporter(progress, sum(each.waiting for each in ours))
        while done := await self.work(backend, view):
            reporter.add(done)
        reporter.end()
        return reporter.done

    @property
    def refused(self) -> int:
        """The number of versions that the embedder does not take."""
        return len(self._refused)


async def report_embedding(embedding: Embedding | None, backend: Backend) -> EmbeddingReport:
    """Return how far embedding is, with the embedder of a universe or without one."""
    schemas = await backend.embedded_schemas()
    waiting, complete = sum(each.waiting for each in schemas), all(each.complete for each in schemas)
    if embedding is None:
        return EmbeddingReport(None, waiting, complete, schemas)
    others = [each.name for each in schemas if not embedding.is_ours(each.spec)]
    return EmbeddingReport(
        embedding.calls.name, waiting, complete, schemas, embedding.failing, embedding.refused, others
    )


def find_faults(report: EmbeddingReport) -> Iterator[Finding]:
    """Yield what an inspection says of embedding; nothing where nothing is embedded."""
    wait = f"{report.waiting:,} versions wait to be embedded"
    if report.failing:
        yield Finding("warning", "embedding", f"the embedder fails: {report.failing}", f"{wait} meanwhile")
    if report.refused:
        yield Finding("warning", "embedding", f"the embedder refuses {report.refused:,} records")
    for each in report.schemas:
        if report.model is not None and each.name in report.replaced:
            message = f"the vectors of {each.name} are those of {each.spec.model}, not of {report.model}"
            yield Finding("warning", "embedding", message, "searches find them by words only")
    if report.schemas and report.model is None and not report.complete:
        yield Finding("note", "embedding", wait, "no embedder is set here; programs that have one go on")
    elif report.schemas and not report.failing:
        done = f"{sum(each.vectors for each in report.schemas):,} records are embedded"
        yield Finding("ok", "embedding", done if report.complete else f"{done}, {wait}")


def find_text(schema: EmbeddedSchema, waiting: WaitingVector, view: View) -> str | None:
    """Return the text of a version that is embedded; None if only another program can read it."""
    datum = waiting.datum
    data: Mapping[str, Any] | None = datum.data
    if datum.schema_version != schema.version:
        data = view.upgrade(datum) if view.version(schema.name) == schema.version else None
    if data is None:
        return None
    return "\n".join(_texts(data, schema.spec.fields))[:MAX_CHARS].strip()


def _texts(data: Mapping[str, Any], fields: Sequence[str]) -> Iterator[str]:
    return (text for path in fields for text in texts_at(data, path) if text)


def _digest(text: str) -> bytes:
    """Return what identifies a text; empty if there is none, which has no vector."""
    return codec.blake2b(text.encode(errors="replace"), size=_DIGEST_BYTES).digest() if text else b""
