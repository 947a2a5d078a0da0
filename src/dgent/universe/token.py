"""Tokens: what a program shows to a server, and the agent and trust that it then acts with.

The text of a token has two parts, `dgent_<id>_<secret>`. The store has the id and a hash of the secret, so
whoever reads the store cannot act with its tokens. A token belongs to the store that it is kept in.
"""

from __future__ import annotations

import hashlib
import hmac
import re
import secrets
from datetime import datetime

import msgspec

from dgent import clock, ids
from dgent.errors import Corrupt, Denied, InputError, NotFound
from dgent.model.datum import Datum
from dgent.model.schema import Schema
from dgent.universe.gate import Principal, Trust
from dgent.universe.universe import Universe

MAX_TEXT = 128  # characters of a token that is looked at
_TEXT = re.compile(r"dgent_([a-z2-7]{12})_([A-Za-z0-9_-]{43})", re.ASCII)
_LETTERS = "abcdefghijklmnopqrstuvwxyz234567"


class Token(msgspec.Struct, frozen=True, kw_only=True):
    """A token as the store has it; `secret_hash` proves the secret and does not give it away."""

    agent: str
    trust: Trust
    secret_hash: str
    made_at: datetime
    expires_at: datetime | None = None
    purpose: str = ""


TOKENS = Schema("dgent.token", contract=Token, history="none", feed=False)


class KnownToken(msgspec.Struct, frozen=True):
    """A token with its id."""

    id: str
    token: Token

    @property
    def principal(self) -> Principal:
        """The agent that acts with it, and its trust."""
        return Principal(self.token.agent, self.token.trust)

    @property
    def expired(self) -> bool:
        """True if its time is over."""
        return self.token.expires_at is not None and self.token.expires_at <= clock.now()


async def create_token(
    universe: Universe, principal: Principal, *, expires_at: datetime | None = None, purpose: str = ""
) -> tuple[KnownToken, str]:
    """Store a new token; returns it with its text, which nobody can find out later."""
    if principal.trust == "untrusted":
        raise InputError("a token of an untrusted agent could do nothing", field="trust")
    if expires_at is not None and expires_at <= clock.now():
        raise InputError("a token cannot expire before it is made", field="expires")
    made = Token(
        agent=principal.name,
        trust=principal.trust,
        secret_hash="",
        made_at=clock.now(),
        expires_at=expires_at,
        purpose=purpose,
    )
    return await _store(universe, "".join(secrets.choice(_LETTERS) for _ in range(12)), made, new=True)


async def rotate_token(universe: Universe, id: str) -> tuple[KnownToken, str]:
    """Give a token another secret; returns its new text. The old one ends at once."""
    found = await get_token(universe, id)
    return await _store(universe, found.id, msgspec.structs.replace(found.token, made_at=clock.now()))


async def _store(universe: Universe, id: str, token: Token, new: bool = False) -> tuple[KnownToken, str]:
    secret = secrets.token_urlsafe(32)
    token = msgspec.structs.replace(token, secret_hash=_hash(secret))
    universe.register(TOKENS)
    datum = Datum(
        _record_id(id),
        data=msgspec.to_builtins(token),
        schema=TOKENS.name,
        schema_version=TOKENS.version,
        author=universe.author,
    )
    await universe.put(datum, expect=0 if new else None)
    return KnownToken(id, token), f"dgent_{id}_{secret}"


async def list_tokens(universe: Universe) -> list[KnownToken]:
    """Return the tokens of a store, the oldest first."""
    found: list[Datum] = await universe.query(schema=TOKENS.name, raw=True, limit=None, descending=False)
    return [_read(each) for each in found]


async def get_token(universe: Universe, id: str) -> KnownToken:
    """Return the token of an id."""
    found = await _find(universe, id)
    if found is None:
        raise NotFound(f"there is no token {id!r}", hint="`dgent token list` shows them", id=id)
    return found


async def revoke_token(universe: Universe, id: str) -> KnownToken:
    """Delete a token: whoever has it is refused from now on."""
    found = await get_token(universe, id)
    await universe.delete(_record_id(found.id))
    return found


async def check_token(universe: Universe, text: str) -> KnownToken:
    """Return the token of a text that a client sent; raises Denied unless it is right and in time."""
    parts = _TEXT.fullmatch(text) if len(text) <= MAX_TEXT else None
    found = None if parts is None else await _find(universe, parts[1])
    # An unknown id is compared too, so that the time taken tells nothing.
    known = found.token.secret_hash if found is not None else _hash("")
    right = hmac.compare_digest(known, _hash(parts[2] if parts is not None else "no token"))
    if found is None or not right:
        raise Denied("the token is wrong, or was revoked")
    if found.expired:
        raise Denied(f"the token expired at {found.token.expires_at:%Y-%m-%d %H:%M} UTC")
    return found


async def _find(universe: Universe, id: str) -> KnownToken | None:
    # Raw: reading must not declare a schema in a store without tokens.
    found: Datum | None = await universe.get(_record_id(id), raw=True)
    return None if found is None or found.schema != TOKENS.name else _read(found)


def _read(datum: Datum) -> KnownToken:
    try:
        return KnownToken(datum.id.partition("/")[2], msgspec.convert(datum.data, Token))
    except msgspec.ValidationError as error:
        raise Corrupt(f"the token {datum.id} cannot be read: {error}") from None


def _record_id(id: str) -> str:
    return ids.compose(TOKENS.name, id)


def _hash(secret: str) -> str:
    return hashlib.sha256(secret.encode()).hexdigest()
