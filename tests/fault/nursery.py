"""Starts short-lived worker processes cheaply, so that hundreds can be killed in a few seconds.

The first `Nursery()` of a test process runs this file as a process that has imported dgent and opened
nothing; later ones for the same jobs use it too. For each job it forks: a worker is there after a few
milliseconds instead of a quarter second. Everything a worker says goes through one pipe, a JSON line at
a time; a line below PIPE_BUF bytes arrives whole or not at all, also when its writer is killed.
"""

from __future__ import annotations

import asyncio
import atexit
import gc
import importlib
import inspect
import json
import os
import select
import signal
import subprocess
import sys
import threading
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

from tests.command import python

ROOT = Path(__file__).resolve().parents[2]


class Child:
    """One worker: what it said so far, and how it ended."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.said: list[Any] = []
        self.code: int | None = None

    def kill(self) -> None:
        """End it now, without a chance to tidy up."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class Forker:
    """The process that forks workers, seen from the test process."""

    def __init__(self, jobs: str) -> None:
        env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
        command = [python(), "-m", "tests.fault.nursery", jobs]
        self._process = subprocess.Popen(
            command, cwd=ROOT, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._orders = 0
        self._born: dict[int, Child] = {}
        self._children: dict[int, Child] = {}  # by pid; a pid may come again
        self.news = threading.Condition()
        # A daemon: others are waited for before `close` is called.
        self._reader = threading.Thread(target=self._read, name=f"nursery {jobs}", daemon=True)
        self._reader.start()
        atexit.register(self.close)

    def close(self) -> None:
        """End the process and what is left of its workers."""
        self._process.stdin.close()
        for child in list(self._children.values()):
            child.kill()
        self._reader.join()
        self._process.wait()
        self._process.stdout.close()

    def start(self, job: str, args: dict[str, Any]) -> Child:
        """Fork a worker that runs one of the jobs."""
        self._orders += 1
        order = {"order": self._orders, "job": job, "args": args}
        self._process.stdin.write(json.dumps(order).encode() + b"\n")
        self._process.stdin.flush()
        with self.news:
            born = self.news.wait_for(lambda: self._orders in self._born, 20)
            assert born, "the nursery does not answer"
            return self._born.pop(self._orders)

    def _read(self) -> None:
        for line in self._process.stdout:
            message = json.loads(line)
            with self.news:
                if "born" in message:
                    child = Child(message["born"])
                    self._children[child.pid] = self._born[message["order"]] = child
                elif "died" in message:
                    self._children.pop(message["died"]).code = message["code"]
                else:
                    self._children[message["pid"]].said.append(message["say"])
                self.news.notify_all()


@cache
def _forker(jobs: str) -> Forker:
    return Forker(jobs)


class Nursery:
    """The workers of one test."""

    def __init__(self, jobs: str = "tests.fault.jobs") -> None:
        self._forker = _forker(jobs)
        self._news = self._forker.news
        self._started: list[Child] = []

    def __enter__(self) -> Nursery:
        return self

    def __exit__(self, *_: object) -> None:
        for child in self._started:
            if child.code is None:
                child.kill()
        self.wait(*self._started)

    def start(self, job: str, /, **args: Any) -> Child:
        """Fork a worker that runs one of the jobs."""
        self._started.append(self._forker.start(job, args))
        return self._started[-1]

    def wait(self, *children: Child, timeout_s: float = 60) -> list[Child]:
        """Wait until workers have ended."""
        with self._news:
            done = self._news.wait_for(lambda: all(c.code is not None for c in children), timeout_s)
        assert done, f"still running: {[c.pid for c in children if c.code is None]}"
        return list(children)

    def finish(self, *children: Child, timeout_s: float = 60) -> list[Any]:
        """Wait until workers have ended well; what each of them said last."""
        for child in self.wait(*children, timeout_s=timeout_s):
            assert child.code == 0, f"worker {child.pid} ended with {child.code}: {child.said[-1:]}"
        return [child.said[-1] if child.said else None for child in children]

    def hear(self, child: Child, count: int = 1, timeout_s: float = 20) -> Any:
        """Wait until a worker has said so many things; the last of them."""
        with self._news:
            heard = self._news.wait_for(lambda: len(child.said) >= count or child.code is not None, timeout_s)
        assert heard and len(child.said) >= count, f"worker {child.pid}: {child.said} {child.code}"
        return child.said[count - 1]

    def hear_until(self, child: Child, last: Any, timeout_s: float = 30) -> list[Any]:
        """Wait until a worker has said something; all it said until then."""
        with self._news:
            heard = self._news.wait_for(lambda: last in child.said or child.code is not None, timeout_s)
        assert heard, f"worker {child.pid} did not say {last!r} in {timeout_s:.0f} s"
        assert last in child.said, f"worker {child.pid} ended with {child.code}: {child.said[-1:]}"
        return child.said[: child.said.index(last)]


# -- the other side: the process that forks ---------------------------------------------------


def say(what: Any) -> None:
    """Called by a worker: tell the test something, in one atomic write."""
    line = json.dumps({"pid": os.getpid(), "say": what}).encode() + b"\n"
    assert len(line) <= select.PIPE_BUF
    os.write(1, line)


def _announce(message: dict[str, int]) -> None:
    os.write(1, json.dumps(message).encode() + b"\n")


def _fork(order: dict[str, Any], jobs: Any) -> None:
    pid = os.fork()
    if pid:
        return
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        signal.set_wakeup_fd(-1)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        # Only now: nothing may be heard of a worker before it is known.
        _announce({"born": os.getpid(), "order": order["order"]})
        done = getattr(jobs, order["job"])(**order["args"])
        if inspect.iscoroutine(done):
            asyncio.run(done)
        code = 0
    except BaseException as error:
        traceback.print_exc()
        say({"error": f"{type(error).__name__}: {error}"[:1000]})
    finally:
        os._exit(code)


def _main() -> None:
    jobs = importlib.import_module(sys.argv[1])
    gc.freeze()  # a worker that looks for garbage in what it was born with would copy all of it
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    running, pending = True, b""
    alive = True
    while running or alive:
        ready, _, _ = select.select([woken, *([0] if running else [])], [], [], 1.0)
        if woken in ready:
            os.read(woken, 4096)
        alive = _reap()
        if 0 in ready:
            got = os.read(0, 65536)
            running = bool(got)
            *lines, pending = (pending + got).split(b"\n")
            for line in lines:
                _fork(json.loads(line), jobs)
                alive = True


def _reap() -> bool:
    while True:
        try:
            pid, status = os.waitpid(-1, os.WNOHANG)
        except ChildProcessError:
            return False
        if pid == 0:
            return True
        _announce({"died": pid, "code": os.waitstatus_to_exitcode(status)})


if __name__ == "__main__":
    _main()
