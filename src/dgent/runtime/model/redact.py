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
    r"|\b(?:gsk_|gsk-|xai_|xai-|hf_|hf-|ghp_|gho_|github_pat_)[A-Za-z0-9_]{12,}"
    r"|\b(?:AKIA|ASIA)[A-Z0-9]{16}\b"  # AWS
    r"|(?i:\bbearer\s+)[A-Za-z0-9._~+/=-]{8,}"
)
# A password in a URL, and fields in the JSON, the headers or the settings that a text quotes.
_URLS = re.compile(r"\b([A-Za-z][A-Za-z0-9+.-]{0,30}://[^\s/?#@:]{0,100}):[^\s/@]{1,200}@")
_FIELDS = re.compile(
    r"(?i)((?:api[-_]?key|authorization|passw(?:or)?d|secret|access[-_]?token|cookie)[\"']?\s{0,3}[:=]\s{0,3})"
    r"(\"[^\"\n]{1,500}\"|'[^'\n]{1,500}'|(?:basic\s+)?[^\s\"',;}&]{6,500})"
)

# Searched first, since looking for a plain text is a hundred times faster than for a pattern.
_KEY_SIGNS = (
    *("sk-", "pk-", "rk-", "aiza", "gsk_", "gsk-", "xai_", "xai-", "hf_", "hf-", "ghp_", "gho_"),
    *("github_pat", "akia", "asia", "bearer"),
)
_FIELD_SIGNS = ("key", "authorization", "passw", "secret", "token", "cookie")


def redact(value: Any, secrets: Iterable[str] = ()) -> Any:
    """Return a copy with `***` for keys: by the name of the field, by their look, and the given ones."""
    known = sorted({each for each in secrets if each}, key=len, reverse=True)
    return _redact(value, known)


def _redact(value: Any, secrets: list[str]) -> Any:
    if isinstance(value, str):
        for secret in secrets:
            value = value.replace(secret, HIDDEN)
        return _redact_text(value)
    if isinstance(value, Mapping):
        return {
            _redact(name, secrets): HIDDEN if _is_secret(name, each) else _redact(each, secrets)
            for name, each in value.items()
        }
    if isinstance(value, list | tuple):
        if len(value) == 2 and _is_secret(*value):  # a header as a pair
            return [value[0], HIDDEN]
        return [_redact(each, secrets) for each in value]
    return value


def _redact_text(text: str) -> str:
    if len(text) < 8:  # no key is that short
        return text
    small = text.lower()
    if any(sign in small for sign in _KEY_SIGNS):
        text = _KEYS.sub(HIDDEN, text)
    if any(sign in small for sign in _FIELD_SIGNS):
        text = _FIELDS.sub(rf"\1{HIDDEN}", text)
    return _URLS.sub(rf"\1:{HIDDEN}@", text) if "://" in text and "@" in text else text


def _is_secret(name: object, value: object) -> bool:
    """Return whether a field has a key by its name. A map may be the schema of one, and is looked through."""
    return (
        isinstance(name, str | bytes)
        and isinstance(value, str | bytes | list | tuple)
        and _NAMES.search(name if isinstance(name, str) else name.decode("latin-1")) is not None
    )
