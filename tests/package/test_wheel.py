"""The package as a stranger gets it: licence, types, extras, and a wheel that builds without a network."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
import tomllib
import venv
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOR_DEVELOPERS = {"test", "test-adk", "bench"}


def run(*words: str | Path, cwd: Path) -> str:
    done = subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True, timeout=200)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel of this checkout, built without a network."""
    folder = tmp_path_factory.mktemp("wheel")
    offline = ("--no-index", "--no-deps", "--no-build-isolation", "--disable-pip-version-check", "-qq")
    run(sys.executable, "-m", "pip", "wheel", *offline, "-w", folder, ROOT, cwd=folder)
    (made,) = folder.glob("dgent-*.whl")
    return made


def test_the_wheel_has_everything(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as opened:
        names = set(opened.namelist())
        (metadata,) = [name for name in names if name.endswith(".dist-info/METADATA")]
        about = HeaderParser().parsestr(opened.read(metadata).decode())
    sources = {str(each.relative_to(ROOT / "src")) for each in (ROOT / "src/dgent").rglob("*.py*")}
    assert {name for name in sources if "__pycache__" not in name} <= names
    assert "dgent/py.typed" in names and any(name.endswith("/licenses/LICENSE") for name in names)
    assert about["License-Expression"] == "MIT"
    assert "Typing :: Typed" in about.get_all("Classifier", [])
    versions = {each.rpartition(" :: ")[2] for each in about.get_all("Classifier", []) if ":: 3." in each}
    assert versions == {"3.11", "3.12", "3.13"}


def test_the_wheel_installs_and_works_without_a_network(wheel: Path, tmp_path: Path) -> None:
    venv.create(tmp_path / "venv")
    python = tmp_path / "venv/bin/python"
    offline = ("--no-index", "--no-deps", "--disable-pip-version-check", "-qq")
    run(sys.executable, "-m", "pip", "--python", python, "install", *offline, wheel, cwd=tmp_path)
    # The libraries it needs are those of these tests, behind its own: a path file brings no dgent with it.
    place = run(
        python, "-c", "import sysconfig; print(sysconfig.get_paths()['purelib'])", cwd=tmp_path
    ).strip()
    (Path(place) / "libraries.pth").write_text(sysconfig.get_paths()["purelib"] + "\n")
    told = run(python, "-c", "import dgent; print(dgent.__file__)", cwd=tmp_path)
    assert told.startswith(place)
    dgent = tmp_path / "venv/bin/dgent"
    assert run(dgent, "--version", cwd=tmp_path) == f"dgent {PROJECT['version']}\n"
    assert "hello" in run(dgent, "--url", "sqlite:///m.db", "remember", "hello", cwd=tmp_path)


def test_the_licence() -> None:
    text = (ROOT / "LICENSE").read_text(encoding="utf-8")
    assert text.startswith("MIT License") and "the dgent authors" in text
    assert PROJECT["license"] == "MIT"


def test_hints_name_extras_that_the_readme_names() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    extras = PROJECT["optional-dependencies"].keys() - FOR_DEVELOPERS
    texts = {file: file.read_text(encoding="utf-8") for file in (ROOT / "src/dgent").rglob("*.py")}
    hinted = {name for text in texts.values() for name in re.findall(r"dgent\[([\w-]+)\]", text)}
    assert hinted and hinted <= extras
    assert set(re.findall(r"pip install 'dgent\[([\w-]+)\]'", readme)) == extras
    assert f"Python {PROJECT['requires-python'].removeprefix('>=')}" in readme
