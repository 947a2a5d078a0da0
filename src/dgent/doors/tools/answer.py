"""Answers of tools: whether it was done, a sentence about it, and data that are bounded in size."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

import msgspec

from dgent.errors import DgentError

MOST_TEXT = 20_000  # characters of a text, and of all long texts of an answer together
MOST_IN_ROW = 1_000  # characters of one text in a row of a list
ALWAYS = 512  # a text of so many characters is never cut: an id must stay whole
MOST_NESTED = 100  # items of a list inside an answer
MOST_MESSAGE = 2_000
MOST_ANSWER = 100_000  # bytes of JSON
Answer = dict[str, Any]
_NUMBERS = (bool, int, float)


class AnswerPart(NamedTuple):
    """The part of a long answer that is shown, and whether a call with another offset shows the rest.

    `limit` is set where the verb itself left out the rest.
    """

    offset: int = 0
    rows: int = 50
    limit: int | None = None
    resumes: bool = True


def refuse(error: DgentError, hint: str) -> Answer:
    """Return the answer for what was not done: why, and what would help."""
    data = {"code": error.code, "hint": _shorten(hint), "retryable": error.retryable}
    return {"ok": False, "message": _shorten(error.message), "data": data}


def report(result: Any, part: AnswerPart, translate: Callable[[str], str]) -> Answer:
    """Return the answer for what a verb gave, with how to get the rest of what is too long.

    `translate` puts what the verb explains into the language of tools.
    """
    data = msgspec.json.decode(msgspec.json.encode(result))  # plain JSON, as at every other door
    message, explain = _sentence(data), data.pop("explain", "")
    notes: list[str] = []
    if isinstance(data.get("items"), list):
        notes += _take_rows(data, part)
        message = _count_sentence(data["items"], translate(explain))
    text = data.pop("text", None)
    text = text if isinstance(text, str) else None
    notes += _leave_out_long(data, text)
    if text is not None:
        notes += _text_note(text, part.offset)
        text = text[part.offset :][:MOST_TEXT]
    for always in (ALWAYS, ALWAYS // 8):
        space = TextSpace(always)
        shown = {name: space.cut(each) for name, each in data.items()}
        shown |= {} if text is None else {"text": text}
        if len(msgspec.json.encode(shown)) <= MOST_ANSWER:
            notes += ["long parts are cut, which … marks"] if space.was_cut else []
            return {"ok": True, "message": _shorten("; ".join([message, *notes])), "data": shown}
    return {"ok": True, "message": f"{message}; the data are too long to show", "data": None}


def _leave_out_long(data: dict[str, Any], text: str | None) -> list[str]:
    """Remove the value and the changes that the text has already, or that are too long; notes name those."""
    if text is not None and list(data.get("value", {}).values()) == [text]:
        del data["value"]  # a text has no other value
    notes = []
    for name in ("value", "changes"):
        if name in data and len(msgspec.json.encode(data[name])) > MOST_TEXT:
            del data[name]
            notes.append(f"{name} is too long to show")
    return notes


def _count_sentence(items: list[Any], explain: str) -> str:
    if items:
        return f"{len(items)} found"
    return f"nothing found: {explain}" if explain else "nothing found"


def _sentence(data: dict[str, Any]) -> str:
    version = data.get("version")
    number = version.get("version") if isinstance(version, dict) else version
    return f"{data['label']!r} is at version {number}" if "label" in data and number else "done"


def _take_rows(data: dict[str, Any], part: AnswerPart) -> list[str]:
    """Keep the rows that are shown; a note says how to go on, or how many there are."""
    whole = data["items"]
    if part.limit is None:
        data["items"] = whole[part.offset :][: part.rows]
    shown, end = data["items"], part.offset + len(data["items"])
    total = data.get("total", len(whole))
    more = end < total if part.limit is None or "total" in data else part.resumes and len(shown) >= part.limit
    return [f"go on with offset={end}" if part.resumes else f"{total} in all"] if more and shown else []


def _text_note(text: str, offset: int) -> list[str]:
    first, end = min(offset, len(text)), min(offset + MOST_TEXT, len(text))
    if not first and end == len(text):
        return []
    note = f"characters {first} to {end} of {len(text)}"
    return [note + f"; go on with offset={end}" if end < len(text) else note]


class TextSpace:
    """The space that an answer has for long texts."""

    def __init__(self, always: int) -> None:
        self.left, self.always = MOST_TEXT, always  # shorter texts are never cut
        self.was_cut = False

    def cut(self, value: Any, in_list: bool = False) -> Any:
        """Return a value with its texts and lists cut to the space that is left."""
        if isinstance(value, str):
            if len(value) <= self.always:
                return value
            most = max(min(self.left, MOST_IN_ROW if in_list else MOST_TEXT), self.always)
            self.left -= min(len(value), most)
            self.was_cut = self.was_cut or len(value) > most
            return value if len(value) <= most else value[: most - 1] + "…"
        if isinstance(value, dict):
            always = self.always
            # Most values are short texts and numbers, which are not worth a call each.
            return {
                key: each
                if (type(each) is str and len(each) <= always) or each is None or type(each) in _NUMBERS
                else self.cut(each, in_list)
                for key, each in value.items()
            }
        if isinstance(value, list):
            most = MOST_NESTED if in_list else MOST_NESTED * 2
            self.was_cut = self.was_cut or len(value) > most
            return [each if type(each) in _NUMBERS else self.cut(each, True) for each in value[:most]]
        return value


def _shorten(message: str) -> str:
    whole = message.encode("utf-8", "backslashreplace").decode()
    return whole if len(whole) <= MOST_MESSAGE else whole[: MOST_MESSAGE - 1] + "…"
