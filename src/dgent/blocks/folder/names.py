"""File names of labels: safe on every system, and two labels never share one.

What a file name cannot hold is written as %XX. Names are compared as the pickiest system does: without regard
to case, and to how an accent is composed.
"""

from __future__ import annotations

import hashlib
import re
import unicodedata
from collections.abc import Collection
from urllib.parse import unquote_to_bytes

MAX_BYTES = 160  # of a stem: there must be room for a suffix, and for that of a file kept aside
_UNSAFE = re.compile(r'[<>:"/\\|?*%]')
_RESERVED = re.compile(
    r"(con|prn|aux|nul|clock\$|conin\$|conout\$|com[0-9¹²³]|lpt[0-9¹²³])(\.|$)", re.IGNORECASE
)


def stem_of(label: str, taken: Collection[str] = ()) -> str:
    """The file name of a label, without a suffix; `taken` are those in use, folded."""
    stem = "".join(_written(letter) for letter in label)
    if unicodedata.normalize("NFC", stem) != stem:  # some systems would give the name back in another form
        stem = "".join(letter if letter.isascii() else _escaped(letter) for letter in stem)
    if stem[0] in ". ~#-" or _RESERVED.match(stem):
        stem = _escaped(stem[0]) + stem[1:]
    if stem[-1] in ". ":
        stem = stem[:-1] + _escaped(stem[-1])
    if len(stem.encode()) <= MAX_BYTES and folded(stem) not in taken:
        return stem
    digest = hashlib.sha256(label.encode()).hexdigest()
    cut = _cut(stem, MAX_BYTES - 9)
    for size in range(8, len(digest)):
        if folded(f"{cut}~{digest[:size]}") not in taken:
            return f"{cut}~{digest[:size]}"
    return f"{cut}~{digest}"


def label_of(stem: str) -> str:
    """The label that a file of this name is for, when nothing else says so."""
    try:
        return unicodedata.normalize("NFC", unquote_to_bytes(stem).decode())
    except UnicodeDecodeError:
        return unicodedata.normalize("NFC", stem)


def folded(name: str) -> str:
    """What two names have in common that are one and the same on some system."""
    return unicodedata.normalize("NFC", unicodedata.normalize("NFC", name).casefold())


def _written(letter: str) -> str:
    """A letter as it stands in a file name: nothing that is invisible, and nothing that has a meaning."""
    plain = letter == " " or unicodedata.category(letter)[0] not in "CZ"
    return letter if plain and not _UNSAFE.match(letter) else _escaped(letter)


def _escaped(letter: str) -> str:
    return "".join(f"%{byte:02X}" for byte in letter.encode())


def _cut(stem: str, most: int) -> str:
    """The beginning of a name that is not longer; never half a letter, and never half a %XX."""
    text = stem.encode()[:most].decode(errors="ignore")
    return re.sub(r"%[0-9A-F]?\Z", "", text).rstrip(". ")
