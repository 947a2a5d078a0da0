"""The tests' Postgres starts wherever the checkout lies, and leaves nothing behind when it cannot."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.postgres import server as servers
from tests.postgres.known_gaps import skip
from tests.postgres.server import NoServer, Server, binaries


@pytest.fixture
def own_tmp(monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder for temporary files that only this test uses, which every user may enter."""
    folder = Path(tempfile.mkdtemp(prefix="dgent-own-"))
    folder.chmod(0o755)
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    servers.executable_install.cache_clear()
    yield folder
    servers.executable_install.cache_clear()
    shutil.rmtree(folder)


def closed_copy(folder: Path) -> Path:
    """Copy the installed programs and libraries to a folder that only its owner may enter."""
    site, closed = binaries().parent.parent, folder / "closed"
    for name in (servers.PACKAGE, f"{servers.PACKAGE}.libs"):
        shutil.copytree(site / name, closed / name, symlinks=True)
    closed.chmod(0o700)
    return closed / servers.PACKAGE / "pginstall"


def test_a_folder_that_others_cannot_enter(
    tmp_path: Path, own_tmp: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        skip("root")
    install = closed_copy(tmp_path)
    monkeypatch.setattr(servers, "binaries", lambda: install)
    server = Server(servers.HASTY).initialize().start()
    try:
        assert server.bin.is_relative_to(own_tmp), "a copy runs"
    finally:
        server.remove()
    assert [path.name[:16] for path in own_tmp.iterdir()] == ["dgent-pg-program"], "only the copy is left"


def test_a_failed_start_leaves_nothing(own_tmp: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(NoServer, match="did not start"):
        Server({"no_such_setting": "1"}).initialize().start()
    monkeypatch.setattr(servers, "binaries", lambda: own_tmp / "nowhere" / "pginstall")
    with pytest.raises(NoServer, match="cannot run"):
        Server()
    assert list(own_tmp.iterdir()) == []


def test_no_server_is_said_once(tmp_path: Path) -> None:
    """A run without a server stops at the first test that needs one, with a message that says why."""
    root = Path(__file__).parents[2]
    broken = tmp_path / "broken.py"
    broken.write_text(
        "import tests.postgres.server as s\ns.binaries = lambda: s.Path('/nowhere/pginstall')\n"
    )
    env = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST_", "DGENT_"))}
    options = ("-q", "--forks", "1", "-p", "no:cacheprovider", "-p", "broken")
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, "tests/postgres/test_universe.py"],
        env={**env, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(root)]), "TMPDIR": str(tmp_path)},
        cwd=root,
        capture_output=True,
        text=True,
    )
    assert done.returncode != 0
    *_, message, counts = done.stdout.splitlines()
    assert "no Postgres server: " in message, done.stdout
    assert re.search(r"\b1 (error|failed)\b", counts), done.stdout
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith("dgent-pg")] == []
