"""The part of a search that needs numpy, for programs that have loaded it."""

from __future__ import annotations

import sys
from types import ModuleType


def find_columns() -> ModuleType | None:
    """Return `columns`, which joins postings by numpy; None if this program has not loaded numpy.

    To load it takes as long as a hundred searches.
    """
    if sys.modules.get("numpy") is None:
        return None
    from dgent.search import columns

    return columns
