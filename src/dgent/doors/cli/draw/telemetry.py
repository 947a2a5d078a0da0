"""Draw telemetry: events, tables of usage, and a chart of its days."""

from __future__ import annotations

from collections import Counter
from datetime import timedelta
from typing import Any

from dgent.doors.cli.style import Paint, ago, many, table
from dgent.verbs.wire import as_text

Lines = list[str]

CELLS = 40


def draw_events(found: Any, paint: Paint) -> Lines:
    """Draw events, a line each."""
    if not found.items:
        return [paint.dim("no events")]
    rows = [
        [
            paint.dim(ago(each.timestamp)),
            paint(each.kind, fg="cyan"),
            paint(each.agent or ""),
            paint(each.span_id or ""),
            paint(as_text(each.data)),
        ]
        for each in found.items
    ]
    return table(paint, ("when", "kind", "agent", "span", "data"), rows)


def draw_usage(found: Any, paint: Paint) -> Lines:
    """Draw the sums of each group, all together, and the tokens of each day as bars."""
    if not found.items:
        return [paint.dim("no calls of models or tools")]
    heads = (*found.by, "calls", "input", "output", "cost")
    rows = [[*(_cell(each, name, paint) for name in found.by), *_sums(each)] for each in found.items]
    total = [paint.bold("all") if place == 0 else "" for place in range(len(found.by))]
    lines = table(paint, heads, [*rows, [*total, *_sums(found.total)]])
    return [*lines, *_chart(found.items, paint)]


def _cell(usage: Any, name: str, paint: Paint) -> str:
    value = getattr(usage, name)
    return paint("" if value is None else value, fg="cyan" if name == "agent" else None)


def _sums(usage: Any) -> list[str]:
    cost = f"{usage.cost:,.4f}" if usage.cost else ""
    return [f"{usage.calls:,}", f"{usage.input_tokens:,}", f"{usage.output_tokens:,}", cost]


def _chart(items: list[Any], paint: Paint) -> Lines:
    """Draw a bar for the tokens of each day, also of days without any between the others."""
    days: Counter[Any] = Counter()
    for each in items:
        if each.day is not None:
            days[each.day] += each.input_tokens + each.output_tokens
    most = max(days.values(), default=0)
    if not most or len(days) < 2:
        return []
    first, last = min(days), max(days)
    lines = ["", paint.dim("tokens by day")]
    for back in range((last - first).days + 1):
        day = first + timedelta(days=back)
        cells = max(round(days[day] / most * CELLS), 1 if days[day] else 0)
        lines.append(f"{day:%m-%d}  {paint('#' * cells, fg='green')}{' ' if cells else ''}{days[day]:,}")
    return lines


def draw_prune(found: Any, paint: Paint) -> Lines:
    """Draw the number of events that went, or would go."""
    verb = "would drop" if found.dry_run else "dropped"
    return [f"{verb} {many(found.dropped, 'event')}{paint.dim(f', {found.left:,} left')}"]
