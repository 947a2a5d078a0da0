"""Plain values: texts, numbers, lists and maps, as a document can hold them."""

from __future__ import annotations

import math
from typing import Any

from dgent.errors import InputError

MAX_DEPTH = 64  # of nested lists and maps


def check_plain(value: Any, depth: int = 0) -> Any:
    """Return a value as a document can hold it, or raise InputError."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return check_unicode(value)
    if isinstance(value, int | float):
        return _check_number(value)
    if depth == MAX_DEPTH:
        raise InputError(f"lists and maps are nested at most {MAX_DEPTH} deep")
    if isinstance(value, list | tuple):
        return [check_plain(each, depth + 1) for each in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {check_unicode(key): check_plain(each, depth + 1) for key, each in value.items()}
    raise InputError(f"a document holds texts, numbers, lists and maps, not a {type(value).__name__}")


def _check_number(value: float) -> float:
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise InputError("the number does not fit into 64 bits")
    elif not math.isfinite(value):
        raise InputError(f"{value} is not a number that can be stored")
    return value


def check_unicode(text: str) -> str:
    """Return a text that can be stored, or raise InputError."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError("the text is not valid Unicode") from None
    return text


def check_text(value: object) -> str:
    """Return a text that can be stored, or raise InputError."""
    if not isinstance(value, str):
        raise InputError(f"expected text, got a {type(value).__name__}")
    return check_unicode(value)
