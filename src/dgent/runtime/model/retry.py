"""Ask again after failures: a backoff with jitter, a budget, and other models to fall back on."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing

import msgspec

from dgent.errors import BudgetSpent, InputError, ModelFailed
from dgent.runtime.model.budget import Budget, Spending
from dgent.runtime.model.call import Model, ModelCall, Piece, Reply, Restart
from dgent.runtime.model.resolve import ModelSpec, resolve


class Retry(msgspec.Struct, frozen=True, kw_only=True):
    """When to ask again.

    `attempts` counts requests to one model. The wait before the next is random between half of a bound and
    all of it; the bound begins at `first_s`, doubles, and is at most `most_s`. A provider that asks for a
    longer wait gets it, up to `patience_s`; beyond that the next model is asked. `restart` allows to begin
    again after a part of an answer was passed on, for readers that can take it back.
    """

    attempts: int = 4
    first_s: float = 0.5
    most_s: float = 20.0
    patience_s: float = 120.0
    restart: bool = False

    def __post_init__(self) -> None:
        """Refuse numbers that no rule can have."""
        for name in ("attempts", "first_s", "most_s", "patience_s"):
            value = getattr(self, name)
            if not value >= (1 if name == "attempts" else 0):
                raise InputError(f"{name} of a retry is too small: {value!r}", field=name)

    def wait_s(
        self, attempt: int, asked: float | None, draw: Callable[[], float] = random.random
    ) -> float | None:
        """Return the wait after a failed attempt, counted from 1; None where the provider wants too long."""
        bound = min(self.most_s, self.first_s * 2.0 ** min(attempt - 1, 60))
        wait = bound * (0.5 + draw() / 2)
        if asked is None or not asked > wait:
            return wait
        # Spread out, so that agents that were refused together do not come back together.
        return None if asked > self.patience_s else asked + min(wait, asked * 0.1)


class RetryingModel:
    """A model that asks again, and falls back on others, within a budget."""

    def __init__(
        self,
        models: Sequence[Model],
        *,
        retry: Retry | None = None,
        spending: Spending | None = None,
    ) -> None:
        if not models:
            raise InputError("give at least one model", field="model")
        self.models = tuple(models)
        self.retry = retry or Retry()
        self.spending = spending or Spending(Budget())

    @property
    def name(self) -> str:
        """The name of the first model."""
        return self.models[0].name

    async def stream(self, call: ModelCall) -> AsyncGenerator[Piece]:
        """Yield the answer of the first model that gives one; after a Restart, the answer begins again."""
        failures: list[ModelFailed] = []
        for model in self.models:
            for attempt in range(1, self.retry.attempts + 1):
                self.spending.start()
                passed_on = False
                try:
                    async with aclosing(model.stream(self._limit(call))) as pieces:
                        async for piece in pieces:
                            if isinstance(piece, Reply):
                                self.spending.add(piece.usage)
                                yield piece
                                return
                            passed_on = True
                            yield piece
                    raise ModelFailed(f"{model.name} ended its answer without a reply", model=model.name)
                except ModelFailed as error:
                    failures.append(error)
                if passed_on and not self.retry.restart:
                    raise failures[-1]
                wait = self._wait(failures[-1], attempt)
                last = wait is None and model is self.models[-1]
                if last:
                    break
                if passed_on:
                    yield Restart(failures[-1].message, model.name)
                if wait is None:
                    break
                await asyncio.sleep(wait)
        raise self._summarize(failures)

    async def close(self) -> None:
        """Close all models."""
        for model in self.models:
            await model.close()

    def _limit(self, call: ModelCall) -> ModelCall:
        left = self.spending.left_s()
        if left >= call.settings.timeout_s:
            return call
        return msgspec.structs.replace(
            call, settings=msgspec.structs.replace(call.settings, timeout_s=max(left, 0.001))
        )

    def _wait(self, error: ModelFailed, attempt: int) -> float | None:
        """Return the wait before this model is asked again; None where another has to be."""
        if not error.retryable or attempt >= self.retry.attempts:
            return None
        wait = self.retry.wait_s(attempt, error.details.get("retry_s"))
        if wait is not None and wait >= self.spending.left_s():
            raise BudgetSpent(
                f"the next try is due in {wait:.1f} s, and less is left for models: {error.message}",
                limit="seconds",
            ) from error
        return wait

    def _summarize(self, failures: list[ModelFailed]) -> ModelFailed:
        last = failures[-1]
        if len(failures) == 1:
            return last
        names = ", ".join(dict.fromkeys(str(each.details.get("model", "a model")) for each in failures))
        kind = type(last)
        details = {**last.details, "attempts": len(failures), "models": names}
        return kind(f"{len(failures)} calls to {names} failed, the last: {last.message}", **details)


def open_model(
    model: ModelSpec,
    *,
    fallbacks: Sequence[ModelSpec] = (),
    retry: Retry | None = None,
    budget: Budget | None = None,
    spending: Spending | None = None,
    key: str | None = None,
    base_url: str | None = None,
) -> RetryingModel:
    """Return a model by name with retries, fallbacks and a budget; `key` and `base_url` are for the first."""
    models = [resolve(model, key=key, base_url=base_url), *map(resolve, fallbacks)]
    return RetryingModel(models, retry=retry, spending=spending or Spending(budget or Budget()))
