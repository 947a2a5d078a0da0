"""How much of everything a run does."""

from __future__ import annotations

import dataclasses


@dataclasses.dataclass(frozen=True)
class Plan:
    """The sizes of a run; `QUICK` is for seeing that all of it works."""

    sizes: tuple[int, ...] = (10_000, 100_000, 1_000_000)
    rounds: int = 30  # interleaved rounds of writing
    read_rounds: int = 500  # of reading; its blocks are short, so that few of them are interrupted
    puts: int = 150  # in a block
    batches: int = 6  # of 64 tasks, in a block
    stream: int = 1_000  # puts in a block beside a bare table; so many that deferred work falls due in it
    groups: int = 16  # of 64 tasks, in such a block
    peer_rounds: int = 15  # beside a bare table and LangGraph
    many: int = 100_000
    many_rounds: int = 5
    gets: int = 25
    queries: int = 2
    starts: int = 15  # of a Python process
    langgraph_rounds: int = 10
    paused: int = 1_000_000  # records in the store whose puts are timed one by one
    singles: int = 20_000  # such puts, in one stream
    pause_rounds: int = 5
    crumbs: tuple[int, int, int] = (1_000, 10_000, 100_000)
    queue: int = 5_000  # crumbs that many processes take
    takers: int = 16
    edits: int = 10_000  # of one memory document
    documents: int = 1_000

    @property
    def middle(self) -> int:
        """The size of the stores that most work is measured in."""
        return self.sizes[len(self.sizes) // 2]


QUICK = Plan(
    sizes=(12_000, 48_000),
    rounds=7,
    read_rounds=150,
    puts=60,
    batches=2,
    many=10_000,
    many_rounds=3,
    starts=5,
    langgraph_rounds=3,
    paused=100_000,
    pause_rounds=2,
    singles=10_000,
    stream=300,
    groups=8,
    peer_rounds=5,
    crumbs=(500, 2_000, 8_000),
    queue=400,
    takers=4,
    edits=2_000,
    documents=200,
)


def size_text(count: int) -> str:
    """100k, 1M."""
    for unit, letter in ((1_000_000, "M"), (1_000, "k")):
        if count >= unit and count % unit == 0:
            return f"{count // unit}{letter}"
    return str(count)


def parse_sizes(text: str) -> tuple[int, ...]:
    """The sizes of a text such as `100k,1M`, ascending."""
    units = {"k": 1_000, "m": 1_000_000}
    found = set()
    for part in text.lower().split(","):
        number, unit = (part[:-1], units[part[-1]]) if part[-1:] in units else (part, 1)
        found.add(int(number) * unit)
    if min(found) < 1:
        raise ValueError(f"{text!r} names a size below 1")
    return tuple(sorted(found))
