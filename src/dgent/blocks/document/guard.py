"""Panics of the document library, turned into errors of dgent."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import Any, TypeVar

from dgent.blocks import errors

C = TypeVar("C", bound=type)


def guard_call(work: Callable[[], Any]) -> Any:
    """Call the library; any failure becomes DocumentCorrupt."""
    try:
        return work()
    except (KeyboardInterrupt, SystemExit, GeneratorExit):
        raise
    except BaseException as error:
        if type(error).__module__ == "asyncio.exceptions":
            raise
        raise errors.DocumentCorrupt(f"the document cannot be changed by this: {error}") from None


def guard_methods(cls: C) -> C:
    """Make every method of a class raise DocumentCorrupt where the library panics."""
    for name, each in list(vars(cls).items()):
        if inspect.isfunction(each):
            setattr(cls, name, _guard(each))
    return cls


def _guard(method: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(method)
    def call(*args: Any, **named: Any) -> Any:
        try:
            return method(*args, **named)
        except (Exception, KeyboardInterrupt, SystemExit, GeneratorExit):
            raise
        except BaseException as error:
            raise errors.DocumentCorrupt(f"the document cannot be used: {error}") from None

    return call
