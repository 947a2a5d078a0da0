"""Answers over HTTP: the JSON that the command line writes with `--json`, and what an error is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from starlette.responses import Response

from dgent.config.secret import mask
from dgent.errors import DgentError, VersionConflict
from dgent.verbs.outcome import outcome_of
from dgent.verbs.wire import as_json

HEADERS = {
    "Cache-Control": "no-store",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Resource-Policy": "same-origin",
}
JSON = "application/json"


def answer(found: Any, status: int = 200, headers: Mapping[str, str] = {}) -> Response:
    """Return what a verb found."""
    body = as_json({"ok": True, "data": found})
    return Response(body, status, {**HEADERS, **headers}, JSON)


def refuse(status: int, code: str, message: str, hint: str = "", **headers: str) -> Response:
    """Return an answer that says what was wrong with a request."""
    body = as_json(
        {"ok": False, "code": code, "error": mask(message), "hint": mask(hint), "retryable": False}
    )
    return Response(body, status, {**HEADERS, **headers}, JSON)


def report(error: DgentError, conditional: bool = False) -> Response:
    """Return an error of a verb; `conditional` when the request named the version that it wants."""
    status = outcome_of(error).http
    if conditional and isinstance(error, VersionConflict):
        status = 412
    body = {
        "ok": False,
        "code": error.code,
        "error": mask(error.message),
        "hint": mask(error.hint),
        "retryable": error.retryable,
    }
    headers = {"Retry-After": "1"} if status == 503 else {}
    return Response(as_json(body), status, {**HEADERS, **headers}, JSON)
