"""When what was appended reaches the disk: at once, some commits at a time, or at the end."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from typing import Literal, NamedTuple, get_args

from dgent.errors import InputError
from dgent.store.jsonl.folder import Folder
from dgent.store.sqlite.upkeep import disk_errors

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


class Waiting:
    """Something that is on its way to the disk."""

    error: BaseException | None = None

    def wait(self) -> None:
        """Return when it is as durable as promised, or raise what went wrong."""
        if self.error is not None:
            raise self.error


class _OnTheWay(Waiting):
    """Something that a thread brings to the disk meanwhile."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = names
        self.done = threading.Lock()
        self.done.acquire()

    def wait(self) -> None:
        """Return when it is on the disk, or raise what went wrong."""
        self.done.acquire()
        super().wait()


class Syncing:
    """Brings files to the disk as a policy says.

    A disk takes longer than it takes to write the cache, so a thread waits for it meanwhile.
    """

    def __init__(self, folder: Folder, policy: Policy) -> None:
        self._folder, self._policy = folder, policy
        self._lock = threading.Lock()
        self._late: set[str] = set()
        self._commits = 0
        self._timer: threading.Timer | None = None
        self._asked: queue.SimpleQueue[_OnTheWay | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None

    def begin(self, names: Sequence[str], commits: int) -> Waiting:
        """Some files have grown, by so many commits: begin to make that as durable as promised."""
        if not names:
            return Waiting()
        if self._policy.strategy == "immediate":
            return self._hand_over(names)
        with self._lock:
            self._late.update(names)
            self._commits += commits
            if self._policy.strategy == "batch":
                self._batch()
        return Waiting()

    def _hand_over(self, names: Sequence[str]) -> Waiting:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="dgent-sync", daemon=True)
            self._thread.start()
        on_the_way = _OnTheWay(names)
        self._asked.put(on_the_way)
        return on_the_way

    def _run(self) -> None:
        while (asked := self._asked.get()) is not None:
            try:
                self._folder.sync(asked.names)
            except BaseException as error:
                asked.error = error
            asked.done.release()

    def _batch(self) -> None:
        if self._commits >= self._policy.every:
            self._sync()
        elif self._timer is None:
            self._timer = threading.Timer(self._policy.interval_s, self.flush)
            self._timer.daemon = True
            self._timer.start()

    def flush(self) -> None:
        """Bring to the disk what waits."""
        with self._lock, disk_errors(self._folder.path):
            self._sync()

    def _sync(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        late, self._late, self._commits = sorted(self._late), set(), 0
        self._folder.sync_apart(late)

    def close(self) -> None:
        """Bring to the disk what waits, for the last time."""
        if self._thread is not None:
            self._asked.put(None)
            self._thread.join()
            self._thread = None
        self.flush()
