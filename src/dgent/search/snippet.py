"""The passage of a text that shows best what was searched for, with the places of the words in it."""

from __future__ import annotations

import re
import unicodedata
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from dgent.search.wanted import Phrase, PhraseFinder, Prefix, Wanted
from dgent.search.words import Language, Word, find_words, is_paired, join_words

WIDTH = 160  # characters of a passage
REACH = 1_000_000  # characters of a text that are looked at, from its start
ELLIPSIS = "…"

_SNAP = 24  # characters that a passage may lose so that it begins and ends between words
_JOINING = frozenset("\u200d\ufe0e\ufe0f")
_SPACE = re.compile(r"\s")
# Line breaks, and what could take over a terminal or turn its lines around.
_CONTROLS = (*range(32), *range(127, 160), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROL = dict.fromkeys(_CONTROLS, " ")

Want = str | Prefix | Phrase


class Match(NamedTuple):
    """A place in a text that fits something wanted: `text[start:end]`."""

    want: Want
    start: int
    end: int


@dataclass(frozen=True, slots=True)
class Snippet:
    """A passage on one line, with an ellipsis where it is cut, and the places of what was searched for.

    Each mark is the start and the end of a place in `text`; marks are in order and do not overlap. Control
    characters and line breaks are spaces.
    """

    text: str
    marks: tuple[tuple[int, int], ...] = ()


def make_snippet(
    text: str,
    wanted: Wanted,
    language: Language = "english",
    weights: Mapping[str, float] | None = None,
    width: int = WIDTH,
) -> Snippet:
    """Return the passage of at most `width` characters with the most of what is wanted; else the beginning.

    Words count once, by their weight (such as their `idf`; 1 for those without), a phrase as all its words;
    among equals the passage with more places wins, then the first. The first passage with everything is
    taken. Takes time in proportion to the text.
    """
    matches = find_matches(text[:REACH], wanted, language)
    start, end = _bounds(text, *_best(matches, _weigh(wanted, weights or {}), width), width)
    before, after = ELLIPSIS if start else "", ELLIPSIS if end < len(text) else ""
    passage = text[start:end]
    places = [(each.start, each.end) for each in find_matches(passage, wanted, language)]
    shift = len(before)
    marks = tuple((first + shift, last + shift) for first, last in _merge(places))
    return Snippet(f"{before}{passage.translate(_CONTROL)}{after}", marks)


def find_matches(text: str, wanted: Wanted, language: Language = "english") -> Iterator[Match]:
    """Yield the places of all that is wanted, in the order in which they end."""
    words = frozenset(wanted.words)
    beginnings = tuple(prefix.text for prefix in wanted.prefixes)
    stems: frozenset[str] = frozenset().union(*(prefix.stems for prefix in wanted.prefixes))
    finder = _phrase_finder(text, wanted, language)
    for word in find_words(text, language):
        if word.term in words:
            yield Match(word.term, word.start, word.end)
        if beginnings and (word.form.startswith(beginnings) or word.term in stems):
            yield from _match_prefixes(word, wanted.prefixes)
        if finder is not None:
            for phrase, start, end in finder.end_at(word):
                yield Match(phrase, start, end)


def _phrase_finder(text: str, wanted: Wanted, language: Language) -> PhraseFinder | None:
    """Return what finds the phrases that stand in a text, if any do: it takes longer than to ask for them."""
    if not wanted.phrases:
        return None
    joined = join_words(text, language)
    phrases = [phrase for phrase in wanted.phrases if phrase.stands_in(joined)]
    return PhraseFinder(phrases) if phrases else None


def _match_prefixes(word: Word, prefixes: Iterable[Prefix]) -> Iterator[Match]:
    for prefix in prefixes:
        if word.form.startswith(prefix.text) or word.term in prefix.stems:
            # A single character is found as the beginning of a pair, of which it is one half.
            end = word.start + 1 if is_paired(prefix.text) else word.end
            yield Match(prefix, word.start, end)


def _weigh(wanted: Wanted, weights: Mapping[str, float]) -> dict[Want, int]:
    """Return the weight of all that is wanted, in whole thousandths: sums of those do not drift."""

    def weigh(want: str | Prefix) -> int:
        return round(1000 * weights.get(want, 1.0)) if isinstance(want, str) else 1000

    found: dict[Want, int] = {word: weigh(word) for word in wanted.words}
    found |= {prefix: weigh(prefix) for prefix in wanted.prefixes}
    found |= {phrase: sum(map(weigh, phrase.steps)) for phrase in wanted.phrases}
    return found


def _best(matches: Iterable[Match], weights: Mapping[Want, int], width: int) -> tuple[int, int]:
    """Return where the best matches that fit into a width begin and end."""
    everything = sum(weights.values())
    window: deque[Match] = deque()
    counts: Counter[Want] = Counter()
    weight = 0
    best, bounds = (0, 0), (0, 0)
    for match in matches:
        window.append(match)
        weight += 0 if counts[match.want] else weights[match.want]
        counts[match.want] += 1
        while match.end - window[0].start > width and len(window) > 1:
            gone = window.popleft().want
            counts[gone] -= 1
            weight -= 0 if counts[gone] else weights[gone]
        if (weight, len(window)) > best:
            best, bounds = (weight, len(window)), (min(window[0].start, match.start), match.end)
            if weight == everything:
                break
    return bounds


def _bounds(text: str, first: int, last: int, width: int) -> tuple[int, int]:
    """Return where a passage around some places begins and ends: between words, if spaces are near."""
    if len(text) <= width:
        return 0, len(text)
    last = min(last, first + width)
    start = max(0, first - (width - (last - first)) // 3)
    end = min(len(text), start + width)
    start = max(0, end - width)
    if start and (space := _SPACE.search(text, start - 1, min(first, start + _SNAP))):
        start = space.end()
    if end < len(text):
        tail = text[max(last, end - _SNAP) : end + 1]
        spaces = [space.start() for space in _SPACE.finditer(tail)]
        end -= len(tail) - 1 - spaces[-1] if spaces else 0
    return _keep_letters_whole(text, start, end)


def _keep_letters_whole(text: str, start: int, end: int) -> tuple[int, int]:
    """Shorten a passage so that no mark is cut off its letter; letters with very many marks are cut."""
    for _ in range(_SNAP):
        start += start < end and _joins(text[start])
        end -= start < end < len(text) and _joins(text[end])
    return start, end


def _joins(character: str) -> bool:
    return character in _JOINING or unicodedata.combining(character) != 0


def _merge(places: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield places in order, those that overlap as one."""
    start, end = 0, 0
    for first, last in sorted(places):
        if first < end:
            end = max(end, last)
            continue
        if end:
            yield start, end
        start, end = first, last
    if end:
        yield start, end
