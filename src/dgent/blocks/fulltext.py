"""All that blocks say, as text to be searched: a log with every entry it ever had."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from dgent.blocks import bulk
from dgent.blocks.access import Card
from dgent.blocks.bulk import Drawn
from dgent.blocks.document import Document
from dgent.blocks.entries import trimmed
from dgent.blocks.form import contents, entry_line
from dgent.blocks.search import Text, text_of
from dgent.blocks.shape import BODY, Shape, container
from dgent.universe.universe import Universe


class Fulltexts:
    """What an agent's blocks say, kept from one search to the next while it is proven to be so still."""

    def __init__(self) -> None:
        self._drawn: dict[str, Drawn] = {}
        self._texts: dict[str, tuple[Drawn, Text]] = {}

    async def of(self, universe: Universe, cards: Sequence[Card]) -> list[Text]:
        """The texts of some blocks as they are now; not of those that cannot be read."""
        await bulk.draw(universe, cards, self._drawn, fulltext)
        found = [(card, self._drawn[card.id]) for card in cards]
        return [self._text(card, drawn) for card, drawn in found if not drawn.problem]

    def keep(self, ids: Sequence[str]) -> None:
        """Forget all blocks but some."""
        bulk.keep(self._drawn, ids)
        for id in self._texts.keys() - set(ids):
            del self._texts[id]

    def _text(self, card: Card, drawn: Drawn) -> Text:
        known = self._texts.get(card.id)
        if known is None or known[0] is not drawn:
            said = card.value
            made = text_of(said.kind, card.id, said.owner, said.label, drawn.text, said.description)
            known = self._texts[card.id] = (drawn, made)
        return known[1]


def fulltext(shape: Shape, document: Document, _limit: int | None = None, section: str = "") -> str:
    """The texts and numbers of a document, one to a line; of a log the entries, newest first."""
    if shape.document == "composite":
        return "\n".join(fulltext(each.shape, document, None, each.name) for each in shape.sections)
    if shape.document != "log":
        return _values(contents(shape, document, section))
    name = container(section, BODY["log"])
    every = [*document.newest_entries(name), *trimmed(document, name)]
    return "\n".join(entry_line(entry) for entry in every)


def _values(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, dict):
        return "\n".join(_values(each) for each in value.values())
    if isinstance(value, list | tuple):
        return "\n".join(_values(each) for each in value)
    return "" if value is None or isinstance(value, bool) else str(value)
