"""Run tests in processes that are forked after one collection: `pytest --forks 4`.

Workers that each collect for themselves spend a tenth of a run on it, so here one process imports and
collects everything, then forks. The tests keep their order: a worker gets a run of neighbours, long at first
and short towards the end, so that a fixture of a file is seldom made twice and all workers end together.
"""

from __future__ import annotations

import atexit
import marshal
import os
import selectors
import signal
import socket
import struct
import warnings
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass, field
from tempfile import TemporaryFile

import pytest
from _pytest.capture import FDCapture
from _pytest.terminal import TerminalReporter

SHARE = 6  # of what is left, a worker gets this part of its equal share
QUICK_S = 0.05  # reports of setups and teardowns that passed sooner are not sent


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--forks", type=int, default=0, help="run the tests in so many forked processes")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    """Run what was collected in forked processes, if that is asked for."""
    config = session.config
    if config.option.forks < 1 or config.option.collectonly or config.option.usepdb:
        return None
    if session.testsfailed and not config.option.continue_on_collection_errors:
        raise session.Interrupted(f"{session.testsfailed} errors during collection")
    Parent(session).run(config.option.forks)
    if session.shouldfail:
        raise session.Failed(session.shouldfail)
    if session.shouldstop:
        raise session.Interrupted(session.shouldstop)
    return True


@dataclass
class Wire:
    """Messages over a socket, each after its length."""

    socket: socket.socket

    def send(self, message: object) -> None:
        data = marshal.dumps(message)
        self.socket.sendall(struct.pack("!I", len(data)) + data)

    def receive(self) -> object:
        """Wait for a message; EOFError if the other end is gone."""
        (size,) = struct.unpack("!I", self._read(4))
        return marshal.loads(self._read(size))

    def _read(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            part = self.socket.recv(size - len(data))
            if not part:
                raise EOFError
            data += part
        return bytes(data)


@dataclass
class Worker:
    """A forked process, as its parent knows it."""

    pid: int
    wire: Wire
    given: deque[int] = field(default_factory=deque)  # numbers of tests that it has not ended yet


class Parent:
    """Gives tests to workers, and reports what they say."""

    def __init__(self, session: pytest.Session) -> None:
        self.session = session
        self.left = deque(range(len(session.items)))
        self.workers: list[Worker] = []

    def run(self, count: int) -> None:
        """Run all tests; returns early if the session is to stop."""
        with selectors.DefaultSelector() as selector:
            self._start(selector, count)
            try:
                while self.workers:
                    for key, _ in selector.select():
                        self._hear(selector, key.data, count)
            finally:
                for worker in self.workers:
                    os.kill(worker.pid, signal.SIGTERM)

    def _start(self, selector: selectors.BaseSelector, count: int) -> None:
        for _ in range(min(count, len(self.left))):
            here, there = socket.socketpair()
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # threads of numpy's are idle now
                pid = os.fork()
            if not pid:
                for end in (here, *(worker.wire.socket for worker in self.workers)):
                    end.close()  # or no worker would notice that the parent is gone
                _work(self.session, Wire(there))
            there.close()
            worker = Worker(pid, Wire(here))
            self.workers.append(worker)
            selector.register(here, selectors.EVENT_READ, worker)

    def _hear(self, selector: selectors.BaseSelector, worker: Worker, count: int) -> None:
        try:
            message = worker.wire.receive()
        except (EOFError, ConnectionError):
            selector.unregister(worker.wire.socket)
            self.workers.remove(worker)
            self._bury(worker)
            if self.left and not (self.session.shouldfail or self.session.shouldstop):
                self._start(selector, 1)  # in its place
            return
        if message is None:
            self._give(worker, count)
            return
        reports, fail, stop = message
        worker.given.popleft()
        hook = self.session.config.hook
        for data in reports:
            hook.pytest_runtest_logreport(
                report=hook.pytest_report_from_serializable(config=self.session.config, data=data)
            )
        self.session.shouldfail = self.session.shouldfail or fail
        self.session.shouldstop = self.session.shouldstop or stop

    def _give(self, worker: Worker, count: int) -> None:
        """Send the numbers of the next tests; none at the end."""
        if self.session.shouldfail or self.session.shouldstop:
            self.left.clear()
        size = max(1, len(self.left) // (count * SHARE))
        numbers = [self.left.popleft() for _ in range(min(size, len(self.left)))]
        worker.given.extend(numbers)
        worker.wire.send(numbers)

    def _bury(self, worker: Worker) -> None:
        """Report the test that ended its process, and leave the rest to others."""
        _, status = os.waitpid(worker.pid, 0)
        worker.wire.socket.close()
        code = os.waitstatus_to_exitcode(status)
        if not code and (not worker.given or self.session.shouldfail or self.session.shouldstop):
            return
        if not worker.given:
            self.session.shouldfail = f"a worker ended with {code} after its tests"
            return
        item = self.session.items[worker.given.popleft()]
        self.left.extendleft(reversed(worker.given))
        why = f"the process of the test ended with {code}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", why, "call")
        self.session.config.hook.pytest_runtest_logreport(report=report)


class Reports:
    """The reports of one test."""

    def __init__(self, config: pytest.Config) -> None:
        self.config = config
        self.taken: list[dict[str, object]] = []
        self.all = config.option.durations is not None

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if self.all or report.when == "call" or not report.passed or report.duration > QUICK_S:
            data = self.config.hook.pytest_report_to_serializable(config=self.config, report=report)
            self.taken.append(data)


def _work(session: pytest.Session, wire: Wire) -> None:
    """Be a worker: run what the parent gives, say how it went, and end the process."""
    config, status = session.config, 1
    try:
        _be_quiet(config)
        reports = Reports(config)
        config.pluginmanager.register(reports)
        for number, following in _numbers(wire):
            next_item = None if following is None else session.items[following]
            item = session.items[number]
            config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
            wire.send((reports.taken, session.shouldfail, session.shouldstop))
            reports.taken.clear()
            if session.shouldfail or session.shouldstop:
                break
        session._setupstate.teardown_exact(None)
        status = 0
    finally:
        atexit._run_exitfuncs()
        os._exit(status)


def _numbers(wire: Wire) -> Iterator[tuple[int, int | None]]:
    """Yield the number of each test and of the one after it, which decides what fixtures stay."""
    waiting: deque[int] = deque()
    more = True
    while True:
        while more and len(waiting) < 2:
            wire.send(None)
            numbers = wire.receive()
            assert isinstance(numbers, list)
            more = bool(numbers)
            waiting.extend(numbers)
        if not waiting:
            return
        number = waiting.popleft()
        yield number, waiting[0] if waiting else None


def _be_quiet(config: pytest.Config) -> None:
    """Write nothing to the parent's terminal, and capture into files that no other worker has."""
    reporter = config.pluginmanager.getplugin("terminalreporter")
    assert isinstance(reporter, TerminalReporter)
    reporter._tw._file = open(os.devnull, "w")  # noqa: SIM115
    captured = config.pluginmanager.getplugin("capturemanager")._global_capturing
    for stream in (captured.out, captured.err):
        if isinstance(stream, FDCapture):
            # Under the same numbers: libraries kept sys.stderr when they were imported.
            with TemporaryFile() as own:
                os.dup2(own.fileno(), stream.tmpfile.fileno())
            os.dup2(stream.tmpfile.fileno(), stream.targetfd)
