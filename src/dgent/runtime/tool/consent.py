"""Consent: what a partner allows a tool to do, asked at whichever door the partner is.

A request is a record, so any process that has the store open can list and answer it, and it outlives the one
that asked. The first answer counts, and one after the time-out is refused. A request has the key of its tool
call: asked again after a crash, it is the same request, with the answer it got.

Consent for a duration or a scope is stored as a grant, which always expires. A grant covers calls that are
trusted as far as the one it was given for, or further: what a partner allowed in a private conversation is
not allowed to a page from the web.
"""

from __future__ import annotations

import asyncio
from datetime import datetime, timedelta
from typing import Any, Literal, TypeVar, get_args

import msgspec

from dgent import clock, codec, ids
from dgent.errors import Conflict, Denied, InputError, NotFound, VersionConflict
from dgent.model.datum import Datum
from dgent.model.query import Query
from dgent.model.schema import Schema
from dgent.runtime.errors import ConsentDenied, ConsentExpired
from dgent.runtime.trust import is_at_least
from dgent.store.backend import Delete, Op, Put
from dgent.universe.gate import Gate, Trust
from dgent.universe.origin import check_trust
from dgent.universe.universe import Universe

Answer = Literal["deny", "once", "duration", "scope"]
State = Literal["open", "denied", "granted", "expired"]
ANSWERS: tuple[str, ...] = get_args(Answer)
WAIT_S = 300.0
GRANT_S = 8 * 3600.0  # how long a grant lasts unless the answer says
LONGEST_S = 366 * 86400.0
KEPT_S = 7 * 86400.0  # how long an answered request is kept, for calls that are resumed
STEP_S = 10.0  # a wait looks again after so long: an end of time is no commit
S = TypeVar("S", bound=msgspec.Struct)


class Consent(msgspec.Struct, frozen=True, kw_only=True):
    """A question to the partner, may this agent call this tool with these details, and its answer.

    `scope` is what a wider consent would cover, empty where only this tool can be allowed. `trust` is that of
    the call. `place` orders open requests and is None once it has an answer.
    """

    agent: str
    tool: str
    key: str
    operation: str = ""
    scope: str = ""
    reason: str = ""
    details: Any = None
    trust: Trust = "untrusted"
    asked_at: datetime
    expires_at: datetime
    place: str | None = None
    state: State = "open"
    answer: Answer | None = None
    answered_at: datetime | None = None
    by: str = ""
    id: str = ""

    @property
    def granted(self) -> bool:
        """True if the call may run."""
        return self.state == "granted"

    def is_open(self, now: datetime) -> bool:
        """Check whether it can still be answered."""
        return self.state == "open" and now < self.expires_at

    def describe(self) -> str:
        """Return the question in one line."""
        name = f"{self.tool}.{self.operation}" if self.operation else self.tool
        scope = f" in {self.scope}" if self.scope else ""
        why = f": {self.reason}" if self.reason else ""
        return f"{self.agent} ({self.trust}) wants to call {name}{scope}{why}"


class Grant(msgspec.Struct, frozen=True, kw_only=True):
    """A consent that covers more than one call, until it expires: a tool's, or all of a scope."""

    agent: str
    until: datetime
    trust: Trust
    tool: str = ""
    operation: str = ""
    scope: str = ""
    by: str = ""
    request: str = ""
    id: str = ""


CONSENT = Schema("dgent.consent", contract=Consent, indexes=("place",), history="none", feed=False)
GRANT = Schema("dgent.grant", contract=Grant, history="none", feed=False)


class Consents:
    """The requests and grants of a store: `Consents(u)`, on a handle that may do everything.

    An agent's own handle cannot use it, so an agent cannot consent to what it asks for.
    """

    def __init__(self, universe: Universe) -> None:
        if isinstance(universe.backend, Gate):
            who = universe.backend.principal
            raise Denied(f"{who.name} is {who.trust} and may not ask for or give consent", principal=who.name)
        self.universe = universe

    # -- asking -------------------------------------------------------------------------------

    async def require(
        self,
        agent: str,
        tool: str,
        *,
        key: str,
        operation: str = "",
        scope: str = "",
        reason: str = "",
        details: Any = None,
        trust: str = "partner",
        wait_s: float = WAIT_S,
    ) -> Consent | Grant:
        """Return the grant or the answer that allows a call, and wait for it if nobody has asked yet.

        Raises ConsentDenied, or ConsentExpired when nobody answers within `wait_s` seconds.
        """
        found = await self._get(key)
        if found is None:
            grant = await self.find_grant(agent, tool, operation=operation, scope=scope, trust=trust)
            if grant is not None:
                return grant
        asked = await self.ask(
            agent,
            tool,
            key=key,
            operation=operation,
            scope=scope,
            reason=reason,
            details=details,
            trust=trust,
            wait_s=wait_s,
        )
        return await self.wait(asked.id)

    async def ask(
        self,
        agent: str,
        tool: str,
        *,
        key: str,
        operation: str = "",
        scope: str = "",
        reason: str = "",
        details: Any = None,
        trust: str = "partner",
        wait_s: float = WAIT_S,
    ) -> Consent:
        """Put a request into the queue; the same key again returns the request that is there."""
        ids.check_name(agent, "agent")
        ids.check_name(tool, "tool")
        length = _check_length(wait_s, "wait_s")
        id = _digest(key)
        now, order = clock.now(), await self.universe.seq()
        made = Consent(
            agent=agent,
            tool=tool,
            key=key,
            operation=operation,
            scope=scope,
            reason=reason,
            details=details,
            trust=check_trust(trust),
            asked_at=now,
            expires_at=now + length,
            place=f"{order:012x}.{id}",
            id=id,
        )
        try:
            await self._commit([self._put(CONSENT, made, 0)])
        except VersionConflict:
            found = await self._get(key)
            if found is None:
                raise Conflict(f"the request of {key!r} was removed just now", hint="ask again") from None
            return _same(found[0], made)
        return made

    async def wait(self, id: str) -> Consent:
        """Wait until a request is answered; raises ConsentDenied, or ConsentExpired at its time-out."""
        universe = self.universe
        while True:
            seq = await universe.seq()
            request, rev = await self._find(id)
            if request.state == "granted":
                return request
            if request.state == "denied":
                raise ConsentDenied(
                    f"{request.by or 'the partner'} did not allow {request.tool}",
                    hint="do something else, or say why it is needed",
                    id=id,
                )
            left = (request.expires_at - clock.now()).total_seconds()
            if request.state == "expired" or left <= 0:
                if request.state == "open" and not await self._expire(request, rev):
                    continue  # answered at the last moment
                raise ConsentExpired(
                    f"nobody answered whether {request.agent} may call {request.tool}",
                    hint="go on without it, or ask again later",
                    id=id,
                )
            await universe.backend.wait(seq, min(left, STEP_S))
            await asyncio.sleep(0)

    async def _expire(self, request: Consent, rev: int) -> bool:
        """Take a request out of the queue; False when somebody else changed it first."""
        gone = msgspec.structs.replace(request, state="expired", place=None, answered_at=clock.now())
        try:
            await self._commit([self._put(CONSENT, gone, rev)])
        except VersionConflict:
            return False
        return True

    # -- answering ----------------------------------------------------------------------------

    async def get(self, id: str) -> Consent:
        """Return a request, answered or not; raises NotFound."""
        return (await self._find(id))[0]

    async def list_open(self, agent: str | None = None, limit: int = 50) -> list[Consent]:
        """Return the requests that wait for an answer, the oldest first."""
        now = clock.now()
        query = Query(
            schema=CONSENT.name, where={"place": {"$gte": ""}}, order_by="place", descending=False, limit=None
        )
        found = [_read(each, Consent) for each in await self.universe.query(query, raw=True)]
        some = [each for each in found if each.is_open(now) and agent in (None, each.agent)]
        return some[:limit]

    async def answer(self, id: str, answer: Answer, *, by: str = "", for_s: float | None = None) -> Consent:
        """Answer a request: `deny`, or allow it `once`, for a `duration`, or for its whole `scope`.

        `for_s` is how long a duration or a scope lasts. The same answer of the same person again changes
        nothing; another one is a Conflict, and one after the time-out ConsentExpired.
        """
        if answer not in ANSWERS:
            raise InputError(f"{answer!r:.60} is not a valid answer", hint=f"use one of {', '.join(ANSWERS)}")
        if for_s is not None and answer in ("deny", "once"):
            raise InputError(f"{answer} has no duration", hint="leave for_s out", field="for_s")
        length = _check_length(GRANT_S if for_s is None else for_s, "for_s")
        request, rev = await self._find(id)
        self._refuse_late(request, answer, by)
        if request.state != "open":
            return request
        if answer == "scope" and not request.scope:
            raise InputError(
                f"the request {id} has no scope", hint="use once or duration instead", field="answer"
            )
        now = clock.now()
        made = msgspec.structs.replace(
            request,
            state="denied" if answer == "deny" else "granted",
            answer=answer,
            answered_at=now,
            by=by,
            place=None,
        )
        ops: list[Op] = [self._put(CONSENT, made, rev)]
        if answer in ("duration", "scope"):
            ops.append(self._put(GRANT, _make_grant(made, now + length), None))
        try:
            await self._commit(ops)
        except VersionConflict:
            request, _ = await self._find(id)
            self._refuse_late(request, answer, by)
            return request
        return made

    def _refuse_late(self, request: Consent, answer: str, by: str) -> None:
        """Raise for a request that was answered otherwise, or whose time is over."""
        if request.state in ("granted", "denied"):
            if (request.answer, request.by) != (answer, by):
                raise Conflict(
                    f"the request was answered already: {request.answer}, by {request.by or 'the partner'}",
                    hint="the first answer counts; revoke a grant to take it back",
                    id=request.id,
                )
        elif not request.is_open(clock.now()):
            raise ConsentExpired(
                f"the request of {request.agent} for {request.tool} timed out at "
                f"{clock.text(request.expires_at)[:19]}Z",
                hint="the agent went on without it; it asks again if it still needs it",
                id=request.id,
            )

    # -- grants -------------------------------------------------------------------------------

    async def find_grant(
        self, agent: str, tool: str, *, operation: str = "", scope: str = "", trust: str = "partner"
    ) -> Grant | None:
        """Return a grant that covers a call and has not expired; None when there is none."""
        keys = [_grant_key(agent, tool, operation, ""), *([_grant_key(agent, "", "", scope)] * bool(scope))]
        found = await self.universe.get_many([ids.compose(GRANT.name, key) for key in keys], raw=True)
        now = clock.now()
        for each in found:
            if each is not None and each.schema == GRANT.name:
                grant = _read(each, Grant)
                if now < grant.until and is_at_least(trust, grant.trust):
                    return grant
        return None

    async def list_grants(self, agent: str | None = None) -> list[Grant]:
        """Return the grants that have not expired, the oldest first."""
        query = Query(schema=GRANT.name, limit=None, descending=False)
        found = [_read(each, Grant) for each in await self.universe.query(query, raw=True)]
        now = clock.now()
        return [each for each in found if now < each.until and agent in (None, each.agent)]

    async def revoke(self, id: str) -> Grant:
        """End a grant at once; raises NotFound."""
        found = await self.universe.get(ids.compose(GRANT.name, id), raw=True)
        if found is None or found.schema != GRANT.name:
            raise NotFound(f"there is no grant {id!r}", hint="list_grants() shows them", id=id)
        await self._commit([Delete(found.id, found.rev)])
        return _read(found, Grant)

    async def prune(self) -> int:
        """Delete expired grants, and requests that ended long ago; return how many."""
        now = clock.now()
        ops: list[Op] = []
        for each in await self.universe.query(schema=GRANT.name, raw=True, limit=None):
            if _read(each, Grant).until <= now:
                ops.append(Delete(each.id, each.rev))
        for each in await self.universe.query(schema=CONSENT.name, raw=True, limit=None):
            if _read(each, Consent).expires_at + timedelta(seconds=KEPT_S) <= now:
                ops.append(Delete(each.id, each.rev))
        if ops:
            await self._commit(ops)
        return len(ops)

    # -- records ------------------------------------------------------------------------------

    def _put(self, schema: Schema[Any], made: Consent | Grant, expect: int | None) -> Put:
        datum = Datum(
            ids.compose(schema.name, made.id),
            data=msgspec.to_builtins(made),
            schema=schema.name,
            schema_version=schema.version,
            author=self.universe.author,
        )
        return Put(datum, expect)

    async def _commit(self, ops: list[Op]) -> None:
        self.universe.register(CONSENT, GRANT)  # not before: reading declares nothing
        await self.universe.commit(ops)

    async def _get(self, key: str) -> tuple[Consent, int] | None:
        return await self._read(_digest(key))

    async def _find(self, id: str) -> tuple[Consent, int]:
        found = await self._read(id)
        if found is None:
            raise NotFound(f"there is no request {id!r}", hint="list_open() shows those that wait", id=id)
        return found

    async def _read(self, id: str) -> tuple[Consent, int] | None:
        found: Datum | None = await self.universe.get(ids.compose(CONSENT.name, ids.check_id(id)), raw=True)
        if found is None or found.schema != CONSENT.name:
            return None
        return _read(found, Consent), found.rev or 0


def _read(datum: Datum, kind: type[S]) -> S:
    return msgspec.convert(datum.data, kind)


def _digest(*parts: str) -> str:
    return codec.blake2b("\0".join(parts).encode(), size=12).hexdigest()


def _grant_key(agent: str, tool: str, operation: str, scope: str) -> str:
    return _digest(agent, tool, operation, scope)


def _make_grant(request: Consent, until: datetime) -> Grant:
    whole = request.answer == "scope"
    tool, operation, scope = ("", "", request.scope) if whole else (request.tool, request.operation, "")
    return Grant(
        agent=request.agent,
        until=until,
        trust=request.trust,
        tool=tool,
        operation=operation,
        scope=scope,
        by=request.by,
        request=request.id,
        id=_grant_key(request.agent, tool, operation, scope),
    )


def _same(found: Consent, made: Consent) -> Consent:
    """Return a stored request; raises Conflict when its key was used for another call."""
    fields = ("agent", "tool", "operation", "scope")
    if any(getattr(found, field) != getattr(made, field) for field in fields):
        raise Conflict(
            f"the key {made.key!r} was used to ask for {found.tool}, not for {made.tool}",
            hint="each call has its own key",
            id=found.id,
        )
    return found


def _check_length(seconds: object, field: str) -> timedelta:
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 < seconds <= LONGEST_S:
        raise InputError(
            f"expected seconds from 0 to {LONGEST_S:g} for {field}, got {seconds!r:.60}", field=field
        )
    return timedelta(seconds=seconds)
