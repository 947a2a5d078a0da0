"""When what was appended reaches the disk: at once, some commits at a time, or at the end."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from dgent.errors import InputError, StorageError, Unavailable
from dgent.store.jsonl.folder import Folder

Strategy = Literal["immediate", "batch", "on_close"]


class Policy(NamedTuple):
    """How durable a commit is when its call returns.

    `immediate`: it is on the disk. `batch`: it is with the system, and on the disk after `every`
    commits or `interval_s` seconds; a power cut may lose what came since. `on_close`: on the disk when
    the store is closed; a power cut may lose everything since it was opened. A killed process loses
    nothing in any of them.
    """

    strategy: Strategy = "immediate"
    every: int = 100
    interval_s: float = 0.5

    def checked(self) -> Policy:
        """The policy itself, or an InputError."""
        if self.strategy not in get_args(Strategy):
            raise InputError(
                f"sync is {self.strategy!r}; it is one of {', '.join(get_args(Strategy))}", field="sync"
            )
        if type(self.every) is not int or self.every < 1 or not 0 < self.interval_s < 3600:
            raise InputError("a batch ends after 1 or more commits, and within an hour", field="sync_every")
        return self

    @property
    def loses(self) -> str:
        """What a power cut can take."""
        if self.strategy == "immediate":
            return "nothing"
        if self.strategy == "batch":
            return f"the last {self.every} commits or {self.interval_s:g} s"
        return "everything since the store was opened"


class Syncing:
    """Brings files to the disk as a policy says."""

    def __init__(self, folder: Folder, policy: Policy) -> None:
        self._folder, self._policy = folder, policy
        self._lock = threading.Lock()
        self._late: set[str] = set()
        self._commits = 0
        self._timer: threading.Timer | None = None
        self._failure: StorageError | None = None  # of the timer: raised by the next commit, or at the end

    def appended(self, names: Sequence[str], commits: int) -> None:
        """Some files have grown, by so many commits; returns when that is as durable as promised."""
        if self._policy.strategy == "immediate":
            self._folder.sync(names)
            return
        with self._lock:
            self._raise_failure()
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
        """Bring to the disk what waits; nobody waits for this, so whoever comes next hears of a failure."""
        try:
            self.flush()
        except StorageError as error:
            with self._lock:
                self._failure = error

    def flush(self) -> None:
        """Bring to the disk what waits."""
        with self._lock:
            self._sync()

    def _sync(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        try:
            self._folder.sync_apart(sorted(self._late))
        except OSError as error:
            raise Unavailable(
                f"{self._folder.path}: {error.strerror}; a power cut may take what was written since "
                "the last sync"
            ) from error
        self._late, self._commits = set(), 0

    def _raise_failure(self) -> None:
        failure, self._failure = self._failure, None
        if failure is not None:
            raise failure

    def close(self) -> None:
        """Bring to the disk what waits, for the last time; raises what nobody has heard of yet."""
        self.flush()
        self._raise_failure()
