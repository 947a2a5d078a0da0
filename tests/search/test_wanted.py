"""Any text is a search: words, phrases and prefixes, stop words, and bounds."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dgent.search import wanted as search_text
from dgent.search.stem import stem
from dgent.search.wanted import (
    MAX_PHRASES,
    MAX_STEPS,
    MAX_TEXT,
    MAX_WORDS,
    Phrase,
    PhraseFinder,
    Prefix,
    Wanted,
    has_phrases,
    parse_search,
)
from dgent.search.words import count_words, find_words, join_words


def test_words_phrases_and_prefixes_in_one_search() -> None:
    wanted = parse_search('Painting "old Barns" app*')
    assert wanted.words == ("paint", "old", "barn")
    assert wanted.phrases == (Phrase(("old", "barn")),)
    assert [prefix.text for prefix in wanted.prefixes] == ["app"]
    assert not wanted.cut


@pytest.mark.parametrize(
    ("text", "found"),
    [
        ("what did the painter do", ("painter",)),
        ("what did they do", ("what", "did", "they", "do")),
        ("the the", ("the",)),
        ("notes of May", ("note", "may")),
        ("user_id of joe", ("user_id", "user", "id", "joe")),
        ("日本語", ("日本", "本語")),
        ("paint Painted PAINTING", ("paint",)),
        ('an "open quote', ("open", "quot")),
        ("a AND b OR NOT (c)", ("b", "c")),
        ("* \" ' ?", ()),
        ("", ()),
    ],
)
def test_words_of_a_search(text: str, found: tuple[str, ...]) -> None:
    assert parse_search(text) == Wanted(words=found)
    assert bool(parse_search(text)) == bool(found)


def test_without_a_language_there_are_no_stop_words_and_no_stems() -> None:
    wanted = parse_search("the painters paint*", None)
    assert wanted == Wanted(words=("the", "painters"), prefixes=(Prefix("paint"),))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("app*", "applications"),
        ("generati*", "generation"),
        ("generate*", "generating"),
        ("happy*", "happy"),
        ("happin*", "happiness"),
        ("runnin*", "running"),
        ("runn*", "runner"),
        ("studie*", "studies"),
        ("organizatio*", "organizations"),
        ("believe*", "believed"),
        ("ski*", "skies"),
        ("v1*", "v1.2"),
        ("user_i*", "user_id"),
        ("CAFÉ*", "cafeteria"),
        ("東", "東京"),
        ("京", "東京"),
        ("東*", "東京"),
    ],
)
def test_a_prefix_finds_the_stems_of_what_begins_so(text: str, word: str) -> None:
    [prefix] = parse_search(text).prefixes
    assert any(map(prefix.fits, count_words(word)))


def test_a_prefix_of_a_compound_is_that_of_the_whole() -> None:
    wanted = parse_search("user_na*")
    assert wanted == Wanted(words=("user",), prefixes=(Prefix("user_na"),))


def test_paired_characters_with_a_star_are_words() -> None:
    assert parse_search("東京*") == Wanted(words=("東京",))


@pytest.mark.parametrize("quoted", ['"to be or not"', "“to be or not”", "«to be or not»"])
def test_a_phrase_keeps_its_stop_words(quoted: str) -> None:
    wanted = parse_search(f"hamlet {quoted}")
    assert wanted.words == ("hamlet",)
    assert wanted.phrases == (Phrase(("to", "be", "or", "not")),)


@pytest.mark.parametrize(
    ("search", "text", "holds"),
    [
        ('"red barn"', "He painted red barns.", True),
        ('"red barn"', "a red and old barn; barn red", False),
        ('"red barn"', "red, red barn", True),
        ('"user id"', "the user_id field", True),
        ('"user_id field"', "the user id field", True),
        ('"don\'t go"', "so do go", True),
        ('"東京"', "大東京都", True),
        ('"東京"', "東北京都", False),
        ('"東京大学"', "東京 大学", False),
        ('"東京 大学"', "東京、大学", True),
        ('"京"', "東京", True),
        ('"red barn" "old mill"', "red barn", False),
        ('""', "anything", True),
    ],
)
def test_phrases_are_words_next_to_each_other(search: str, text: str, holds: bool) -> None:
    assert has_phrases([text], parse_search(search).phrases) is holds


def test_a_phrase_stands_within_one_text() -> None:
    phrases = parse_search('"red barn"').phrases
    assert not has_phrases(["red", "barn"], phrases)
    assert has_phrases(["no", "red barn"], phrases)


def test_phrases_say_where_they_stand() -> None:
    text = "to be or not to be"
    finder = PhraseFinder(parse_search('"to be"').phrases)
    found = [(start, end) for word in find_words(text) for _, start, end in finder.end_at(word)]
    assert found == [(0, 5), (13, 18)]


def test_what_is_beyond_the_bounds_is_cut_and_said() -> None:
    many = parse_search(" ".join(f"w{number}" for number in range(MAX_WORDS + 1)))
    assert (len(many.words), many.cut) == (MAX_WORDS, True)
    phrases = parse_search(" ".join(f'"a w{number}"' for number in range(MAX_PHRASES + 1)))
    assert (len(phrases.phrases), phrases.cut) == (MAX_PHRASES, True)
    assert f"w{MAX_PHRASES}" in phrases.words
    long = parse_search(f'"{"a b " * MAX_STEPS}"')
    assert (len(long.phrases[0].steps), long.cut) == (MAX_STEPS, True)
    assert parse_search("x " * MAX_TEXT) == Wanted(words=("x",), cut=True)


ANY_TEXT = st.text(max_size=80) | st.text("ab1 \"“”«»*_-.'東京é🎉the", max_size=60)


@given(ANY_TEXT, st.sampled_from(["english", None]))
def test_any_text_is_a_search(text: str, language: None) -> None:
    wanted = parse_search(text, language)
    assert len(wanted.words) + len(wanted.prefixes) <= MAX_WORDS
    assert bool(wanted) == bool(count_words(text, language))
    if not wanted.cut and not wanted.prefixes:
        assert set(wanted.words) <= count_words(text, language).keys()
    for phrase in wanted.phrases:
        assert has_phrases([text], [phrase], language) or any(quote in text for quote in '"“«')


@given(st.lists(st.sampled_from(["red", "barn", "the", "user_id", "東京", "ok"]), min_size=1, max_size=5))
def test_each_text_holds_itself_as_a_phrase(words: list[str]) -> None:
    text = " ".join(words)
    assert has_phrases([f"before {text} after"], parse_search(f'"{text}"').phrases)


@given(st.text("ab 東京", max_size=30), st.text("ab 東京", max_size=6))
def test_phrases_are_found_where_they_are_said_to_stand(text: str, quoted: str) -> None:
    for phrase in parse_search(f'"{quoted}"').phrases:
        finder = PhraseFinder([phrase])
        found = [place for word in find_words(text) for place in finder.end_at(word)]
        assert bool(found) is phrase.stands_in(join_words(text))
        for _, start, end in found:
            assert phrase.stands_in(join_words(text[start:end]))


TANGLED = (
    *(
        "won't",
        "will",
        "dying",
        "die",
        "dies",
        "U.S.A.",
        "usa",
        "e.g.",
        "eg",
        "user_id",
        "id",
        "mel's",
        "o'd've",
    ),
    *(
        "don't",
        "do",
        "can't",
        "skies",
        "sky",
        "well-known",
        "end.Begin",
        "begin",
        "1.2.3",
        "2024-05-07",
        "naïve",
    ),
    *(
        "happily",
        "happy",
        "Relational",
        "relate",
        "--",
        ",",
        "__init__",
        "rock'n'roll",
        "n",
        "roll",
        "x's_y",
        "y",
    ),
)


@settings(max_examples=300)
@given(
    text=st.lists(st.sampled_from(TANGLED), max_size=12).map(" ".join),
    quoted=st.lists(st.sampled_from(TANGLED), min_size=1, max_size=3).map(" ".join),
    star=st.sampled_from(["", "*"]),
    tries=st.sampled_from([1, 2, 8]),
)
def test_a_phrase_is_found_where_its_words_stand_in_order(
    text: str, quoted: str, star: str, tries: int
) -> None:
    phrases = parse_search(f'"{quoted}{star}"').phrases
    joined = join_words(text)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(search_text, "_MOST_TRIES", tries)
        assert has_phrases([text], phrases) == all(phrase.stands_in(joined) for phrase in phrases)


ROOTS = (
    "cr",
    "dy",
    "happ",
    "relat",
    "a",
    "ab",
    "sk",
    "sky",
    "ly",
    "vy",
    "run",
    "univers",
    "tie",
    "ow",
    "yell",
)
ENDS = ("", "y", "ies", "ied", "ying", "ing", "ed", "s", "ational", "ness", "li", "ogist", "izer", "ly", "e")


@given(parts=st.tuples(st.sampled_from(ROOTS), st.sampled_from(ENDS), st.sampled_from(ENDS)))
def test_stemming_leaves_the_letters_by_which_phrases_are_looked_for(parts: tuple[str, ...]) -> None:
    word = "".join(parts)
    assert word.startswith(search_text._first_letters(stem(word)))
