"""Answers as JSON for programs: always valid, whatever bytes a path or a text was made of."""

from __future__ import annotations

from typing import Any

import msgspec


def as_json(value: Any) -> bytes:
    """One line of JSON; what is not Unicode, such as the name of an odd file, is spelled out."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_spelled(msgspec.to_builtins(value)))


def as_text(value: Any) -> str:
    """The same as text, to stand in a line for people."""
    return as_json(value).decode()


def as_ascii(value: Any) -> str:
    """The same in ASCII, for a stream of unknown encoding."""
    import json  # only a failure needs it

    return json.dumps(json.loads(as_json(value)))


def _spelled(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_spelled(key): _spelled(item) for key, item in value.items()}
    return [_spelled(item) for item in value] if isinstance(value, list) else value
