"""Spans of time as people write them: `90s`, `15m`, `12h`, `14d`, `2w`."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Any

UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}
_SPAN = re.compile(r"([0-9]{1,9})([smhdw])")


def parse(given: Any) -> timedelta | None:
    """Return the span of a text, of a number of seconds, or of a timedelta; None if it is not one."""
    if isinstance(given, timedelta):
        return given
    try:
        if isinstance(given, str):
            found = _SPAN.fullmatch(given)
            return None if found is None else timedelta(**{UNITS[found[2]]: int(found[1])})
        number = isinstance(given, int | float) and not isinstance(given, bool)
        return timedelta(seconds=given) if number else None
    except (OverflowError, ValueError):
        return None
