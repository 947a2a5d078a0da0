"""Draw the laws of functors."""

from __future__ import annotations

from typing import Any

from dgent.doors.cli.style import Paint, table

Lines = list[str]


def draw_laws(found: Any, paint: Paint) -> Lines:
    """Draw each law, and the smallest input for which it does not hold."""
    rows = []
    for each in found.items:
        held = paint("holds", fg="green") if each.result.passed else paint("broken", fg="red")
        rows.append([paint(each.functor, fg="cyan"), each.result.law, held, f"{each.result.tried:,}"])
    lines = table(paint, ("functor", "law", "result", "inputs tried"), rows)
    for each in found.items:
        if not each.result.passed:
            law = each.result
            lines += ["", f"{each.functor}, {law.law}: {law.input}", f"  {law.left}", f"  {law.right}"]
    return lines
