"""Replace the contents of several files as one step.

The new files are written beside the old ones. Then a manifest that names them is written, which decides:
after a crash, the next process to open the folder finishes the manifest, and removes files that none names.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from dgent.errors import Corrupt
from dgent.store.jsonl.scan import FileScan

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
        for name in self._staged:
            stamp = self._folder.stamp(name)
            if stamp is None:
                raise Corrupt(f"{name} was removed while it was rewritten", hint="restore it from a backup")
            scan = FileScan(self._folder, name, stamp, None)
            self._kernel.cache.clear_reports(name)
            for report in scan.reports:
                self._kernel.cache.put_report(report)
            self._kernel.files.set_state(name, scan.known)
