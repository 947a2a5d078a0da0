"""Replace the contents of several files as one step.

The new files are written beside the old ones. Then a manifest that names them is written, which decides:
after a crash, the next process to open the folder finishes the manifest, and removes files that none names.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from typing import TYPE_CHECKING

from dgent.errors import Corrupt
from dgent.store.jsonl import folder
from dgent.store.jsonl.cache import Report
from dgent.store.jsonl.line import parse_line
from dgent.store.jsonl.scan import BAD, DAMAGED, INCOMPLETE, FileScan

if TYPE_CHECKING:
    from dgent.store.jsonl.kernel import JSONLKernel


_KINDS = BAD, DAMAGED, INCOMPLETE


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
        reports = self._collect_reports()
        self._folder.switch(self._staged)
        cache = self._kernel.cache
        for name in self._staged:
            stamp = self._folder.stamp(name)
            if stamp is None:
                raise Corrupt(f"{name} was removed while it was rewritten", hint="restore it from a backup")
            scan = FileScan(self._folder, name, stamp, None)
            cache.clear_reports(name)
            for report in (*scan.reports, *_find_again(scan, reports)):
                cache.put_report(report)
            self._kernel.files.set_state(name, scan.known)

    def _collect_reports(self) -> dict[str, list[tuple[str, str]]]:
        """Return the reports that took more than reading one line, as kind and text, by the line's sum."""
        ask = self._kernel.cache.ask
        reports = ask("SELECT name, line, kind, text FROM j_report WHERE kind IN (?, ?, ?)", *_KINDS)
        places: dict[str, dict[int, list[tuple[str, str]]]] = {}
        for name, number, *report in reports:
            places.setdefault(name, {}).setdefault(number, []).append(tuple(report))
        found: dict[str, list[tuple[str, str]]] = {}
        for name in places.keys() & self._staged.keys() & self._folder.stamps().keys():
            with self._folder.read(name) as file:
                for number, raw in enumerate(file, 1):
                    if number in places[name]:
                        with suppress(ValueError):  # a scan reports it
                            found[parse_line(raw).sum] = places[name][number]
        return found


def _find_again(scan: FileScan, reports: Mapping[str, list[tuple[str, str]]]) -> Iterator[Report]:
    """Yield reports for a rewritten file, where lines have new numbers, and commits may have fewer lines."""
    for found in scan.found if folder.holds_records(scan.name) else ():
        for kind, text in reports.get(found.read.sum, ()):
            if kind == DAMAGED:
                text = f"{found.read.line.id!r} counts, but other lines of its commit are missing"
            yield Report(found.name, found.number, kind, text)
