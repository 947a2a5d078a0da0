"""Read the small part of YAML that the ancestor's settings use: nested maps, lists and plain values.

Anything else, such as anchors, tags, blocks of text or flow maps, is an error that names the line.
"""

from __future__ import annotations

import re
from typing import Any, NamedTuple

from dgent.errors import InputError

MAX_DEPTH = 20
_KEY = re.compile(r"""([\w./-]+|"[^"\\]*"|'[^']*')\s*:(?:\s+(.*))?""")
_WORDS = {"true": True, "false": False, "yes": True, "no": False, "null": None, "~": None, "": None}
_INT, _FLOAT = re.compile(r"[-+]?\d{1,18}"), re.compile(r"[-+]?\d+\.\d*(e[-+]?\d{1,3})?", re.IGNORECASE)


class _Line(NamedTuple):
    number: int
    indent: int
    text: str


def read_yaml(text: str) -> Any:
    """Return the value of a text; InputError names the line that is not understood."""
    lines = [line for line in map(_read_line, enumerate(text.splitlines(), 1)) if line is not None]
    if not lines:
        return {}
    value, end = _read_block(lines, 0, lines[0].indent, 0)
    if end < len(lines):
        raise _error(lines[end], "its indentation fits nothing above")
    return value


def _read_line(numbered: tuple[int, str]) -> _Line | None:
    number, raw = numbered
    text = _strip_comment(raw).rstrip()
    if not text.strip() or text.strip() == "---":
        return None
    body = text.lstrip(" ")
    line = _Line(number, len(text) - len(body), body)
    if body.startswith("\t"):
        raise _error(line, "it is indented with tabs")
    return line


def _strip_comment(text: str) -> str:
    quote = ""
    for at, letter in enumerate(text):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'" and (at == 0 or text[at - 1] in " :-"):
            quote = letter
        elif letter == "#" and (at == 0 or text[at - 1] in " \t"):
            return text[:at]
    return text


def _read_block(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[Any, int]:
    """Return the map or list that begins at a line, and the line after it."""
    if depth > MAX_DEPTH:
        raise _error(lines[at], "it is nested too deeply")
    if lines[at].text == "-" or lines[at].text.startswith("- "):
        return _read_list(lines, at, indent, depth)
    found: dict[str, Any] = {}
    while at < len(lines) and lines[at].indent == indent:
        line = lines[at]
        match = _KEY.fullmatch(line.text)
        if match is None:
            raise _error(line, "expected `key: value`")
        key = match[1].strip("\"'")
        if key in found:
            raise _error(line, f"the key {key!r} is there twice")
        at += 1
        if match[2]:
            found[key] = _read_value(line, match[2])
        elif at < len(lines) and (
            lines[at].indent > indent or (lines[at].indent == indent and lines[at].text.startswith("- "))
        ):
            found[key], at = _read_block(lines, at, lines[at].indent, depth + 1)
        else:
            found[key] = None
    return found, at


def _read_list(lines: list[_Line], at: int, indent: int, depth: int) -> tuple[list[Any], int]:
    found: list[Any] = []
    while at < len(lines) and lines[at].indent == indent and lines[at].text.startswith("-"):
        line = lines[at]
        if _KEY.fullmatch(line.text[1:].strip()):
            raise _error(line, "a list of maps is not supported")
        found.append(_read_value(line, line.text[1:].strip()))
        at += 1
    return found, at


def _read_value(line: _Line, text: str) -> Any:
    text = text.strip()
    if len(text) >= 2 and text[0] == text[-1] and text[0] in "\"'":
        inner = text[1:-1]
        if text[0] == '"' and "\\" in inner:
            raise _error(line, "escapes in quotes are not supported")
        return inner
    if text.startswith("[") and text.endswith("]"):
        inner = text[1:-1].strip()
        return [_read_value(line, each) for each in inner.split(",")] if inner else []
    if text[:1] in ("&", "*", "!", "|", ">", "{", "[", "%", "@", "`"):
        raise _error(line, f"{text[:20]!r} is more than the plain values that are supported")
    if text.lower() in _WORDS:
        return _WORDS[text.lower()]
    if _INT.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text


def _error(line: _Line, reason: str) -> InputError:
    return InputError(f"line {line.number} of the YAML: {reason}", hint="write the settings as TOML by hand")
