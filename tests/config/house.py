"""A user's home in a temporary folder: files are written into it, and settings loaded from it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from dgent.config import settings
from dgent.config.places import find_places


class House:
    """A home, a project below it, and an environment that names nothing else."""

    def __init__(self, root: Path) -> None:
        self.home = root / "home"
        self.project = self.home / "work" / "project"
        self.project.mkdir(parents=True)
        self.environment = {"HOME": str(self.home)}
        self.places = find_places(self.environment)
        self.user_file = self.places.config / "config.toml"
        self.project_file = self.project / ".dgent" / "config.toml"

    def user(self, text: str | bytes) -> Path:
        return _write(self.user_file, text)

    def ours(self, text: str | bytes, name: str = "config.toml") -> Path:
        return _write(self.project_file.with_name(name), text)

    def load(self, cwd: Path | None = None, **given: Any) -> settings.Settings:
        """What `load` finds from the project's folder; names in capitals are variables."""
        variables = {name: given.pop(name) for name in list(given) if name.isupper()}
        environment = {**self.environment, **variables}
        return settings.load(environment=environment, cwd=cwd or self.project, **given)

    def store(self, name: str) -> str:
        return f"sqlite:///{self.places.data}/constellations/{name}/membrane.db"


def _write(path: Path, text: str | bytes) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text.encode() if isinstance(text, str) else text)
    return path
