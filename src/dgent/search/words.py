"""Words of a text, as they are indexed and searched for.

Text is compared in NFKC form, case-folded and without accents; English stems stand for the forms of a word in
Latin letters unless `language` is None. The rules:

- A word is a run of letters and digits. Words joined by one of `. - @ :` or by underscores are words of their
  own; when such a compound holds a digit, an underscore or an @, all of it is a word too: `user_id` is found
  by `user`, `id` and `user_id`; `v1.2`, `2024-05-07`, `covid-19` and `joe@example.com` likewise. `foo-bar` is
  `foo` and `bar`; a URL is its parts. Letters joined by dots are one word: `U.S.A.` is `usa`.
- An apostrophe ends a word. What is left of an English contraction is dropped: `Mel's` is `mel`, `don't` is
  `do`; `l'homme` is `l` and `homme`.
- Scripts without spaces (Han, kana, Thai, Lao, Khmer, Burmese), and Hangul, are indexed as pairs of
  neighbouring characters, and the last character of a run also by itself: so each character begins a word
  somewhere, and a search for a single one is a search for a prefix.
- An emoji is a word. Other symbols and punctuation are not.
- A word longer than MAX_WORD characters is cut; its rest is not searchable.

All of it takes time in proportion to the text, whatever the text is.
"""

from __future__ import annotations

import re
import unicodedata
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import cache, lru_cache
from itertools import chain, compress, islice, repeat
from operator import itemgetter, not_
from typing import Any, Final, Literal, NamedTuple, TypeVar
from zlib import crc32

from dgent.errors import InputError
from dgent.search.stem import stem

TOKENIZER: Final = "words-4"
"""Names these rules, and the form of pages, in a declaration; an index built by others is rebuilt."""

T = TypeVar("T")
Language = Literal["english"] | None
Role = Literal["part", "whole", "last"]
_Piece = tuple[str, int, int, int, Role]  # the form of a word, then as in Word
SEPARATOR: Final = "\0"  # in no term
MAX_WORD = 64  # characters
MAX_JOINED = 16  # words of a compound; a longer one is taken for several

# What one word is made from is remembered: most words of a text are among a few thousand.
MAX_KNOWN = 1 << 16
_MAX_KNOWN_CHARACTERS = 48
_BATCH = 2_000  # spans that are counted at once
_LONG = 1 << 20  # characters; the words of a longer text are not listed all at once

# Normalizing sorts the marks on a letter one by one: without a bound, a megabyte of marks would take hours.
_SLICE = 128
_MAX_RAW = 4 * MAX_WORD

_PAIRED = (
    "\u0e01-\u0e3a\u0e40-\u0e4e\u0e50-\u0e59\u0e81-\u0edf"  # Thai, Lao
    "\u1000-\u1049\u1050-\u109f\u1780-\u17d3\u17dc-\u17e9"  # Burmese, Khmer
    "\u1100-\u11ff\u3130-\u318f\ua960-\ua97f\uac00-\ud7ff\uffa1-\uffdc"  # Hangul
    "\u3005-\u3007\u3041-\u309f\u30a1-\u30fa\u30fc-\u312f\u31f0-\u31ff\uff66-\uff9f"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)
# Marks that belong to the letter before them, and characters that join letters without being seen.
_MARKS = (
    "\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u064b-\u065f\u0670"
    "\u06d6-\u06dc\u06df-\u06e8\u06ea-\u06ed\u0711-\u07f3\u0816-\u082d\u0859-\u085b\u0898-\u0963\u0981-\u09e3"
    "\u09fe-\u0a75\u0a81-\u0ae3\u0afa-\u0b63\u0b82-\u0bd7\u0c00-\u0c63\u0c81-\u0c83\u0cbc-\u0d4d\u0d57-\u0d63"
    "\u0d81-\u0df3\u0f18\u0f19\u0f35\u0f37\u0f39\u0f3e-\u0f84\u0f86-\u0fbc\u135d-\u135f\u1712-\u1734\u1752-\u1773"
    "\u180b-\u180d\u180f-\u193b\u1a17-\u1a1b\u1a55-\u1a7f\u1ab0-\u1b44\u1b6b-\u1b73\u1b80-\u1bf3\u1c24-\u1c37"
    "\u1cd0-\u1cd2\u1cd4-\u1dff\u20d0-\u20f0\ua66f\ua674-\ua67d\ua802-\ua827\ua880-\ua8c5\ua8e0-\ua8f1\ua8ff-\ua92d"
    "\ua947-\ua953\ua980-\ua9c0\ua9e5-\uaa4d\uabe3-\uabea\uabec\uabed\ufb1e\ufe00-\ufe0f\ufe20-\ufe2f"
    "\U00011100-\U00011134\U0001e8d0-\U0001e94a\u00ad\u200c\u200d\u2060"
)
_EMOJI = "\u2600-\u27bf\U0001f1e6-\U0001f1ff\U0001f300-\U0001f3fa\U0001f400-\U0001faff"

# Accents, vowel points of Hebrew and Arabic, and what cannot be seen: they do not tell words apart. Marks of
# other scripts do, as the voicing of kana and the vowels of Indic scripts.
_IGNORED = re.compile(
    "[\u0300-\u036f\u0483-\u0487\u0591-\u05bd\u05bf\u05c1\u05c2\u05c4\u05c5\u05c7\u0610-\u061a\u0640\u064b-\u065f"
    "\u0670\u06d6-\u06dc\u06df-\u06e4\u06e7\u06e8\u06ea-\u06ed\u0711\u0730-\u074a\u1ab0-\u1aff\u1dc0-\u1dff"
    "\u20d0-\u20f0\ufe00-\ufe0f\ufe20-\ufe2f\u00ad\u034f\u200c\u200d\u2060\ufeff]"
)
_LETTERS = str.maketrans(
    {"ø": "o", "ł": "l", "đ": "d", "ð": "d", "ħ": "h", "\u0131": "i", "æ": "ae", "œ": "oe", "þ": "th"}
)


def _chunk_pattern(word: str) -> str:
    """Return a pattern for a word with all that is joined to it."""
    return rf"{word}(?:(?:_++|[-.@:'\u2019]){word}){{0,{MAX_JOINED - 1}}}+"


# Characters that are in no chunk become spaces: to split at these is quicker than to look for chunks.
_SPACES = {at: chr(at).lower() if chr(at).isalnum() or chr(at) in "_-.@:'" else " " for at in range(128)}
_PLAIN = re.compile(_chunk_pattern("[a-z0-9]++"))
_ANY_WORD = rf"(?:[^\W_{_PAIRED}]++[{_MARKS}]*+)++"
_WHOLE_MATCH = itemgetter(0)
_IS_PAIRED = re.compile(f"[{_PAIRED}]").match
_JOINER = re.compile("(_+|[-.@:])")
_APOSTROPHE = re.compile("['\u2019]")
# A character with the voicing mark that may follow it: the two can become one.
_VOICED = re.compile("(?s:.)[\u3099\u309a\uff9e\uff9f]?")

_TAILS = frozenset(("s", "t", "m", "d", "re", "ve", "ll"))
_NEGATED = {"can": "can", "won": "will", "shan": "shall", "ain": "ain"}


@cache
def _any_chunk() -> re.Pattern[str]:
    # Compiled when a text first needs it: these classes take 10 ms.
    return re.compile(rf"[{_PAIRED}]++|{_chunk_pattern(_ANY_WORD)}|[{_EMOJI}]")


@cache
def _any_word() -> re.Pattern[str]:
    return re.compile(rf"[{_PAIRED}]++|{_ANY_WORD}|[{_EMOJI}]")


class Word(NamedTuple):
    """A word where it stands in a text.

    `term` is compared with the words of other texts, `form` is the word before stemming. `position` counts
    the words from 0; `text[start:end]` is the word as it is written. `role` is "part" for words in sequence;
    "whole" for a compound, which has the position of its first part; "last" for the last character of a run
    that is indexed as pairs.
    """

    term: str
    form: str
    position: int
    start: int
    end: int
    role: Role = "part"


class _Cache(dict[str, Iterable[T]]):
    """A bounded cache of what is made of short parts of texts."""

    def __init__(self, make: Callable[[str], Iterable[T]]) -> None:
        self._make = make

    def __missing__(self, chunk: str) -> Iterable[T]:
        if not is_remembered(chunk):
            return self._make(chunk)
        if len(self) >= MAX_KNOWN:
            self.clear()
        made = self[chunk] = tuple(self._make(chunk))
        return made


class _Reader:
    """The words of chunks in one language."""

    def __init__(self, stem_form: Callable[[str], str]) -> None:
        self._stem_form = stem_form
        self.words = _Cache(self._words)
        self.coded = _Cache(self._code)

    def _words(self, chunk: str) -> Iterator[Word]:
        """Yield the words of a chunk, as of a text that begins where the chunk does."""
        if _IS_PAIRED(chunk):
            return _pairs(chunk)
        stem_form = self._stem_form
        if chunk.isascii() and chunk.isalnum():
            form = chunk.lower()[:MAX_WORD]
            return iter((Word(stem_form(form), form, 0, 0, len(chunk)),))
        return (
            Word(stem_form(form), form, position, start, end, role)
            for form, position, start, end, role in _pieces(chunk)
        )

    def _code(self, span: str) -> Iterator[str | int]:
        """Yield each term of a span, and then its bits; those of compounds as a whole have none."""
        for term, is_whole in self.read(span):
            yield term
            yield 0 if is_whole else _bits(term)

    def read(self, span: str) -> Iterator[tuple[str, bool]]:
        """Yield the terms of a span, and whether each is a compound as a whole."""
        if span.isascii() and span.isalnum():
            yield self._stem_form(span.lower()[:MAX_WORD]), False
            return
        for chunk, _ in find_chunks(span):
            if _IS_PAIRED(chunk):
                yield from zip(_pair_terms(chunk), repeat(False))
            else:
                for form, *_, role in _pieces(chunk):
                    yield self._stem_form(form), role == "whole"


@lru_cache(maxsize=MAX_KNOWN)
def _stem_latin(form: str) -> str:
    return stem(form) if form.isascii() and form.isalpha() else form


_READERS: dict[Language, _Reader] = {"english": _Reader(_stem_latin), None: _Reader(str)}


def count_words(text: str, language: Language = "english") -> Counter[str]:
    """Return how often each word occurs in a text; the sum of all counts is the text's length in words."""
    coded = _reader(language).coded.__getitem__
    found: Iterable[Any] = chain.from_iterable(map(coded, split_spans(text)))
    return Counter(islice(found, 0, None, 2))


def split_words(text: str, language: Language = "english") -> Iterator[tuple[list[str], bytes]]:
    """Yield the words of a text, some thousand at a time, and the neighbours of each as a byte.

    They have a bit for the word that follows, and one for the word before, as `after_bit` and `before_bit`
    say. Two words stand nowhere side by side if these bits lack. Compounds as a whole come last, without.
    """
    coded, spans = _reader(language).coded.__getitem__, iter(split_spans(text))
    held: tuple[list[str], bytes] = [], b""  # a word whose next one is not known yet, and the bits before it
    while some := [*islice(spans, _BATCH)]:
        found: list[Any] = [*chain.from_iterable(map(coded, some))]
        words, bits = found[::2], bytes(found[1::2])
        wholes: list[str] = []
        if 0 in bits:
            wholes = [*compress(words, map(not_, bits))]
            words, bits = [*compress(words, bits)], bits.replace(b"\0", b"")
        words, bits = held[0] + words, held[1] + bits
        near = _find_near(bits)[len(bits) - len(words) :]
        if len(some) == _BATCH and words:
            held = [words.pop()], bits[-2:]
            near = near[: len(words)]
        else:
            held = [], b""
        yield words + wholes, near + bytes(len(wholes))
    if held[0]:
        yield held[0], _find_near(held[1])[-1:]


def _find_near(bits: bytes) -> bytes:
    """Return the neighbours of words that stand one after the other, given the bits of each."""
    # As one number: each byte takes the lower bits of the next one, and the upper ones of the one before.
    joint = int.from_bytes(bits, "little")
    lower = _repeat(len(bits)) * _AFTER
    return (joint >> 8 & lower | joint << 8 & lower << 4).to_bytes(len(bits) + 1, "little")[:-1]


def is_remembered(span: str) -> bool:
    """Check whether a span is short enough that what follows from it is worth keeping."""
    return len(span) <= _MAX_KNOWN_CHARACTERS


def code_terms(span: str, language: Language = "english") -> Iterator[tuple[str, int]]:
    """Yield each term of a span with its bits, as a word after others and before them; wholes have none."""
    for term, is_whole in _reader(language).read(span):
        yield term, 0 if is_whole else _bits(term)


def add_words(codes: dict[str, int], text: str, weight: int = 1, language: Language = "english") -> int:
    """Add the words of a text to the codes of a record's words, and return how many there are.

    The code of a word is 256 times how often it occurs, each time counted by its weight, and its neighbours
    wherever it stands, as `split_words` says.
    """
    count, more, known = 0, weight << 8, codes.get
    for words, near in split_words(text, language):
        count += len(words)
        for word, beside in zip(words, near, strict=True):
            codes[word] = (known(word, 0) | beside) + more
    return count * weight


def after_bit(term: str) -> int:
    """Return the bit of a word that has this one after it."""
    return _bits(term) & _AFTER


def before_bit(term: str) -> int:
    """Return the bit of a word that has this one before it."""
    return _bits(term) & ~_AFTER


def _bits(term: str) -> int:
    """Return the bits of a word: one of the lower four as a word after others, one of the upper as before."""
    hashed = crc32(term.encode())
    return 1 << hashed % 4 | 16 << (hashed >> 2) % 4


ANY = 255
"""The neighbours of a word of which they are not known."""

_AFTER = 15


@lru_cache(maxsize=256)
def _repeat(count: int) -> int:
    """Return a number of so many bytes that are 1."""
    return int.from_bytes(b"\1" * count, "little")


def join_words(text: str, language: Language = "english") -> str:
    """Return the terms of a text by position, each between two SEPARATORs: a phrase is a part of this.

    Compounds as a whole are left out, since their parts are there.
    """
    found: list[Any] = [*chain.from_iterable(map(_reader(language).coded.__getitem__, split_spans(text)))]
    words, bits = found[::2], bytes(found[1::2])
    return SEPARATOR.join(("", *(compress(words, bits) if 0 in bits else words), ""))


def space_out(text: str) -> str:
    """Return an ASCII text in small letters, with spaces for all that is in no word or compound."""
    return text.translate(_SPACES)


def find_words(text: str, language: Language = "english") -> Iterator[Word]:
    """Yield the words of a text where they stand: the same that `count_words` counts."""
    words = _reader(language).words
    position = 0
    for chunk, start in find_chunks(text):
        last = -1
        for term, form, last, first, end, role in words[chunk]:
            yield Word(term, form, position + last, start + first, start + end, role)
        position += last + 1


def find_chunks(text: str) -> Iterator[tuple[str, int]]:
    """Yield the parts of a text that have words, such as a compound, and where each one begins."""
    pattern, compared = _pattern(text)
    return ((match[0], match.start()) for match in pattern.finditer(compared))


def words_of(chunk: str, language: Language = "english") -> Iterable[Word]:
    """Return the words of a part that `find_chunks` gave, with their places in it."""
    return _reader(language).words[chunk]


def fold(text: str) -> str:
    """Return a text in NFKC form, case-folded, without accents."""
    if text.isascii():
        return text.lower()
    return "".join(_fold_slice(text[at : at + _SLICE]) for at in range(0, len(text), _SLICE))


def is_paired(text: str) -> bool:
    """Return whether a text begins with a character of a script that is indexed as pairs."""
    return _IS_PAIRED(text) is not None


def _reader(language: Language) -> _Reader:
    try:
        return _READERS[language]
    except (KeyError, TypeError):
        raise InputError(
            f"expected 'english' or None for the language of words, got {language!r}", field="language"
        ) from None


def _pattern(text: str) -> tuple[re.Pattern[str], str]:
    """Return what finds the chunks of a text, and the text as it expects it, with the same places."""
    return (_PLAIN, text.lower()) if text.isascii() else (_any_chunk(), text)


def split_spans(text: str) -> Iterable[str]:
    """Return parts of a text that hold whole chunks, so that what follows from them can be remembered."""
    if len(text) > _LONG:
        pattern, compared = _pattern(text)
        return map(_WHOLE_MATCH, pattern.finditer(compared))
    return space_out(text).split() if text.isascii() else text.split()


def _fold_slice(text: str) -> str:
    # Folding can bring letters that decompose, so it is decomposed again.
    apart = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    return unicodedata.normalize("NFKC", _IGNORED.sub("", apart).translate(_LETTERS))


def _normalize_run(run: str) -> str:
    """Return a run of paired characters in NFKC form; they have neither case nor accents."""
    if len(run) <= _SLICE:
        return unicodedata.normalize("NFKC", run)
    return "".join(unicodedata.normalize("NFKC", run[at : at + _SLICE]) for at in range(0, len(run), _SLICE))


def _pair_terms(chunk: str) -> Iterator[str]:
    run = _normalize_run(chunk)
    return chain(map(str.__add__, run, run[1:]), run[-1])


def _pieces(chunk: str) -> list[_Piece]:
    """Return the words of a chunk that is not paired: an emoji, or words that are joined."""
    if len(chunk) == 1 and not chunk.isalnum():
        return [(chunk, 0, 0, 1, "part")]
    split = _JOINER.split(chunk)
    if _is_acronym(split):
        return [(fold("".join(split[::2])), 0, 0, len(chunk), "part")]
    pieces: list[_Piece] = []
    if len(split) > 1 and _is_identifier(chunk):
        pieces.append((fold(chunk)[:MAX_WORD], 0, 0, len(chunk), "whole"))
    start = position = 0
    for number, part in enumerate(split):
        if number % 2 == 0:
            parts = _part(part, start, position)
            pieces.extend(parts)
            position += len(parts)
        start += len(part)
    return pieces


def _is_acronym(split: list[str]) -> bool:
    """Return whether parts and the joiners between them are single letters with dots, as in U.S.A."""
    letters = split[::2]
    return len(letters) > 1 and set(split[1::2]) == {"."} and all(map(_is_letter, letters))


def _is_letter(part: str) -> bool:
    return len(part) == 1 and len(fold(part)) == 1 and part.isalpha()


def _is_identifier(chunk: str) -> bool:
    """Return whether a compound is worth a word of its own: not if it is prose, as `well-known` is."""
    if len(chunk) > MAX_WORD or "'" in chunk or "\u2019" in chunk:
        return False
    return "_" in chunk or "@" in chunk or any(map(str.isdigit, chunk))


def _part(part: str, start: int, position: int) -> list[_Piece]:
    """Return the words of a part of a compound: one, or several where apostrophes stand in it."""
    pieces: list[_Piece] = []
    split = _APOSTROPHE.split(part)
    for number, raw in enumerate(split):
        form, end = raw, start + len(raw)
        if number and raw.lower() in _TAILS:
            form = ""
        elif split[number + 1 : number + 2] in (["t"], ["T"]) and len(raw) > 1 and raw[-1] in "nN":
            form, end = _NEGATED.get(raw.lower(), raw[:-1]), end + 2
        for folded in _fold_word(form):
            pieces.append((folded, position + len(pieces), start, end, "part"))
        start += len(raw) + 1
    return pieces


def _fold_word(raw: str) -> list[str]:
    """Return the words that a word is when folded, as ½ becomes 1 and 2."""
    folded = fold(raw[:_MAX_RAW])
    if folded.isalnum():
        return [folded[:MAX_WORD]]
    return [found[:MAX_WORD] for found in _any_word().findall(folded)]


def _pairs(chunk: str) -> Iterator[Word]:
    run = _normalize_run(chunk)
    starts, ends = _origins(chunk, run)
    last = len(run) - 1
    for at in range(last):
        pair = run[at : at + 2]
        yield Word(pair, pair, at, starts[at], ends[at + 1])
    yield Word(run[last], run[last], last, starts[last], ends[last], "last" if last else "part")


def _origins(chunk: str, run: str) -> tuple[Sequence[int], Sequence[int]]:
    """Return where each character of a normalized run begins and ends in the chunk it comes from."""
    if len(chunk) == len(run):
        return range(len(chunk)), range(1, len(chunk) + 1)
    starts: list[int] = []
    ends: list[int] = []
    normalized: list[str] = []
    for match in _VOICED.finditer(chunk):
        found = unicodedata.normalize("NFKC", match[0])
        normalized.append(found)
        starts += [match.start()] * len(found)
        ends += [match.end()] * len(found)
    if "".join(normalized) != run:  # other characters became one, as syllables of Hangul do
        return [0] * len(run), [len(chunk)] * len(run)
    return starts, ends
