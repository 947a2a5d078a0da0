"""The passage of a text that shows best what was searched for, with the places of the words in it."""

from __future__ import annotations

import re
import unicodedata
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from dgent.search.wanted import PhraseFinder, Wanted
from dgent.search.words import Language, Word, find_chunks, find_words, is_paired, join_words, words_of

WIDTH = 160  # characters of a passage
REACH = 250_000  # characters of a text that are looked at, from its start
LONG = 8_000  # characters of a text that is not split into words as a whole
ELLIPSIS = "…"

_SNAP = 24  # characters that a passage may lose so that it begins and ends between words
_LONG_CHUNK = 64
_JOINING = frozenset("\u200d\ufe0e\ufe0f")
_SPACE = re.compile(r"\s")
# Line breaks, and what could take over a terminal or turn its lines around.
_CONTROLS = (*range(32), *range(127, 160), 0x2028, 0x2029, *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_CONTROL = dict.fromkeys(_CONTROLS, " ")

_Match = tuple[int, int, int]  # the number of what is wanted, and the start and the end of a place


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
    return _make(text, _Sought(wanted, language, weights or {}), width)[0]


def choose_snippet(texts: Iterable[str], wanted: Wanted) -> Snippet:
    """Return the snippet with the most of what is wanted among those of some texts.

    Among equals the one with more places wins, then the first.
    """
    sought = _Sought(wanted, "english", {})
    found = (_make(text, sought, WIDTH) for text in texts)
    best = max(found, key=lambda each: (each[1], len(each[0].marks)), default=None)
    return Snippet("") if best is None else best[0]


def _make(text: str, sought: _Sought, width: int) -> tuple[Snippet, int]:
    """Return a snippet, and the weight of what it shows."""
    start, end = 0, len(text)
    if end > width:
        every = sought.find_in_long(text[:REACH]) if end > LONG else sought.find(text)
        start, end = _bounds(text, *_best(every, sought.weights, width), width)
    before, after = ELLIPSIS if start else "", ELLIPSIS if end < len(text) else ""
    passage, shift = text[start:end], len(before)
    matches = [*sought.find(passage)]
    weight = sum(sought.weights[number] for number in {number for number, _, _ in matches})
    places = sorted([(first + shift, last + shift) for _, first, last in matches])
    shown = passage if passage.isprintable() and passage.isascii() else passage.translate(_CONTROL)
    return Snippet(f"{before}{shown}{after}", tuple(_merge(places))), weight


class _Sought:
    """All that is wanted, numbered: words, then prefixes, then phrases."""

    def __init__(self, wanted: Wanted, language: Language, weights: Mapping[str, float]) -> None:
        self._wanted = wanted
        self._language = language
        # In whole thousandths: sums of those do not drift while words come and go.
        self.weights = [round(1000 * weights.get(word, 1.0)) for word in wanted.words]
        self.weights += [1000] * len(wanted.prefixes)
        for phrase in wanted.phrases:
            words = [step for step in phrase.steps if isinstance(step, str)]
            self.weights.append(1000 + sum(round(1000 * weights.get(word, 1.0)) for word in words))
        self._fitting: dict[str, list[_Match]] = {}

    def find(self, text: str) -> Iterator[_Match]:
        """Yield the places of all that is wanted, in the order in which they end."""
        if (finder := self._phrase_finder(text)) is not None:
            yield from self._find_phrases(text, finder)
            return
        fitting = self._fitting
        for chunk, start in find_chunks(text):
            matches: Iterable[_Match] | None = fitting.get(chunk)
            if matches is None:
                made = (match for word in words_of(chunk, self._language) for match in self._fit(word))
                # A long run of characters without spaces is one chunk, which does not come again.
                matches = made if len(chunk) > _LONG_CHUNK else fitting.setdefault(chunk, [*made])
            for number, first, last in matches:
                yield number, start + first, start + last

    def _find_phrases(self, text: str, finder: PhraseFinder) -> Iterator[_Match]:
        first = len(self._wanted.words) + len(self._wanted.prefixes)
        for word in find_words(text, self._language):
            yield from self._fit(word)
            for phrase, start, end in finder.end_at(word):
                yield first + self._wanted.phrases.index(phrase), start, end

    def find_in_long(self, text: str) -> Iterator[_Match]:
        """Yield the places of words in a long text, looking only where one may begin; else as `find` does.

        A word that its stem hardly resembles may be passed over.
        """
        begin, lowered, found = self._beginnings(), text.lower(), False
        if begin is not None and len(lowered) == len(text):
            end = 0
            for match in begin.finditer(lowered):
                if match.start() < end:
                    continue
                spaces = (text.rfind(space, end, match.start()) for space in " \n")
                start = max(end, *(place + 1 for place in spaces))
                after = _SPACE.search(text, match.end())
                end = len(text) if after is None else after.end()
                for number, first, last in self.find(text[start:end]):
                    found = True
                    yield number, first + start, last + start
        if not found:
            yield from self.find(text)

    def _beginnings(self) -> re.Pattern[str] | None:
        """Return what finds the beginnings of wanted words; None if phrases or other scripts are wanted."""
        stems = {*self._wanted.words, *(stem for each in self._wanted.prefixes for stem in each.stems)}
        begins = {stem if stem.isdigit() else stem[: max(2, len(stem) - 2)] for stem in stems}
        begins.update(each.text for each in self._wanted.prefixes)
        if self._wanted.phrases or not begins or not all(each.isascii() for each in begins):
            return None
        return re.compile("|".join(map(re.escape, sorted(begins))))

    def _fit(self, word: Word) -> list[_Match]:
        """Return what a word fits, each with its place: a prefix may fit only its first character."""
        words, prefixes = self._wanted.words, self._wanted.prefixes
        found = [(words.index(word.term), word.start, word.end)] if word.term in words else []
        for number, prefix in enumerate(prefixes, len(words)):
            if word.form.startswith(prefix.text) or word.term in prefix.stems:
                found.append((number, word.start, word.start + 1 if is_paired(prefix.text) else word.end))
        return found

    def _phrase_finder(self, text: str) -> PhraseFinder | None:
        """Return what finds the phrases that stand in a text, if any do: it takes longer than to ask."""
        if not self._wanted.phrases:
            return None
        joined = join_words(text, self._language)
        phrases = [phrase for phrase in self._wanted.phrases if phrase.stands_in(joined)]
        return PhraseFinder(phrases) if phrases else None


def _best(matches: Iterable[_Match], weights: Sequence[int], width: int) -> tuple[int, int]:
    """Return where the best matches that fit into a width begin and end."""
    everything = sum(weights)
    window: deque[_Match] = deque()
    counts = [0] * len(weights)
    weight = 0
    best, bounds = (0, 0), (0, 0)
    for match in matches:
        number, start, end = match
        window.append(match)
        weight += 0 if counts[number] else weights[number]
        counts[number] += 1
        while end - window[0][1] > width and len(window) > 1:
            gone = window.popleft()[0]
            counts[gone] -= 1
            weight -= 0 if counts[gone] else weights[gone]
        if weight > best[0] or (weight == best[0] and len(window) > best[1]):
            best, bounds = (weight, len(window)), (min(window[0][1], start), end)
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
    if text.isascii():
        return start, end
    for _ in range(_SNAP):
        start += start < end and _joins(text[start])
        end -= start < end < len(text) and _joins(text[end])
    return start, end


def _joins(character: str) -> bool:
    return character in _JOINING or unicodedata.combining(character) != 0


def _merge(places: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Yield places, which are in order, those that overlap as one."""
    start, end = 0, 0
    for first, last in places:
        if first < end:
            end = max(end, last)
            continue
        if end:
            yield start, end
        start, end = first, last
    if end:
        yield start, end
