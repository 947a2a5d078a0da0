"""Verbs for records: put, find, delete, forget."""

from __future__ import annotations

from datetime import datetime
from importlib import import_module
from typing import Annotated, Any

import msgspec

from dgent.errors import Ambiguous, Denied, InputError, NotFound, Unavailable, VersionConflict
from dgent.model import reserved
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.store.backend import SchemaStats
from dgent.system.near import nearest
from dgent.universe.origin import find_origins
from dgent.universe.universe import Universe
from dgent.universe.upgrade import Upgraded
from dgent.universe.write import keyed_id
from dgent.verbs import parse
from dgent.verbs.caller import Effect
from dgent.verbs.context import Context
from dgent.verbs.data.answer import (
    ChangeResult,
    Record,
    RecordCount,
    RecordPresence,
    Records,
    record_of,
)
from dgent.verbs.data.search import search_words
from dgent.verbs.registry import Ask, AsOf, NoInput, PastAsk, argument, option, verb

SchemaName = Annotated[str | None, option("only records of this schema", short="s", complete="schema")]
Note = Annotated[str | None, option("why; kept with the commit", short="m")]
NAMED = 5  # ids that are listed where one was meant
VERBS = "`dgent token` makes and revokes tokens"
LIST = "`dgent data list` shows what there is"
All = Annotated[bool, option("also how crumbs, blocks and their parts are stored")]
DryRun = Annotated[bool, option("say what would happen, and change nothing")]


NOTE: Schema[Any] = Schema("agent.note", text={"*": 1})
"""Whatever an agent remembers, found by any of its words."""


class PutRecord(Ask):
    """Input of `data.put`."""

    data: Annotated[
        Any, argument('a JSON object, or a text, which is kept as {"text": …}; - reads it', words=True)
    ]
    id: Annotated[str | None, option("the record's id; a new one without it", complete="id")] = None
    schema: Annotated[str | None, option("the name of its schema", short="s", complete="schema")] = None
    schema_version: Annotated[int | None, option("the schema's version; 1 without it")] = None
    content: Annotated[bytes | None, option("bytes beside the data, in base64")] = None
    tag: Annotated[tuple[str, ...], option("a tag of it; may be given more than once", short="t")] = ()
    author: Annotated[str | None, option("who made it")] = None
    source: Annotated[str | None, option("where it came from")] = None
    parent: Annotated[str | None, option("the id of what caused it", complete="id")] = None
    expect: Annotated[int | None, option("the rev it must have now; 0: it must not exist")] = None
    key: Annotated[str | None, option("an idempotency key: the same key twice happens once")] = None
    note: Note = None


def _adds(ask: PutRecord) -> Effect | None:
    """Only appends without an id, or with one that must be new: it can then change no record."""
    return "append" if ask.id is None or ask.expect == 0 else None


@verb("data.put", effect="write", errors=(InputError, VersionConflict, Denied), lighter=_adds, makes=True)
async def put(context: Context, ask: PutRecord) -> Record:
    """Store a record."""
    if ask.schema is not None and ask.schema.startswith("dgent."):
        raise Denied(f"{ask.schema!r} is reserved by dgent", hint="`data associate` links records")
    if ask.id is not None:
        _check_not_own(ask.id)
    version = 1 if ask.schema is not None and ask.schema_version is None else ask.schema_version
    fields: dict[str, Any] = {"author": _author(context, ask), "source": ask.source}
    id = ask.id
    if id is None and ask.key is not None:
        id = keyed_id(ask.schema or "", ask.key)  # a retry must name the same record
    datum = Datum(
        id,
        data=parse.data(ask.data),
        content=ask.content or b"",
        tags=frozenset(ask.tag),
        parent_id=ask.parent,
        schema=ask.schema,
        schema_version=version,
        **fields,
    ).check()
    # Opened only now: what cannot be stored must not make a store either.
    u = await context.universe()
    if datum.schema == NOTE.name:
        u.register(NOTE)
    return record_of(await u.put(datum, expect=ask.expect, key=ask.key, note=ask.note))


def _check_not_own(id: str) -> None:
    """Refuse an id of the records that dgent makes for itself, whoever asks; raises Denied."""
    if reserved.is_own(id, None):
        raise Denied(f"{id!r} is dgent's own, and is written by its verbs alone", hint=VERBS, id=id)


def _author(context: Context, ask: PutRecord) -> str | None:
    """Return the author of the record; only a partner may name another than the caller."""
    caller = context.caller
    if caller.trust == "partner":
        return ask.author or caller.agent
    stamp = caller.agent or caller.id
    if ask.author not in (None, stamp):
        raise Denied(
            f"{stamp} is {caller.trust} and may not write as {ask.author!r}", hint="leave author out"
        )
    return stamp


class GetRecord(Ask):
    """Input of `data.get`."""

    id: Annotated[str, argument("the record's id, the beginning of it, or a crumb's short id", complete="id")]
    as_of: AsOf = None


@verb("data.get", effect="read", errors=(NotFound,))
async def get(context: Context, ask: GetRecord) -> Record:
    """Show a record."""
    u = await context.universe()
    return await _with_committer(u, await find_record(u, ask.id, parse.point(ask.as_of)))


class IsThere(Ask):
    """Input of `data.exists`."""

    id: Annotated[str, argument("the record's id", complete="id")]


@verb("data.exists", effect="read", errors=(InputError,))
async def exists(context: Context, ask: IsThere) -> RecordPresence:
    """Say whether a record has this id."""
    return RecordPresence(ask.id, await (await context.universe()).exists(ask.id))


async def _with_committer(u: Universe, datum: Datum) -> Record:
    """Return a record with its committer, where the log still has it."""
    (origin,) = await find_origins(u, [datum])
    if datum.seq is None or u.degraded is not None:
        return record_of(datum, origin=origin)
    for limit in (1, None):  # most look at the newest version
        for version in await u.history(datum.id, limit=limit):
            if version.rev == datum.rev:
                return record_of(datum, version.author, origin)
    return record_of(datum, origin=origin)


async def find_by_short_id(u: Universe, given: str) -> str | None:
    """Return the id of the crumb or trail that has a short id; None for any other text."""
    from dgent.cupboard import Cupboard  # a room that most calls for records do not need
    from dgent.cupboard.record import CRUMB, TRAIL
    from dgent.cupboard.short_id import can_be_short_id, resolve_id

    if not can_be_short_id(given) or u.degraded is not None:
        return None
    room = await Cupboard(u)._ready()
    for schema in (CRUMB, TRAIL):
        found = await resolve_id(room, schema.name, given)
        if found != given:
            return found
    return None


async def find_record(u: Any, id: str, as_of: Any = None) -> Datum:
    """Return the record of an id, or of the only id with this prefix."""
    datum: Datum | None = await u.get(id, as_of=as_of, raw=True, partial=True)
    if datum is not None:
        return datum
    named = await find_by_short_id(u, id)
    if named is not None:
        datum = await u.get(named, as_of=as_of, raw=True, partial=True)
        if datum is not None:
            return datum
    like: list[Any] = []
    if len(id) >= 4:
        like = await u.query(prefix=id, limit=NAMED + 1, as_of=as_of, raw=True, partial=True)
    if len(like) == 1:
        return like[0]  # type: ignore[no-any-return]
    if like:
        some = [each.id for each in like[:NAMED]]
        more = ", …" if len(like) > NAMED else ""
        message = f"more than one id begins with {id!r}: {', '.join(some)}{more}"
        raise Ambiguous(message, hint="give more of it", id=id, candidates=some)
    if u.degraded is not None:
        raise Unavailable(
            f"{id!r} is not available locally: {u.degraded.reason}",
            hint="try again when the store is back",
            id=id,
        )
    raise NotFound(f"there is no record {id!r}", hint=LIST, id=id)


class FindRecords(Ask):
    """The filters of `data.query`, `data.count` and others."""

    schema: Annotated[
        str | None,
        argument(
            "only records of this schema; several words are searched for", complete="schema", words=True
        ),
    ] = None
    tag: Annotated[tuple[str, ...], option("with this tag; more than one: with all of them", short="t")] = ()
    any_tag: Annotated[tuple[str, ...], option("with at least one of these tags")] = ()
    where: Annotated[
        tuple[str, ...], option("weight>=3, author=ann, name^=sh, tags~=red, or JSON", short="w")
    ] = ()
    author: Annotated[str | None, option("by this author")] = None
    source: Annotated[str | None, option("from this source")] = None
    parent: Annotated[str | None, option("caused by this record", complete="id")] = None
    prefix: Annotated[str | None, option("whose id begins so", complete="id")] = None
    since: Annotated[str | None, option("made then or later: a time, or 2h for two hours ago")] = None
    until: Annotated[str | None, option("made before then")] = None
    updated_since: Annotated[str | None, option("changed or made then or later")] = None
    updated_until: Annotated[str | None, option("neither changed nor made since then")] = None
    as_of: AsOf = None


class QueryRecords(FindRecords):
    """Input of `data.query`."""

    all: All = False
    order_by: Annotated[str, option("created_at, updated_at, or a path into the data")] = "created_at"
    ascending: Annotated[bool, option("oldest or smallest first")] = False
    limit: Annotated[int, option("at most so many", short="n")] = 20
    offset: Annotated[int, option("leave out so many first")] = 0
    cursor: Annotated[str | None, option("go on where an earlier answer ended")] = None


class CountRecords(FindRecords):
    """Input of `data.count`."""

    all: All = False


def everyday_query(ask: QueryRecords | CountRecords) -> Query:
    """Build the query of these filters; unless something else is asked for, for the user's records only."""
    query = query_of(ask)
    if ask.all or ask.schema is not None or ask.prefix is not None:
        return query
    return query.replace(allow=lambda datum: not reserved.is_reserved(datum.schema))


def query_of(ask: FindRecords) -> Query:
    """Build the query of these filters."""
    if ask.schema is not None and any(sign in ask.schema for sign in "=<> "):
        search = f"`dgent search {ask.schema}` finds words"
        hint = search if _is_words(ask.schema) else f"write --where '{ask.schema}'"
        raise InputError(f"{ask.schema!r} is not a schema name", hint=hint, field="schema")
    return Query(
        schema=ask.schema,
        tags=frozenset(ask.tag),
        any_tags=frozenset(ask.any_tag),
        where=parse.where(ask.where),
        author=ask.author,
        source=ask.source,
        parent=ask.parent,
        prefix=ask.prefix,
        since=_moment(ask.since, "since"),
        until=_moment(ask.until, "until"),
        updated_since=_moment(ask.updated_since, "updated_since"),
        updated_until=_moment(ask.updated_until, "updated_until"),
    )


def _is_words(text: str | None) -> bool:
    """Check whether a text in place of a schema is several words, and no condition."""
    return text is not None and len(text.split()) > 1 and not any(sign in text for sign in "=<>")


def _moment(text: str | None, field: str) -> datetime | None:
    return None if text is None else parse.moment(text, field)


@verb("data.query", effect="read", errors=(InputError, NotFound))
async def query(context: Context, ask: QueryRecords) -> Records:
    """Find records of a schema, the newest first; search for several words."""
    u = await context.universe()
    if ask.limit < 1:
        raise InputError("limit must be at least 1", field="limit")
    if (
        ask.schema is not None
        and len(ask.schema.split()) > 1
        and not any(each in ask.schema for each in "=<>")
    ):
        return await _search_instead(u, ask)
    wanted = everyday_query(ask).replace(
        order_by=ask.order_by,
        descending=not ask.ascending,
        limit=ask.limit,
        offset=ask.offset,
        cursor=ask.cursor,
    )
    page = await u.page(wanted, as_of=parse.point(ask.as_of), raw=True, partial=True)
    if not page.items and ask.schema:
        await _check_schema(u, ask.schema)
    found = zip(page.items, await find_origins(u, page.items), strict=True)
    items = [record_of(datum, origin=origin) for datum, origin in found]
    return Records(items, page.cursor, page.explain, page.partial)


async def _search_instead(u: Universe, ask: QueryRecords) -> Records:
    """Search for several words that stand where a schema would."""
    words = ask.schema or ""
    refused = {"as_of": ask.as_of, "cursor": ask.cursor, "offset": ask.offset, "ascending": ask.ascending}
    for name, given in {**refused, "order_by": ask.order_by != "created_at"}.items():
        if given:
            raise InputError(f"a search for words takes no {name}", hint="name a schema", field=name)
    found = await search_words(
        u, words, query_of(msgspec.structs.replace(ask, schema=None)), ask.limit, False
    )
    return Records([hit.record for hit in found.items], explain=found.explain, search=found)


async def _check_schema(u: Universe, name: str) -> None:
    """Raise NotFound, with similar names, for a schema that is not in the store."""
    known = [each.name for each in await u.schemas(partial=True)]
    if name in known or u.contracts.by_name(name) is not None:
        return
    near = nearest(name, known)
    more = f"`dgent search {name}` looks for it in texts"
    raise NotFound(f"there is no schema {name!r} here", hint=f"{near} {more}".strip(), schema=name)


@verb("data.count", effect="read", errors=(InputError,))
async def count(context: Context, ask: CountRecords) -> RecordCount:
    """Count records."""
    u = await context.universe()
    count = await u.count(everyday_query(ask), as_of=parse.point(ask.as_of), partial=True)
    return RecordCount(count, u.degraded is not None)


class ListRecords(Ask):
    """Input of `data.list`."""

    prefix: Annotated[str | None, argument("whose id begins so", complete="id")] = None
    after: Annotated[str | None, option("made after then: a time, or 2h for two hours ago")] = None
    limit: Annotated[int, option("at most so many", short="n")] = 100


@verb("data.list", effect="read", errors=(InputError,))
async def list_(context: Context, ask: ListRecords) -> Records:
    """List records by the beginning of their ids, newest first."""
    u = await context.universe()
    after = None if ask.after is None else parse.moment(ask.after, "after")
    found = await u.list(ask.prefix, after=after, limit=ask.limit, partial=True)
    return Records([record_of(datum) for datum in found], partial=u.degraded is not None)


class DeleteRecord(Ask):
    """Input of `data.delete`."""

    id: Annotated[str, argument("the record's id", complete="id")]
    expect: Annotated[int | None, option("the rev it must have now")] = None
    note: Note = None


@verb("data.delete", effect="write", errors=(NotFound, VersionConflict, Denied))
async def delete(context: Context, ask: DeleteRecord) -> ChangeResult:
    """Remove a record; its history stays, and undo brings it back."""
    _check_not_own(ask.id)
    u = await context.universe()
    if not await u.delete(ask.id, expect=ask.expect, note=ask.note):
        raise NotFound(f"there is no record {ask.id!r}", hint=LIST, id=ask.id)
    if u.degraded is not None:
        return ChangeResult(None, [ask.id], pending=True)
    return ChangeResult(await u.seq(), [ask.id])


class Schemas(msgspec.Struct, frozen=True):
    """The schemas of a store; `partial` when it is unavailable and only local ones are listed."""

    items: list[SchemaStats]
    partial: bool = False


@verb("data.schemas", effect="read")
async def schemas(context: Context, ask: PastAsk) -> Schemas:
    """List the schemas of the stored records."""
    u = await context.universe(ask.as_of)
    return Schemas(await u.schemas(partial=True), u.degraded is not None)


class Stats(msgspec.Struct, frozen=True):
    """Statistics of a store."""

    engine: str
    place: str
    records: int
    seq: int
    first_seq: int
    size_bytes: int
    schemas: int
    details: dict[str, Any]


@verb("data.stats", effect="read")
async def stats(context: Context, ask: NoInput) -> Stats:
    """Say how much is stored, and where."""
    u = await context.universe()
    stats = await u.stats()
    details, shown = stats.details, context.shows_place
    return Stats(
        stats.engine,
        stats.place if shown else "",
        stats.records,
        stats.seq,
        stats.first_seq,
        stats.size_bytes,
        len(stats.schemas),
        details if shown else {name: each for name, each in details.items() if name != "cache"},  # a path
    )


class ForgetRecords(Ask):
    """Input of `data.forget`."""

    id: Annotated[tuple[str, ...], argument("the ids of the records", complete="id")]
    dry_run: DryRun = False


class ForgetResult(msgspec.Struct, frozen=True):
    """The result of forgetting; `erased` is False while other readers still keep the old bytes alive.

    In a folder of lines it is also False while unreadable or incomplete lines may hold the same text.
    `remains` says where bytes may be that the engine cannot reach.
    """

    records: int
    versions: int
    seq: int | None
    erased: bool
    dry_run: bool = False
    remains: str = ""


@verb("data.forget", effect="destroy", errors=(InputError, NotFound, Denied))
async def forget(context: Context, ask: ForgetRecords) -> ForgetResult:
    """Erase records and all their versions for good."""
    ids = list(dict.fromkeys(ask.id))
    for id in ids:
        _check_not_own(id)
    u = await context.universe()
    kept = [await u.history(id) for id in ids]
    for id, versions in zip(ids, kept, strict=True):
        if not versions:
            raise NotFound(f"there is no record {id!r}", hint=LIST, id=id)
    if ask.dry_run:
        return ForgetResult(len(kept), sum(map(len, kept)), None, False, True)
    done = await u.forget(*ids)
    return ForgetResult(done.records, done.versions, done.seq, done.erased, remains=done.remains)


class UpgradeSchema(Ask):
    """Input of `data.upgrade`."""

    schema: Annotated[str, argument("the schema's name", complete="schema")]
    contracts: Annotated[tuple[str, ...], option("a Python module with the schema in it", short="c")] = ()
    dry_run: DryRun = False


@verb("data.upgrade", effect="write", errors=(InputError, NotFound), local=True)
async def upgrade(context: Context, ask: UpgradeSchema) -> Upgraded:
    """Rewrite old records of a schema in its newest version."""
    u = await context.universe()
    for module in ask.contracts:
        u.register(*_schemas_in(module))
    if u.contracts.by_name(ask.schema) is None:
        raise InputError(
            f"the contract of {ask.schema!r} is not known here",
            hint="name the Python module that has its Schema: --contracts your.module",
            field="contracts",
        )
    return await u.upgrade_all(ask.schema, dry_run=ask.dry_run, progress=context.report)


def _schemas_in(module: str) -> list[Schema[Any]]:
    """Return the schemas at the top level of a module; the caller names it, data never does."""
    try:
        loaded = import_module(module)
    except Exception as error:
        # It is the caller's program that runs here, so anything may happen.
        reason = f"{type(error).__name__}: {error}"
        raise InputError(f"contracts: {module} does not load: {reason}", field="contracts") from None
    found = [each for each in vars(loaded).values() if isinstance(each, Schema)]
    if not found:
        raise InputError(f"contracts: {module} holds no Schema", field="contracts")
    return found
