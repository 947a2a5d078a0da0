"""Who calls, how far they are trusted, and what that lets them do."""

from __future__ import annotations

from typing import Literal

import msgspec

from dgent.errors import Denied, InputError

Trust = Literal["partner", "friend", "conversant", "untrusted"]
Effect = Literal["help", "read", "append", "write", "destroy"]
"""What a verb does to what is there: append only adds records, destroy cannot be undone."""

ALLOWED: dict[Trust, frozenset[Effect]] = {
    "partner": frozenset(("help", "read", "append", "write", "destroy")),
    "friend": frozenset(("help", "read", "append", "write")),
    "conversant": frozenset(("help", "read", "append")),
    "untrusted": frozenset(("help",)),
}


class Caller(msgspec.Struct, frozen=True):
    """A caller as a door stamps it: which connection, which agent, how far trusted."""

    id: str
    agent: str | None = None
    trust: Trust = "untrusted"

    def __post_init__(self) -> None:
        if not isinstance(self.trust, str) or self.trust not in ALLOWED:
            known = ", ".join(ALLOWED)
            raise InputError(f"{self.trust!r} is no trust", hint=f"use one of {known}", field="trust")


HERE = Caller("here", None, "partner")
"""The program itself, or whoever sits at its terminal."""


def may(caller: Caller, effect: Effect) -> bool:
    """Whether a caller may do something with this effect."""
    return effect in ALLOWED[caller.trust]


def check(caller: Caller, verb: str, effect: Effect, local: bool = False) -> None:
    """Refuse what the caller's trust does not cover.

    What works with this machine's files and modules is for partners, whatever its effect on the store.
    """
    if local and caller.trust != "partner":
        who = caller.agent or caller.id
        raise Denied(f"{verb} works with files of this machine, and {who} is no partner", verb=verb)
    if not may(caller, effect):
        who = caller.agent or caller.id
        enough = [trust for trust, effects in ALLOWED.items() if effect in effects]
        raise Denied(
            f"{who} is {caller.trust} and may not {effect}, which {verb} does",
            hint=f"it takes {' or '.join(enough)}",
            verb=verb,
            effect=effect,
        )
