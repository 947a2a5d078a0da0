"""Budgets: how much an agent may spend on models."""

from __future__ import annotations

from time import monotonic

import msgspec

from dgent.errors import BudgetSpent
from dgent.runtime.model.call import NO_USAGE, TokenUsage


class Budget(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """Limits for one piece of work; None means no limit.

    `tokens` counts input and output, `cost` is in US dollars, `seconds` runs from the first call. An answer
    that passes a limit is kept, since it is paid; the next call is refused.
    """

    calls: int | None = None
    tokens: int | None = None
    cost: float | None = None
    seconds: float | None = None


class Spending:
    """The part of a budget that is spent so far. Several models may share one."""

    def __init__(self, budget: Budget) -> None:
        self.budget = budget
        self.usage: TokenUsage = NO_USAGE
        self.unpriced = 0
        self._started = 0
        self._since: float | None = None

    def start(self) -> None:
        """Count a call that begins; raises BudgetSpent where nothing is left for it."""
        budget = self.budget
        if self._since is None:
            self._since = monotonic()
        tokens = self.usage.input_tokens + self.usage.output_tokens
        spent = self.usage.cost or 0.0
        if budget.calls is not None and self._started >= budget.calls:
            raise BudgetSpent(f"{self._started} of {budget.calls} calls to models are used", limit="calls")
        if budget.tokens is not None and tokens >= budget.tokens:
            raise BudgetSpent(f"{tokens} of {budget.tokens} tokens are used", limit="tokens")
        if budget.cost is not None and spent >= budget.cost:
            raise BudgetSpent(f"{spent:.4f} of {budget.cost:g} US dollars are spent", limit="cost")
        if budget.cost is not None and self.unpriced:
            raise BudgetSpent(
                f"{self.unpriced} answers have no known price, so a limit of {budget.cost:g} US dollars "
                "cannot be kept",
                hint="limit tokens instead, or use a model with a known price",
                limit="cost",
            )
        if self.left_s() <= 0:
            raise BudgetSpent(f"the {budget.seconds:g} seconds for models are over", limit="seconds")
        self._started += 1

    def add(self, usage: TokenUsage) -> None:
        """Add the usage of an answer."""
        if usage.cost is None:
            self.unpriced += usage.calls
            usage = msgspec.structs.replace(usage, cost=0.0)
        self.usage = self.usage.add(usage)

    def left_s(self) -> float:
        """Return the seconds that are left."""
        if self.budget.seconds is None or self._since is None:
            return float("inf")
        return self._since + self.budget.seconds - monotonic()
