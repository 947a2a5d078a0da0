"""Split texts into the pieces of words that a BERT model knows, by its list of them.

The rules are those of the uncased BERT models: lower case, accents removed, punctuation and Chinese
characters stand alone, and a word becomes the longest pieces that are in the list, from its beginning on.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence
from functools import lru_cache
from pathlib import Path

from dgent.errors import Corrupt

MAX_WORD = 100  # characters; a longer word is unknown
MAX_VOCABULARY_BYTES = 16 << 20
_KEPT_WORDS = 20_000
_CHARS_PER_TOKEN = 40  # what is far behind the last token that is used is not looked at

_IDEOGRAPHS = (
    (0x4E00, 0x9FFF),
    (0x3400, 0x4DBF),
    (0x20000, 0x2A6DF),
    (0x2A700, 0x2B73F),
    (0x2B740, 0x2B81F),
    (0x2B820, 0x2CEAF),
    (0xF900, 0xFAFF),
    (0x2F800, 0x2FA1F),
)


class WordPiece:
    """Turns texts into the numbers of their pieces."""

    def __init__(self, pieces: Sequence[str], limit: int) -> None:
        self._numbers = {piece: number for number, piece in enumerate(pieces)}
        try:
            marks = [self._numbers[each] for each in ("[CLS]", "[SEP]", "[UNK]", "[PAD]")]
        except KeyError as error:
            raise Corrupt(f"the list of pieces has no {error.args[0]}") from None
        self._start, self._end, self._unknown, self.pad = marks
        self._limit = limit
        self._split = lru_cache(_KEPT_WORDS)(self._split_word)

    def encode(self, text: str) -> list[int]:
        """Return the numbers of a text's pieces, at most as many as the model takes, between two marks."""
        found: list[int] = []
        room = self._limit - 2
        for word in _find_words(text[: _CHARS_PER_TOKEN * self._limit]):
            found += self._split(word)
            if len(found) >= room:
                break
        return [self._start, *found[:room], self._end]

    def _split_word(self, word: str) -> tuple[int, ...]:
        if len(word) > MAX_WORD:
            return (self._unknown,)
        found, start = [], 0
        while start < len(word):
            before = "##" if start else ""
            for end in range(len(word), start, -1):
                number = self._numbers.get(before + word[start:end])
                if number is not None:
                    break
            else:
                return (self._unknown,)
            found.append(number)
            start = end
        return tuple(found)


def read_wordpiece(path: Path, limit: int) -> WordPiece:
    """Return the splitter for a list of pieces, one in each line."""
    with open(path, "rb") as file:
        raw = file.read(MAX_VOCABULARY_BYTES + 1)
    if len(raw) > MAX_VOCABULARY_BYTES:
        raise Corrupt(f"{path.name} is longer than {MAX_VOCABULARY_BYTES >> 20} MiB")
    try:
        return WordPiece(raw.decode().split("\n"), limit)
    except UnicodeDecodeError:
        raise Corrupt(f"{path.name} is not UTF-8") from None


def _find_words(text: str) -> Iterator[str]:
    """Yield the words of a text, and each punctuation mark alone."""
    spaced = "".join(map(_place_character, text))
    folded = "".join(c for c in unicodedata.normalize("NFD", spaced) if unicodedata.category(c) != "Mn")
    for run in folded.lower().split():
        start = 0
        for at, character in enumerate(run):
            if _is_punctuation(character):
                if start < at:
                    yield run[start:at]
                yield character
                start = at + 1
        if start < len(run):
            yield run[start:]


@lru_cache(10_000)
def _place_character(character: str) -> str:
    """Return a character as it is read: none, a space, itself, or itself between spaces."""
    if character in "\t\n\r":
        return " "
    category = unicodedata.category(character)
    if character == "\ufffd" or category in ("Cc", "Cf", "Co", "Cs"):
        return ""
    if category == "Zs":
        return " "
    code = ord(character)
    return f" {character} " if any(low <= code <= high for low, high in _IDEOGRAPHS) else character


@lru_cache(10_000)
def _is_punctuation(character: str) -> bool:
    """Check for punctuation; all signs of ASCII count, such as $ and ^."""
    if character.isascii():
        return not character.isalnum() and character.isprintable() and character != " "
    return unicodedata.category(character).startswith("P")
