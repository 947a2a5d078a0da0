"""The errors of messages, each also a DgentError of its general kind."""

from __future__ import annotations

from dgent.errors import Conflict


class TooSoon(Conflict):
    """Two agents wrote to each other a moment ago; `retry_s` says when they may again."""

    code = "too_soon"


class LeaseLost(Conflict):
    """The lease of a message ended, and somebody else may have it."""

    code = "lease_lost"
