"""Editing JSON with comments: the value is set or removed, and every other character stays."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgent.config import jsonc

KEYS = ("servers", "dgent")
ENTRY = {"command": "/bin/dgent", "args": ["mcp", 'a "b"', "ü"]}

SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.sampled_from(["", "//", "/*", 'q"', "\\", "ä"])
NAMES = st.sampled_from(["a", "servers", "//x", "k\\", "dgent-2", "ключ"])
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(NAMES, inner, max_size=3),
    max_leaves=8,
)
SPACE = st.sampled_from(["", " ", "\n", "\n  ", "\t", " // one, } \n", "/* two, { */", "\n\n    /* \n */ "])


@st.composite
def texts(draw: st.DrawFn, value: Any) -> str:
    """A value as somebody might write it, with spaces, comments and commas at the end."""

    def put(value: Any) -> str:
        if not isinstance(value, dict | list):
            return json.dumps(value, ensure_ascii=draw(st.booleans()))
        pairs = isinstance(value, dict)
        parts = [
            gap()
            + (json.dumps(each) + gap() + ":" + gap() + put(value[each]) if pairs else put(each))
            + gap()
            for each in value
        ]
        comma = "," if parts and draw(st.booleans()) else ""
        opening, closing = "{}" if pairs else "[]"
        return opening + ",".join(parts) + comma + gap() + closing

    def gap() -> str:
        return draw(SPACE)

    return gap() + put(value) + gap()


def comments(text: str) -> list[str]:
    found = re.finditer(r'"(?:[^"\\]|\\.)*"|(//[^\n]*|/\*.*?\*/)', text, re.DOTALL)
    return [match[1].strip() for match in found if match[1]]


@given(st.data(), VALUES)
def test_every_text_is_read(data: st.DataObject, value: Any) -> None:
    node = jsonc.parse(data.draw(texts(value)))
    assert node is not None and node.value == value


@given(st.data(), st.dictionaries(NAMES, VALUES, max_size=3), st.dictionaries(NAMES, VALUES, max_size=3))
def test_set_and_remove(data: st.DataObject, outer: dict[str, Any], inner: dict[str, Any]) -> None:
    """The value is there and nothing else changed; removed again, the same text is left but for spaces."""
    before = {**outer, "servers": inner}
    text = data.draw(texts(before))
    new = jsonc.set_value(text, KEYS, ENTRY)
    node = jsonc.parse(new)
    assert node is not None and node.value == {**before, "servers": {**inner, "dgent": ENTRY}}
    assert jsonc.set_value(new, KEYS, ENTRY) == new
    assert sorted(comments(new)) == sorted(comments(text))
    back = jsonc.remove(new, KEYS)
    if inner:
        assert "".join(back.split()) == "".join(text.split())
    else:
        node = jsonc.parse(back)
        assert node is not None and node.value == before and sorted(comments(back)) == sorted(comments(text))


@given(st.data(), st.dictionaries(NAMES, VALUES, min_size=1, max_size=4))
def test_remove_any(data: st.DataObject, value: dict[str, Any]) -> None:
    text = data.draw(texts(value))
    key = data.draw(st.sampled_from(sorted(value)))
    node = jsonc.parse(jsonc.remove(text, (key,)))
    assert node is not None and node.value == {name: each for name, each in value.items() if name != key}


def test_a_comment_keeps_the_end_of_its_line() -> None:
    assert jsonc.remove('{"a": 1, // one\n"b": 2}', ("b",)) == '{"a": 1 // one\n}'


@given(st.text(alphabet='{}[]",:/*\\ \n1a-e.tru', max_size=30))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        node = jsonc.parse(text)
    except jsonc.JsoncError as error:
        assert 1 <= error.line <= text.count("\n") + 1
        with pytest.raises(ValueError):
            json.loads(text)
    else:
        try:
            strict = json.loads(text)
        except ValueError:
            return
        assert node is not None and node.value == strict


@pytest.mark.parametrize(
    ("text", "new"),
    [
        ("", '{\n  "servers": {\n    "dgent": 1\n  }\n}\n'),
        ("// mine\n", '// mine\n{\n  "servers": {\n    "dgent": 1\n  }\n}\n'),
        ("{}", '{\n  "servers": {\n    "dgent": 1\n  }\n}'),
        ('{"a": 1}\n', '{"a": 1, "servers": {"dgent": 1}}\n'),
        ('{\n    "servers": {} // none\n}', '{\n    "servers": {\n        "dgent": 1\n    } // none\n}'),
        (
            '{\r\n\t"servers": {\r\n\t\t"x": 2, // two\r\n\t}\r\n}',
            '{\r\n\t"servers": {\r\n\t\t"x": 2, // two\r\n\t\t"dgent": 1,\r\n\t}\r\n}',
        ),
        (
            '{\n  "servers": {\n    "x": 2 // two\n    // the end\n  }\n}',
            '{\n  "servers": {\n    "x": 2, // two\n    "dgent": 1\n    // the end\n  }\n}',
        ),
        ('{"servers": {"dgent": [1, 2] /* was */}}', '{"servers": {"dgent": 1 /* was */}}'),
    ],
)
def test_the_new_lines_look_like_the_old(text: str, new: str) -> None:
    assert jsonc.set_value(text, KEYS, 1) == new
    assert jsonc.set_value("\ufeff" + text, KEYS, 1) == "\ufeff" + new
    if '"x": 2' in text:
        assert jsonc.remove(new, KEYS) == text


@pytest.mark.parametrize(
    ("text", "reason", "line"),
    [
        ('{\n"a": 1\n"b": 2}', "comma", 3),
        ("{\n a: 1}", "key in quotes", 2),
        ("{\n/* never", "does not end", 2),
        ('{"a": NaN}', "a value", 1),
        ('{"a": 01}', "a value", 1),
        ('{"a": "\n"}', "a value", 1),
        ('{"a": 1}\n{}', "the end of the file", 2),
        ('{\n"servers": 3}', "servers is not an object", 2),
        ("[1]", "the file is not an object", 1),
        ('{"servers": {},\n"servers": {}}', "servers is there twice", 2),
        ("[" * 1000, "nested too deeply", 1),
        ('{"a": ' + "9" * 10_000 + "}", "a value", 1),
    ],
)
def test_what_is_not_understood_is_refused(text: str, reason: str, line: int) -> None:
    with pytest.raises(jsonc.JsoncError, match=reason) as caught:
        jsonc.set_value(text, KEYS, 1)
    assert caught.value.line == line
