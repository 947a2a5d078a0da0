"""How much of the evidence a text search finds: questions about long conversations whose answers are known.

Reads a file of the LoCoMo set, whose path is in DGENT_LOCOMO; it is for measuring only and not part of the
repository. R@10 is the share of a question's evidence among the first ten hits, on average.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from datetime import datetime
from pathlib import Path
from statistics import fmean
from typing import Any

from bench.measure import Row, Stopwatch, quartiles, say, verdict
from bench.plan import Plan
from bench.stores import Stores
from dgent.search.dates import date_words
from dgent.search.score import encode_length, explain, idf, norms, weigh_fields
from dgent.search.thread import CANDIDATES, neighbours, score_in_thread
from dgent.search.wanted import has_phrases, parse_search
from dgent.search.words import count_words

FILE = "DGENT_LOCOMO"
HITS = 10
_WORDS = 60  # of a text whose words are counted
_ROUNDS = 20


async def locomo(plan: Plan, stores: Stores) -> list[Row]:
    """Recall by text, with dates, and with threads; and the time to count words."""
    path = os.environ.get(FILE)
    if not path:
        return [Row("text search, R@10", verdict=f"skipped: set {FILE} to a file of the LoCoMo set")]
    say("  recall of text search")
    conversations = json.loads(Path(path).read_text(encoding="utf-8"))
    rows = []
    for work, dates, threads, goal in (
        ("text search, R@10", False, False, 0.64),
        ("  with dates as words", True, False, None),
        ("  and words lent within a thread", True, True, 0.78),
    ):
        found = [recall for each in conversations for recall in _recalls(each, dates, threads)]
        recall = fmean(found)
        judged = verdict(recall, recall, recall, at_least=goal)
        wished = "—" if goal is None else f"≥ {goal:g}"
        rows.append(Row(f"{work} ({len(found)} questions)", wished, recall, verdict=judged, unit=""))
    return [*rows, _time_to_count(conversations)]


class Conversation:
    """The turns of a conversation, indexed in memory; a session is a thread."""

    def __init__(self, sessions: Sequence[Mapping[str, Any]], dates: bool) -> None:
        self.ids: list[str] = []
        self._texts: list[str] = []
        self._threads: list[range] = []  # of each turn, the turns of its session
        self._counts: list[dict[str, int]] = []
        for session in sessions:
            moment = datetime.strptime(session["date"], "%I:%M %p on %d %B, %Y")
            dated = dict.fromkeys(date_words(moment), 1) if dates else {}
            start, turns = len(self.ids), session["turns"]
            for turn in turns:
                fields = {name: count_words(turn[name]) for name in ("speaker", "text")} | {"at": dated}
                self._counts.append(weigh_fields(fields, dict.fromkeys(fields, 1))[0])
                self.ids.append(turn["id"])
                self._texts.append(turn["text"])
                self._threads.append(range(start, start + len(turns)))
        lengths = [sum(counts.values()) for counts in self._counts]
        self._bytes = list(map(encode_length, lengths))
        self._norms = norms(fmean(lengths))

    def search(self, question: str, threads: bool) -> list[str]:
        """Return the ids of all turns that match, best first."""
        wanted = parse_search(question)
        having = {word: sum(word in counts for counts in self._counts) for word in wanted.words}
        rarity = {word: idf(len(self.ids), count) for word, count in having.items()}
        parts = [
            {part.word: part.score for part in explain(counts, length, rarity, self._norms)}
            for counts, length in zip(self._counts, self._bytes, strict=True)
        ]
        if wanted.phrases:
            holds = [has_phrases([text], wanted.phrases) for text in self._texts]
            if any(holds):
                parts = [part if kept else {} for part, kept in zip(parts, holds, strict=True)]
        scores = {place: sum(part.values()) for place, part in enumerate(parts) if part}
        if threads:
            best = sorted(scores, key=lambda place: (-scores[place], place))[:CANDIDATES]
            near = {place: self._window(place) for each in best for place in self._window(each)}
            scores = {
                place: score_in_thread(parts[place], [parts[each] for each in window])
                for place, window in near.items()
            }
        return [self.ids[place] for place in sorted(scores, key=lambda place: (-scores[place], place))]

    def _window(self, place: int) -> list[int]:
        thread = self._threads[place]
        return [thread[near] for near in neighbours(place - thread.start, len(thread))]


def _recalls(conversation: Mapping[str, Any], dates: bool, threads: bool) -> list[float]:
    """Return the share of evidence that is found, for each question that has any."""
    index = Conversation(conversation["sessions"], dates)
    every, found = set(index.ids), []
    for asked in conversation["questions"]:
        if evidence := every & set(asked["evidence"]):
            hits = index.search(asked["question"], threads)[:HITS]
            found.append(len(evidence & set(hits)) / len(evidence))
    return found


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
