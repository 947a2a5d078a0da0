"""The published schema, where `make conformance` has brought it: it refuses what does not fit."""

from __future__ import annotations

from typing import Any

import pytest
from jsonschema import ValidationError

from tests.acp import conformance
from tests.mcp.known_gaps import skip

CHUNK = {"sessionUpdate": "agent_message_chunk", "content": {"type": "text", "text": "x"}}


@pytest.mark.parametrize(
    ("method", "given", "answer"),
    [
        ("session/update", {"sessionId": "s", "update": {**CHUNK, "sessionUpdate": "odd"}}, False),
        ("session/update", {"sessionId": "s", "update": {**CHUNK, "content": {"type": "text"}}}, False),
        ("session/update", {"update": CHUNK}, False),
        ("session/prompt", {"stopReason": "bored"}, True),
        ("session/new", {}, True),
        ("session/odd", {}, True),
    ],
)
def test_what_does_not_fit_is_refused(method: str, given: Any, answer: bool) -> None:
    if conformance.load_schema() is None:
        skip("conformance")
    conformance.check("session/update", {"sessionId": "s", "update": CHUNK})
    with pytest.raises((KeyError, ValidationError)):
        conformance.check(method, given, answer=answer)
