"""Search: rank texts by the words of a query, best first.

Archival entries are found by an index of their words. Blocks are searched as they are now, all that the
caller may see. Those that changed since the last search are read together, and the others are proven
unchanged; so nothing is cached that could disagree with them after an undo, a rollback, or the end of a
share.
"""

from __future__ import annotations

import heapq
import math
import re
import unicodedata
from collections import Counter
from collections.abc import AsyncIterable, Sequence
from dataclasses import dataclass
from typing import Any

from dgent.blocks.access.actor import Header
from dgent.blocks.context import bulk
from dgent.blocks.context.bulk import RenderedBlock
from dgent.blocks.document.document import Document
from dgent.blocks.document.entries import list_trimmed
from dgent.blocks.document.render import contents, entry_line
from dgent.blocks.document.shape import BODY, Shape, container
from dgent.errors import InputError
from dgent.universe.universe import Universe

MAX_TERMS = 64  # different words of a query that are used, from the start
SNIPPET = 240  # characters
NAME_WEIGHT = 3  # a word in a label or a tag counts as so many in the text
SATURATION, LENGTH = 1.2, 0.75  # how little the tenth occurrence adds, and how much long texts lose

# A word is letters and digits, with apostrophes inside; in scripts without spaces each letter is a word.
_APART = "\u0e00-\u0eff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_WORD = re.compile(rf"[{_APART}]|(?:(?![{_APART}])\w)+(?:['\u2019](?:(?![{_APART}])\w)+)*")


class Bag:
    """The words of a text, ready to be counted: a search looks into many texts, and often again."""

    __slots__ = ("_plain", "count")

    def __init__(self, text: str) -> None:
        found = words(text)
        self.count = len(found)
        self._plain = f" {'  '.join(found)} "

    def of(self, word: str) -> int:
        """Count the occurrences of a word."""
        return self._plain.count(f" {word} ")


@dataclass(frozen=True)
class Text:
    """A searchable text: a block or an archival entry, and its words."""

    kind: str
    id: str
    owner: str
    label: str
    text: str
    words: Bag
    names: Bag  # of its label, and a description or tags


def text_of(kind: str, id: str, owner: str, label: str, text: str, further: str) -> Text:
    """Build a searchable text from its text, its label, and further words."""
    return Text(kind, id, owner, label, text, Bag(text), Bag(f"{label} {further}"))


@dataclass(frozen=True)
class Hit:
    """A search result. `score` is 1 for the best; `marks` are the places of the words in the snippet."""

    kind: str
    id: str
    owner: str
    label: str
    score: float
    snippet: str
    marks: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class _Match:
    text: Text
    counts: Counter[str]
    length: int


def words(text: str) -> list[str]:
    """Return the normalized words of a text."""
    return [normalize_word(match[0]) for match in _WORD.finditer(text)]


def normalize_word(word: str) -> str:
    """Return a word without capitals, accents and variants of apostrophes."""
    if word.isascii():
        return word.lower()
    plain = unicodedata.normalize("NFKD", word.casefold()).replace("\u2019", "'")
    return "".join(letter for letter in plain if not unicodedata.combining(letter))


def terms_of(query: object) -> list[str]:
    """Return the words of a query, each once."""
    if not isinstance(query, str):
        raise InputError(f"expected text to search for, got a {type(query).__name__}", field="query")
    return list(dict.fromkeys(words(query)))[:MAX_TERMS]


async def rank_texts(texts: AsyncIterable[Text], terms: list[str], limit: int) -> list[Hit]:
    """Return the texts with some of the words, ranked by how many they have, then by how often.

    Texts without any of them may be left out of `texts`: they only show how rare a word is.
    """
    if type(limit) is not int or limit < 1:
        raise InputError(f"expected a number from 1 for limit, got {limit!r}", field="limit")
    matches, read, letters = await _matches(texts, frozenset(terms))
    if not matches:
        return []
    weights = _weights(terms, matches, read)
    mean = letters / read or 1.0

    def score(match: _Match) -> tuple[int, float]:
        return len(match.counts), _score(match, weights, mean)

    ranked = heapq.nlargest(limit, ((score(match), -place) for place, match in enumerate(matches)))
    most = max(value for (_, value), _ in ranked)
    top = _scale(ranked[0][0], most)
    return [_hit(matches[-place], frozenset(terms), _scale(each, most) / top) for each, place in ranked]


def _scale(score: tuple[int, float], most: float) -> float:
    """Return a score as one number in the same order: one more word outweighs any weight."""
    return score[0] - 1 + score[1] / most


async def _matches(texts: AsyncIterable[Text], terms: frozenset[str]) -> tuple[list[_Match], int, int]:
    """Return the texts with any of the words, the number of texts, and their total number of words."""
    matches: list[_Match] = []
    total = length = 0
    async for text in texts:
        said = {word: text.words.of(word) + NAME_WEIGHT * text.names.of(word) for word in terms}
        counts = Counter({word: count for word, count in said.items() if count})
        total += 1
        length += text.words.count
        if counts:
            matches.append(_Match(text, counts, text.words.count))
    return matches, total, length


def _weights(terms: list[str], matches: list[_Match], total: int) -> dict[str, float]:
    """Return the weight of each word: the fewer texts have it, the higher."""
    having = Counter(word for match in matches for word in match.counts)
    return {term: math.log(1 + (total - having[term] + 0.5) / (having[term] + 0.5)) for term in terms}


def _score(match: _Match, weights: dict[str, float], mean: float) -> float:
    damp = SATURATION * (1 - LENGTH + LENGTH * match.length / mean)
    return sum(
        weights[word] * count * (SATURATION + 1) / (count + damp) for word, count in match.counts.items()
    )


def _hit(match: _Match, terms: frozenset[str], score: float) -> Hit:
    text = match.text
    snippet, marks = _snippet(text.text, terms)
    return Hit(text.kind, text.id, text.owner, text.label, round(score, 4), snippet, marks)


def _snippet(text: str, terms: frozenset[str]) -> tuple[str, tuple[tuple[int, int], ...]]:
    """Return the part of a text with most of the words, and their places in it."""
    places = [match.span() for match in _WORD.finditer(text) if normalize_word(match[0]) in terms]
    start = 0
    most = first = 0
    for last, (_, end) in enumerate(places):
        while end - places[first][0] > SNIPPET * 2 // 3 and first < last:
            first += 1
        if last - first + 1 > most:
            most, start = last - first + 1, max(0, places[first][0] - SNIPPET // 6)
    end = min(len(text), start + SNIPPET)
    before, after = "…" if start else "", "…" if end < len(text) else ""
    shift = len(before) - start
    marks = tuple((a + shift, b + shift) for a, b in places if start <= a and b <= end)
    return f"{before}{text[start:end]}{after}".replace("\n", " "), marks


class Fulltexts:
    """The texts of an agent's blocks, cached between searches while they are proven unchanged."""

    def __init__(self) -> None:
        self._rendered: dict[str, RenderedBlock] = {}
        self._texts: dict[str, tuple[RenderedBlock, Text]] = {}

    async def of(self, universe: Universe, headers: Sequence[Header]) -> list[Text]:
        """Return the current texts of some blocks, except those that cannot be read."""
        await bulk.render_blocks(universe, headers, self._rendered, fulltext)
        found = [(header, self._rendered[header.id]) for header in headers]
        return [self._text(header, rendered) for header, rendered in found if not rendered.problem]

    def keep(self, ids: Sequence[str]) -> None:
        """Forget the texts of all blocks except these."""
        bulk.forget_others(self._rendered, ids)
        for id in self._texts.keys() - set(ids):
            del self._texts[id]

    def _text(self, header: Header, rendered: RenderedBlock) -> Text:
        known = self._texts.get(header.id)
        if known is None or known[0] is not rendered:
            said = header.value
            made = text_of(said.kind, header.id, said.owner, said.label, rendered.text, said.description)
            known = self._texts[header.id] = (rendered, made)
        return known[1]


def fulltext(shape: Shape, document: Document, _limit: int | None = None, section: str = "") -> str:
    """Return the texts and numbers of a document, one per line; of a log the entries, newest first."""
    if shape.document == "composite":
        return "\n".join(fulltext(each.shape, document, None, each.name) for each in shape.sections)
    if shape.document != "log":
        return _values(contents(shape, document, section))
    name = container(section, BODY["log"])
    every = [*document.newest_entries(name), *list_trimmed(document, name)]
    return "\n".join(entry_line(entry) for entry in every)


def _values(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "\n".join(_values(each) for each in value.values())
    if isinstance(value, list | tuple):
        return "\n".join(_values(each) for each in value)
    return "" if value is None or isinstance(value, bool) else str(value)
