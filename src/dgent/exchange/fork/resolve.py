"""Resolve conflicts: keep both sides or one of them, chosen for all at once or asked one by one."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Literal, get_args

from dgent.errors import InputError
from dgent.exchange.fork.report import ForkClash

Choice = Literal["both", "theirs", "mine", "ask"]
CHOICES: tuple[str, ...] = get_args(Choice)
OPEN = "open"
ANSWERS = ("both", "theirs", "mine", OPEN)
LEFT_OPEN = "a conflict that nobody has decided yet"

AskConflict = Callable[[ForkClash], Awaitable[str]]
"""Asks a person about a conflict; answers both, theirs, mine, or open to leave it for the next time."""


class Resolver:
    """Resolves the conflicts of one merge; asks about each once, however often the merge tries."""

    def __init__(self, choice: Choice = "both", ask: AskConflict | None = None) -> None:
        if choice not in CHOICES:
            hint = f"use one of {', '.join(CHOICES)}"
            raise InputError(f"{choice!r} is not a valid choice for conflicts", hint=hint, field="conflicts")
        self.choice: str = choice
        self._ask = ask
        self._answers: dict[tuple[str, str], str] = {}

    async def resolve(self, clash: ForkClash) -> str:
        """Return the side to keep: both, theirs or mine; open where nobody was asked."""
        if self.choice != "ask":
            return self.choice
        key = (clash.id, clash.what)
        if key not in self._answers:
            answer = OPEN if self._ask is None else await self._ask(clash)
            if answer not in ANSWERS:
                hint = f"answer one of {', '.join(ANSWERS)}"
                raise InputError(f"{answer!r} is not a valid answer to a conflict", hint=hint, field="ask")
            self._answers[key] = answer
        return self._answers[key]
