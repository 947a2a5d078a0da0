"""Take keys out of what is recorded or shown."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

HIDDEN = "***"

_NAMES = re.compile(
    r"(?i)^(proxy-)?authorization$|api[-_]?key|^x-goog-api-key$|cookie|secret|passw|"
    r"(access|auth|refresh|bearer|session|id)[-_]?token$|^token$|credential"
)
_KEYS = re.compile(
    r"\b(?:sk|pk|rk)-[A-Za-z0-9_-]{8,}"  # Anthropic, OpenAI, OpenRouter
    r"|\bAIza[A-Za-z0-9_-]{20,}"  # Google
    r"|\b(?:gsk|xai|hf|ghp|gho|github_pat)[_-][A-Za-z0-9_]{12,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"  # AWS
    r"|(?i:\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}"
)


def redact(value: Any, secrets: Iterable[str] = ()) -> Any:
    """Return a copy with `***` for keys: by the name of the field, by their look, and the given ones."""
    known = sorted({each for each in secrets if each}, key=len, reverse=True)
    return _redact(value, known)


def _redact(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, HIDDEN)
        return _KEYS.sub(HIDDEN, value)
    if isinstance(value, Mapping):
        return {
            _redact(name, secrets) if isinstance(name, str) else name: HIDDEN
            if isinstance(name, str) and isinstance(each, str) and _NAMES.search(name)
            else _redact(each, secrets)
            for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        return [_redact(each, secrets) for each in value]
    return value
