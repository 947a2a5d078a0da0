"""Verbs for the tokens that programs show to a server."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

import msgspec

from dgent.errors import InputError, NotFound
from dgent.universe import token as tokens
from dgent.universe.gate import Principal, Trust
from dgent.verbs import parse
from dgent.verbs.context import Context
from dgent.verbs.registry import Ask, Items, NoInput, argument, option, verb

TokenId = Annotated[str, argument("the token's id, as `token list` shows it")]
NEVER = "never"


class TokenInfo(msgspec.Struct, frozen=True):
    """A token without its secret."""

    id: str
    agent: str
    trust: str
    made_at: datetime
    expires_at: datetime | None
    expired: bool
    purpose: str = ""


class NewToken(TokenInfo, frozen=True):
    """A token with its text, which is shown once and stored nowhere."""

    token: str = ""


class CreateToken(Ask):
    """Input of `token.create`."""

    for_agent: Annotated[
        str | None, option("the agent that acts with it; without it the one of --agent", name="for")
    ] = None
    trust: Annotated[Trust, option("what it may do: partner, friend or conversant")] = "friend"
    expires: Annotated[str, option("when it ends: 90d, a time, or never")] = "90d"
    purpose: Annotated[str, option("what it is for", short="m")] = ""


@verb("token.create", effect="append", errors=(InputError,), local=True, makes=True)
async def create(context: Context, ask: CreateToken) -> NewToken:
    """Make a token for a program that uses this store over a server, and show it once."""
    agent = ask.for_agent or context.caller.agent
    if agent is None:
        raise InputError("a token is for an agent", hint="add --agent scout", field="for_agent")
    end = None if ask.expires == NEVER else parse.ahead(ask.expires, "expires")
    principal = Principal(agent, ask.trust)
    return _with_text(
        *await tokens.create_token(await context.universe(), principal, expires_at=end, purpose=ask.purpose)
    )


@verb("token.list", effect="read", local=True)
async def list_(context: Context, ask: NoInput) -> Items[TokenInfo]:
    """List the tokens of this store, the oldest first, without their secrets."""
    return Items([_info(each) for each in await tokens.list_tokens(await context.universe())])


class OneToken(Ask):
    """Input of `token.revoke` and `token.rotate`."""

    id: TokenId


@verb("token.revoke", effect="write", errors=(NotFound,), local=True)
async def revoke(context: Context, ask: OneToken) -> TokenInfo:
    """End a token: whoever has it is refused from now on."""
    return _info(await tokens.revoke_token(await context.universe(), ask.id))


@verb("token.rotate", effect="write", errors=(NotFound,), local=True)
async def rotate(context: Context, ask: OneToken) -> NewToken:
    """Give a token a new secret, and show it once; the old one ends."""
    return _with_text(*await tokens.rotate_token(await context.universe(), ask.id))


def _info(known: tokens.KnownToken) -> TokenInfo:
    token = known.token
    return TokenInfo(
        known.id,
        token.agent,
        token.trust,
        token.made_at,
        token.expires_at,
        known.expired,
        token.purpose,
    )


def _with_text(known: tokens.KnownToken, text: str) -> NewToken:
    return NewToken(**msgspec.structs.asdict(_info(known)), token=text)
