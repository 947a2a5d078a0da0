"""Where things are: folders by the XDG rules, names that stay inside, and permissions."""

from __future__ import annotations

import os
import stat
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

import dgent
from dgent.config import places
from dgent.config import settings as config
from dgent.errors import ConfigError, InputError
from tests.config.house import House


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_the_usual_places() -> None:
    found = places.find_places({"HOME": "/h"})
    assert found == (Path("/h/.config/dgent"), Path("/h/.local/share/dgent"), Path("/h/.cache/dgent"))


def test_xdg_moves_them_and_relative_ones_are_ignored() -> None:
    moved = {"XDG_CONFIG_HOME": "/c", "XDG_DATA_HOME": "/d", "XDG_CACHE_HOME": "/k"}
    assert places.find_places(moved) == (Path("/c/dgent"), Path("/d/dgent"), Path("/k/dgent"))
    relative = {"HOME": "/h", "XDG_CONFIG_HOME": "c", "XDG_DATA_HOME": "", "XDG_CACHE_HOME": "../k"}
    assert places.find_places(relative) == places.find_places({"HOME": "/h"})


@pytest.mark.parametrize("environment", [{}, {"HOME": ""}, {"HOME": "relative"}])
def test_without_a_home(environment: dict[str, str]) -> None:
    with pytest.raises(ConfigError, match="HOME"):
        places.find_places(environment)


def test_the_environment_of_the_process(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    for variable in ("XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(variable, raising=False)
    assert places.find_places().data == tmp_path / ".local/share/dgent"
    monkeypatch.delenv("HOME")
    assert places.find_places().data.is_absolute(), "the list of users knows the home folder"


@pytest.mark.parametrize("name", ["default", "a", "0", "my-agent_2.old", "a" * 63, "a-", "x.y"])
def test_names_of_constellations(house: House, name: str) -> None:
    assert places.constellation_folder(house.places, name) == house.places.data / "constellations" / name


@pytest.mark.parametrize(
    "name",
    [
        *(
            "../x",
            "",
            "a/b",
            "CON",
            "a\0b",
            "a" * 300,
            "a" * 64,
            "ä",
            "ａ",
            "٣",
            ".",
            "..",
            ".a",
            "a.",
            "a..b",
        ),
        *("a\\b", "/etc", "~", "-a", "_a", "A", "a b", "a\n", "\na", "con", "nul.txt", "com1", None, 7, b"a"),
    ],
)
def test_names_that_lead_elsewhere(house: House, name: str) -> None:
    with pytest.raises(InputError) as refused:
        places.constellation_folder(house.places, name)
    assert refused.value.details == {"field": "constellation"}
    with pytest.raises(InputError):
        house.load(constellation=name if name is not None else "")


def test_the_error_says_what_is_allowed(house: House) -> None:
    with pytest.raises(InputError, match=r"a-z, 0-9"):
        places.constellation_folder(house.places, "../x")


def test_the_constellations_there_are(house: House) -> None:
    assert places.constellations(house.places) == []
    for name in ("work", "default", "no-store", "Not A Name"):
        places.make_private(house.places.data / "constellations" / name)
    for name in ("work", "default", "Not A Name"):
        (house.places.data / "constellations" / name / "membrane.db").touch()
    (house.places.data / "constellations" / "file").touch()
    (house.places.data / "constellations" / "no-store" / "membrane.db").mkdir()
    assert places.constellations(house.places) == ["default", "work"]


def test_folders_that_are_made_are_private(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    before = os.umask(0)
    try:
        assert places.make_private(tmp_path / "a" / "b" / "c") is True
    finally:
        os.umask(before)
    assert [mode(tmp_path / each) for each in ("", "a", "a/b", "a/b/c")] == [0o755, 0o700, 0o700, 0o700]
    (tmp_path / "a").chmod(0o750)
    assert places.make_private(tmp_path / "a" / "b" / "c") is False
    assert places.make_private(tmp_path / "a") is False
    assert mode(tmp_path / "a") == 0o750, "what was there keeps its permissions"


def test_a_folder_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    (tmp_path / "nowhere").symlink_to(tmp_path / "missing")
    for wrong in ("file", "file/x", "nowhere", "a" * 300):
        with pytest.raises(ConfigError):
            places.make_private(tmp_path / wrong)


def test_private_files(tmp_path: Path) -> None:
    before = os.umask(0o022)
    try:
        with pytest.raises(ZeroDivisionError), places.private_files():
            (tmp_path / "file").touch()
            (tmp_path / "folder").mkdir()
            _ = 1 / 0
        assert os.umask(0o022) == 0o022
    finally:
        os.umask(before)
    assert (mode(tmp_path / "file"), mode(tmp_path / "folder")) == (0o600, 0o700)


def test_loading_makes_nothing(house: House) -> None:
    settings = house.load(constellation="new")
    assert settings.url == house.store("new")
    assert not house.places.data.exists()
    assert not house.places.config.exists()


def test_the_default_url_makes_its_folder(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(house.project)
    assert config.default_url(house.environment) == house.store("default")
    folder = house.places.data / "constellations" / "default"
    assert mode(folder) == 0o700
    assert [each.name for each in folder.iterdir()] == ["membrane.db"]
    assert mode(folder / "membrane.db") == 0o600
    (folder / "membrane.db").write_bytes(b"kept")
    config.default_url(house.environment)
    assert (folder / "membrane.db").read_bytes() == b"kept"


def test_the_default_url_follows_the_settings(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(house.project)
    house.user('constellation = "mine"\n')
    assert config.default_url(house.environment) == house.store("mine")
    house.ours('constellation = "ours"\n')
    assert config.default_url(house.environment) == house.store("ours")
    assert config.default_url({**house.environment, "DGENT_CONSTELLATION": "env"}) == house.store("env")
    assert places.constellations(house.places) == ["env", "mine", "ours"]
    assert config.default_url({**house.environment, "DGENT_URL": "memory:"}) == "memory:"
    house.ours("colour = 1\n")
    with pytest.warns(UserWarning, match="did you mean 'color'"):
        config.default_url(house.environment)


async def test_what_opening_makes_is_private(house: House, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(house.project)
    for variable in [each for each in os.environ if each.startswith(("XDG_", "DGENT_"))]:
        monkeypatch.delenv(variable)
    monkeypatch.setenv("HOME", str(house.home))
    async with dgent.open() as u:
        await u.put(dgent.Datum(id="x"))
        folder = house.places.data / "constellations" / "default"
        assert {mode(each) for each in folder.iterdir()} == {0o600}
    async with dgent.open() as u:
        assert await u.exists("x")


def test_it_loads_little() -> None:
    code = "import sys, dgent.config.settings as c; c.load(); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    heavy = {
        "asyncio",
        "dataclasses",
        "msgspec",
        "click",
        "tomllib",
        "json",
        "difflib",
        "tempfile",
        "threading",
    }
    assert not heavy & set(done.stdout.split())


# -- the machine's key --------------------------------------------------------------------


def test_the_key_of_a_machine_is_made_once_and_for_its_user_alone(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path)}
    with ThreadPoolExecutor(8) as pool:
        found = set(pool.map(lambda _: places.machine_key(environment), range(40)))
    assert len(found) == 1
    assert len(next(iter(found)) or b"") == places.KEY_BYTES
    path = tmp_path / ".cache" / "dgent" / places.KEY_FILE
    assert mode(path) == 0o600
    assert os.listdir(path.parent) == [places.KEY_FILE]
    assert places.machine_key({"HOME": str(tmp_path / "other")}) not in found


def test_a_key_that_others_could_know_is_not_used(tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path)}
    places.machine_key(environment)
    path = tmp_path / ".cache" / "dgent" / places.KEY_FILE
    path.chmod(0o644)
    assert places.machine_key(environment) is None
    path.chmod(0o600)
    path.write_bytes(b"short")
    assert places.machine_key(environment) is None
    path.unlink()
    (tmp_path / "linked").write_bytes(bytes(places.KEY_BYTES))
    path.symlink_to(tmp_path / "linked")
    assert places.machine_key(environment) is None
    assert places.machine_key({}) is None
