"""Near names: the one place that guesses what somebody meant by a word that nothing is called."""

from __future__ import annotations

from collections.abc import Iterable

MAX_WORD = 100  # letters of a word that are compared


def find_near(word: str, known: Iterable[str], most: int = 3, likeness: float = 0.6) -> list[str]:
    """Return the known words that are most like a word, the nearest first; case does not count."""
    import difflib  # only a mistake needs it

    by_case = {each.casefold(): each for each in reversed([*known])}
    return [
        by_case[each]
        for each in difflib.get_close_matches(word[:MAX_WORD].casefold(), by_case, most, likeness)
    ]


def ask(words: Iterable[str]) -> str:
    """Return the question whether one of some words was meant; empty for none."""
    *others, last = [*words] or [""]
    start = f"{', '.join(others)} or " if others else ""
    return f"did you mean {start}{last}?" if last else ""


def nearest(word: str, known: Iterable[str]) -> str:
    """Return a hint that names the most similar known word; empty when none is similar."""
    return ask(find_near(word, known, 1))
