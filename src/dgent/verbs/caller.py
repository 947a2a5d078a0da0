"""Callers, their trust, and the effects that each trust allows."""

from __future__ import annotations

from typing import Literal

import msgspec

from dgent.errors import Denied, InputError

Trust = Literal["partner", "friend", "conversant", "untrusted"]
Effect = Literal["help", "read", "append", "write", "destroy"]
"""The effect of a verb on the store: append only adds records, destroy cannot be undone."""

ALLOWED: dict[Trust, frozenset[Effect]] = {
    "partner": frozenset(("help", "read", "append", "write", "destroy")),
    "friend": frozenset(("help", "read", "append", "write")),
    "conversant": frozenset(("help", "read", "append")),
    "untrusted": frozenset(("help",)),
}


class Caller(msgspec.Struct, frozen=True):
    """A caller as a door identifies it: its connection, its agent, its trust."""

    id: str
    agent: str | None = None
    trust: Trust = "untrusted"

    def __post_init__(self) -> None:
        if not isinstance(self.trust, str) or self.trust not in ALLOWED:
            known = ", ".join(ALLOWED)
            raise InputError(
                f"{self.trust!r} is not a valid trust", hint=f"use one of {known}", field="trust"
            )


HERE = Caller("here", None, "partner")
"""The program itself, or the user at its terminal."""


def may(caller: Caller, effect: Effect) -> bool:
    """Check whether a caller may do something with this effect."""
    return effect in ALLOWED[caller.trust]


def check(caller: Caller, verb: str, effect: Effect, local: bool = False, partner: bool = False) -> None:
    """Raise Denied when the caller's trust does not allow this effect.

    A `local` verb, which works with files or modules of this machine, needs a partner whatever its effect; so
    does one that is for a `partner` alone, because nothing below it looks at who asks.
    """
    if local and caller.trust != "partner":
        who = caller.agent or caller.id
        raise Denied(f"{verb} works with files of this machine, and {who} is not a partner", verb=verb)
    if partner and caller.trust != "partner":
        who = caller.agent or caller.id
        raise Denied(
            f"{verb} is for a partner, and {who} is {caller.trust}", hint="it takes a partner", verb=verb
        )
    if not may(caller, effect):
        who = caller.agent or caller.id
        enough = [trust for trust, effects in ALLOWED.items() if effect in effects]
        raise Denied(
            f"{who} is {caller.trust} and may not {effect}, which {verb} does",
            hint=f"it takes {' or '.join(enough)}",
            verb=verb,
            effect=effect,
        )
