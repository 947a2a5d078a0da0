"""Count what a call costs: functions of dgent that run, and records that are decoded, on all threads."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType, TracebackType
from typing import Any

import msgspec

import dgent
from dgent.store.engine.catalog import SchemaState

_HERE = dgent.__file__.removesuffix("__init__.py")


class Calls:
    """Counts while it is asked to, on this thread and on those that start inside `with Calls()`."""

    def __init__(self) -> None:
        self.python = 0
        self.decoded = 0
        self._on = False

    def __enter__(self) -> Calls:
        threading.setprofile(self._note)
        sys.setprofile(self._note)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        sys.setprofile(None)
        threading.setprofile(None)  # type: ignore[arg-type]

    def _note(self, frame: FrameType, event: str, arg: Any) -> None:
        if not self._on:
            return
        if event == "call" and frame.f_code.co_filename.startswith(_HERE):
            self.python += 1
        elif event == "c_call" and arg.__name__ == "decode":
            decoder = arg.__self__
            # A thread that reads for the first time loads the declarations.
            self.decoded += isinstance(decoder, msgspec.json.Decoder) and decoder.type is not SchemaState

    @contextmanager
    def counting(self) -> Iterator[Calls]:
        """Count from zero while a block runs."""
        self.python = self.decoded = 0
        self._on = True
        try:
            yield self
        finally:
            self._on = False
