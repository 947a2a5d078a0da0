"""Replace the contents of several files as one step.

The new files are written beside the old ones. Then a manifest that names them is written, which decides:
after a crash, the next process to open the folder finishes the manifest, and removes files that none names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from dgent.errors import Corrupt
from dgent.store.jsonl import folder
from dgent.store.jsonl.cache import Report
from dgent.store.jsonl.scan import DAMAGED, FileScan, report_incomplete

if TYPE_CHECKING:
    from dgent.store.jsonl.kernel import JSONLKernel


class FileRewrite:
    """Rewrites files, all of them when its block ends, or none if it raises.

    Used under the folder's lock and in a transaction of the cache.
    """

    def __init__(self, kernel: JSONLKernel) -> None:
        self._kernel, self._folder = kernel, kernel.folder
        self._staged: dict[str, str] = {}

    def write(self, name: str, chunks: Iterable[bytes]) -> None:
        """Stage the new contents of a file."""
        self._staged[name] = self._folder.stage(name, chunks)

    def __enter__(self) -> FileRewrite:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        if kind is not None:
            self._folder.unstage(self._staged.values())
            return
        self._folder.switch(self._staged)
        cache = self._kernel.cache
        incomplete, damaged = cache.incomplete_commits(), cache.damaged_commits()
        for name in self._staged:
            stamp = self._folder.stamp(name)
            if stamp is None:
                raise Corrupt(f"{name} was removed while it was rewritten", hint="restore it from a backup")
            scan = FileScan(self._folder, name, stamp, None)
            cache.clear_reports(name)
            for report in (*scan.reports, *_report_commits(scan, incomplete, damaged)):
                cache.put_report(report)
            self._kernel.files.set_state(name, scan.known)


def _report_commits(scan: FileScan, incomplete: set[str], damaged: set[str]) -> Iterator[Report]:
    """Yield the reports of lines whose commit lacks others; they have new numbers in a rewritten file."""
    for found in scan.found if folder.holds_records(scan.name) else ():
        if found.read.line.c in incomplete and not found.read.hand:
            yield report_incomplete(found)
        elif found.read.line.c in damaged and not found.read.hand:
            text = f"{found.read.line.id!r} counts, but other lines of its commit are missing"
            yield Report(found.name, found.number, DAMAGED, text)
