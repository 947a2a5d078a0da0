"""Limits of a turn: steps, time, money, and how long the partner is waited for."""

from __future__ import annotations

import msgspec

from dgent.errors import InputError
from dgent.runtime.model.budget import Budget


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """Limits of one turn; None means no limit.

    `steps` are calls of the model, `seconds` the time of the whole turn, `budget` is for the model alone.
    `consent_s` is how long an answer of the partner is waited for: by default five minutes where there is a
    door to ask at, and not at all where there is none.
    """

    steps: int = 50
    seconds: float | None = None
    budget: Budget = Budget()
    consent_s: float | None = None

    def __post_init__(self) -> None:
        if type(self.steps) is not int or self.steps < 1:
            raise InputError(f"expected a number of steps from 1 on, got {self.steps!r:.60}", field="steps")
        for name in ("seconds", "consent_s"):
            value = getattr(self, name)
            if value is not None and not value >= 0:
                raise InputError(f"expected seconds from 0 on for {name}, got {value!r:.60}", field=name)
