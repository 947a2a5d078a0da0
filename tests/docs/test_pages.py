"""What holds for all pages: links lead somewhere, the README is short, and no page names how it was made."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest

from tests.docs import pages

README_LINES = 81

_LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_PATH = re.compile(r"`((?:src|tests|docs|examples)/[\w./-]+)`")

# Each with the reason it must not be in a page.
FORBIDDEN = {
    r"\bTODO\b|\bFIXME\b|\bXXX\b": "unfinished",
    r"(?i)\bissue\s*#?\d+|#\d+\b": "points at a tracker",
    r"(?i)\bcoming soon\b|\bwill be added\b|\bfor future use\b": "promises instead of saying what is there",
    r"/(?:work|root|home|tmp|Users|opt|var)/": "a path of some machine",
    r"\bpypi\.org\b|\bindex-url\b|\bhttps?://(?:localhost|127\.(?!0\.0\.1:8730))": "a host",
    r"(?i)\b(?:sitting|helper|chatbot|language model)s?\b": "speaks of how it was made",
    # `seed=` of a random choice is an argument, and SEED a stage of an idea.
    r"(?i)\b(?:the|this|each|our|of) seeds?\b|\bseeds\b|\bseed(?:'s| \d)": "speaks of how it was made",
    r"—": "write a colon, a comma or two sentences",
}


def _anchor(heading: str) -> str:
    """The anchor that a page's heading gets on the usual renderers."""
    kept = re.sub(r"[^\w\- ]", "", heading.strip().lower())
    return kept.replace(" ", "-")


@cache
def _anchors(page: Path) -> set[str]:
    return {_anchor(heading.replace("`", "")) for heading in _HEADING.findall(pages.prose(page))}


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_links_lead_somewhere(page: Path) -> None:
    for link in _LINK.findall(pages.prose(page)):
        assert "://" not in link, f"{link} leaves the repository"
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), f"{link} leads nowhere"
        assert pages.ROOT in target.parents
        if anchor:
            assert anchor in _anchors(target), f"{link} names no heading"


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_files_that_a_page_names_exist(page: Path) -> None:
    for path in _PATH.findall(page.read_text(encoding="utf-8")):
        assert (pages.ROOT / path).exists(), f"{path} is not there"


@pytest.mark.parametrize("page", [*pages.PAGES, *pages.EXAMPLES], ids=pages.name)
def test_no_forbidden_words(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    for pattern, reason in FORBIDDEN.items():
        found = re.search(pattern, text)
        assert found is None, f"{found[0]!r}: {reason}"


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_page_starts_with_one_heading(page: Path) -> None:
    text = pages.prose(page)
    assert text.startswith("# ")
    assert len(re.findall(r"^# ", text, re.MULTILINE)) == 1


def test_every_page_can_be_reached_from_the_readme() -> None:
    seen: set[Path] = set()
    waiting = [pages.README]
    while waiting:
        page = waiting.pop()
        if page in seen or page.suffix != ".md":
            continue
        seen.add(page)
        links = (link.partition("#")[0] for link in _LINK.findall(pages.prose(page)))
        waiting += [(page.parent / link).resolve() for link in links if link]
    assert {pages.name(page) for page in pages.PAGES} <= {pages.name(page) for page in seen}


def test_readme_is_short_and_shows_first_what_to_run() -> None:
    text = pages.README.read_text(encoding="utf-8")
    assert len(text.splitlines()) < README_LINES
    first = pages.blocks(pages.README)[0]
    assert first.info == "sh"
    assert [line.split("#")[0].strip() for line in first.text.splitlines()] == ["make demo", "make test"]
    makefile = (pages.ROOT / "Makefile").read_text(encoding="utf-8")
    assert re.search(r"^demo:", makefile, re.MULTILINE)
    assert re.search(r"^test:", makefile, re.MULTILINE)


def test_readme_has_a_picture_above_everything_to_do() -> None:
    text = pages.README.read_text(encoding="utf-8")
    picture = re.search(r"!\[[^\]]+\]\((docs/screens/[\w-]+\.svg)\)", text)
    assert picture is not None and picture.start() < text.index("```")
    assert (pages.ROOT / picture[1]).is_file()


def test_promises_name_their_tests() -> None:
    promises = (pages.DOCS / "promises.md").read_text(encoding="utf-8")
    rows = [line for line in promises.splitlines() if line.startswith("| ") and "`tests/" in line]
    assert len(rows) >= 10


@pytest.mark.parametrize("page", pages.PAGES, ids=pages.name)
def test_tests_that_pages_name_are_there(page: Path) -> None:
    for path, test in re.findall(r"`(tests/[\w/.]+)::(\w+)`", page.read_text(encoding="utf-8")):
        assert f"def {test}(" in (pages.ROOT / path).read_text(encoding="utf-8"), test
