"""What of some texts goes into a prompt: the most important first, and never more than there is room for."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from dgent.blocks.context.wrapper import wrapped

Tokens = Callable[[str], int]
GAP = "\n\n"
LEAST = 200  # characters of a text that are worth showing when the rest is cut
NAMED = 12  # of what was cut, how many are named


def estimate(text: str) -> int:
    """About how many tokens a text is: four bytes each, which fits most languages."""
    return (len(text.encode()) + 3) // 4


@dataclass(frozen=True)
class Part:
    """A piece of a prompt: what it is called, the text between its tags, and how important it is.

    The lowest rank is the most important. What is `whole` is shown as it is or not at all.
    """

    name: str
    tag: str
    attributes: tuple[tuple[str, str], ...]
    body: str
    rank: tuple[int, int]
    whole: bool = False

    def text(self, length: int | None = None) -> str:
        """The piece with its tags, perhaps with only so many characters of its body."""
        return wrapped(self.tag, dict(self.attributes), self.body if length is None else self._cut(length))

    def _cut(self, length: int) -> str:
        shown = self.body[:length]
        line = shown.rfind("\n")
        shown = shown[:line] if line > length // 2 else shown  # at the end of a line if one is near
        return f"{shown}\n[cut: {len(self.body) - len(shown)} of {len(self.body)} characters are not shown]"


@dataclass(frozen=True)
class Context:
    """A prompt, how many tokens it is, and what is in it as a whole, in part and not at all."""

    text: str
    tokens: int
    shown: tuple[str, ...]
    shortened: tuple[str, ...] = ()
    cut: tuple[str, ...] = ()

    def __str__(self) -> str:
        return self.text


def fit(parts: Sequence[Part], budget: int | None, tokens: Tokens = estimate) -> Context:
    """The parts in their order, as many as a budget has room for, with a notice for the rest."""
    whole = [part.text() for part in parts]
    text = GAP.join(whole)
    size = tokens(text)
    if budget is None or size <= budget:
        return Context(text, size, tuple(part.name for part in parts))
    chosen = _choose(parts, whole, budget, tokens)
    while True:
        made = _assembled(parts, whole, chosen, budget, tokens)
        if made is not None:
            return made
        chosen.popitem()  # the least important: the tokens of a whole may be more than those of its parts


def _choose(parts: Sequence[Part], whole: Sequence[str], budget: int, tokens: Tokens) -> dict[int, str]:
    """The text of each part that there is room for by its place, the most important first."""
    names = [part.name for part in parts]
    room = budget - tokens(GAP + _notice(names, sorted(names, key=len)[-1:], NAMED))
    chosen: dict[int, str] = {}
    for place in sorted(range(len(parts)), key=lambda place: (parts[place].rank, place)):
        text = whole[place]
        cost = tokens(text + GAP)
        if cost > room:
            text = _shortened(parts[place], room, tokens)
            cost = tokens(text + GAP) if text else 0
        if text:
            chosen[place] = text
            room -= cost
    return chosen


def _shortened(part: Part, room: int, tokens: Tokens) -> str:
    """As much of a part as there is room for; nothing when that is hardly any."""
    if part.whole or room <= 0:
        return ""
    low, high = 0, len(part.body) - 1
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if tokens(part.text(middle) + GAP) <= room else (low, middle - 1)
    return part.text(low) if low >= LEAST else ""


def _assembled(
    parts: Sequence[Part], whole: Sequence[str], chosen: dict[int, str], budget: int, tokens: Tokens
) -> Context | None:
    """The chosen parts in order and the notice, with as many names as fit; None when that is too much."""
    places = sorted(chosen)
    shown = [parts[place].name for place in places if chosen[place] == whole[place]]
    short = [parts[place].name for place in places if chosen[place] != whole[place]]
    cut = [part.name for place, part in enumerate(parts) if place not in chosen]
    for named in (NAMED, 3, 0):
        text = GAP.join([*(chosen[place] for place in places), _notice(cut, short, named)])
        if (size := tokens(text)) <= budget:
            return Context(text, size, tuple(shown), tuple(short), tuple(cut))
    # Rather one part less than no word about what is missing; but there may be room for nothing at all.
    return None if chosen else Context("", tokens(""), (), (), tuple(cut))


def _notice(cut: Sequence[str], short: Sequence[str], named: int) -> str:
    lines = [_told(cut, "not shown", named), _told(short, "shown in part", named)]
    return wrapped("memory:notice", {}, "\n".join(line for line in lines if line))


def _told(names: Sequence[str], how: str, named: int) -> str:
    if not names:
        return ""
    some = [name if len(name) <= 40 else name[:39] + "…" for name in names[:named]]
    more = f" and {len(names) - len(some)} more" if some and len(names) > len(some) else ""
    return f"{how} for want of room: {len(names)}" + (f" ({', '.join(some)}{more})" if some else "")
