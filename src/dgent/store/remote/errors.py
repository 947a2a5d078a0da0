"""Errors between a program and a server, and those that a server reports."""

from __future__ import annotations

from typing import Any

import msgspec

from dgent.errors import DgentError, Unsupported


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


class WireError(msgspec.Struct, frozen=True):
    """An error of a server, as JSON."""

    code: str
    error: str
    hint: str = ""
    retryable: bool = False
    details: dict[str, Any] = {}


_error_decoder = msgspec.json.Decoder(WireError)
_by_code: dict[str, type[DgentError]] = {}
MOST_SHOWN = 4_000


def read_error(body: bytes) -> WireError | None:
    """Return the error that a server reports; None if the body is not such a report."""
    try:
        return _error_decoder.decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def make_error(found: WireError, otherwise: type[DgentError]) -> DgentError:
    """Return the error of a server by its code; one that this program does not know as another."""
    kind = _class_of(found.code) or otherwise
    error = kind.__new__(kind)
    details = {name: each for name, each in found.details.items() if name.isidentifier()}
    for name in ("self", "message", "hint"):
        details.pop(name, None)
    DgentError.__init__(error, found.error[:MOST_SHOWN], hint=found.hint[:MOST_SHOWN], **details)
    if error.retryable != found.retryable:
        error.retryable = found.retryable
    return error


def _class_of(code: str) -> type[DgentError] | None:
    if code not in _by_code:
        # Again: rooms load when they are used, and bring errors of their own.
        kinds: list[type[DgentError]] = [DgentError]
        for kind in kinds:
            kinds += kind.__subclasses__()
            _by_code.setdefault(kind.__dict__.get("code", ""), kind)
    return _by_code.get(code)
