"""Any text as a search: words, "phrases" in double quotes, and prefixes as in `app*`.

A record matches if it holds every phrase and at least one of the words or prefixes; the more and the rarer,
the better. Everything that is not a phrase or a prefix is words, read as those of a text are: there is no
syntax that could be wrong. A quote without its other half is ignored.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache

from dgent.search.stem import stem
from dgent.search.words import SEPARATOR, Language, Word, find_words, is_paired, join_words, space_out

MAX_TEXT = 10_000  # characters of a search that are read
MAX_WORDS = 64  # different words and prefixes
MAX_PHRASES = 8  # the words of further phrases are searched for, not their order
MAX_STEPS = 32  # words of a phrase
_MOST_TRIES = 8  # places in a text that are looked at by themselves
_MOST_AROUND = 1_000  # characters of such a place
_SHORT = 1_000  # characters of a search that is remembered

_QUOTED = re.compile('"([^"]*+)"|\u201c([^\u201c\u201d]*+)\u201d|\u00ab([^\u00ab\u00bb]*+)\u00bb')

_REST = re.compile(r"[a-z0-9]*+([.'][a-z0-9])?[^a-z0-9]*+")  # of a word, and what is before the next one

_STOP = """
a about after again all also am an and any are as at be because been before being between both but by
can could did do does doing done during each else ever few for from had has have having he her here hers
him his how i if in into is it its just me mine more most much my no nor not of off on once only or
other our ours out over own please same shall she should so some such than that the their theirs them
then there these they this those through to too under until up us very was we were what when where
whether which while who whom whose why will with would you your yours
"""
STOP_WORDS = frozenset(_STOP.split())
"""English words that are left out of a search if others remain. Texts are indexed with them."""

# Endings that a stem loses: where a prefix ends within one, the stem is shorter than the prefix.
_ENDINGS = """
ed es ing ies ied edly ingly ly al ally ical ically er ers or ator ators ation ations ational ion ions ization
izations ize izes izing ity iveness fulness ousness ness ment ments able ably ability ible ibly ibility ence
ency ance ancy ent ant ive ively ous ously ful fully lessly ism ist ists logy logist logical
"""
_CHANGING = ("", "s", "ed", "ing", "e", "y", "ly")  # endings that change what stands before them


@dataclass(frozen=True, slots=True)
class Prefix:
    """The beginning of a word.

    Indexes hold stems, which may be shorter than what was typed: `generati*` is to find `generation`, whose
    stem is `generat`. So a term fits if it begins with `text` or is one of `stems`.
    """

    text: str
    stems: frozenset[str] = frozenset()

    def fits(self, term: str) -> bool:
        """Return whether a term may be that of a word with this beginning."""
        return term.startswith(self.text) or term in self.stems


@dataclass(frozen=True, slots=True)
class Phrase:
    """Words in this order, next to each other: a term each, or the beginning of one."""

    steps: tuple[str | Prefix, ...]

    def stands_in(self, joined: str) -> bool:
        """Return whether a text holds the phrase, given the text's words as `join_words` returns them."""
        needle = _needle(self)
        return needle in joined if isinstance(needle, str) else needle.search(joined) is not None


@dataclass(frozen=True, slots=True)
class Wanted:
    """A search: `words` are terms, those of the phrases too; `cut` says that more was asked for than this."""

    words: tuple[str, ...] = ()
    prefixes: tuple[Prefix, ...] = ()
    phrases: tuple[Phrase, ...] = ()
    cut: bool = False

    def __bool__(self) -> bool:
        return bool(self.words or self.prefixes or self.phrases)


def parse_search(text: str, language: Language = "english") -> Wanted:
    """Return what a text asks for; nothing if there is no word in it.

    Stop words are left out if others remain; with no language there are none. Beyond the limits of this
    module what comes first counts, and `cut` is true.
    """
    known = len(text) <= _SHORT and language in ("english", None)
    return _parse_known(text, language) if known else _parse(text, language)


def _parse(text: str, language: Language) -> Wanted:
    cut = len(text) > MAX_TEXT
    text = text[:MAX_TEXT]
    found: dict[str | Prefix, bool] = {}
    phrases: dict[Phrase, None] = {}
    end = 0
    for quoted in _QUOTED.finditer(text):
        quotation = quoted[quoted.lastindex or 0]
        _add_words(found, text[end : quoted.start()], language)
        _add_words(found, quotation, language)
        phrase, longer = _phrase(quotation, language)
        cut |= longer
        if phrase.steps:
            phrases[phrase] = None
        end = quoted.end()
    _add_words(found, text[end:], language)
    kept = [want for want, is_stop in found.items() if not is_stop] or list(found)
    cut |= len(kept) > MAX_WORDS or len(phrases) > MAX_PHRASES
    kept = kept[:MAX_WORDS]
    return Wanted(
        words=tuple(want for want in kept if isinstance(want, str)),
        prefixes=tuple(want for want in kept if isinstance(want, Prefix)),
        phrases=tuple(phrases)[:MAX_PHRASES],
        cut=cut,
    )


_parse_known = lru_cache(maxsize=64)(_parse)  # one text is parsed for finding, and again for the passages


class PhraseFinder:
    """Finds phrases among the words of one text, given one after the other."""

    def __init__(self, phrases: Iterable[Phrase]) -> None:
        self._sought = [(phrase, len(phrase.steps)) for phrase in phrases if phrase.steps]
        self._recent: deque[Word] = deque(maxlen=max((size for _, size in self._sought), default=0))

    def end_at(self, word: Word) -> Iterator[tuple[Phrase, int, int]]:
        """Yield the phrases that end with the next word, with the start of their first word and its end."""
        if word.role == "whole":
            return
        recent = self._recent
        recent.append(word)
        for phrase, size in self._sought:
            if not _fits(phrase.steps[-1], word.term) or len(recent) < size:
                continue
            if all(_fits(step, recent[place - size].term) for place, step in enumerate(phrase.steps)):
                yield phrase, recent[-size].start, word.end


def has_phrases(texts: Iterable[str], phrases: Iterable[Phrase], language: Language = "english") -> bool:
    """Return whether each phrase stands in one of the texts."""
    missing = list(phrases)
    for text in texts:
        if not missing:
            break
        if text.isascii():
            plain = space_out(text)
            missing = [phrase for phrase in missing if not _holds(plain, phrase, language)]
        else:
            joined = join_words(text, language)
            missing = [phrase for phrase in missing if not phrase.stands_in(joined)]
    return not missing


def _holds(plain: str, phrase: Phrase, language: Language) -> bool:
    """Return whether a text holds a phrase, given the text as `space_out` returns it.

    Words are first told apart by the letters that stemming leaves, so that most are not stemmed.
    """
    tries = _MOST_TRIES
    for start, end in _find_places(plain, phrase):
        start, end = plain.rfind(" ", 0, start) + 1, plain.find(" ", end)
        around = plain[start : end if end >= 0 else len(plain)]
        tries -= 1
        if not tries or len(around) > _MOST_AROUND:
            return phrase.stands_in(join_words(plain, language))
        if phrase.stands_in(join_words(around, language)):
            return True
    return False


def _find_places(plain: str, phrase: Phrase) -> Iterator[tuple[int, int]]:
    """Yield where a phrase may begin in a text of `space_out`, each with where its last word would.

    From where a word may go on after a dot or an apostrophe, a pattern finds them. It would everywhere, but
    to compile one takes as long as to look at fifty texts.
    """
    letters, dotted = _begin_words(phrase)
    at = 0
    if not any(each in plain for each in dotted):
        at = plain.find(letters[0])
        while at >= 0:
            end = -1 if at and plain[at - 1].isalnum() else _follow(plain, at, letters)
            if end is None:
                break
            if end >= 0:
                yield at, end
            at = plain.find(letters[0], at + 1)
        else:
            return
    outline = _outline(phrase)
    while found := outline.search(plain, at):
        yield found.span()
        at = found.start() + 1


def _follow(plain: str, at: int, letters: Sequence[str]) -> int | None:
    """Return where the last of some words begins that stand side by side from a place on; -1 if they do not.

    None if that cannot be told: a word may go on after a dot or an apostrophe.
    """
    for begun in letters[:-1]:
        if not plain.startswith(begun, at):
            return -1
        rest = _REST.match(plain, at + len(begun))
        if rest is None or rest[1]:
            return None
        at = rest.end()
    return at if plain.startswith(letters[-1], at) else -1


@lru_cache(maxsize=256)
def _needle(phrase: Phrase) -> str | re.Pattern[str]:
    """Return what to look for among joined words: a text, or a pattern if some words are only begun."""
    if all(isinstance(step, str) for step in phrase.steps):
        return SEPARATOR.join(("", *map(str, phrase.steps), ""))
    steps = [
        re.escape(step) if isinstance(step, str) else f"{re.escape(step.text)}[^{SEPARATOR}]*+"
        for step in phrase.steps
    ]
    return re.compile(SEPARATOR.join(("", *steps, "")))


@lru_cache(maxsize=256)
def _begin_words(phrase: Phrase) -> tuple[list[str], list[str]]:
    """Return the letters with which the words of a phrase begin, and these as they begin acronyms."""
    letters = [*map(_first_letters, phrase.steps)]
    return letters, [".".join(each) for each in letters if len(each) > 1]


@lru_cache(maxsize=256)
def _outline(phrase: Phrase) -> re.Pattern[str]:
    """Return a pattern that finds every place where a phrase may stand in a text of `space_out`.

    Between two words there may be the rest of an acronym, as in U.S.A., and of contractions, as in don't.
    """
    acronym, contraction = r"(?:\.[a-z0-9]){0,15}", r"(?:'(?:s|t|m|d|re|ve|ll)(?![a-z0-9])){0,15}"
    gap = f"[a-z0-9]*+{acronym}{contraction}[^a-z0-9]++"
    begun = (r"\.?".join(map(re.escape, _first_letters(step))) for step in phrase.steps)
    return re.compile(f"(?<![a-z0-9]){gap.join(begun)}")


def _first_letters(step: str | Prefix) -> str:
    """Return letters with which every word begins that a step of a phrase stands for."""
    if isinstance(step, Prefix):
        return step.text[:1]
    if not step.isalpha() or step == "will":  # won't
        return step[:1]
    if len(step) > 3:
        return step[:3]
    return step[:1] if step[1:2] == "i" else step[:2]  # dying: die


def _fits(step: str | Prefix, term: str) -> bool:
    return step == term if isinstance(step, str) else step.fits(term)


def _add_words(found: dict[str | Prefix, bool], text: str, language: Language) -> None:
    """Add the words of a text to those found, with whether each is a stop word."""
    for word, want in _wants(text, language):
        is_stop = language is not None and isinstance(want, str) and word.form in STOP_WORDS
        found[want] = found.get(want, True) and is_stop


def _wants(text: str, language: Language) -> Iterator[tuple[Word, str | Prefix]]:
    """Yield the words of a text that are searched for, each with its term or prefix."""
    whole_end = -1
    for word in find_words(text, language):
        if word.role == "last":  # the pair before it says more
            continue
        starred = text[word.end : word.end + 1] == "*"
        if word.role == "whole":
            whole_end = word.end
        elif starred and word.end == whole_end:  # user_na* does not ask for all that begins with na
            continue
        if is_paired(word.form):
            yield word, _paired_step(word)
        else:
            yield word, _prefix(word.form, language) if starred else word.term


def _phrase(text: str, language: Language) -> tuple[Phrase, bool]:
    """Return the phrase of a text, and whether it was too long."""
    words = [word for word in find_words(text, language) if word.role != "whole"]
    steps = [_paired_step(word) if is_paired(word.form) else word.term for word in words[:MAX_STEPS]]
    return Phrase(tuple(steps)), len(words) > MAX_STEPS


def _paired_step(word: Word) -> str | Prefix:
    """Return what finds a word of paired characters: one alone is the beginning of a pair."""
    return Prefix(word.form) if len(word.form) == 1 else word.term


def _prefix(form: str, language: Language) -> Prefix:
    if language is None or not (form.isascii() and form.isalpha()):
        return Prefix(form)
    stems = {stem(form + ending) for ending in _CHANGING}
    for ending in _ENDINGS.split():
        for size in range(1, len(ending)):
            if form.endswith(ending[:size]):
                stems.add(stem(form + ending[size:]))
    return Prefix(form, frozenset(each for each in stems if not each.startswith(form)))
