"""Wrappers: the tags around a block in a prompt, which nothing inside can close or imitate."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Mapping

# The bracket of a tag, and its look-alikes.
_BRACKET = re.compile(
    "[<\uff1c\ufe64\u226e\u22d6\u2039\u02c2\u2329\u3008\u27e8\u27ea\u276e\u276c\u2770\u29fc\u1438"
    "\u16b2\u00ab]"
)
# A reader may see a tag whatever is between the bracket and the word.
_TAG = re.compile(r"[^\w>]*(?:block|memory)\b", re.IGNORECASE)
_LOOK_ALIKES = {  # of the letters and signs of a tag's name, in lower case
    "/": "\u3033\u30ce\u4e3f",
    ":": "\u02d0\u02d1",
    "b": "\u0432\u044c\u0180\u0185\u0253\u0299\u03b2\u0431\U0001f171",
    "l": "1|i\u0131\u04cf\u0456\u03b9\u029f\u01c0\u05c0\u2223",
    "o": "0\u043e\u03bf\u1d0f\u0585\u0665\u06f5\u04e9\u00f8",
    "c": "\u0441\u03f2\u1d04\u0188",
    "k": "\u043a\u03ba\u1d0b\u0138\u0199",
    "m": "\u043c\u03bc\u1d0d\u217f\u0271",
    "e": "\u0435\u03b5\u1d07\u212e\u0454\u04bd",
    "r": "\u0433\u0280\u1d26\u027e",
    "y": "\u0443\u03b3\u03c5\u04af\u028f\u10e7",
}
_INVISIBLE = "\u115f\u1160\u3164\uffa0\u2800"  # invisible letters and signs
_UNSAFE = re.compile(r"[^\w.:/@-]")
_QUOTED = {"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#39;"}
_SPECIAL = re.compile(r"[&<>\"']|[\x00-\x1f\x7f-\x9f\u2028\u2029]")


class _Looks(dict[int, str]):
    """A mapping from each character to its look-alike in a tag's name, for `str.translate`."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        if letter.isspace():
            seen = " "
        elif letter in _INVISIBLE or unicodedata.category(letter) in ("Cc", "Cf", "Cn", "Co", "Mn", "Me"):
            seen = ""
        else:
            parts = unicodedata.normalize("NFKD", letter).casefold()
            seen = "".join(_PLAIN.get(part, part) for part in parts if not unicodedata.combining(part))
        self[code] = seen
        return seen


_PLAIN = {each: letter for letter, others in _LOOK_ALIKES.items() for each in others}
_looks = _Looks()


def escape(text: str) -> str:
    """Escape everything in a text that looks like the tag of a wrapper."""
    parts = _BRACKET.split(text)
    if len(parts) == 1:
        return text
    brackets = _BRACKET.findall(text)
    made = [parts[0]]
    for bracket, rest in zip(brackets, parts[1:], strict=True):
        # Also as it is: an invisible character may end the word.
        tag = _TAG.match(rest) or _TAG.match(rest.translate(_looks))
        made += ["&lt;" if tag else bracket, rest]
    return "".join(made)


def quote(text: str) -> str:
    """Quote a text as the value of an attribute: on one line, and without quotes."""
    return _SPECIAL.sub(lambda found: _QUOTED.get(found[0], " "), text)


def tag_name(label: str) -> str:
    """Return a label as part of a tag: characters that could end the tag are written as %XX."""
    return _UNSAFE.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), label)


def wrap(tag: str, attributes: Mapping[str, str], body: str) -> str:
    """Put an escaped body between its tags."""
    said = "".join(f' {name}="{quote(value)}"' for name, value in attributes.items())
    return f"<{tag}{said}>\n{escape(body)}\n</{tag}>"
