"""A `dgent` for tests that call it hundreds of times: forked from a process that has loaded it.

Loading takes most of the time of a command. `make_command` writes a script that hands its words, streams,
folder and environment to that process, one for each test process, and ends as the forked command did. The
real command is started in tests/cli and tests/package, and by git in tests/jsonl/test_git.py.
"""

from __future__ import annotations

import atexit
import gc
import importlib
import marshal
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from contextlib import suppress
from functools import cache
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[1]
CLIENT = """#!{python} -IS
import _socket, marshal, os, sys
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect({path!r})
order = marshal.dumps((sys.argv[1:], os.getcwd(), dict(os.environ)))
streams = b"".join(stream.to_bytes(4, sys.byteorder) for stream in (0, 1, 2))
size = len(order).to_bytes(4, "big")
server.sendmsg([size], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
server.sendall(order)
os._exit(int.from_bytes(server.recv(1) or b"F", "big"))
"""


def make_command(script: Path) -> None:
    """Write the script."""
    script.write_text(CLIENT.format(python=sys.executable, path=_server()), encoding="utf-8")
    script.chmod(0o755)


@cache
def _server() -> str:
    """Start the process that forks commands; return the path of its socket."""
    folder = tempfile.TemporaryDirectory(prefix="dgent-command-")
    path = os.path.join(folder.name, "socket")
    env = {**os.environ, "PYTHONPATH": os.pathsep.join([str(ROOT / "src"), str(ROOT)])}
    server = subprocess.Popen(
        [sys.executable, "-W", "error", "-m", "tests.command", path],
        cwd=ROOT,
        env=env,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    assert server.stdin is not None and server.stdout is not None
    told = server.stdout.readline()
    assert told == b"ready\n"

    def end() -> None:
        server.communicate()
        folder.cleanup()

    atexit.register(end)
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


def _receive(connection: socket.socket) -> tuple[tuple[list[str], str, dict[str, str]], list[int]]:
    size, streams, *_ = socket.recv_fds(connection, 4, 3)
    raw = b""
    while len(raw) < int.from_bytes(size, "big"):
        raw += connection.recv(1 << 20)
    order: Any = marshal.loads(raw)
    return order, list(streams)


def _run(order: tuple[list[str], str, dict[str, str]], streams: list[int]) -> None:
    """Be the command."""
    from dgent.doors.cli.main import main

    words, folder, environment = order
    for place, (stream, name) in enumerate(zip(streams, ("stdin", "stdout", "stderr"), strict=True)):
        os.dup2(stream, place)
        os.close(stream)
        # Anew: whether it is a file, a pipe or a terminal decides how it is written.
        setattr(sys, name, open(place, "w" if place else "r", closefd=False))  # noqa: SIM115
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    signal.set_wakeup_fd(-1)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    sys.argv = ["dgent", *words]
    code = 1
    try:
        main()
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _main(path: str) -> None:
    _load()
    gc.freeze()
    woken, wake = os.pipe()
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)
    signal.set_wakeup_fd(wake)
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listening.bind(path)
    listening.listen(64)
    running: dict[int, socket.socket] = {}
    os.write(1, b"ready\n")
    while True:
        ready, _, _ = select.select([0, woken, listening, *running.values()], [], [])
        if 0 in ready:
            return  # the tests are over
        if woken in ready:
            os.read(woken, 4096)
        _reap(running)
        for pid, connection in running.items():
            if connection in ready:  # whoever called it is gone
                os.kill(pid, signal.SIGTERM)
        if listening in ready:
            connection, _ = listening.accept()
            order, streams = _receive(connection)
            pid = os.fork()
            if not pid:
                _run(order, streams)
            running[pid] = connection
            for stream in streams:
                os.close(stream)


def _reap(running: dict[int, socket.socket]) -> None:
    while running:
        pid, status = os.waitpid(-1, os.WNOHANG)
        if not pid:
            return
        code = os.waitstatus_to_exitcode(status)
        with running.pop(pid) as connection, suppress(BrokenPipeError):  # whoever called it is gone
            connection.sendall(bytes([code if code >= 0 else 128 - code]))


if __name__ == "__main__":
    _main(sys.argv[1])
