"""Version logs of blocks that nobody has open, for whoever opens one of them next.

Every use of a log first proves that what it has in memory is what is stored. So a block that is opened again
and again, as by each call of a tool, is loaded once, and then reads only what others have written.
"""

from __future__ import annotations

from contextlib import suppress

from dgent.blocks.history.log import VersionLog
from dgent.blocks.history.past import open_log
from dgent.universe.universe import Universe

MOST = 32  # logs that are kept
MAX_BYTES = 256 * 1024  # of snapshot and updates of one of them


class IdleLogs:
    """The logs that the blocks of one agent gave back; the one that was used last is kept longest."""

    def __init__(self, universe: Universe) -> None:
        self._universe = universe
        self._logs: dict[str, VersionLog] = {}

    def take(self, block: str) -> VersionLog:
        """Return the log of a block, which then belongs to the caller alone."""
        return self._logs.pop(block, None) or open_log(self._universe, block)

    def give_back(self, log: VersionLog) -> None:
        """Keep a log that nobody uses any more, unless it is too large."""
        if not log.is_loaded or log.lock.locked() or log.size_bytes > MAX_BYTES:
            return
        self._logs.pop(log.block, None)
        self._logs[log.block] = log
        if len(self._logs) > MOST:
            # Blocks are collected on any thread, and another one may be given back meanwhile.
            with suppress(KeyError, RuntimeError):
                del self._logs[next(iter(self._logs))]
