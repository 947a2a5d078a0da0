"""Check the rules of the cupboard for `doctor`."""

from __future__ import annotations

from dgent.cupboard.cupboard import Cupboard
from dgent.store.upkeep import Finding
from dgent.universe.universe import Universe

NAMED = 5  # findings listed in the text
HINT = "see `dgent cupboard audit`; with --repair it puts right what can be"


async def inspect(universe: Universe, *, deep: bool = False) -> list[Finding]:
    """Audit the cupboard; `deep` adds nothing here."""
    found = (await Cupboard(universe).audit()).findings
    if not found:
        return [Finding("ok", "cupboard", "everything is as its rules say")]
    more = f"; and {len(found) - NAMED} more" if len(found) > NAMED else ""
    texts = "; ".join(each.text for each in found[:NAMED])
    return [
        Finding("problem", "cupboard", f"{len(found)} things are not as its rules say: {texts}{more}", HINT)
    ]
