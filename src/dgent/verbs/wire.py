"""Encode answers of verbs as JSON; always valid, also for paths and texts that are not Unicode."""

from __future__ import annotations

from typing import Any

import msgspec


def as_json(value: Any) -> bytes:
    """Encode a value as one line of JSON; bytes that are not Unicode, as in file names, are escaped."""
    try:
        return msgspec.json.encode(value)
    except UnicodeEncodeError:
        return msgspec.json.encode(_spell_out(msgspec.to_builtins(value)))


def as_text(value: Any) -> str:
    """Encode a value as JSON text."""
    return as_json(value).decode()


def as_ascii(value: Any) -> str:
    """Encode a value as JSON in ASCII, for a stream of unknown encoding."""
    import json  # only a failure needs it

    return json.dumps(json.loads(as_json(value)))


def _spell_out(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "backslashreplace").decode()
    if isinstance(value, dict):
        return {_spell_out(key): _spell_out(item) for key, item in value.items()}
    return [_spell_out(item) for item in value] if isinstance(value, list) else value
