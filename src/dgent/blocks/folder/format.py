"""The content of a block as the bytes of a file, and back.

The same content always gives the same bytes: a text as it is, everything else as JSON with its keys in order,
so that tools which compare files show what changed and no more.
"""

from __future__ import annotations

import hashlib
import json
import re
import unicodedata
from collections.abc import Collection
from typing import Any
from urllib.parse import unquote_to_bytes

from dgent.blocks.document import render
from dgent.blocks.document.document import Document
from dgent.blocks.document.shape import BODY, Shape
from dgent.errors import InputError

MAX_DEPTH = 16  # steps of a label that become folders and a file
MAX_NAME_BYTES = 160  # of a stem; leaves room for a suffix, and for that of a file set aside
_UNSAFE = re.compile(r'[<>:"/\\|?*%]')
_RESERVED = re.compile(
    r"(con|prn|aux|nul|clock\$|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])(\.|$)", re.IGNORECASE
)


def stem_of(label: str, taken: Collection[str] = ()) -> str:
    """Return the file name for a label, without a suffix; `taken` are normalized names in use."""
    stem = "".join(_escape_unsafe(letter) for letter in label)
    if unicodedata.normalize("NFC", stem) != stem:  # some systems would return the name in another form
        stem = "".join(letter if letter.isascii() else _escape(letter) for letter in stem)
    if stem[0] in ". ~#-" or _RESERVED.match(stem):
        stem = _escape(stem[0]) + stem[1:]
    if stem[-1] in ". ":
        stem = stem[:-1] + _escape(stem[-1])
    if len(stem.encode()) <= MAX_NAME_BYTES and normalize_name(stem) not in taken:
        return stem
    digest = hashlib.sha256(label.encode()).hexdigest()
    cut = _cut(stem, MAX_NAME_BYTES - 9)
    for size in range(8, len(digest)):
        if normalize_name(f"{cut}~{digest[:size]}") not in taken:
            return f"{cut}~{digest[:size]}"
    return f"{cut}~{digest}"


def split_label(label: str) -> list[str]:
    """Return the steps of a label that is a path; any other label is one step, and one file name.

    What could lead out of the folder (`..`, an empty step) never becomes a folder.
    """
    steps = label.split("/")
    return [label] if len(steps) > MAX_DEPTH or not {"", ".", ".."}.isdisjoint(steps) else steps


def folder_stem_of(step: str, taken: Collection[str] = ()) -> str:
    """Return the name of the folder for a step of a label; no file of a block can have it."""
    stem = stem_of(step, taken)
    above, dot, suffix = stem.rpartition(".")
    return f"{above}{_escape('.')}{suffix}" if dot + suffix.lower() in _FILE_SUFFIXES else stem


def label_of_place(place: str) -> str:
    """Return the label for files at a place below the folder of their owner."""
    return "/".join(map(label_of, place.split("/")))


def label_of(stem: str) -> str:
    """Return the label for a file of this name, when nothing else gives one."""
    try:
        return unicodedata.normalize("NFC", unquote_to_bytes(stem).decode())
    except UnicodeDecodeError:
        return unicodedata.normalize("NFC", stem)


def normalize_name(name: str) -> str:
    """Return the form in which two names are equal if some file system treats them as one."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _escape_unsafe(letter: str) -> str:
    """Escape a letter that is invisible or has a meaning in file names."""
    plain = letter == " " or unicodedata.category(letter)[0] not in "CZ"
    return letter if plain and not _UNSAFE.match(letter) else _escape(letter)


def _escape(letter: str) -> str:
    return "".join(f"%{byte:02X}" for byte in letter.encode())


def _cut(stem: str, most: int) -> str:
    """Cut a name to `most` bytes, never within a letter or a %XX."""
    text = stem.encode()[:most].decode(errors="ignore")
    return re.sub(r"%[0-9A-F]?\Z", "", text).rstrip(". ")


MAX_BYTES = 16 * 2**20
TEXT, LINES, JSON = ".md", ".jsonl", ".json"
SUFFIXES = (TEXT, LINES, JSON)
_FILE_SUFFIXES = (*SUFFIXES, ".toml")


def suffix_of(document: str) -> str:
    """Return the file suffix for a kind of document."""
    return {"text": TEXT, "log": LINES}.get(document, JSON)


def is_known(shape: Shape) -> bool:
    """Check whether this version of dgent knows this kind of document."""
    return shape.document == "composite" or shape.document in BODY


def value_of(shape: Shape, document: Document) -> Any:
    """Return the content of a document: a text, fields, items, or a composite's sections."""
    return _bare(shape, render.contents(shape, document))


def _bare(shape: Shape, contents: dict[str, Any]) -> Any:
    if shape.document == "composite":
        return {each.name: _bare(each.shape, contents[each.name]) for each in shape.sections}
    return contents if shape.document == "map" else next(iter(contents.values()))


# -- writing ------------------------------------------------------------------------------------


def encode(suffix: str, value: Any) -> bytes:
    """Return the bytes of a file."""
    if suffix == TEXT:
        return _end_line(value).encode()
    if suffix == LINES:
        return "".join(json.dumps(each, ensure_ascii=False, sort_keys=True) + "\n" for each in value).encode()
    return (json.dumps(value, ensure_ascii=False, sort_keys=True, indent=2) + "\n").encode()


def _end_line(text: str) -> str:
    return text + "\n" if text and not text.endswith("\n") else text


# -- reading ------------------------------------------------------------------------------------


def decode(suffix: str, given: bytes) -> Any:
    """Parse the bytes of a file; InputError names the line that is not valid."""
    text = text_of(given)
    if suffix == TEXT:
        return text
    if suffix == JSON:
        return _json(text, 1)
    return [_json(line, number) for number, line in enumerate(text.split("\n"), 1) if line.strip()]


def text_of(given: bytes) -> str:
    """Decode the text of a file, with any line ends and with or without a byte order mark."""
    try:
        return given.decode("utf-8-sig").replace("\r\n", "\n")
    except UnicodeDecodeError as error:
        line = given.count(b"\n", 0, error.start) + 1
        raise InputError(f"line {line} is not UTF-8", hint="save it as UTF-8", line=line) from None


def adopt_line_end(before: str, text: str) -> str:
    """Return the text of a file with or without a newline at the end, as the block had it before."""
    if before.endswith("\n"):
        return _end_line(text)
    return text[:-1] if text.endswith("\n") else text


def is_same(a: Any, b: Any) -> bool:
    """Check whether two values are equal: 3 and 3.0 are, as tools write either; 1 and true are not."""
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(is_same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple) and isinstance(b, list | tuple):
        return len(a) == len(b) and all(map(is_same, a, b))
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    return bool(a == b)


def is_same_text(before: str, text: str) -> bool:
    """Check whether a file has a block's text, ignoring line ends."""
    return _end_line(before.replace("\r\n", "\n")) == _end_line(text)


def _json(text: str, line: int) -> Any:
    try:
        value = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
        if "\\u" in text:
            json.dumps(value, ensure_ascii=False).encode()  # half of a surrogate pair is a ValueError
        return value
    except json.JSONDecodeError as error:
        at = line + error.lineno - 1
        raise InputError(
            f"line {at} is not valid JSON: {error.msg} at column {error.colno}", line=at
        ) from None
    except InputError as error:
        raise InputError(f"{error.message}, in line {line}" if line > 1 else error.message) from None
    except (ValueError, RecursionError) as error:
        raise InputError(f"line {line} is not JSON that can be stored: {error}"[:200], line=line) from None


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    made = dict(pairs)
    if len(made) < len(pairs):
        names = [name for name, _ in pairs]
        twice = next(name for name in names if names.count(name) > 1)
        raise InputError(f"{twice!r:.80} is there twice in one object")
    return made


def _constant(name: str) -> Any:
    raise InputError(f"{name} is not a number that can be stored")
