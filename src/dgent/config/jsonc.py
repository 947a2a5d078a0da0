"""JSON as editors write it, with comments and commas at the end: one value set or removed, all else kept."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

MAX_DEPTH = 200
INDENT = "  "  # where the text shows no other

_SPACE = re.compile(r"(?:[ \t\r\n]+|//[^\n]*|/\*.*?\*/)*", re.DOTALL)
_COMMENTS = re.compile(r"(?:[ \t]*(?://[^\r\n]*|/\*.*?\*/))*", re.DOTALL)
_ENDS_LINE = re.compile(r"[ \t]*(?://[^\n]*|/\*(?:(?!\*/)[^\n])*\*/[ \t]*)?(?:\r?\n|\Z)")
_BLANK = " \t\r\n"
_STRING = re.compile(r'"(?:[^"\\\x00-\x1f]|\\.)*"')
_WORD = re.compile(r"-?(?:0|[1-9][0-9]*)(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?(?![\w.+-])|(?:true|false|null)\b")


class JsoncError(ValueError):
    """A text that is not JSON with comments, or cannot be changed; `line` is where."""

    def __init__(self, reason: str, line: int) -> None:
        super().__init__(reason)
        self.line = line


class Node(NamedTuple):
    """A value and its place in the text; of an object also its members."""

    start: int
    end: int
    value: Any
    members: tuple[Member, ...] = ()


class Member(NamedTuple):
    """A key of an object at its place, its value, and the end of the comma behind it, or None."""

    start: int
    key: str
    node: Node
    comma: int | None


def parse(text: str) -> Node | None:
    """Return the value of a text, None if there is only space and comments; JsoncError names the line."""
    reader = _Reader(text)
    at = reader.skip(1 if text.startswith("\ufeff") else 0)
    if at == len(text):
        return None
    node = reader.read(at, 0)
    rest = reader.skip(node.end)
    if rest != len(text):
        raise reader.fault("expected the end of the file", rest)
    return node


class _Reader:
    def __init__(self, text: str) -> None:
        self._text = text

    def fault(self, reason: str, at: int) -> JsoncError:
        return JsoncError(reason, _line(self._text, at))

    def skip(self, at: int) -> int:
        found = _SPACE.match(self._text, at)
        assert found is not None
        if self._text.startswith("/*", found.end()):
            raise self.fault("a comment does not end", found.end())
        return found.end()

    def read(self, at: int, depth: int) -> Node:
        if depth > MAX_DEPTH:
            raise self.fault("nested too deeply", at)
        first = self._text[at : at + 1]
        if first == "{":
            return self._object(at, depth)
        if first == "[":
            return self._array(at, depth)
        found = (_STRING if first == '"' else _WORD).match(self._text, at)
        if found is None:
            raise self.fault("expected a value", at)
        try:
            return Node(at, found.end(), json.loads(found[0]))
        except ValueError:  # a wrong escape, or a number with too many digits
            raise self.fault("expected a value", at) from None

    def _object(self, start: int, depth: int) -> Node:
        members: list[Member] = []
        at = self.skip(start + 1)
        while self._text[at : at + 1] != "}":
            if members and members[-1].comma is None:
                raise self.fault("expected a comma or a closing brace", at)
            if self._text[at : at + 1] != '"':
                raise self.fault("expected a key in quotes", at)
            key = self.read(at, depth)
            colon = self.skip(key.end)
            if self._text[colon : colon + 1] != ":":
                raise self.fault("expected a colon", colon)
            node = self.read(self.skip(colon + 1), depth + 1)
            behind = self.skip(node.end)
            comma = behind + 1 if self._text[behind : behind + 1] == "," else None
            members.append(Member(at, key.value, node, comma))
            at = self.skip(comma or node.end)
        value = {member.key: member.node.value for member in members}
        return Node(start, at + 1, value, tuple(members))

    def _array(self, start: int, depth: int) -> Node:
        items: list[Any] = []
        at, parted = self.skip(start + 1), True
        while self._text[at : at + 1] != "]":
            if not parted:
                raise self.fault("expected a comma or a closing bracket", at)
            node = self.read(at, depth + 1)
            items.append(node.value)
            at = self.skip(node.end)
            parted = self._text[at : at + 1] == ","
            at = self.skip(at + 1) if parted else at
        return Node(start, at + 1, items)


def find(text: str, path: Sequence[str]) -> Node | None:
    """Return the value at a path of keys, None if there is none; JsoncError if the way is not of objects."""
    *_, last = _walk(text, path)
    return last


def set_value(text: str, path: Sequence[str], value: Any) -> str:
    """Return the text with a value at a path of keys; objects on the way are made."""
    nodes = list(_walk(text, path))
    if nodes[-1] is not None:
        node = nodes[-1]
        if _same(node.value, value):
            return text
        indent = _indent_at(text, node.start)
        return text[: node.start] + _write(text, value, indent, "\n" in text) + text[node.end :]
    known = [node for node in nodes if node is not None]
    for key in reversed(path[len(known) :]):
        value = {key: value}
    if not known:
        newline = _newline(text)
        before = newline if text.strip("\ufeff \t\r\n") and not text.endswith("\n") else ""
        return text + before + _write(text, value, "", True) + newline
    return _insert(text, known[-1], path[len(known) - 1], value)


def remove(text: str, path: Sequence[str]) -> str:
    """Return the text without the value at a path of keys; the objects around it stay."""
    *_, above, node = (None, *_walk(text, path))
    if node is None or above is None:
        return text
    index = next(i for i, member in enumerate(above.members) if member.node is node)
    member = above.members[index]
    before = above.members[index - 1] if index else None
    end = member.comma or member.node.end
    start = len(text[: member.start].rstrip(_BLANK))
    lines = "\n" in text[start : member.start]
    if lines:
        start = text.rindex("\n", start, member.start)
        start -= text[start - 1] == "\r"
        if not _ENDS_LINE.match(text, end):
            start = member.start  # the line break may end a comment
    if member.comma is None and before is not None and before.comma is not None:
        comma = before.comma - 1
        return text[:comma] + text[comma + 1 : start] + text[end:]
    if _ENDS_LINE.match(text, end) if lines else before is not None:
        return text[:start] + text[end:]
    while text[end : end + 1] in (" ", "\t"):
        end += 1
    return text[: member.start] + text[end:]


# -- places in the text ---------------------------------------------------------------------------


def _walk(text: str, path: Sequence[str]) -> Iterator[Node | None]:
    """Yield the root, and the value at each key of the path; None, and no more, where there is none."""
    node = parse(text)
    yield node
    for depth, key in enumerate(path):
        if node is None:
            return
        if not isinstance(node.value, dict):
            name = ".".join(path[:depth]) or "the file"
            raise JsoncError(f"{name} is not an object", _line(text, node.start))
        found = [member.node for member in node.members if member.key == key]
        if len(found) > 1:
            raise JsoncError(f"{'.'.join(path[: depth + 1])} is there twice", _line(text, found[1].start))
        node = found[0] if found else None
        yield node


def _insert(text: str, above: Node, key: str, value: Any) -> str:
    """Return the text with a member behind the last one of an object."""
    name, newline = json.dumps(key, ensure_ascii=False), _newline(text)
    if not above.members:
        outer = _indent_at(text, above.start)
        inner = outer + _unit(text)
        inside = text[: above.end - 1]
        kept = max(len(inside.rstrip(_BLANK)), above.start + 1)
        close = inside[kept:] if "\n" in inside[kept:] else newline + outer
        made = f"{newline}{inner}{name}: {_write(text, value, inner, True)}{close}"
        return text[:kept] + made + text[above.end - 1 :]
    last = above.members[-1]
    if "\n" not in text[above.start : last.start]:
        made = f"{name}: {json.dumps(value, ensure_ascii=False)}"
        if last.comma is not None:
            return f"{text[: last.comma]} {made},{text[last.comma :]}"
        return f"{text[: last.node.end]}, {made}{text[last.node.end :]}"
    inner = _indent_at(text, last.start)
    made = f"{newline}{inner}{name}: {_write(text, value, inner, True)}"
    at = _end_of_line(text, last.comma or last.node.end, above.end - 1)
    if last.comma is not None:
        return text[:at] + made + "," + text[at:]
    return text[: last.node.end] + "," + text[last.node.end : at] + made + text[at:]


def _end_of_line(text: str, at: int, most: int) -> int:
    """Return the end of the comments on the line of a place, or the place itself."""
    found = _COMMENTS.match(text, at, most)
    assert found is not None
    return found.end()


def _line(text: str, at: int) -> int:
    return text.count("\n", 0, at) + 1


def _indent_at(text: str, at: int) -> str:
    start = text.rfind("\n", 0, at) + 1
    line = text[start:at].removeprefix("\ufeff")
    return line[: len(line) - len(line.lstrip(" \t"))]


def _unit(text: str) -> str:
    found = re.search(r"\n([ \t]+)\"", text)
    return found[1] if found else INDENT


def _newline(text: str) -> str:
    return "\r\n" if "\r\n" in text else "\n"


def _write(text: str, value: Any, indent: str, lines: bool) -> str:
    written = json.dumps(value, ensure_ascii=False, indent=_unit(text) if lines else None)
    return written.replace("\n", _newline(text) + indent)


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one) == json.dumps(other)
