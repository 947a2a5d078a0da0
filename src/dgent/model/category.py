"""Categories: objects, arrows between them, an identity and a composition whose laws can be checked."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from dgent.model import lens

M = TypeVar("M")


@dataclass(frozen=True)
class Category(Generic[M]):
    """Some objects and the arrows between them.

    `same` says whether two arrows do the same for a sample; arrows are functions, so `==` cannot.
    """

    name: str
    objects: frozenset[str]
    morphisms: type[M]
    identity: Callable[[], M]
    compose: Callable[[M, M], M]
    same: Callable[[M, M, Any], bool]

    def broken_laws(self, arrows: Sequence[M], samples: Iterable[Any]) -> list[str]:
        """Return the laws that do not hold for some arrows that can be composed in their order."""
        broken: list[str] = []
        one, compose = self.identity(), self.compose
        for sample in samples:
            for number, arrow in enumerate(arrows):
                for side, joined in (("left", compose(one, arrow)), ("right", compose(arrow, one))):
                    if not self.same(joined, arrow, sample):
                        broken.append(f"{side} identity of arrow {number} for {sample!r:.80}")
            if len(arrows) > 2:
                left = compose(compose(arrows[0], arrows[1]), arrows[2])
                right = compose(arrows[0], compose(arrows[1], arrows[2]))
                if not self.same(left, right, sample):
                    broken.append(f"associativity for {sample!r:.80}")
        return broken


def _same_lens(one: lens.Lens[Any, Any], other: lens.Lens[Any, Any], sample: Any) -> bool:
    whole, part = sample
    return bool(one.get(whole) == other.get(whole) and one.set(whole, part) == other.set(whole, part))


AGENT_MEMORY: Category[lens.Lens[Any, Any]] = Category(
    name="agent memory",
    objects=frozenset({"crystals", "associations", "traces", "garden_entries"}),
    morphisms=lens.Lens,
    identity=lens.identity,
    compose=lambda f, g: f >> g,
    same=_same_lens,
)
"""The memory of agents: kinds of records, and lenses that look into them."""
