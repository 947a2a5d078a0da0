"""A store for programs elsewhere: the calls of a backend, each as the visitor may make it.

Only what a client cannot be trusted with is decided here: the author of a commit, its room and its kind, the
author and the time of a record, the schemas that dgent keeps for itself, and how much one answer may hold.
All else is decided by the visitor's universe, as for every other door.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import msgspec
from starlette.responses import Response
from starlette.types import Receive

from dgent import clock
from dgent.config.secret import mask
from dgent.doors.http.answer import HEADERS, JSON
from dgent.doors.http.errors import TooMany
from dgent.doors.http.house import Visitor
from dgent.errors import Denied, DgentError, InputError, NotFound
from dgent.model import reserved
from dgent.model.datum import Datum
from dgent.store.backend import Backend, BackendStats, Check, Commit, Declaration, Keep, Op, Put
from dgent.store.remote import calls, wire
from dgent.store.remote.backend import BATCH, LONGEST_WAIT_S, MOST_LISTED
from dgent.store.remote.view import unpack_view
from dgent.store.remote.wire import SeenSchema, WireView
from dgent.store.search import SearchRequest
from dgent.store.tally import Tally
from dgent.universe.universe import Universe
from dgent.verbs.outcome import outcome_of
from dgent.verbs.wire import as_json

MOST_ANSWER = 64 * 2**20
MOST_OPS = 10_000
MOST_WAITS = 64  # of one token at a time
NOBODY = "system"  # the author where a client could not ask who it is
LAST_WAIT_S = 0.1  # while the server stops


class _Call:
    """One call of a visitor."""

    def __init__(self, visitor: Visitor, universe: Universe, receive: Receive) -> None:
        self.visitor, self.universe, self.receive = visitor, universe, receive
        self.backend: Backend = universe.backend

    async def hello(self, _ask: calls.Nothing) -> wire.Hello:
        who, backend = self.visitor.principal, self.backend
        epoch = getattr(backend, "epoch", b"")
        return wire.Hello(calls.FORMAT, who.name, who.trust, backend.name, epoch, await backend.last_seq())

    # -- reads ----------------------------------------------------------------------------

    async def get(self, ask: calls.OneAsk) -> Any:
        return await self.backend.get(ask.id, ask.as_of, lazy=True)

    async def get_many(self, ask: calls.ManyAsk) -> Any:
        return await self.backend.get_many(_few(ask.ids), ask.as_of)

    async def ranks(self, ask: calls.ManyAsk) -> Any:
        return await self.backend.ranks(_few(ask.ids))

    async def query(self, ask: calls.QueryAsk) -> wire.WirePage:
        query = wire.unpack_query(ask.query)
        if query.limit is None or query.limit > BATCH:
            raise InputError(f"limit is at most {BATCH:,} here", hint="read page by page", field="limit")
        return wire.pack_page(await self.backend.query(query, unpack_view(ask.view), ask.as_of))

    async def count(self, ask: calls.QueryAsk) -> int:
        return await self.backend.count(wire.unpack_query(ask.query), unpack_view(ask.view), ask.as_of)

    async def tally(self, ask: calls.TallyAsk) -> list[tuple[Any, int]]:
        tally = Tally(wire.unpack_query(ask.query), ask.path, ask.prefix, ask.limit)
        found = await self.backend.tally(tally, unpack_view(ask.view), ask.as_of)
        return [(wire.pack_value(value), count) for value, count in found]

    async def search(self, ask: calls.SearchAsk) -> Any:
        query, view, limit = wire.unpack_query(ask.query), unpack_view(ask.view), _check_limit(ask.limit)
        wanted = calls.unpack_wanted(ask)
        request = SearchRequest(wanted, query, view, limit, ask.as_of, among=ask.among)
        if ask.as_of is None:
            own = await self.universe.refresh_texts(request.schemas)
            request = msgspec.structs.replace(request, own=own)
        found = await self.backend.search(request)
        for schema in found.behind:
            self.universe.start_indexing(schema, view)
        return found

    async def referrers(self, ask: calls.ListAsk) -> Any:
        return _whole(
            await self.backend.referrers(ask.id, _one_more(ask.limit), unpack_view(ask.view)), ask.limit
        )

    async def ancestors(self, ask: calls.ListAsk) -> Any:
        return await self.backend.ancestors(ask.id, _check_limit(ask.limit))

    async def history(self, ask: calls.ListAsk) -> Any:
        return _whole(await self.backend.history(ask.id, _one_more(ask.limit)), ask.limit)

    async def changes(self, ask: calls.ChangesAsk) -> list[wire.WireChange]:
        if ask.limit > BATCH:
            raise InputError(f"limit is at most {BATCH:,} here", field="limit")
        return [*map(wire.pack_change, await self.backend.changes(ask.since, ask.limit))]

    async def wait(self, ask: calls.WaitAsk) -> int:
        timeout_s = min(ask.timeout_s, LONGEST_WAIT_S) if ask.timeout_s > 0 else 0.0  # also for NaN
        store = self.visitor.store
        if store.ending:
            timeout_s = min(timeout_s, LAST_WAIT_S)
        if sum(each == self.visitor.id for each in store.waits.values()) >= MOST_WAITS:
            raise TooMany(after_s=1)
        waiting = asyncio.ensure_future(self.backend.wait(ask.since, timeout_s))
        leaving = asyncio.ensure_future(self._await_leave())
        store.waits[waiting] = self.visitor.id
        try:
            await asyncio.wait([waiting, leaving], return_when=asyncio.FIRST_COMPLETED)
        finally:
            del store.waits[waiting]
            waiting.cancel()
            leaving.cancel()
        if waiting.done() and not waiting.cancelled():
            return waiting.result()
        # The server is about to stop, and the client finds out what comes then; or nobody is there any more.
        return await self.backend.last_seq()

    async def _await_leave(self) -> None:
        """Wait until the client has closed its connection."""
        while (await self.receive())["type"] != "http.disconnect":
            pass

    async def last_seq(self, _ask: calls.Nothing) -> int:
        return await self.backend.last_seq()

    async def seq_at(self, ask: calls.TimeAsk) -> int:
        return await self.backend.seq_at(wire.time_of(ask.us))

    async def states_before(self, ask: calls.SeqAsk) -> Any:
        return await self.backend.states_before(ask.seq)

    async def validate(self, ask: calls.GuardAsk) -> int:
        return await self.backend.validate(wire.unpack_guard(ask.guard), unpack_view(ask.view))

    async def outcome(self, ask: calls.KeyAsk) -> Any:
        return await self.backend.outcome(ask.key)

    async def versions(self, ask: calls.SchemaAsk) -> Any:
        return await self.backend.versions(ask.schema)

    async def stats(self, _ask: calls.Nothing) -> BackendStats:
        found = await self.backend.stats()
        shown = {name: each for name, each in found.details.items() if name != "cache"}  # a path there
        details = msgspec.to_builtins(shown, enc_hook=str)
        return msgspec.structs.replace(found, place="", details=details)

    # -- writes ---------------------------------------------------------------------------

    async def commit(self, ask: calls.CommitAsk) -> Any:
        if len(ask.ops) > MOST_OPS:
            raise InputError(f"a commit has at most {MOST_OPS:,} ops here", hint="send several", field="ops")
        ops = [*map(wire.unpack_op, ask.ops)]
        for op in ops:
            schema = op.datum.schema if isinstance(op, Put) else None
            if reserved.is_own(op.id, schema) or (reserved.is_reserved(schema) and schema != reserved.LINKS):
                raise Denied(f"{op.id!r} is dgent's own, and is written by its verbs alone", id=op.id)
        before = await self._check_undo(ask, ops) if ask.kind == "undo" else {}
        if self.visitor.principal.trust != "partner":
            ops = await self._limit_puts(ops, before)
        return await self.backend.commit(
            Commit(
                ops,
                ask.key,
                None if ask.guard is None else wire.unpack_guard(ask.guard),
                self.visitor.principal.name,
                ask.note,
                ask.kind,
                ask.of_seq,
                keep_idle=ask.keep_idle,
            ),
            unpack_view(ask.view),
        )

    async def _check_undo(self, ask: calls.CommitAsk, ops: list[Op]) -> dict[str, Datum | None]:
        """Check that a commit may be undone; returns its records as they were before it, below partner."""
        who, seq, newest = self.visitor.principal, ask.of_seq, await self.backend.last_seq()
        if who.trust not in ("partner", "friend"):
            raise Denied(f"{who.name} is {who.trust} and may not undo", principal=who.name)
        if seq is None or not 1 <= seq <= newest:
            raise InputError(
                f"of_seq is the number of the commit to undo, from 1 to {newest}, not {seq}", field="of_seq"
            )
        if who.trust == "partner":
            return {}
        before = {each.id: each.before for each in await self.backend.states_before(seq)}
        for op in ops:
            if op.id not in before and not isinstance(op, Check):
                raise Denied(f"commit {seq} did not change {op.id!r}, so undoing it must not", id=op.id)
        return before

    async def _limit_puts(self, ops: list[Op], before: dict[str, Datum | None]) -> list[Op]:
        """Return ops as a caller below partner trust may do them: in its own name, and now.

        A record keeps the author that it has, and one that an undo brings back is as it was `before`. What
        the client says of the index cannot be checked without its contract, so it is left out: the record
        waits to be indexed.
        """
        who, now = self.visitor.principal.name, clock.now()
        others = [op.id for op in ops if isinstance(op, Put) and op.datum.author not in (None, who)]
        live = dict(zip(others, await self.backend.get_many(others), strict=True)) if others else {}
        limited: list[Op] = []
        for op in ops:
            if isinstance(op, Put):
                past, author = before.get(op.id), op.datum.author
                known = [each.author for each in (live.get(op.id), past) if each is not None]
                if author == NOBODY and author not in known:
                    author = who
                if author not in (None, who, *known):
                    raise Denied(
                        f"{who} may not write {op.id!r} in the name of {author!r}",
                        hint="leave out author=",
                        id=op.id,
                    )
                made_at = now if past is None else past.created_at
                op = Put(op.datum.replace(author=author, created_at=made_at), op.expect)
            limited.append(op)
        return limited

    async def declare(self, ask: calls.DeclareAsk) -> Any:
        wanted, trust = ask.declaration, self.visitor.principal.trust
        if reserved.is_reserved(wanted.name) and wanted.name != reserved.LINKS:
            raise Denied(f"the schema {wanted.name!r} is dgent's own", schema=wanted.name)
        if trust not in ("partner", "friend"):
            raise Denied(f"{self.visitor.principal.name} is {trust} and may not declare schemas")
        lessens = wanted.owner is not None or wanted.history != "all" or not wanted.feed
        if lessens and trust != "partner":
            raise Denied(
                f"only a partner may declare that {wanted.name!r} has an owner, less history, or no feed",
                hint="leave out owner=, history= and feed=",
            )
        lost = [] if trust == "partner" else await self._find_lost(wanted)
        if lost:
            raise Denied(
                f"{wanted.name!r} version {wanted.version} would no longer index {', '.join(lost)},"
                " which only a partner may declare",
                hint="declare these too, or have a partner declare this version",
                schema=wanted.name,
            )
        declared = await self.backend.declare(wanted)
        if declared.filling and trust != "partner":
            # A partner's program does it itself. Records of other versions stay out of the index: the steps
            # that convert them are the client's.
            view = unpack_view(WireView([SeenSchema(wanted.name, wanted.version)]))
            self.universe.start_indexing(wanted.name, view)
        return declared

    async def _find_lost(self, wanted: Declaration) -> list[str]:
        """Return the fields that the store indexes, and would not after a declaration."""
        schemas = (await self.backend.stats()).schemas
        known = next((each for each in schemas if each.name == wanted.name), None)
        if known is None or not known.index_version or wanted.version < known.index_version:
            return []  # nobody declared it, or this changes nothing
        newer = wanted.version > known.index_version
        lost: set[str] = set()
        if newer:  # those of one version add up
            lost = set(known.indexes) - set(wanted.indexes) | set(known.refs) - set(wanted.refs)
            for each in await self.backend.embedded_schemas(1):
                if each.name == wanted.name:
                    lost |= set(each.spec.fields) - set(wanted.embed)
        if newer or wanted.text:  # other texts replace those of the same version
            lost |= set(known.text) - {path for path, _ in wanted.text}
        return sorted(lost)

    # -- for partners ---------------------------------------------------------------------

    def _check_partner(self, what: str) -> None:
        who = self.visitor.principal
        if who.trust != "partner":
            raise Denied(f"{who.name} is {who.trust} and may not {what}", principal=who.name)

    async def fill(self, ask: calls.FillAsk) -> bool:
        self._check_partner("index records")
        seen = [] if ask.version is None else [SeenSchema(ask.schema, ask.version)]
        return await self.backend.fill(ask.schema, unpack_view(WireView(seen)))

    async def drop_index(self, ask: calls.IndexAsk) -> None:
        self._check_partner("drop an index")
        await self.backend.drop_index(ask.schema, ask.path)

    async def forget(self, ask: calls.ForgetAsk) -> Any:
        self._check_partner("forget")
        return await self.backend.forget(ask.ids, self.visitor.principal.name, None, ask.only_deleted)

    async def compact(self, ask: calls.KeepAsk) -> Any:
        self._check_partner("compact")
        after = None if ask.after is None else wire.time_of(ask.after)
        return await self.backend.compact(Keep(ask.versions, after, ask.schema))


_RUN: dict[str, Callable[[_Call, Any], Awaitable[Any]]] = {name: getattr(_Call, name) for name in calls.CALLS}


async def serve_call(visitor: Visitor, name: str, body: bytes, receive: Receive) -> Response:
    """Answer one call of a backend; `receive` says when the client has gone."""
    run = _RUN.get(name)
    try:
        if run is None:
            raise NotFound(f"a store has no call {name!r}", hint="GET /v1/openapi.json lists the addresses")
        ask = calls.unpack_ask(name, body)
        found = calls.pack(await run(_Call(visitor, await visitor.context.universe(), receive), ask))
    except DgentError as error:
        return _report(error)
    except RecursionError:
        return _report(InputError(f"{name}: the input is nested too deeply"))
    if len(found) > MOST_ANSWER:
        return _report(
            InputError(
                f"the answer has {len(found):,} bytes, more than is sent at once",
                hint="ask for less",
                answer_bytes=len(found),
            )
        )
    return Response(found, 200, HEADERS, calls.KIND)


def _report(error: DgentError) -> Response:
    """Return an error with its details, which a program acts on."""
    body = {
        "ok": False,
        "code": error.code,
        "error": mask(error.message),
        "hint": mask(error.hint),
        "retryable": error.retryable,
        "details": msgspec.to_builtins(error.details, enc_hook=str, str_keys=True),
    }
    status = outcome_of(error).http
    headers = {"Retry-After": "1"} if status == 503 else {}
    return Response(as_json(body), status, {**HEADERS, **headers}, JSON)


def _few(ids: list[str]) -> list[str]:
    if len(ids) > BATCH:
        raise InputError(f"at most {BATCH:,} ids are looked at together here", field="ids")
    return ids


def _check_limit(limit: int | None) -> int:
    if limit is None or not 1 <= limit <= MOST_LISTED:
        raise InputError(f"limit is a whole number from 1 to {MOST_LISTED:,} here", field="limit")
    return limit


def _one_more(limit: int | None) -> int:
    return MOST_LISTED + 1 if limit is None else limit


def _whole(found: list[Any], limit: int | None) -> list[Any]:
    """Return an answer, unless it had to be cut short and nobody asked for that."""
    if len(found) > MOST_LISTED:
        raise InputError(f"there are more than {MOST_LISTED:,}", hint="give a limit", field="limit")
    return found
