"""A real PgBouncer in transaction mode, in front of a server."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

from tests.postgres.server import USER, _end_with_parent, free_port

START_S = 20.0


def program() -> str | None:
    """Where PgBouncer is, if it is anywhere."""
    return shutil.which("pgbouncer", path=os.environ.get("PATH", "") + ":/usr/sbin:/usr/local/sbin")


class Bouncer:
    """Hands each transaction to any of a few connections of its own."""

    def __init__(self, url: str, connections: int = 3) -> None:
        self._parts = urlsplit(url)
        self.folder = Path(tempfile.mkdtemp(prefix="dgent-bouncer-"))
        self.port = free_port()
        self.process: subprocess.Popen[bytes] | None = None
        self._as: dict[str, str] = {"user": USER, "group": "nogroup"} if os.geteuid() == 0 else {}
        (self.folder / "users").write_text('"postgres" ""\n')
        (self.folder / "ini").write_text(
            f"""[databases]
* = host={self._parts.hostname} port={self._parts.port or 5432}
[pgbouncer]
listen_addr = 127.0.0.1
listen_port = {self.port}
unix_socket_dir =
auth_type = trust
auth_file = {self.folder}/users
pool_mode = transaction
default_pool_size = {connections}
max_client_conn = 200
server_round_robin = 1
server_login_retry = 0.1
logfile = {self.folder}/log
"""
        )
        for place in (self.folder, *self.folder.iterdir()):
            if self._as:
                shutil.chown(place, USER, "nogroup")

    def start(self) -> Bouncer:
        """Start it and wait until it listens."""
        found = program()
        assert found is not None
        self.process = subprocess.Popen(
            [found, "-q", str(self.folder / "ini")],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            cwd=self.folder,
            preexec_fn=_end_with_parent,
            **self._as,
        )
        end = time.monotonic() + START_S
        while True:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return self
            except OSError:
                assert self.process.poll() is None and time.monotonic() < end, self._log()
                time.sleep(0.02)

    def _log(self) -> str:
        log = self.folder / "log"
        return "PgBouncer did not start: " + (log.read_text()[-2000:] if log.exists() else "")

    def stop(self) -> None:
        """End it at once, with all its connections."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait(10)
            self.process = None

    def remove(self) -> None:
        """End it and leave nothing behind."""
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)

    @property
    def url(self) -> str:
        """The server's URL by way of this, with what dgent must be told."""
        return self.lead(self._parts.geturl())

    def lead(self, url: str) -> str:
        """Return a URL of the same server by way of this."""
        parts = urlsplit(url)
        user = parts.netloc.rpartition("@")[0]
        parts = parts._replace(netloc=f"{user}@127.0.0.1:{self.port}")
        return parts._replace(query=f"{parts.query}&pgbouncer=1").geturl()
