"""Whoever sits at the terminal is asked where a block wants the partner or a human to agree."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

import click

from dgent.doors.cli.paint import clean
from dgent.errors import Denied

if TYPE_CHECKING:
    from dgent.blocks.permit import Request


class Consent:
    """The answer of one call: `--yes` agrees beforehand, and without a terminal nobody can be asked."""

    def __init__(self, yes: bool) -> None:
        self._yes, self._unasked = yes, False

    async def agreed(self, request: Request) -> bool:
        """Whether they agree. The loop waits for them: there is nothing else that it could do meanwhile."""
        if self._yes:
            return True
        if sys.stdin is None or not sys.stdin.isatty():
            self._unasked = True
            return False
        about = clean(f"{request.agent} wants to {request.what} {request.label!r}: {request.reason}")
        return click.confirm(f"{about}. Do you agree?", err=True)

    @contextmanager
    def explained(self) -> Iterator[None]:
        """What was refused because nobody could be asked says how to agree."""
        try:
            yield
        except Denied as error:
            if self._unasked:
                error.hint = "say --yes to agree"
            raise
