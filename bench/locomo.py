"""How much of the evidence a search finds: questions about long conversations whose answers are known.

Reads a file of the LoCoMo set, whose path is in DGENT_LOCOMO; it is for measuring only and not part of the
repository. R@10 is the share of a question's evidence among the first ten hits, on average.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.measure import (
    Block,
    Row,
    Stopwatch,
    awaits,
    compared,
    interleave,
    quartiles,
    say,
    verdict,
)
from bench.plan import Plan
from bench.stores import Stores
from dgent import Datum, Schema
from dgent import open as open_universe
from dgent.embedder import HashedEmbedder, MiniLM
from dgent.search.words import count_words
from dgent.universe.meaning import MODES, Mode

FILE = "DGENT_LOCOMO"
HITS = 10
_WORDS = 60  # of a text whose words are counted
_ROUNDS = 20

FIELDS = ("speaker", "text")
TEXT = Schema("turn", text=FIELDS)
DATED = Schema("turn", text=("speaker", "text"), dates=True)
THREADED = Schema("turn", text=("speaker", "text"), thread="session")


async def locomo(plan: Plan, stores: Stores) -> list[Row]:
    """Recall by text, with dates, and with threads; and the time to count words."""
    path = os.environ.get(FILE)
    if not path:
        return [Row("search, R@10", verdict=f"skipped: set {FILE} to a file of the LoCoMo set")]
    say("  recall of a search")
    conversations = json.loads(Path(path).read_text(encoding="utf-8"))
    rows = []
    for work, schema, goal in (
        ("search, R@10", TEXT, 0.64),
        ("  with dates as words", DATED, None),
        ("  and words lent within a thread", THREADED, 0.78),
    ):
        found = [recall for each in conversations async for recall in _recalls(each, schema)]
        recall = fmean(found)
        judged = verdict(recall, recall, recall, at_least=goal)
        wished = "—" if goal is None else f"≥ {goal:g}"
        rows.append(Row(f"{work} ({len(found)} questions)", wished, recall, verdict=judged, unit=""))
    rows += [row async for row in _embedded(conversations)]
    return [*rows, await _time_of_threads(plan, stores, conversations[0]), _time_to_count(conversations)]


async def _time_of_threads(plan: Plan, stores: Stores, conversation: Mapping[str, Any]) -> Row:
    """Search one conversation in SQLite, with threads and without."""
    turns = [turn for session in conversation["sessions"] for turn in _turns(session)]
    asked = itertools.cycle([(each["question"],) for each in conversation["questions"]])
    async with AsyncExitStack() as stack:
        systems: dict[str, Block] = {}
        for name, schema in (("threads", THREADED), ("plain", DATED)):
            u = await stack.enter_async_context(open_universe(f"sqlite:///{stores.path(f'locomo-{name}')}"))
            u.register(schema)
            await u.put_many(turns)
            await u.indexed()
            systems[name] = awaits(u.search, lambda: [next(asked) for _ in range(5)])
        times = await interleave(systems, plan.read_rounds // 5, pause_s=0)
    return compared("search with threads, against without", times, "threads", "plain", None)


# -- meaning ------------------------------------------------------------------------------


class _Remembering:
    """An embedder that is asked for each text once; the conversations are searched in several ways."""

    def __init__(self, inner: Any) -> None:
        self.name, self.dim, self._inner = inner.name, inner.dim, inner
        self._known: dict[str, Any] = {}

    def embed(self, texts: Sequence[str], /) -> list[Any]:
        new = [text for text in dict.fromkeys(texts) if text not in self._known]
        self._known.update(zip(new, self._inner.embed(new), strict=True))
        return [self._known[text] for text in texts]


async def _embedded(conversations: Sequence[Mapping[str, Any]]) -> AsyncIterator[Row]:
    """Yield recall by meaning and by both legs, and the worst ratio of both to the better one."""
    for inner, goal in ((MiniLM(), 0.80), (HashedEmbedder(), None)):
        if isinstance(inner, MiniLM) and not inner.installed:
            yield Row(f"  and {inner.name}", f"≥ {goal:g}", verdict="skipped: run `dgent embed install`")
            continue
        embedder, ratios = _Remembering(inner), []
        for schema in (TEXT, THREADED):
            recalls = {
                mode: fmean(
                    [
                        recall
                        for each in conversations
                        async for recall in _recalls(each, replace(schema, embed=FIELDS), mode, embedder)
                    ]
                )
                for mode in MODES
            }
            ratios.append(recalls["auto"] / max(recalls["text"], recalls["meaning"]))
        both, alone = recalls["auto"], recalls["meaning"]
        wished = "—" if goal is None else f"≥ {goal:g}"
        judged = verdict(both, both, both, at_least=goal)
        yield Row(f"  and {inner.name} ({alone:.3f} alone)", wished, both, verdict=judged, unit="")
        low, high = min(ratios), max(ratios)
        judged = verdict(low, low, low, at_least=1.0)
        yield Row(
            "    both / the better leg, without and with threads", "≥ 1", low, low, high, verdict=judged
        )


async def _recalls(
    conversation: Mapping[str, Any], schema: Schema[Any], mode: Mode = "text", embedder: Any = None
) -> AsyncIterator[float]:
    """Yield the share of evidence that is found, for each question that has any."""
    turns = [turn for session in conversation["sessions"] for turn in _turns(session)]
    every = {turn.id for turn in turns}
    async with open_universe("memory:", embedder=embedder) as u:
        u.register(schema)
        await u.put_many(turns)
        if embedder is not None:
            await u.embedded()
        for asked in conversation["questions"]:
            if evidence := every & set(asked["evidence"]):
                hits = await u.search(asked["question"], k=HITS, mode=mode)
                yield len(evidence & {hit.id for hit in hits}) / len(evidence)


def _turns(session: Mapping[str, Any]) -> list[Datum]:
    """Return the turns of a session, a second apart."""
    began = datetime.strptime(session["date"], "%I:%M %p on %d %B, %Y").replace(tzinfo=UTC)
    return [
        Datum(
            turn["id"],
            created_at=began + timedelta(seconds=second),
            data={"speaker": turn["speaker"], "text": turn["text"], "session": session["date"]},
            schema=TEXT.name,
            schema_version=1,
        )
        for second, turn in enumerate(session["turns"])
    ]


def _time_to_count(conversations: Sequence[Mapping[str, Any]]) -> Row:
    turns = (turn for each in conversations for session in each["sessions"] for turn in session["turns"])
    words = " ".join(turn["text"] for turn in turns).split()
    texts = [" ".join(words[at : at + _WORDS]) for at in range(0, len(words) - _WORDS, _WORDS)]
    times = []
    for _ in range(_ROUNDS):
        watch = Stopwatch()
        for text in texts:
            count_words(text)
        times.append(watch.each(len(texts)).cpu)
    low, middle, high = quartiles(times)
    return Row(f"count the words of a text of {_WORDS}, CPU", "—", middle, low, high, min(times), unit="µs")
