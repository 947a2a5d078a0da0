"""Notes of a record about its imported line, so that an export can write the same line.

A field may have a spelling that a record does not keep: a time in another zone, an unknown state, or none.
Then the note has the value that the field became and its spelling; as long as the record has that value, the
field is exported in that spelling. Unknown fields are in `extra` under their names.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

Written = dict[str, list[Any]]
"""For each field its value here and its spelling; only the former if the line did not have it."""


def make_extra(unknown: Mapping[str, Any], key: str, note: Mapping[str, Any]) -> dict[str, Any]:
    """Return the `extra` of a record: unknown fields, and under a key the note unless it is empty."""
    kept = {name: value for name, value in unknown.items() if name != key}
    stated = {name: value for name, value in note.items() if value}
    if key in unknown:
        stated["hidden"] = {**stated.get("hidden", {}), key: unknown[key]}
    return {**kept, key: stated} if stated else kept


def read_note(extra: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    """Return the note in an `extra` under a key; empty if there is none."""
    found = extra.get(key)
    return found if isinstance(found, dict) else {}


def restore_fields(line: dict[str, Any], written: object) -> dict[str, Any]:
    """Return a line with unchanged fields in their original spelling, or left out as they were."""
    if not isinstance(written, dict):
        return line
    for field, noted in written.items():
        if isinstance(noted, list) and noted and line.get(field) == noted[0]:
            if len(noted) > 1:
                line[field] = noted[1]
            else:
                line.pop(field, None)
    return line
