"""Draw a context: a bar for each part, and what did not fit."""

from __future__ import annotations

from collections.abc import Iterator

from dgent.runtime.context.part import AgentContext

WIDTH = 24  # characters of a bar
NAMED = 6  # names of what did not fit, for each part
_EIGHTHS = " ▏▎▍▌▋▊▉"


def draw_bar(tokens: int, budget: int, width: int = WIDTH) -> str:
    """Return a bar of a fixed width, filled as far as the budget is used."""
    share = 1.0 if tokens >= budget else tokens / budget
    eighths = round(share * width * 8) if tokens else 0
    eighths = max(eighths, 1) if tokens else 0
    whole, rest = divmod(eighths, 8)
    return ("█" * whole + (_EIGHTHS[rest] if rest else "")).ljust(width, "·")


def draw_context(context: AgentContext, width: int = WIDTH) -> str:
    """Return a context as lines: name, bar, tokens of the budget, and what was left out below."""
    return "\n".join(_lines(context, width))


def _lines(context: AgentContext, width: int) -> Iterator[str]:
    rows = [(part.name, part.tokens, part.budget, part.left_out) for part in context.parts]
    if context.tools:
        rows.append(("tools", context.tools, context.tools, ()))
    size = max(len(name) for name, *_ in rows)
    for name, tokens, budget, left_out in rows:
        yield f"{name:<{size}}  {draw_bar(tokens, budget, width)}  {tokens:>7,} of {budget:,}"
        if left_out:
            more = f" and {len(left_out) - NAMED} more" if len(left_out) > NAMED else ""
            yield f"{'':<{size}}  left out: {', '.join(left_out[:NAMED])}{more}"
    free = context.window - context.answer
    yield f"{'total':<{size}}  {draw_bar(context.tokens, free, width)}  {context.tokens:>7,} of {free:,}"
    yield f"{'':<{size}}  {context.answer:,} of {context.window:,} are kept for the answer"
    if context.overflow:
        yield f"{'':<{size}}  {context.overflow:,} too many: the model would refuse it"
