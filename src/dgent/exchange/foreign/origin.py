"""What a record remembers of the line it came from, so that the line can be written again.

A field may be written in a way that a record does not keep: a time in another zone, a state that nobody
knows, nothing at all. Then the record notes what the field became and how it was written; as long as the
record still says what it became, the field is written as it was. Fields that are unknown here stay in
`extra` under their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Written = dict[str, list[Any]]
"""For each field what became of it, and how it was written; only the former when it was not there."""


def make_extra(unknown: Mapping[str, Any], key: str, note: Mapping[str, Any]) -> dict[str, Any]:
    """The `extra` of a record: unknown fields, and under a key what is noted, if that is anything."""
    kept = {name: value for name, value in unknown.items() if name != key}
    told = {name: value for name, value in note.items() if value}
    if key in unknown:
        told["hidden"] = {**told.get("hidden", {}), key: unknown[key]}
    return {**kept, key: told} if told else kept


def read_note(extra: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """What is noted in an `extra` under a key."""
    found = extra.get(key)
    return found if isinstance(found, dict) else {}


def restore_fields(line: dict[str, Any], written: object) -> dict[str, Any]:
    """A line with the fields that did not change since as they were written, or left out as they were."""
    if not isinstance(written, dict):
        return line
    for field, noted in written.items():
        if isinstance(noted, list) and noted and line.get(field) == noted[0]:
            if len(noted) > 1:
                line[field] = noted[1]
            else:
                line.pop(field, None)
    return line
