"""Budgets: the tokens that each part of a context may have."""

from __future__ import annotations

import msgspec

from dgent.errors import InputError

LEAST = 1_000  # tokens of a window in which anything can be said


class ContextBudget(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens for each part of a context; `window` is all that the model takes, `answer` is kept free.

    Instructions and the batch itself are never shortened for the others' sake: recent batches get what is
    left, up to `history`.
    """

    window: int = 200_000
    answer: int = 8_000
    instructions: int = 8_000
    rules: int = 1_500
    core: int = 8_000
    pinned: int = 8_000
    summaries: int = 4_000
    history: int = 80_000
    changes: int = 2_000
    activity: int = 1_000
    work: int = 1_500

    def __post_init__(self) -> None:
        for name in self.__struct_fields__:
            value = getattr(self, name)
            if type(value) is not int or value < 0:
                raise InputError(f"expected a number of tokens for {name}, got {value!r:.60}", field=name)
        if self.window < LEAST:
            raise InputError(
                f"a window of {self.window} tokens is too small", hint=f"at least {LEAST}", field="window"
            )
        if self.answer >= self.window:
            raise InputError(
                f"an answer of {self.answer} tokens leaves nothing of a window of {self.window}",
                hint="give a smaller answer, or a larger window",
                field="answer",
            )

    @classmethod
    def for_window(cls, window: int) -> ContextBudget:
        """Return budgets for a model's window: the usual ones, or shares of it where it is smaller."""
        usual = cls()
        # All but the batch itself take at most three quarters of a window.
        fixed = [name for name in cls.__struct_fields__ if name != "window"]
        share = 0.75 * window / sum(getattr(usual, name) for name in fixed)
        return cls(window=window, **{name: int(getattr(usual, name) * min(1.0, share)) for name in fixed})
