"""Other Pythons of this machine, each with an environment that has what dgent needs; made once and kept."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import sys
import tomllib
from functools import cache
from pathlib import Path

from tests.docs.pages import ROOT

OTHERS = [each for each in ("3.11", "3.12", "3.13") if each != "{}.{}".format(*sys.version_info[:2])]
PLACE = ROOT / ".venv" / "pythons"
_ASK = "import sys; print('{}.{}'.format(*sys.version_info[:2]), sys.executable)"


@cache
def find_python(version: str) -> Path | None:
    """Return the interpreter of a version, on the path or of pyenv; None when there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    found = shutil.which(f"python{version}")
    for each in (*([found] if found else ()), *sorted(pyenv.glob(f"{version}.*/bin/python"))):
        said = subprocess.run([each, "-c", _ASK], capture_output=True, text=True, check=False)
        if said.returncode == 0 and said.stdout.startswith(f"{version} "):  # a shim may lead nowhere
            return Path(said.stdout.split(" ", 1)[1].strip())
    return None


def make_environment(version: str, python: Path) -> Path:
    """Return the interpreter of an environment with dgent's dependencies; a later call finds it again."""
    PLACE.mkdir(parents=True, exist_ok=True)
    folder, about = PLACE / version, ROOT / "pyproject.toml"
    made, done = folder / "bin" / "python", folder / ".installed"
    with open(PLACE / f"{version}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # other workers wait for it
        if not done.exists() or done.stat().st_mtime < about.stat().st_mtime:
            subprocess.run([python, "-m", "venv", "--without-pip", folder], check=True)
            wanted = tomllib.loads(about.read_text(encoding="utf-8"))["project"]["dependencies"]
            # By the pip that is there: to give each its own takes longer than all else here.
            command = [
                sys.executable,
                "-m",
                "pip",
                "--python",
                made,
                "install",
                "-qq",
                "--no-input",
                "--no-compile",
            ]
            quiet = ["--disable-pip-version-check", "--no-compile", "-c", ROOT / "constraints.txt"]
            subprocess.run([*command, *quiet, *wanted], check=True)
            done.touch()
    return made
