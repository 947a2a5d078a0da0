"""The catalog of a project: one file, changed by several processes at once."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from dgent.config import settings
from dgent.errors import ConfigError, InputError, NotFound
from dgent.membrane import Catalog, CatalogAgent


def test_agents_are_registered_listed_and_removed(tmp_path: Path) -> None:
    project = tmp_path / "project"
    project.mkdir()
    catalog = Catalog(project)
    assert catalog.list() == []
    scout = catalog.register("scout", "k-gent", "pkg.scout:main", ["read", "read", "write"])
    assert scout == CatalogAgent("scout", "k-gent", "pkg.scout:main", ("read", "write"))
    catalog.register("elder", "d-gent")
    assert [each.name for each in catalog.list()] == ["elder", "scout"]
    assert catalog.get("scout") == scout
    found = settings.load(environment={"HOME": str(tmp_path / "home")}, cwd=project)
    assert set(found.agents) == {"elder", "scout"}  # what settings read is what was written
    assert catalog.remove("elder").genus == "d-gent"
    with pytest.raises(NotFound, match="'elder'"):
        catalog.remove("elder")
    with pytest.raises(InputError, match="name"):
        catalog.register("", "x")


def test_what_else_the_file_says_stays(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path)
    catalog.path.parent.mkdir()
    catalog.path.write_text('{"version": 2, "agents": {"odd": 1, "a": {"genus": "x", "color": "red"}}}')
    catalog.register("a", "y")
    after = json.loads(catalog.path.read_text())
    assert after["version"] == 2 and after["agents"]["odd"] == 1
    assert after["agents"]["a"] == {"genus": "y", "color": "red", "entry": "", "capabilities": []}
    catalog.path.write_text("{")
    with pytest.raises(ConfigError, match="line 1"):
        catalog.register("b", "y")
    assert catalog.path.read_text() == "{"


def test_a_linked_catalog_is_refused(tmp_path: Path) -> None:
    catalog = Catalog(tmp_path / "project")
    catalog.path.parent.mkdir(parents=True)
    (tmp_path / "other.json").write_text("{}")
    catalog.path.symlink_to(tmp_path / "other.json")
    with pytest.raises(ConfigError, match="link"):
        catalog.register("a", "x")
    assert (tmp_path / "other.json").read_text() == "{}"


def test_two_processes_at_once_lose_nothing(tmp_path: Path) -> None:
    program = (
        "import sys; from dgent.membrane import Catalog\n"
        "for n in range(25): Catalog(sys.argv[1]).register(f'{sys.argv[2]}-{n}', 'g')"
    )
    running = [subprocess.Popen([sys.executable, "-c", program, str(tmp_path), name]) for name in ("a", "b")]
    assert [each.wait() for each in running] == [0, 0]
    assert len(Catalog(tmp_path).list()) == 50
    assert sorted(each.name for each in (tmp_path / ".dgent").iterdir()) == ["catalog.json"]
