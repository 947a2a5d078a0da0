"""Sync appended lines to the disk: at once, in batches of commits, or on close."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from dgent.errors import InputError, StorageError, Unavailable
from dgent.store.jsonl.folder import StoreFolder

Strategy = Literal["immediate", "batch", "on_close"]


class Policy(NamedTuple):
    """The durability of a commit when its call returns.

    `immediate`: it is on the disk. `batch`: the system has it, and it is on the disk after `every`
    commits or `interval_s` seconds; a power cut may lose later commits. `on_close`: on the disk when
    the store is closed; a power cut may lose everything since it was opened. A killed process loses
    nothing in any of them.
    """

    strategy: Strategy = "immediate"
    every: int = 100
    interval_s: float = 0.5

    def validate(self) -> Policy:
        """Return the policy itself; raises InputError if a value is not valid."""
        if self.strategy not in get_args(Strategy):
            raise InputError(
                f"{self.strategy!r} is not a valid sync (use {', '.join(get_args(Strategy))})", field="sync"
            )
        if type(self.every) is not int or self.every < 1 or not 0 < self.interval_s < 3600:
            raise InputError("a batch ends after 1 or more commits, and within an hour", field="sync_every")
        return self

    @property
    def loses(self) -> str:
        """The commits that a power cut may lose, in words."""
        if self.strategy == "immediate":
            return "nothing"
        if self.strategy == "batch":
            return f"the last {self.every} commits or {self.interval_s:g} s"
        return "everything since the store was opened"


class Syncer:
    """Syncs files to the disk according to a policy."""

    def __init__(self, folder: StoreFolder, policy: Policy) -> None:
        self._folder, self._policy = folder, policy
        self._lock = threading.Lock()
        self._late: set[str] = set()
        self._commits = 0
        self._timer: threading.Timer | None = None
        self._failure: StorageError | None = None  # of the timer: raised by the next commit or on close

    def sync_appended(self, names: Sequence[str], commits: int, *, final: bool) -> None:
        """Sync files that commits were appended to, as far as the policy promises it on return.

        A failure of the timer is raised until an error is `final`: a retry must not hide it.
        """
        if self._policy.strategy == "immediate":
            self._folder.sync(names)
            return
        with self._lock:
            self._raise_failure(final)
            self._late.update(names)
            self._commits += commits
            if self._policy.strategy == "batch":
                self._batch()

    def _batch(self) -> None:
        if self._commits >= self._policy.every:
            self._sync()
        elif self._timer is None:
            self._timer = threading.Timer(self._policy.interval_s, self._flush_late)
            self._timer.daemon = True
            self._timer.start()

    def _flush_late(self) -> None:
        """Sync late files from the timer; a failure is raised by the next commit."""
        try:
            self.flush()
        except StorageError as error:
            with self._lock:
                self._failure = error

    def flush(self) -> None:
        """Sync all late files."""
        with self._lock:
            self._sync()

    def _sync(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            self._folder.sync_from_any_thread(sorted(self._late))
        except OSError as error:
            raise Unavailable(
                f"{self._folder.path}: {error.strerror}; a power cut may lose what was written since "
                "the last sync"
            ) from error
        self._late, self._commits = set(), 0

    def _raise_failure(self, final: bool = True) -> None:
        failure = self._failure
        if final:
            self._failure = None
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Sync all late files a last time; raises a failure that was not raised yet."""
        self.flush()
        self._raise_failure()
