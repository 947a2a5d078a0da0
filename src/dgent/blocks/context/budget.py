"""Fit texts into the token budget of a prompt, the most important first."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dgent.blocks.context.wrapper import wrap
from dgent.model.tokens import estimate

Tokens = Callable[[str], int]
GAP = "\n\n"
LEAST = 200  # characters of a text that are worth showing when the rest is cut
NAMED = 12  # names of cut parts in the notice


@dataclass(frozen=True)
class PromptPart:
    """A part of a prompt: its name, the text between its tags, and its rank.

    The lowest rank is the most important. A part that is `whole` is shown complete or not at all.
    """

    name: str
    tag: str
    attributes: tuple[tuple[str, str], ...]
    body: str
    rank: tuple[int, int]
    whole: bool = False

    def text(self, length: int | None = None) -> str:
        """Return the part with its tags, optionally with only the first `length` characters of its body."""
        return wrap(self.tag, dict(self.attributes), self.body if length is None else self._cut(length))

    def _cut(self, length: int) -> str:
        shown = self.body[:length]
        line = shown.rfind("\n")
        shown = shown[:line] if line > length // 2 else shown  # at the end of a line if one is near
        return f"{shown}\n[cut: {len(self.body) - len(shown)} of {len(self.body)} characters are not shown]"


@dataclass(frozen=True)
class Context:
    """A prompt, its token count, and the names of the parts shown whole, shortened and cut.

    `others` are blocks that are not in it, because they are archival or not pinned.
    """

    text: str
    tokens: int
    shown: tuple[str, ...]
    shortened: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()
    others: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text


def fit(parts: Sequence[PromptPart], budget: int | None, tokens: Tokens = estimate) -> Context:
    """Join as many parts as fit the budget, in their order, with a notice about the rest."""
    whole = [part.text() for part in parts]
    text = GAP.join(whole)
    size = tokens(text)
    if budget is None or size <= budget:
        return Context(text, size, tuple(part.name for part in parts))
    chosen = _choose(parts, whole, budget, tokens)
    while True:
        made = _assemble(parts, whole, chosen, budget, tokens)
        if made is not None:
            return made
        chosen.popitem()  # the least important: a text may have more tokens than its parts together


def _choose(parts: Sequence[PromptPart], whole: Sequence[str], budget: int, tokens: Tokens) -> dict[int, str]:
    """Return the text of each part that fits, by its place, the most important first."""
    names = [part.name for part in parts]
    room = budget - tokens(GAP + _notice(names, sorted(names, key=len)[-1:], NAMED))
    chosen: dict[int, str] = {}
    for place in sorted(range(len(parts)), key=lambda place: (parts[place].rank, place)):
        text = whole[place]
        cost = tokens(text + GAP)
        if cost > room:
            text = _shorten(parts[place], room, tokens)
            cost = tokens(text + GAP) if text else 0
        if text:
            chosen[place] = text
            room -= cost
    return chosen


def _shorten(part: PromptPart, room: int, tokens: Tokens) -> str:
    """Return as much of a part as fits; empty when that is too little to be useful."""
    if part.whole or room <= 0:
        return ""
    low, high = 0, len(part.body) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if tokens(part.text(middle) + GAP) <= room else (low, middle - 1)
    return part.text(low) if low >= LEAST else ""


def _assemble(
    parts: Sequence[PromptPart], whole: Sequence[str], chosen: dict[int, str], budget: int, tokens: Tokens
) -> Context | None:
    """Join the chosen parts and the notice, with as many names as fit; None when it is too long."""
    places = sorted(chosen)
    shown = [parts[place].name for place in places if chosen[place] == whole[place]]
    short = [parts[place].name for place in places if chosen[place] != whole[place]]
    cut = [part.name for place, part in enumerate(parts) if place not in chosen]
    for named in (NAMED, 3, 0):
        text = GAP.join([*(chosen[place] for place in places), _notice(cut, short, named)])
        if (size := tokens(text)) <= budget:
            return Context(text, size, tuple(shown), tuple(short), tuple(cut))
    # Drop a part rather than the notice; but there may be room for nothing at all.
    return None if chosen else Context("", tokens(""), (), (), tuple(cut))


def _notice(cut: Sequence[str], short: Sequence[str], named: int) -> str:
    lines = [_describe_names(cut, "not shown", named), _describe_names(short, "shown in part", named)]
    return wrap("memory:notice", {}, "\n".join(line for line in lines if line))


def _describe_names(names: Sequence[str], how: str, named: int) -> str:
    if not names:
        return ""
    some = [name if len(name) <= 40 else name[:39] + "…" for name in names[:named]]
    more = f" and {len(names) - len(some)} more" if some and len(names) > len(some) else ""
    return f"{how} for want of room: {len(names)}" + (f" ({', '.join(some)}{more})" if some else "")
