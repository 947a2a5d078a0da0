"""`dgent search` and `dgent recall WORDS`: hits as what they are, with the words marked on a terminal."""

from __future__ import annotations

import re

from tests.cli.terminal import Terminal


def fill(dgent_: Terminal) -> None:
    dgent_("crumb", "add", "Peel", "the", "onions")
    dgent_("trail", "start", "Frozen onions")
    dgent_("trail", "abandon", "Frozen onions", "--lesson", "They lose their bite")


def test_hits_are_shown_as_what_they_are(dgent_: Terminal) -> None:
    fill(dgent_)
    lines = dgent_("search", "onion", "peels").out.splitlines()
    assert re.fullmatch(r"1\.00  crumb  Peel the onions  draft  [-0-9a-f]{36}  (just now|.* ago)", lines[0])
    assert lines[1] == "      Peel the onions"
    assert re.fullmatch(r"0\.\d\d  lesson  Frozen onions  abandoned  [-0-9a-f]{36}  .*", lines[2])
    assert dgent_("search", "bite").out.splitlines()[1] == "      They lose their bite"
    assert dgent_("search", "nowhere").out == "nothing found\n"


def test_words_are_marked_only_in_colour(dgent_: Terminal) -> None:
    fill(dgent_)
    assert "\x1b" not in dgent_("search", "onion").out
    assert "the \x1b[32m\x1b[1monions\x1b[0m" in dgent_("search", "onion", "--color", "always").out


def test_all_of_it_is_in_the_json(dgent_: Terminal) -> None:
    fill(dgent_)
    [hit] = dgent_("search", "peel", "--json", "--explain").data["items"]
    assert {**hit, "record": None, "id": ""} == {
        "kind": "crumb",
        "id": "",
        "name": "Peel the onions",
        "detail": "draft",
        "record": None,
        "score": 1.0,
        "snippet": "Peel the onions",
        "marks": [[0, 4]],
        "parts": {"peel": 1.0},
    }
    assert hit["record"]["id"] == hit["id"]


def test_filters_narrow_a_search(dgent_: Terminal) -> None:
    fill(dgent_)
    assert len(dgent_("search", "onion", "--json").data["items"]) == 2
    for options in (["--schema", "cupboard.trail"], ["-w", "state=abandoned"], ["-k", "1"]):
        assert len(dgent_("search", "onion", *options, "--json").data["items"]) == 1
    assert dgent_("search", "onion", "--until", "2000-01-01", "--json").data["items"] == []
    assert len(dgent_("search", "onion", "--since", "1h", "--json").data["items"]) == 2


def test_several_words_are_recalled_and_one_unknown_word_is_an_error(dgent_: Terminal) -> None:
    fill(dgent_)
    assert dgent_("recall", "peel", "onions").out == dgent_("search", "peel", "onions").out
    slip = dgent_("recall", "cupboard.crum")
    assert slip.code != 0
    assert "there is no schema 'cupboard.crum' here" in slip.err
    assert slip.err.index("did you mean cupboard.crumb?") < slip.err.index("dgent search cupboard.crum")
    assert "there is no schema 'onions' here" in dgent_("recall", "onions").err
    assert "nothing found" in dgent_("recall", "cupboard.stash").out


def test_records_that_nobody_declared_are_found(dgent_: Terminal) -> None:
    dgent_("remember", '{"action": "ship it", "why": ["onions"]}')
    dgent_("remember", "-s", "deed", '{"action": "ship two"}')
    lines = dgent_("search", "ships", "onion").out.splitlines()
    assert re.fullmatch(r"1\.00  record  [-0-9a-f]{36}  (just now|.* ago)", lines[0])
    assert lines[1].strip() in ("ship it", "onions")
    assert re.fullmatch(r"0\.\d\d  record  deed  [-0-9a-f]{36}  .*", lines[2])
    assert dgent_("recall", "ships", "onion").out.splitlines()[0] == lines[0]
    assert len(dgent_("search", "ship", "--schema", "deed", "--json").data["items"]) == 1
    assert dgent_("search", "nowhere").out == "nothing found\n"


def test_a_stranger_s_words_are_marked(dgent_: Terminal) -> None:
    source = "origin:untrusted https://example.org"
    assert dgent_("remember", "the lighthouse is closed", "--id", "marked", "--source", source).code == 0
    assert dgent_("remember", "the lighthouse is open", "--id", "plain").code == 0
    found = {each["id"]: each for each in dgent_("search", "lighthouse", "--json").data["items"]}
    assert found["marked"]["origin"] == found["marked"]["record"]["origin"] == "untrusted"
    assert "origin" not in found["plain"] and "origin" not in found["plain"]["record"]
    for words in (["search", "closed"], ["get", "marked"], ["history", "marked"], ["log"], ["recall"]):
        assert dgent_(*words).out.count("origin: untrusted") == 1, words
    for words in (["search", "open"], ["get", "plain"], ["history", "plain"]):
        assert "origin:" not in dgent_(*words).out.replace(source, ""), words
