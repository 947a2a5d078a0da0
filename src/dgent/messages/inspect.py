"""The checks of `doctor` for messages."""

from __future__ import annotations

from dgent.messages.record import BATCH, ERASURE, MESSAGE, SUMMARY
from dgent.model.query import Query
from dgent.store.upkeep import Finding
from dgent.universe.universe import Universe

SUBJECT = "messages"


async def inspect(universe: Universe, *, deep: bool) -> list[Finding]:
    """Return what is wrong with messages, batches and archives; with `deep` every record is read."""
    found: list[Finding] = []
    waiting = await universe.count(Query(schema=ERASURE.name))
    if waiting:
        message = f"{_count(waiting, 'redaction')} begun and not finished"
        found.append(Finding("problem", SUBJECT, message, "`dgent message redact` finishes it first"))
    if deep:
        found += await _inspect_records(universe)
    return found or [Finding("ok", SUBJECT, "its records belong together")]


async def _inspect_records(universe: Universe) -> list[Finding]:
    batches: dict[str, str] = {}
    async for each in universe.iterate(Query(schema=BATCH.name, limit=None), raw=True):
        batches[each.id] = str(each.data.get("place"))
    lost = wrong = 0
    async for each in universe.iterate(Query(schema=MESSAGE.name, limit=None), raw=True):
        place = batches.get(str(each.data.get("batch")))
        lost += place is None
        wrong += place is not None and not str(each.data.get("place")).startswith(f"{place}.")
    missing = 0
    async for each in universe.iterate(Query(schema=SUMMARY.name, limit=None), raw=True):
        before = each.data.get("previous")
        active = each.data.get("chain") is not None
        missing += active and before is not None and not await universe.exists(before)
    counts = ((lost, "message is in no batch"), (wrong, "message is not in the place of its batch"))
    found = [
        Finding("problem", SUBJECT, f"{number} {text.replace(' is', ' are') if number > 1 else text}", "")
        for number, text in counts
        if number
    ]
    if missing:
        text = f"{_count(missing, 'archive')} without the archive before it"
        found.append(Finding("problem", SUBJECT, text, "restore it: `dgent message restore`"))
    return found


def _count(number: int, noun: str) -> str:
    return f"1 {noun} is" if number == 1 else f"{number} {noun}s are"
