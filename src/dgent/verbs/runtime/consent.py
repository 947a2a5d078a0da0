"""Verbs for consent: what agents ask their partner for, the answers, and grants that last."""

from __future__ import annotations

from typing import Annotated, Literal

from dgent import clock
from dgent.errors import Ambiguous, Conflict, Denied, InputError, NotFound
from dgent.runtime.tool.consent import Consent, Consents, Grant
from dgent.verbs import parse
from dgent.verbs.context import Context
from dgent.verbs.registry import Ask, Items, argument, option, verb

OfAgent = Annotated[str | None, option("only of this agent", name="of", complete="agent")]


class ListConsents(Ask):
    """Input of `consent.list` and `consent.grants`."""

    of_agent: OfAgent = None


@verb("consent.list", effect="read", partner=True)
async def list_(context: Context, ask: ListConsents) -> Items[Consent]:
    """List the tool calls that wait for an answer, the oldest first."""
    return Items(await Consents(await context.universe()).list_open(ask.of_agent))


class AnswerConsent(Ask):
    """Input of `consent.answer`."""

    id: Annotated[str, argument("the request's id, or the beginning of it")]
    answer: Annotated[
        Literal["once", "duration", "scope", "deny"],
        argument("once, duration, scope for all of the same scope, or deny"),
    ]
    lasts: Annotated[str | None, option("how long a duration or a scope lasts: 30m, 8h", name="for")] = None
    of_agent: OfAgent = None


@verb(
    "consent.answer",
    effect="write",
    errors=(InputError, NotFound, Ambiguous, Conflict, Denied),
    partner=True,
)
async def answer(context: Context, ask: AnswerConsent) -> Consent:
    """Allow a tool call that an agent asked for, or deny it."""
    universe = await context.universe()
    consents = Consents(universe)
    request = await _find(consents, ask)
    caller = context.caller
    if caller.agent == request.agent and not context.local:
        raise Denied(
            f"{request.agent} may not consent to what it asks for itself",
            hint="answer with a token of the partner's own name",
            id=request.id,
        )
    for_s = None
    if ask.lasts is not None:
        for_s = (parse.ahead(ask.lasts, "for") - clock.now()).total_seconds()
    return await consents.answer(request.id, ask.answer, by=caller.agent or universe.author, for_s=for_s)


async def _find(consents: Consents, ask: AnswerConsent) -> Consent:
    """Return the open request whose id begins so; another one only by its whole id."""
    if not ask.id:
        raise InputError("the id of a request is empty", field="id")
    near = [each for each in await consents.list_open(ask.of_agent) if each.id.startswith(ask.id)]
    if len(near) > 1:
        raise Ambiguous(f"{ask.id!r} begins several ids", candidates=[each.id for each in near])
    if near:
        return near[0]
    found = await consents.get(ask.id)
    if ask.of_agent not in (None, found.agent):
        raise NotFound(f"{ask.of_agent} has no request {ask.id!r}", id=ask.id)
    return found


@verb("consent.grants", effect="read", partner=True)
async def grants(context: Context, ask: ListConsents) -> Items[Grant]:
    """List the grants that last, the oldest first."""
    return Items(await Consents(await context.universe()).list_grants(ask.of_agent))


class RevokeGrant(Ask):
    """Input of `consent.revoke`."""

    id: Annotated[str, argument("the grant's id, as `consent grants` shows it")]


@verb("consent.revoke", effect="write", errors=(NotFound,), partner=True)
async def revoke(context: Context, ask: RevokeGrant) -> Grant:
    """End a grant at once."""
    return await Consents(await context.universe()).revoke(ask.id)
