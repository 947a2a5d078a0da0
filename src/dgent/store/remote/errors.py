"""What goes wrong between a program and a server, and never reaches the caller as such."""

from __future__ import annotations

from dgent.errors import Unsupported


class Broken(Exception):
    """A connection failed; `sent` is False where the server cannot have got the request."""

    def __init__(self, reason: str, sent: bool) -> None:
        super().__init__(reason)
        self.reason, self.sent = reason, sent


class Garbled(Exception):
    """An answer is not HTTP, or is larger than can be."""


class CannotSee(Unsupported):
    """A server cannot compare a record as the caller sees it; the caller can."""

    code = "cannot_see"
    hint = "run `upgrade_all` where the store is"
