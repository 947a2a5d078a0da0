"""Words of texts in many scripts, where they stand, and of hostile texts within a bound."""

from __future__ import annotations

import time
import unicodedata
from collections import Counter
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from dgent.errors import InputError
from dgent.search import words
from dgent.search.words import (
    MAX_WORD,
    SEPARATOR,
    Word,
    add_words,
    after_bit,
    before_bit,
    count_words,
    find_words,
    fold,
    join_words,
)
from tests.soak import times


def terms(text: str, **options: None) -> list[str]:
    return [word.term for word in find_words(text, **options)]


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("The Painters painted", "the painter paint"),
        ("user_id", "user_id user id"),
        ("__init__ and foo__bar", "init and foo__bar foo bar"),
        ("v1.2 3.11.7", "v1.2 v1 2 3.11.7 3 11 7"),
        ("foo-bar, example.org", "foo bar exampl org"),
        ("covid-19 2024-05-07 10:30", "covid-19 covid 19 2024-05-07 2024 05 07 10:30 10 30"),
        ("Joe.Smith@Example.org", "joe.smith@example.org joe smith exampl org"),
        ("https://example.org/a?b=c#d", "https exampl org a b c d"),
        ("U.S.A. e.g. a.m.", "usa eg am"),
        ("Mel's boys' don't can’t won't I'm we've", "mel boy do can will i we"),
        ("O'Brien l'homme", "o brien l homm"),
        ("end.Begin a -- b", "end begin a b"),
        ("getUserName", "getusernam"),
        ("#tag @name $5 100%", "tag name 5 100"),
        ("Übergröße naïve Łódź Ærø", "ubergross naiv lodz aero"),
        ("ﬁne ＦＵＬＬ Ⅻ ½ ①", "fine full xii 1 2 1"),
        ("Straße STRASSE strasse", "strass strass strass"),
        ("Ελλάδα ΕΛΛΆΔΑ Ёлка ёлка", "ελλαδα ελλαδα елка елка"),
        ("日本語", "日本 本語 語"),
        ("東", "東"),
        ("iPhone手机、電話", "iphon 手机 机 電話 話"),
        ("ﾊﾞｽ バス", "バス ス バス ス"),
        ("한국어", "한국 국어 어"),
        ("ไทย", "ไท ทย ย"),
        ("हिन्दी भाषा", "हिन्दी भाषा"),
        ("مُحَمَّد محمد أحمد احمد", "محمد محمد احمد احمد"),
        ("שָׁלוֹם", "שלום"),
        ("می‌خواهم", "میخواهم"),
        ("party 🎉👩‍💻 ❤️", "parti 🎉 👩 💻 ❤"),
        ("", ""),
        ("?! -- ' \" _ @", ""),
    ],
)
def test_words_of_a_text(text: str, found: str) -> None:
    assert terms(text) == found.split()


def test_without_a_language_words_keep_their_form() -> None:
    assert terms("The Painters' cafés", language=None) == ["the", "painters", "cafes"]


def test_an_unknown_language_is_refused() -> None:
    with pytest.raises(InputError, match="got 'klingon'"):
        count_words("a", "klingon")  # type: ignore[arg-type]
    with pytest.raises(InputError, match="'english' or None"):
        list(find_words("a", ["english"]))  # type: ignore[arg-type]


def test_words_say_where_they_stand() -> None:
    assert list(find_words("My user_id isn't 東京")) == [
        Word("my", "my", 0, 0, 2),
        Word("user_id", "user_id", 1, 3, 10, "whole"),
        Word("user", "user", 1, 3, 7),
        Word("id", "id", 2, 8, 10),
        Word("is", "is", 3, 11, 16),
        Word("東京", "東京", 4, 17, 19),
        Word("京", "京", 5, 18, 19, "last"),
    ]


@pytest.mark.parametrize(
    ("text", "places"),
    [
        ("ｶﾞｷﾞｸ", ["ｶﾞｷﾞ", "ｷﾞｸ", "ｸ"]),  # two characters become one
        ("กำ", ["กำ", "ำ", "ำ"]),  # one becomes two
        (unicodedata.normalize("NFD", "한국"), [unicodedata.normalize("NFD", "한국")] * 2),
        ("cafe\u0301s ﬁne", ["cafe\u0301s", "ﬁne"]),
    ],
)
def test_places_are_those_of_the_text_as_it_is_written(text: str, places: list[str]) -> None:
    assert [text[word.start : word.end] for word in find_words(text)] == places


def test_equal_texts_in_other_forms_have_the_same_words() -> None:
    text = "Crème brûlée à la carte, Việt Nam, ガラス, 한국어, Ἀθῆναι"
    assert count_words(unicodedata.normalize("NFD", text)) == count_words(text)
    assert count_words(text.upper()) == count_words(text)


ODD = "aB1é_-.'’@:*日ｶﾞ한\u1100\u1161ก\u0e33\u0301\u200d🎉½ßİ "
ANY_TEXT = st.text(max_size=60) | st.text(ODD, max_size=40)


@given(ANY_TEXT)
@example("½.½")
@example("ﷺ_1")
@example("'t n't")
def test_what_is_counted_is_what_is_found(text: str) -> None:
    found = list(find_words(text))
    assert count_words(text) == Counter(word.term for word in found)
    previous = 0
    for word in found:
        assert 0 < len(word.term) <= MAX_WORD
        assert 0 <= word.start < word.end <= len(text)
        assert word.position in (previous, previous + 1)
        previous = word.position
    assert join_words(text) == "\0".join(["", *(word.term for word in found if word.role != "whole"), ""])
    parts = [word.position for word in found if word.role != "whole"]
    assert parts == list(range(len(parts)))


@given(st.text(st.characters(max_codepoint=127), max_size=60))
def test_ascii_words_do_not_depend_on_other_letters_in_the_text(text: str) -> None:
    assert terms(f"{text} é") == [*terms(text), "e"]


@given(ANY_TEXT)
def test_folding_again_changes_nothing(text: str) -> None:
    assert fold(fold(text)) == fold(text)


def test_a_long_word_is_cut() -> None:
    assert terms("a" * 1000) == ["a" * MAX_WORD]
    assert terms("é" * 1000) == ["e" * MAX_WORD]
    [word] = find_words("é" * 1000)
    assert (word.start, word.end) == (0, 1000)


def test_what_is_remembered_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "MAX_KNOWN", 100)
    text = " ".join(f"remember{number}" for number in range(1000))
    assert len(count_words(text)) == 1000
    assert len(words._READERS["english"].coded) <= 100


MEGABYTE = times(200_000)
HOSTILE = {
    "no spaces": "a" * (10 * MEGABYTE),
    "joined": "a-" * (5 * MEGABYTE),
    "identifiers": "a_1" * (3 * MEGABYTE),
    "apostrophes": "a'" * (5 * MEGABYTE),
    "underscores": "é" + "_" * (10 * MEGABYTE),
    "one word": "word " * MEGABYTE,
    "distinct words": " ".join(f"w{number:x}" for number in range(100_000)),
    "accents": "a" + "\u0323\u0301" * (2 * MEGABYTE),
    "tone marks": "ก" + "\u0e48\u0e38" * MEGABYTE,
    "Han": "漢字" * MEGABYTE,
    "emoji": "🎉" * MEGABYTE,
    "right to left": "שלום עולם " * 500_000,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_texts_take_time_in_proportion(name: str) -> None:
    started = time.process_time()
    found = count_words(HOSTILE[name])
    assert time.process_time() - started < 10
    assert len(found) <= 100_000
    assert max(map(len, found)) <= MAX_WORD


@pytest.mark.parametrize("name", HOSTILE)
def test_words_of_hostile_texts_are_found(name: str) -> None:
    text = HOSTILE[name][: MEGABYTE // 5]
    assert sum(count_words(text).values()) == sum(1 for _ in find_words(text))


@given(st.text(alphabet="ab'_1 .東京é") | st.text(max_size=60), st.integers(1, 4), st.integers(1, 3))
def test_codes_hold_the_counts_and_who_stands_beside(text: str, weight: int, batch: int) -> None:
    codes: dict[str, int] = {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(words, "_BATCH", batch)
        size = add_words(codes, text, weight)
    counts = count_words(text)
    assert size == weight * sum(counts.values())
    assert {word: code >> 8 for word, code in codes.items()} == {w: weight * n for w, n in counts.items()}
    near = dict.fromkeys(counts, 0)
    in_order = join_words(text).split(SEPARATOR)[1:-1]
    for one, other in pairwise(in_order):
        near[one] |= after_bit(other)
        near[other] |= before_bit(one)
    assert {word: code & 255 for word, code in codes.items()} == near
