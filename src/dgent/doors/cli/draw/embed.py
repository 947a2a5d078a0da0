"""Draw how far embedding is."""

from __future__ import annotations

from typing import Any

from dgent.doors.cli.style import Paint, many, table

Lines = list[str]


def draw_report(found: Any, paint: Paint) -> Lines:
    """Draw the embedder here, and the schemas with what waits in each."""
    lines = [f"embedder  {paint.bold(found.model) if found.model else paint.dim('none is set')}"]
    if found.failing:
        lines.append(paint(f"it fails: {found.failing}", fg="red"))
    if found.refused:
        lines.append(paint(f"it refuses {many(found.refused, 'record')}", fg="yellow"))
    rows = [
        [
            paint(each.name, fg="cyan"),
            paint(each.spec.model, fg="yellow" if each.name in found.replaced else None),
            f"{each.vectors:,}",
            f"{each.waiting:,}" + (" or more" if each.building else ""),
        ]
        for each in found.schemas
    ]
    if not rows:
        return [*lines, paint.dim("no schema has embedded texts")]
    return [*lines, "", *table(paint, ("schema", "model", "embedded", "waiting"), rows)]


def draw_run(found: Any, paint: Paint) -> Lines:
    """Draw what was embedded now."""
    return [f"embedded {many(found.done, 'version')}", *draw_report(found.report, paint)]
