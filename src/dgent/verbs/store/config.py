"""Verbs for settings and their sources."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import msgspec

from dgent.config import settings as config
from dgent.config.secret import mask
from dgent.errors import ConfigError, InputError
from dgent.system.near import nearest
from dgent.verbs.context import Context
from dgent.verbs.registry import Ask, NoInput, argument, option, verb

Project = Annotated[bool, option("in the project's file instead of yours")]
Key = Annotated[str, argument("the setting's name", complete="setting")]


class SettingInfo(msgspec.Struct, frozen=True):
    """One setting, its value, and where that comes from."""

    name: str
    value: Any
    source: str


class SettingsInfo(msgspec.Struct, frozen=True):
    """Every setting, where the files are, and what was wrong with them."""

    settings: list[SettingInfo]
    places: dict[str, str]
    warnings: list[str]


class SettingChange(msgspec.Struct, frozen=True):
    """A setting as a file has it now; None when the file no longer sets it."""

    name: str
    value: str | None
    file: str


class OneSetting(Ask):
    """Input of `config.get`."""

    name: Key


class SetSetting(Ask):
    """Input of `config.set`."""

    name: Key
    value: Annotated[str, argument("its new value")]
    project: Project = False


class UnsetSetting(Ask):
    """Input of `config.unset`."""

    name: Key
    project: Project = False


@verb("config.list", effect="read", errors=(ConfigError,), local=True)
async def list_(context: Context, ask: NoInput) -> SettingsInfo:
    """List each setting and where it comes from."""
    return _list_settings(context.settings)


@verb("config.get", effect="read", errors=(InputError, ConfigError), local=True)
async def get(context: Context, ask: OneSetting) -> SettingInfo:
    """Show one setting and where it comes from."""
    (found,) = [
        each for each in _list_settings(context.settings).settings if each.name == _check_name(ask.name)
    ]
    return found


@verb("config.set", effect="write", errors=(InputError, ConfigError), local=True)
async def set_(context: Context, ask: SetSetting) -> SettingChange:
    """Set one setting in your file, or the project's."""
    file, project = _file(context, ask.project)
    config.write_setting(file, _check_name(ask.name), ask.value, project=project)
    return SettingChange(ask.name, config.show_value(ask.name, ask.value), str(file))


@verb("config.unset", effect="write", errors=(InputError, ConfigError), local=True)
async def unset(context: Context, ask: UnsetSetting) -> SettingChange:
    """Remove one setting from your file, or the project's."""
    file, project = _file(context, ask.project)
    config.write_setting(file, _check_name(ask.name), None, project=project)
    return SettingChange(ask.name, None, str(file))


def _check_name(name: str) -> str:
    if name not in config.KEYS:
        hint = nearest(name, config.KEYS) or f"there is {', '.join(config.KEYS)}"
        raise InputError(f"there is no setting {name!r}", hint=hint, field="name")
    return name


def _file(context: Context, project: bool) -> tuple[Path, Path | None]:
    """Return the settings file to change, and the project folder if the file is the project's."""
    settings = context.settings
    if not project:
        return settings.user, None
    folder = settings.project or Path.cwd()
    return folder / ".dgent" / "config.toml", folder


def _mask(value: Any) -> Any:
    return mask(value) if isinstance(value, str) else value


def _list_settings(settings: config.Settings) -> SettingsInfo:
    places = {name: str(folder) for name, folder in settings.places._asdict().items()}
    if settings.project is not None:
        places["project"] = str(settings.project)
    known = [SettingInfo(each.name, _mask(each.value), each.source) for each in settings.list_settings()]
    return SettingsInfo(known, places, list(settings.warnings))
