"""Put new contents in the place of several files as one step.

The new files are written beside the old ones. Then a manifest that names them is written, which decides:
whoever opens the folder after a crash finishes what a manifest says, and removes what none names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from dgent.errors import Corrupt
from dgent.store.jsonl.scan import Scan

if TYPE_CHECKING:
    from dgent.store.jsonl.kernel import JSONLKernel


class Rewriting:
    """The files of one rewriting, under the folder's lock and in a transaction of the cache."""

    def __init__(self, kernel: JSONLKernel) -> None:
        self._kernel, self._folder = kernel, kernel.folder
        self._staged: dict[str, str] = {}

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Write what a file is to hold."""
        self._staged[name] = self._folder.stage(name, chunks)

    def finish(self) -> None:
        """Put the new files in place, and let the cache know them as they are now."""
        self._folder.switch(self._staged)
        for name in self._staged:
            stamp = self._folder.stamp(name)
            if stamp is None:
                raise Corrupt(f"{name} was removed while it was rewritten", hint="restore it from a backup")
            scan = Scan(self._folder, name, stamp, None)
            self._kernel.cache.clear_reports(name)
            for report in scan.reports:
                self._kernel.cache.report(report)
            self._kernel.grew(name, scan.known)

    def discard(self) -> None:
        """Remove what was written."""
        self._folder.unstage(self._staged.values())


@contextmanager
def rewriting(kernel: JSONLKernel) -> Iterator[Rewriting]:
    """Rewrite files: all of them at the end, or none when anything fails before."""
    files = Rewriting(kernel)
    try:
        yield files
    except BaseException:
        files.discard()
        raise
    files.finish()
