"""Snippets show the best passage and mark what was searched for."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgent.search import snippet as snippets
from dgent.search.snippet import ELLIPSIS, WIDTH, Snippet, choose_snippet, make_snippet
from dgent.search.wanted import Wanted, parse_search
from dgent.search.words import Language

FILLER = "nothing to see here and so on "


def marked(snippet: Snippet) -> list[str]:
    return [snippet.text[start:end] for start, end in snippet.marks]


def show(text: str, search: str, language: Language = "english") -> tuple[str, list[str]]:
    snippet = make_snippet(text, parse_search(search, language), language)
    return snippet.text, marked(snippet)


@pytest.mark.parametrize(
    ("text", "search", "marks"),
    [
        ("She painted red barns.", "painting barn", ["painted", "barns"]),
        ("She painted red barns.", "mill", []),
        ("Red paint, Painters", "paint*", ["paint", "Painters"]),
        ("They keep generating.", "generate*", ["generating"]),
        ("the user_id field", "user_id", ["user_id"]),
        ("the user_id field", "user", ["user"]),
        ("to be or not to be", '"to be" hamlet', ["to be", "to be"]),
        ("a red and a red barn", '"red barn"', ["red", "red barn"]),
        ("大東京大学へ", "東京大学", ["東京大学"]),
        ("大東京大学へ", "京", ["京"]),
        ("Café CAFE\u0301 cafe", "café", ["Café", "CAFE\u0301", "cafe"]),
        ("Party 🎉🎉!", "🎉", ["🎉", "🎉"]),
        ("Mel's dog. Mel didn't.", '"mel did"', ["Mel", "Mel didn't"]),
        ("", "mill", []),
    ],
)
def test_marks_are_the_words_as_they_are_written(text: str, search: str, marks: list[str]) -> None:
    assert show(text, search) == (text, marks)


def test_the_passage_with_more_words_wins() -> None:
    filler = FILLER * 20
    text = f"{filler} a barn. {filler} a red barn. {filler} barn barn barn {filler}"
    passage, marks = show(text, "red barn")
    assert marks == ["red", "barn"]
    assert passage.startswith(ELLIPSIS) and passage.endswith(ELLIPSIS)
    assert len(passage) <= WIDTH + 2


def test_rarer_words_win_where_weights_say_so() -> None:
    text = "common usual " + FILLER * 20 + "rare"
    wanted = parse_search("common usual rare")
    assert marked(make_snippet(text, wanted)) == ["common", "usual"]
    weights = {"common": 0.1, "usual": 0.1, "rare": 5.0}
    assert marked(make_snippet(text, wanted, weights=weights)) == ["rare"]


def test_a_phrase_wins_over_its_words() -> None:
    text = "red and a barn. " + FILLER * 20 + "red barn"
    assert show(text, '"red barn"')[1][-1] == "red barn"


def test_passages_begin_and_end_between_words() -> None:
    words = [f"word{number}" for number in range(200)]
    passage, marks = show(" ".join(words), "word100")
    assert marks == ["word100"]
    assert set(passage.strip(ELLIPSIS).split()) <= set(words)
    assert 100 < len(passage) <= WIDTH + 2


def test_without_a_word_the_beginning_is_shown() -> None:
    passage, marks = show("first " + FILLER * 20, "mill")
    assert passage.startswith("first") and passage.endswith(ELLIPSIS) and not marks
    assert make_snippet("a b", Wanted()) == Snippet("a b")


def test_a_snippet_is_one_line_and_cannot_take_over_a_terminal() -> None:
    passage, marks = show("red\r\n\x1b[31m barn\u202e\u2028 end", "barn red")
    assert passage == "red   [31m barn   end"
    assert marks == ["red", "barn"]


def test_letters_keep_their_marks() -> None:
    text = "e\u0301" * 500
    passage = make_snippet(text, Wanted()).text.strip(ELLIPSIS)
    assert passage == "e\u0301" * (len(passage) // 2)


@given(
    st.text(max_size=400) | st.text("red barn\u0301 日本語.\n_-", max_size=400),
    st.text("red barn*日本\"'_ ", max_size=20) | st.text(max_size=20),
    st.integers(1, 100),
)
def test_any_text_has_a_snippet(text: str, search: str, width: int) -> None:
    snippet = make_snippet(text, parse_search(search), width=width)
    assert len(snippet.text) <= width + 2
    previous = 0
    for start, end in snippet.marks:
        assert previous <= start < end <= len(snippet.text)
        previous = end


@given(st.lists(st.sampled_from(["filler", "words", "日本", "x_1", "\n"]), max_size=200), st.integers(0, 200))
def test_a_word_of_the_text_is_shown(words: list[str], place: int) -> None:
    text = " ".join([*words[:place], "needle", *words[place:]])
    assert show(text, "needle")[1] == ["needle"]


@pytest.mark.parametrize("piece", ["red ", "red-", "r", "日本", "e\u0301"])
def test_long_texts_are_read_in_bounded_time(piece: str) -> None:
    started = time.process_time()
    make_snippet(piece * (3_000_000 // len(piece)), parse_search('red barn "red barn" r* 日本'))
    assert time.process_time() - started < 10


@given(
    st.lists(
        st.sampled_from(["Ferries", "run", "running", "Café", "user_name", "x-ray", "the", "4711", "\n"])
    ),
    st.lists(
        st.sampled_from(["ferry", "runs", "name", "rays", "4711", "fer*", "cafe"]), min_size=1, max_size=3
    ),
    st.integers(0, 60),
)
def test_long_texts_have_the_same_passages(words: list[str], query: list[str], filler: int) -> None:
    text = "filler " * filler + " ".join(words)
    wanted = parse_search(" ".join(query))
    plain = make_snippet(text, wanted)
    before, snippets.LONG = snippets.LONG, 0
    try:
        assert make_snippet(text, wanted) == plain
    finally:
        snippets.LONG = before


def test_the_text_with_the_phrase_is_shown() -> None:
    texts = ["Swimming in lakes", "We swam at dawn in the cold lake near Oslo"]
    assert choose_snippet(texts, parse_search('"cold lake"')).text == texts[1]
    assert choose_snippet(texts, parse_search('swimming "cold lake"')).text == texts[1]
    assert choose_snippet(texts, parse_search("lake")).text == texts[0], "the first among equals"


def test_a_text_with_more_of_the_words_is_shown_before_one_that_repeats_a_word() -> None:
    texts = ["lake, lake, lake", "a cold lake"]
    assert choose_snippet(texts, parse_search("cold lake")).text == texts[1]
