"""Plain values: texts, numbers, lists and maps, as a document can hold them."""

from __future__ import annotations

from typing import Any

from dgent.errors import InputError

MAX_DEPTH = 64  # of lists and maps in each other


def plain(value: Any, depth: int = 0) -> Any:
    """A value as a document can hold it, or what is wrong with it."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return check_unicode(value)
    if isinstance(value, int):
        if not -(2**63) <= value < 2**63:
            raise InputError("the number does not fit into 64 bits")
        return value
    if isinstance(value, float):
        if value != value or value in (float("inf"), float("-inf")):
            raise InputError(f"{value} is no number that can be kept")
        return value
    if depth == MAX_DEPTH:
        raise InputError(f"lists and maps are nested at most {MAX_DEPTH} deep")
    if isinstance(value, list | tuple):
        return [plain(each, depth + 1) for each in value]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {check_unicode(key): plain(each, depth + 1) for key, each in value.items()}
    raise InputError(f"a document holds texts, numbers, lists and maps, not a {type(value).__name__}")


def check_unicode(text: str) -> str:
    """A text that can be stored, or InputError."""
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InputError("the text is not valid Unicode") from None
    return text
