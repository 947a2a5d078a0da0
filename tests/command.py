"""Programs for tests that start hundreds of them: forked from a process that has loaded everything.

Loading takes most of the time of a short program. `make_command` writes a script that stands for `dgent`,
and `python()` is one for `python -c` and `python -m`. Both hand their words, streams, folder and environment
to a process that forks, pass on the signals they get, and end as the forked program did. Real programs
are started in tests/cli and tests/package, and wherever it matters what is loaded, or which process it is.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import marshal
import os
import random
import runpy
import select
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import traceback
import types
import warnings
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from dgent.errors import Unsupported

ROOT = Path(__file__).resolve().parents[1]
ENV = "DGENT_TEST_FORKER"
# What takes longest to import of that which programs need often, as far as it is installed.
EXTRAS = (
    "numpy",
    "dgent.store.postgres.backend",
    "dgent.doors.http.serve",
    "dgent.doors.mcp.serve",
    "dgent.doors.acp.serve",
)
CLIENT = """#!{python} -IS
import _signal, _socket, marshal, os, sys
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect({path!r})
order = marshal.dumps(({program!r}, sys.argv[1:], os.getcwd(), dict(os.environ)))
streams = b"".join(stream.to_bytes(4, sys.byteorder) for stream in (0, 1, 2))
size = len(order).to_bytes(4, "big")
server.sendmsg([size], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
server.sendall(order)
pid = int.from_bytes(server.recv(4), "big")
for signal in (_signal.SIGINT, _signal.SIGTERM, _signal.SIGHUP, _signal.SIGQUIT, _signal.SIGWINCH):
    _signal.signal(signal, lambda number, _: os.kill(pid, number))
code = int.from_bytes(server.recv(2) or b"\\0F", "big", signed=True)
if code < 0:
    if code != -9:
        _signal.signal(-code, _signal.SIG_DFL)
    os.kill(os.getpid(), -code)
os._exit(code)
"""


class Order(NamedTuple):
    """A program to fork: `dgent` or `python`, its words, where it runs, and its variables."""

    program: str
    words: list[str]
    folder: str
    environment: dict[str, str]


def make_command(script: Path, program: str = "dgent") -> None:
    """Write a script that stands for a program."""
    path = os.environ.get(ENV) or _server()
    script.write_text(CLIENT.format(python=sys.executable, path=path, program=program), encoding="utf-8")
    script.chmod(0o755)


@cache
def python() -> str:
    """The path of a program that runs `-c` and `-m` as Python does."""
    return _script("python")


@cache
def dgent() -> str:
    """The path of a program that is the command line."""
    return _script("dgent")


def _script(program: str) -> str:
    path = Path(_scripts().name) / program
    make_command(path, program)
    return str(path)


@cache
def _scripts() -> tempfile.TemporaryDirectory[str]:
    folder = tempfile.TemporaryDirectory(prefix="dgent-forked-")
    atexit.register(folder.cleanup)
    return folder


@cache
def begin_server() -> tuple[subprocess.Popen[bytes], str]:
    """Start the process that forks programs, and return it with the path of its socket.

    It is one of its own, which has loaded no tests: a fork of all that pytest has collected takes twice as
    long as a whole program.
    """
    folder = tempfile.mkdtemp(prefix="dgent-command-")  # no TemporaryDirectory, which a worker would remove
    path = os.path.join(folder, "socket")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    server = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.command", path],
        cwd=ROOT,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    owner = os.getpid()

    def end() -> None:
        if os.getpid() == owner:  # not a worker, which was forked
            server.communicate()
            shutil.rmtree(folder, ignore_errors=True)

    atexit.register(end)
    return server, path


def share_server() -> None:
    """Have all workers that are forked from now on use one server."""
    os.environ[ENV] = _server()


@cache
def _server() -> str:
    """Return the path of the socket of the process that forks programs."""
    server, path = begin_server()
    assert server.stdout is not None
    told = server.stdout.readline()
    assert told == b"ready\n"
    return path


# -- the other side: the process that forks ---------------------------------------------------


def _load() -> None:
    """Import whatever a command may need, and open nothing."""
    from dgent.verbs.index import MODULES

    doors = ("builtin", "command", "main", "options", "render", "session")
    engines = ("sqlite.backend", "jsonl.backend", "memory.backend")
    modules = {*MODULES.values(), *(f"dgent.doors.cli.{name}" for name in doors)}
    for module in sorted(modules | {f"dgent.store.{name}" for name in engines}):
        importlib.import_module(module)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for module in EXTRAS:
            with suppress(ImportError, Unsupported):
                importlib.import_module(module)


def _receive(connection: socket.socket) -> tuple[Order, list[int]]:
    size, streams, *_ = socket.recv_fds(connection, 4, 3)
    raw = b""
    while len(raw) < int.from_bytes(size, "big"):
        raw += connection.recv(1 << 20)
    order: Any = marshal.loads(raw)
    return Order(*order), list(streams)


def _run(order: Order, streams: list[int]) -> None:
    """Be the program."""
    for place, (stream, name) in enumerate(zip(streams, ("stdin", "stdout", "stderr"), strict=True)):
        os.dup2(stream, place)
        os.close(stream)
        # Anew: whether it is a file, a pipe or a terminal decides how it is written.
        text = open(place, "w" if place else "r", closefd=False)  # noqa: SIM115
        setattr(sys, name, text)
        setattr(sys, f"__{name}__", text)
    signal.set_wakeup_fd(-1)
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.environ.clear()
    os.environ.update(order.environment)
    os.chdir(order.folder)
    random.seed()
    code = 1
    try:
        _be(order.program, order.words)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
        if isinstance(end.code, str):
            print(end.code, file=sys.stderr)
    except KeyboardInterrupt:
        traceback.print_exc()
        sys.stderr.flush()
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        os.kill(os.getpid(), signal.SIGINT)
    except BaseException:
        traceback.print_exc()
    finally:
        if order.program == "python":
            threading._shutdown()  # type: ignore[attr-defined]
            atexit._run_exitfuncs()
        with suppress(BrokenPipeError):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _be(program: str, words: list[str]) -> None:
    """Run the command line, a text of Python, or a module."""
    if program == "dgent":
        from dgent.doors.cli.main import main

        sys.argv = ["dgent", *words]
        main()
        return
    kind, what, *rest = words
    sys.argv = [kind, *rest]
    sys.path.insert(0, os.getcwd())
    if kind == "-c":
        sys.modules["__main__"] = module = types.ModuleType("__main__")
        exec(compile(what, "<string>", "exec"), module.__dict__)
    else:
        assert kind == "-m", "a forked Python runs -c and -m"
        sys.modules.pop(what, None)
        runpy.run_module(what, run_name="__main__", alter_sys=True)


def _listen(path: str) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    listening.listen(64)
    return listening


def _main(path: str) -> None:
    _load()
    with _listen(path) as listening:
        os.write(1, b"ready\n")
        _serve(listening, 0)


def _serve(listening: socket.socket, over: int) -> None:
    """Fork a program for each order, until there is something to read at `over`, or its end."""
    gc.freeze()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    running: dict[int, socket.socket] = {}
    while True:
        ready, _, _ = select.select([over, woken, listening, *running.values()], [], [])
        if over in ready:  # the tests have ended
            for pid in running:
                os.kill(pid, signal.SIGKILL)
            return
        if woken in ready:
            os.read(woken, 4096)
        _reap(running)
        for pid, connection in running.items():
            if connection in ready:  # whoever called it was killed
                os.kill(pid, signal.SIGKILL)
        if listening in ready:
            connection, _ = listening.accept()
            order, streams = _receive(connection)
            with warnings.catch_warnings():
                warnings.simplefilter("ignore", DeprecationWarning)  # threads of numpy's are idle
                pid = os.fork()
            if not pid:
                for each in (listening, connection, *running.values()):
                    each.close()
                _run(order, streams)
            running[pid] = connection
            with suppress(OSError):
                connection.sendall(pid.to_bytes(4, "big"))
            for stream in streams:
                os.close(stream)


def _reap(running: dict[int, socket.socket]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        code = os.waitstatus_to_exitcode(status)
        with running.pop(pid) as connection, suppress(OSError):  # whoever called it is gone
            connection.sendall(code.to_bytes(2, "big", signed=True))


if __name__ == "__main__":
    _main(sys.argv[1])
