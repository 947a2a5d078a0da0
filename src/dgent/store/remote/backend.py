"""A store on a server, as a backend: each call is one request, and the server decides who may do what."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, NoReturn

import msgspec

from dgent import clock, ids
from dgent import ids as ids_  # where an argument has the name
from dgent.errors import (
    Closed,
    Conflict,
    Corrupt,
    Denied,
    DgentError,
    InputError,
    NotFound,
    OutcomeUnknown,
    StorageError,
    Unavailable,
    Unsupported,
)
from dgent.model import path as paths
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.vector import VectorSpec
from dgent.store.backend import (
    STORED,
    BackendStats,
    Change,
    Commit,
    Committed,
    Compacted,
    Declaration,
    Declared,
    Forgotten,
    Guard,
    Keep,
    Page,
    Rank,
    Reverted,
    Version,
    View,
)
from dgent.store.engine.check import (
    check_as_of,
    check_commit,
    check_declaration,
    check_guard_since,
    check_ids,
    check_keep,
    check_limit,
    check_moment,
    check_seq,
)
from dgent.store.remote import calls, errors, wire
from dgent.store.remote.address import Address
from dgent.store.remote.connection import Answer, Pool
from dgent.store.remote.errors import CannotSee
from dgent.store.remote.match import MOST_HERE, cut_page, is_cursor_here, match, widen
from dgent.store.remote.view import pack_search_view, pack_versions, pack_view
from dgent.store.search import (
    EmbeddedSchema,
    GivenVector,
    SearchPage,
    SearchRequest,
    VectorPage,
    WaitingVector,
)
from dgent.store.tally import Counts, Tally, count_records

if TYPE_CHECKING:
    from dgent.store.remote.blob import RemoteBlobs
    from dgent.store.remote.telemetry import RemoteTelemetry

BATCH = 1_000  # records, ids or commits of one request
MOST_LISTED = 10_000  # versions, referrers or ancestors of one request
LONGEST_WAIT_S = 20.0  # of one request
_HERE = "run it on the machine of the server"
_VERBS = "call verbs: `await invoke(u, path, …)`, from dgent.verbs.path"

_BY_STATUS: dict[int, type[DgentError]] = {
    400: InputError,
    401: Denied,
    403: Denied,
    404: NotFound,
    408: Unavailable,
    409: Conflict,
    413: InputError,
    421: Denied,
    429: Unavailable,
    501: Unsupported,
    502: Unavailable,
    503: Unavailable,
    504: Unavailable,
}


class _VerbAnswer(msgspec.Struct, frozen=True):
    data: msgspec.Raw


_answer_decoder = msgspec.json.Decoder(_VerbAnswer)


class RemoteBackend:
    """A store that a dgent server has, as the agent of a token may use it."""

    name = "remote"
    priority = 20
    holds_rooms = False  # a room's rules are proven where its records are: by the server's own rooms

    def __init__(self, address: Address) -> None:
        self.address = address
        self.epoch = b""
        self.agent = ""
        self._trust = ""
        self._pool: Pool | None = None

    def __repr__(self) -> str:
        return f"<RemoteBackend {self.address.place}>"

    # -- lifecycle ------------------------------------------------------------------------

    async def is_available(self) -> bool:
        """Return True: `open` says what is wrong."""
        return True

    async def open(self) -> None:
        """Connect, and ask who the server takes this program for."""
        if self._pool is not None:
            raise Closed("this handle is open already", hint="open it once")
        if not self.address.token:
            raise Denied(
                f"{self.address.place} needs a token",
                hint="give token=…, or set DGENT_TOKEN for the command line; `dgent token create` makes one",
            )
        self._pool = Pool(self.address)
        try:
            hello: wire.Hello = await self._ask("hello", calls.Nothing())
            if hello.format != calls.FORMAT:
                raise Unsupported(
                    f"{self.address.place} speaks format {hello.format}, and this program {calls.FORMAT}",
                    hint="use the same version of dgent on both sides",
                )
        except BaseException:
            await self.close()
            raise
        self.agent, self.epoch, self._trust = hello.agent, hello.epoch, hello.trust

    async def close(self) -> None:
        """Close the connections."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()

    # -- requests -------------------------------------------------------------------------

    async def _ask(
        self,
        name: str,
        ask: calls.Ask,
        *,
        again: bool = True,
        changes: bool = False,
        waits_s: float | None = None,
    ) -> Any:
        """Call the server and return its answer, or raise its error; most calls may be sent `again`."""
        answer = await self._send(
            calls.PATH + name, calls.pack(ask), calls.KIND, again=again, changes=changes, waits_s=waits_s
        )
        if answer.kind != calls.KIND:
            self._refuse_answer(answer)
        return calls.unpack_answer(name, answer.body, self.address.place)

    async def _send(
        self,
        path: str,
        body: bytes,
        kind: str,
        *,
        again: bool = True,
        changes: bool = False,
        waits_s: float | None = None,
    ) -> Answer:
        answer = await self.pool.ask(path, body, kind, again=again, changes=changes, waits_s=waits_s)
        if answer.status != 200:
            self.raise_for(answer)
        return answer

    @property
    def pool(self) -> Pool:
        """The connections; raises Closed while the store is not open."""
        if self._pool is None:
            raise Closed("this handle is not open")
        return self._pool

    def blob_store(self) -> RemoteBlobs:
        """Return the blobs of the store, by the server's own calls for them."""
        from dgent.store.remote.blob import RemoteBlobs  # loads when it is used

        return RemoteBlobs(self)

    def telemetry_store(self) -> RemoteTelemetry:
        """Return the telemetry of the store, by the server's own verbs for it."""
        from dgent.store.remote.telemetry import RemoteTelemetry  # loads when it is used

        return RemoteTelemetry(self)

    def raise_for(self, answer: Answer) -> NoReturn:
        """Raise the error that an answer stands for; the token never shows in it."""
        place, status = self.address.place, answer.status
        found = errors.read_error(answer.body) if answer.kind == "application/json" else None
        otherwise = _BY_STATUS.get(status, Unavailable if status >= 500 else StorageError)
        if found is None:
            raise otherwise(f"{place} answered {status}, and not as a dgent server does")
        if status == 404 and found.hint.startswith("GET /v1/openapi.json"):
            raise Unsupported(
                f"{place} has no constellation of this name, or no stores for programs",
                hint="is the name right, and the server's dgent new enough?",
            )
        shown = msgspec.structs.replace(
            found,
            error=found.error.replace(self.address.token, "***"),
            hint=found.hint.replace(self.address.token, "***"),
            retryable=found.retryable or status in (408, 429),
        )
        raise errors.make_error(shown, otherwise)

    def _refuse_answer(self, answer: Answer) -> NoReturn:
        raise Corrupt(
            f"the answer of {self.address.place} is {answer.kind or 'of no type'}, not one of dgent's",
            hint="is a dgent server of the same version there?",
        )

    async def call_verb(self, id: str, given: Any, kind: Any, *, reads: bool) -> Any:
        """Call a verb of the server; returns its answer as a value of a type."""
        body = msgspec.json.encode(given)
        answer = await self._send("/v1/verbs/" + id, body, "application/json", again=reads, changes=not reads)
        try:
            found = _answer_decoder.decode(answer.body)
            return msgspec.json.decode(found.data, type=kind)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise Corrupt(
                f"the answer of {self.address.place} to {id} is not one of dgent's: {str(error)[:200]}"
            ) from None

    def _lack(self, what: str, hint: str = _HERE) -> NoReturn:
        raise Unsupported(f"{what} does not work over HTTP", hint=hint)

    # -- writes ---------------------------------------------------------------------------

    async def commit(self, commit: Commit, view: View) -> Committed:
        """Do all ops or none. A commit without a key gets one, so that a lost answer does no harm."""
        check_commit(commit)
        self._check_commit(commit)
        guard, own = commit.guard, commit.key is None and bool(commit.ops)
        key = ids.new_id() if own else commit.key
        if key is not None:
            ids.check_id(key, "key")
        ask = calls.CommitAsk(
            [*map(wire.pack_op, commit.ops)],
            key,
            None if guard is None else wire.pack_guard(guard),
            commit.note,
            commit.kind,  # type: ignore[arg-type]  # checked above
            commit.of_seq,
            commit.keep_idle and not own,
            pack_view(view, () if guard is None else guard.queries),
        )
        try:
            done: Committed = await self._ask("commit", ask, changes=True)
        except OutcomeUnknown as error:
            error.details["key"] = key
            raise
        # The key was made here, so it was used for this very commit and no other.
        return msgspec.structs.replace(done, repeated=False) if own and done.repeated else done

    def _check_commit(self, commit: Commit) -> None:
        if commit.room is not None:
            self._lack(f"writing records of {commit.room}", _VERBS)
        if commit.author not in ("system", self.agent):
            raise Denied(
                f"the author of a commit over HTTP is the agent of the token, {self.agent!r},"
                f" not {commit.author!r}",
                hint="use a token of that agent",
            )
        if commit.kind not in ("data", "undo"):
            self._lack(f"a commit of the kind {commit.kind!r}")
        if commit.at_us is not None:
            self._lack("repeating commits of another store", "export there, and import here")

    async def declare(self, declaration: Declaration) -> Declared:
        """Make a schema known to the store, if the agent may write there more than new records."""
        checked = check_declaration(declaration)
        if self._pool is not None and self._trust == "conversant":
            return Declared(False)
        found: Declared = await self._ask("declare", calls.DeclareAsk(checked))
        return found

    # -- reads ----------------------------------------------------------------------------

    async def get(self, id: str, as_of: int | None = None, lazy: bool = False) -> Datum | None:
        """Return the live version, or the one at a seq."""
        check_as_of(as_of)
        found: Datum | None = await self._ask("get", calls.OneAsk(ids.check_id(id), as_of))
        if found is not None and not lazy:
            try:
                found.data  # noqa: B018 - decoded now
            except Corrupt as error:
                return found.replace(data={}, problem=error.message)
        return found

    async def get_many(self, ids: Sequence[str], as_of: int | None = None) -> list[Datum | None]:
        """Return one answer for each id; of one moment, if they are not more than one request takes."""
        check_as_of(as_of)
        wanted = check_ids(ids)
        found: list[Datum | None] = []
        most = BATCH
        while len(found) < len(wanted):
            batch = list(wanted[len(found) : len(found) + most])
            try:
                found += self._check_size(await self._ask("get_many", calls.ManyAsk(batch, as_of)), batch)
            except InputError as error:
                most = _fewer(error, len(batch))
        return found

    async def ranks(self, ids: Sequence[str]) -> list[Rank | None]:
        """Return the rank of each record in the order of time."""
        wanted = check_ids(ids)
        found: list[Rank | None] = []
        for start in range(0, len(wanted), BATCH):
            batch = list(wanted[start : start + BATCH])
            found += self._check_size(await self._ask("ranks", calls.ManyAsk(batch)), batch)
        return found

    def _check_size(self, answers: list[Any], asked: Sequence[str]) -> list[Any]:
        if len(answers) != len(asked):
            raise Corrupt(f"{self.address.place} gave {len(answers)} answers for {len(asked)} ids")
        return answers

    async def query(self, query: Query, view: View, as_of: int | None = None) -> Page:
        """Return a page of matching records; a large one comes in parts, each of its own moment."""
        check_as_of(as_of)
        if is_cursor_here(query):
            return await self._query_here(query, view, as_of)
        try:
            return await self._query(query, pack_view(view, (query,)), as_of)
        except CannotSee:
            return await self._query_here(query, view, as_of)

    async def _query(self, query: Query, view: wire.WireView, as_of: int | None) -> Page:
        sent = wire.pack_query(query)
        items: list[Datum] = []
        most = BATCH
        while True:
            size = most if query.limit is None else min(query.limit - len(items), most)
            part = msgspec.structs.replace(sent, limit=size)
            try:
                page: wire.WirePage = await self._ask("query", calls.QueryAsk(part, view, as_of))
            except InputError as error:
                most = _fewer(error, size)
                continue
            items += page.items
            if page.cursor is None or len(items) == query.limit or not page.items:
                break
            sent = msgspec.structs.replace(sent, cursor=page.cursor, offset=0)
        cursor = page.cursor
        return Page(items, page.explain, None if cursor is None else lambda: cursor, partial=page.partial)

    async def _query_here(self, query: Query, view: View, as_of: int | None) -> Page:
        return cut_page(query, await self._match_here(query, view, as_of))

    async def _match_here(self, query: Query, view: View, as_of: int | None) -> list[Datum]:
        """Return all matching records, compared here: only this program can see them as it does."""
        page = await self._query(widen(query), pack_view(view, ()), as_of)
        if page.further is not None:
            raise Unsupported(
                f"more than {MOST_HERE:,} records would have to be compared here, not by the server",
                hint="name the schema, or run `upgrade_all` where the store is",
            )
        return match(query, view, page.items)

    async def count(self, query: Query, view: View, as_of: int | None = None) -> int:
        """Return how many records match, ignoring limit, offset and cursor."""
        check_as_of(as_of)
        query = query.replace(limit=None, offset=0, cursor=None)
        try:
            ask = calls.QueryAsk(wire.pack_query(query), pack_view(view, (query,)), as_of)
            found: int = await self._ask("count", ask)
        except CannotSee:
            return len(await self._match_here(query, view, as_of))
        return found

    async def tally(self, tally: Tally, view: View, as_of: int | None = None) -> Counts:
        """Return values or tags with their counts."""
        check_as_of(as_of)
        query = tally.everything()
        try:
            sent = wire.pack_query(query), tally.path, tally.prefix, tally.limit
            # The field is seen as if it ordered the answer: with its default, and texts as what they mean.
            at = () if tally.path is None else paths.list_path(tally.path) or paths.parse(tally.path)
            seen = (query, query.replace(order_by=at)) if at else (query,)
            found = await self._ask("tally", calls.TallyAsk(*sent, pack_view(view, seen), as_of))
            return [(wire.unpack_value(value), count) for value, count in found]
        except CannotSee:
            return count_records(tally, view, await self._match_here(query, view, as_of))

    async def search(self, request: SearchRequest) -> SearchPage:
        """Return the matching records that have some of the words, best first; the server's texts count."""
        check_as_of(request.as_of)
        if request.own:
            self._lack("a search of texts that are not stored")
        ask = calls.SearchAsk(
            **calls.pack_wanted(request.wanted),
            query=wire.pack_query(request.query),
            limit=request.limit,
            view=pack_search_view(request.view, request.query),
            as_of=request.as_of,
            among=None if request.among is None else list(request.among),
        )
        found: SearchPage = await self._ask("search", ask)
        # What is behind is indexed there, and nothing is left to do here.
        return msgspec.structs.replace(found, behind=[])

    async def referrers(self, id: str, limit: int | None, view: View = STORED) -> list[Datum]:
        """Return the records whose declared refs hold this id, newest first."""
        check_limit(limit)
        ask = calls.ListAsk(ids.check_id(id), limit, pack_versions(view))
        found: list[Datum] = await self._ask("referrers", ask)
        return found

    async def ancestors(self, id: str, limit: int) -> list[Datum]:
        """Return a record, its parent, the parent's parent and so on."""
        check_limit(limit)
        ask = calls.ListAsk(ids.check_id(id), min(limit, MOST_LISTED))
        found: list[Datum] = await self._ask("ancestors", ask)
        return found

    async def history(self, id: str, limit: int | None) -> list[Version]:
        """Return the kept versions of a record, newest first."""
        check_limit(limit)
        found: list[Version] = await self._ask("history", calls.ListAsk(ids.check_id(id), limit))
        return found

    async def changes(self, since: int, limit: int) -> list[Change]:
        """Return commits after a seq, in order; HistoryGone if some were pruned."""
        check_seq(since, "since")
        check_limit(limit)
        found: list[Change] = []
        most = BATCH
        while len(found) < limit:
            size = min(limit - len(found), most)
            try:
                sent: list[wire.WireChange] = await self._ask("changes", calls.ChangesAsk(since, size))
            except InputError as error:
                most = _fewer(error, size)
                continue
            found += map(wire.unpack_change, sent)
            if len(sent) < size or found[-1].seq is None:
                break
            since = found[-1].seq
        return found

    async def wait(self, since: int, timeout_s: float) -> int:
        """Return the newest seq as soon as it passes `since`, or when time is up."""
        check_seq(since, "since")
        end = time.monotonic() + timeout_s
        while True:
            left = max(0.0, min(end - time.monotonic(), LONGEST_WAIT_S))
            newest: int = await self._ask("wait", calls.WaitAsk(since, left), waits_s=left)
            if newest > since or time.monotonic() >= end:
                return newest

    async def states_before(self, seq: int) -> list[Reverted]:
        """Return the state before a commit of each of its records."""
        found: list[Reverted] = await self._ask("states_before", calls.SeqAsk(check_seq(seq, "seq")))
        return found

    async def validate(self, guard: Guard, view: View) -> int:
        """Return the newest seq; raises TransactionConflict when something in the guard was touched."""
        check_guard_since(guard)
        ask = calls.GuardAsk(wire.pack_guard(guard), pack_view(view, guard.queries))
        found: int = await self._ask("validate", ask)
        return found

    async def last_seq(self) -> int:
        """Return the newest seq."""
        found: int = await self._ask("last_seq", calls.Nothing())
        return found

    async def seq_at(self, moment: datetime) -> int:
        """Return the newest seq committed at or before a time."""
        found: int = await self._ask("seq_at", calls.TimeAsk(check_moment(moment, "moment")))
        return found

    async def outcome(self, key: str) -> Committed | None:
        """Return the answer to a keyed commit, or None if it never happened."""
        found: Committed | None = await self._ask("outcome", calls.KeyAsk(ids.check_id(key, "key")))
        return found

    async def versions(self, schema: str) -> dict[int, int]:
        """Return how many live records there are of each stored version."""
        found: dict[int, int] = await self._ask("versions", calls.SchemaAsk(ids.check_name(schema, "schema")))
        return found

    async def stats(self) -> BackendStats:
        """Return the contents and the condition of the store."""
        found: BackendStats = await self._ask("stats", calls.Nothing())
        details = {**found.details, "engine": found.engine}
        return msgspec.structs.replace(found, engine=self.name, place=self.address.place, details=details)

    # -- what only a partner may do -------------------------------------------------------

    async def fill(self, schema: str, view: View) -> bool:
        """Index one batch of old records; False when nothing is left to do, or the server does it."""
        if schema != "":
            ids.check_name(schema, "schema")
        if self._pool is not None and self._trust != "partner":
            return False
        found: bool = await self._ask("fill", calls.FillAsk(schema, view.version(schema)))
        return found

    async def drop_index(self, schema: str, path: str) -> None:
        """Drop a declared index."""
        await self._ask("drop_index", calls.IndexAsk(ids.check_name(schema, "schema"), path), changes=True)

    async def forget(
        self,
        ids: Sequence[str],
        author: str,
        room: str | None,
        only_deleted: bool = False,
        at_us: int | None = None,
    ) -> Forgotten:
        """Erase records and their history for good; with `only_deleted` those that are live stay."""
        ids_.check_name(author, "author")
        if room is not None or at_us is not None:
            self._lack(f"forgetting records of {room or 'another store'}", _VERBS)
        ask = calls.ForgetAsk(list(check_ids(ids)), only_deleted)
        found: Forgotten = await self._ask("forget", ask, again=False, changes=True)
        return found

    async def compact(self, keep: Keep) -> Compacted:
        """Apply a retention rule to the history."""
        check_keep(keep)
        after = None if keep.after is None else clock.to_us(keep.after)
        ask = calls.KeepAsk(keep.versions, after, keep.schema)
        found: Compacted = await self._ask("compact", ask, changes=True)
        return found

    # -- what is done where the store is --------------------------------------------------

    async def search_vectors(
        self,
        vector: bytes,
        query: Query,
        view: View,
        limit: int,
        as_of: int | None = None,
        spec: VectorSpec | None = None,
    ) -> VectorPage:
        """Refuse: vectors are made and searched where the store is."""
        self._lack("a search of vectors")

    async def embedded_schemas(self, most: int = 1_000_000) -> list[EmbeddedSchema]:
        """Return none: the server's embedder makes the vectors."""
        return []

    async def waiting_vectors(self, schema: str, limit: int, after: bytes = b"") -> list[WaitingVector]:
        """Return none: the server's embedder makes the vectors."""
        return []

    async def store_vectors(self, schema: str, spec: VectorSpec, given: Sequence[GivenVector]) -> int:
        """Refuse: vectors are stored where the store is."""
        self._lack("storing vectors")


def _fewer(error: InputError, asked: int) -> int:
    """Return how many to ask for where an answer was too large to be sent; raises any other error."""
    if "answer_bytes" not in error.details or asked <= 1:
        raise error
    return max(1, asked // 4)
