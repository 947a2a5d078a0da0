"""Settings: find them in arguments, the environment and files, check them, and write one.

Each setting is looked for in this order, and the first that has it counts:

    argument → environment (DGENT_*) → project (.dgent/config.toml) → user (config.toml) → default

A mistake in a file becomes a warning that never shows a value, and the setting is ignored; with `strict` it
raises ConfigError. A wrong argument is always an error. Every start of the command line loads this module, so
modules that only some starts need are imported where they are used.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Literal, NamedTuple

from dgent.config import file
from dgent.config.places import (
    DATABASE,
    Places,
    constellation_folder,
    constellation_of,
    database_url,
    find_places,
    home_folder,
    make_private,
    name_fault,
    outbox_file,
)
from dgent.config.secret import mask
from dgent.config.url import resolve_url, spell_url
from dgent.errors import ConfigError, InputError
from dgent.system import files

MAX_AUTHOR_BYTES = 256  # as much as a record's author may have

_WHEN = ("auto", "always", "never")
_YES, _NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


class Key(NamedTuple):
    """The rules of a setting. A secret one may hold a password, a hidden one is nothing else.

    A personal one is never read from a project's file.
    """

    type: type
    default: Any
    help: str
    choices: tuple[str, ...] = ()
    secret: bool = False
    hidden: bool = False
    personal: bool = False


KEYS: Mapping[str, Key] = MappingProxyType(
    {
        "url": Key(str, None, "where the data is; without it, the constellation says", secret=True),
        "constellation": Key(str, "default", "which of your own stores to use"),
        "author": Key(str, "system", "who makes the changes"),
        "durability": Key(str, "full", "what survives a power cut", ("full", "relaxed")),
        "degrade": Key(
            str, "no", "whether the store may be unavailable for a while", ("no", "yes", "optimistic")
        ),
        "outbox": Key(str, None, "the file that keeps writes while the store is unavailable"),
        "stand_in": Key(str, None, "a store that answers reads while the other is unavailable", secret=True),
        "embedder": Key(str, "none", "what embeds texts: none, minilm, hashed or the URL of a server"),
        "embedder_model": Key(str, None, "the model that this server is asked for", personal=True),
        "embedder_key": Key(str, None, "the key that this server wants", hidden=True, personal=True),
        "model": Key(str, None, "the model of agents that name none, as provider:name", personal=True),
        "token": Key(str, None, "what a dgent server wants to be shown", hidden=True, personal=True),
        "storage.relational.url": Key(
            str, None, "where your own tables are; without it, in the store's database", secret=True
        ),
        "storage.blob.url": Key(
            str, None, "where the bytes of blobs are; without it, beside the store", secret=True
        ),
        "storage.telemetry.url": Key(
            str, None, "where telemetry is; without it, beside the store", secret=True
        ),
        "storage.telemetry.keep_days": Key(
            int, None, "drop events older than this; 0 keeps all, unset is 90"
        ),
        "storage.telemetry.max_bytes": Key(
            int, None, "drop events beyond this size; 0 means no limit, unset 1 GiB"
        ),
        "color": Key(str, "auto", "when to print in colour", _WHEN),
        "pager": Key(str, "auto", "when to show long output page by page", _WHEN),
        "sessions": Key(bool, False, "whether each command is logged in its shell's session", personal=True),
        "strict": Key(bool, False, "whether a wrong setting is an error and not a warning"),
    }
)


class Setting(NamedTuple):
    """A value and its origin. A secret one does not show itself."""

    name: str
    value: Any
    source: str
    secret: bool

    def __repr__(self) -> str:
        value = "***" if self.secret else repr(self.value)
        return f"Setting({self.name}={value} from {self.source})"


class Settings:
    """The result of `load`; read it, do not change it."""

    places: Places
    project: Path | None  # the folder with the .dgent that counts here
    user: Path  # the user's settings file, there or not
    url: str
    constellation: str | None  # None: the url is not that of a constellation
    folder: Path | None  # the constellation's
    agents: Mapping[str, Any]  # of the project's catalog
    agent_tables: Any  # [agent.NAME] of the user's file, which config.agent reads
    values: Mapping[str, Setting]
    warnings: tuple[str, ...]

    def __init__(self, search: _Search, places: Places, project: Path | None, user: Path) -> None:
        found, self._shown = search.found, search.shown
        self.places, self.project, self.user = places, project, user
        self.agents = MappingProxyType(search.agents)
        self.agent_tables, self.environment = search.agent_tables, search.env
        chosen = found.get("constellation") or Setting("constellation", "default", "default", False)
        if "url" in found:
            self.url = found["url"].value
            self.constellation = name = constellation_of(self.url, places)
            secret = name is not None and found["url"].secret
            found["constellation"] = Setting("constellation", name, found["url"].source, secret)
            self._shown["constellation"] = "***"
        else:
            self.constellation = chosen.value
            self.url = database_url(constellation_folder(places, chosen.value))
            found["constellation"] = chosen
            found["url"] = Setting("url", self.url, chosen.source, chosen.secret)
            if chosen.secret:
                written = search.shown["constellation"]
                self._shown["url"] = database_url(places.data / "constellations" / written)
        self.folder = None if self.constellation is None else constellation_folder(places, self.constellation)
        for name, key in KEYS.items():
            found.setdefault(name, Setting(name, key.default, "default", False))
        self.values = MappingProxyType({name: found[name] for name in KEYS})
        self.warnings = tuple(search.problems)

    @property
    def author(self) -> str:
        """The author of changes."""
        return str(self.values["author"].value)

    @property
    def durability(self) -> str:
        """`full` or `relaxed`."""
        return str(self.values["durability"].value)

    @property
    def degrade(self) -> bool | Literal["optimistic"]:
        """True if the store may be unavailable: False, True or `optimistic`."""
        value = self.values["degrade"].value
        return "optimistic" if value == "optimistic" else value == "yes"

    @property
    def outbox(self) -> str:
        """The file that keeps writes while the store is unavailable."""
        found = self.values["outbox"].value or outbox_file(self.url, self.places)
        return str(found).removeprefix("sqlite:///")

    @property
    def urls(self) -> list[str]:
        """The store, and the places that answer reads while it is unavailable."""
        stand_in = self.values["stand_in"].value
        return [self.url] if stand_in is None else [self.url, str(stand_in)]

    @property
    def embedder(self) -> tuple[str, str | None, str | None]:
        """The embedder of texts, the model and the key; the last two are for a server."""
        name, model, key = (self.values[f"embedder{each}"].value for each in ("", "_model", "_key"))
        return name, model, key

    @property
    def token(self) -> str | None:
        """The token that a server wants to be shown."""
        found: str | None = self.values["token"].value
        return found

    @property
    def storage(self) -> dict[str, dict[str, Any]]:
        """The settings of each port that is kept beside the store, without those that are not set."""
        found: dict[str, dict[str, Any]] = {}
        for name, setting in self.values.items():
            if name.startswith("storage.") and setting.value is not None:
                _, port, option = name.split(".")
                found.setdefault(port, {})[option] = setting.value
        return found

    @property
    def color(self) -> str:
        """The colour mode: `auto`, `always` or `never`."""
        return str(self.values["color"].value)

    @property
    def pager(self) -> str:
        """The pager mode for long output: `auto`, `always` or `never`."""
        return str(self.values["pager"].value)

    @property
    def sessions(self) -> bool:
        """True if each command is logged in the session of its shell."""
        return bool(self.values["sessions"].value)

    @property
    def strict(self) -> bool:
        """True if a wrong setting is an error."""
        return bool(self.values["strict"].value)

    def list_settings(self) -> list[Setting]:
        """Return every setting as it may be shown: passwords hidden, variables as they were written."""
        return [
            each._replace(value=show_value(each.name, self._shown.get(each.name, each.value)))
            if each.secret
            else each
            for each in self.values.values()
        ]

    def __repr__(self) -> str:
        return f"<Settings {', '.join(f'{each.name}={each.value!r}' for each in self.list_settings())}>"


# -- the default place --------------------------------------------------------------------


def default_url(environment: Mapping[str, str] | None = None) -> str:
    """Return the default place of the settings; a constellation's folder is made, private."""
    return _default(environment).url


def default_places(degrade: Any, outbox: str | None) -> tuple[list[str], Any, str | None]:
    """Return the places of the settings, whether the first may be unavailable, and its outbox if so."""
    settings = _default(None)
    degrade = settings.degrade if degrade is None else degrade
    if degrade and outbox is None:
        outbox = settings.outbox
    return settings.urls, degrade, outbox


def default_embedder() -> tuple[str, str | None, str | None]:
    """Return what the settings say of the embedder: its name or URL, the model, and the key."""
    return load().embedder


def default_storage() -> dict[str, dict[str, Any]]:
    """Return what the settings say of the ports beside the store."""
    return load().storage


def load_default(config: str | Path | None = None) -> Settings:
    """Return the settings, with warnings raised; a constellation's folder is made, private."""
    return _default(None, config)


def _default(environment: Mapping[str, str] | None, config: str | Path | None = None) -> Settings:
    settings = load(environment=environment, config=config)
    if settings.warnings:
        import warnings

        for text in settings.warnings:
            warnings.warn(text, UserWarning, stacklevel=3)
    if settings.folder is not None:
        make_private(settings.folder)
        files.make_file(str(settings.folder / DATABASE))
    return settings


# -- finding the settings -----------------------------------------------------------------


def load(
    *,
    url: str | None = None,
    constellation: str | None = None,
    config: str | Path | None = None,
    environment: Mapping[str, str] | None = None,
    cwd: str | Path | None = None,
    strict: bool | None = None,
) -> Settings:
    """Find every setting, by the order above. Reads files, and makes nothing.

    `config` is another file in place of the user's own, `environment` and `cwd` stand for the process's
    environment and folder. The project is looked for from that folder upward.
    """
    env = os.environ if environment is None else environment
    where = find_places(environment)
    search = _Search(env)
    search.take_arguments({"url": url, "constellation": constellation, "strict": strict})
    search.take_environment()
    here = _here(cwd)
    project = _project(here, home_folder(environment), search.problems)
    if project is not None:
        search.take_file(project / ".dgent" / "config.toml", "project", project)
        search.take_catalog(project / ".dgent" / "catalog.json", project)
    given = config if config is not None else env.get("DGENT_CONFIG") or None
    user = here / given if given is not None else where.config / "config.toml"
    if given is not None and not os.path.lexists(user):
        if config is not None:
            raise ConfigError(f"{user} does not exist", hint="name a settings file that exists")
        search.problems.append(f"DGENT_CONFIG names {user}, which does not exist; no user settings are used")
    search.take_file(user, "user", user.parent)
    settings = Settings(search, where, project, user)
    if settings.strict and settings.warnings:
        raise ConfigError(
            "; ".join(settings.warnings),
            hint="correct it, or go on without strict",
            problems=settings.warnings,
        )
    return settings


def _here(cwd: str | Path | None) -> Path:
    try:
        return Path(os.path.abspath(os.getcwd() if cwd is None else cwd))
    except OSError:  # the folder we are in was removed
        return Path(os.sep)


def _project(start: Path, home: Path | None, problems: list[str]) -> Path | None:
    """Return the nearest folder from `start` upward with a `.dgent`, below the home folder or beside it."""
    ends = {Path(start.anchor)}
    for end in () if home is None else (home, Path(os.path.realpath(home))):
        ends |= {end, *end.parents}
    for folder in (start, *start.parents):
        if folder in ends:
            return None
        try:
            found = os.stat(folder / ".dgent")
        except (OSError, ValueError):
            continue
        if stat.S_ISDIR(found.st_mode):
            # Another user with write access above could set where our data goes.
            if hasattr(os, "geteuid") and found.st_uid not in (os.geteuid(), 0):
                problems.append(f"{folder / '.dgent'} belongs to another user and is not read")
                return None
            return folder
    return None


class _Search:
    """The settings found so far, from the highest level down, and the problems met."""

    def __init__(self, env: Mapping[str, str]) -> None:
        self.env = env
        self.found: dict[str, Setting] = {}
        self.shown: dict[str, str] = {}  # values with variables, as they were written
        self.agents: dict[str, Any] = {}
        self.agent_tables: Any = {}
        self.problems: list[str] = []

    def take_arguments(self, given: Mapping[str, Any]) -> None:
        for name, value in given.items():
            if value is None:
                continue
            fault = _fault(name, value)
            if fault:
                raise InputError(f"{name} {fault}", field=name)
            self._keep(name, value, "argument")
        if "url" in self.found and "constellation" in self.found:
            raise InputError("url and constellation cannot be combined", hint="give one of them", field="url")

    def take_environment(self) -> None:
        decided = self._find_decided()
        for name, key in KEYS.items():
            variable = f"DGENT_{name.upper().replace('.', '_')}"
            text = self.env.get(variable, "")
            if not text or name in decided:
                continue
            value = _parse_plain(key, text)
            fault = _fault(name, value)
            if not fault:
                self._keep(name, value, f"environment {variable}")
            elif name in ("url", "constellation"):
                raise ConfigError(f"{variable} {fault}", hint="correct it, or unset it", field=name)
            else:
                self.problems.append(f"{variable} {fault}; it is not used")
        if self.env.get("NO_COLOR"):
            self.found.setdefault("color", Setting("color", "never", "environment NO_COLOR", False))
        self._one_place("the environment")

    def take_file(self, path: Path, level: str, base: Path) -> None:
        """Read the settings of a file, with paths relative to `base`.

        Those of a project, which may come from anybody, stay inside it and never read the environment.
        """
        ours = level != "project"
        try:
            if not ours:
                file.check_inside(path, base)
            table = file.table(path)
        except ConfigError as error:
            self.problems.append(f"{error.message}; no setting of this file is used")
            return
        decided = self._find_decided()
        if "agent" in table and ours:
            self.agent_tables = table.pop("agent")
        for name, written in _flatten(table):
            if name == "agent":
                self.problems.append(f"agent in {path} is for your own file; it is not used")
            elif name not in KEYS:
                self.problems.append(f"unknown key {_quote(name)} in {path}, {_nearest(name)}")
            elif KEYS[name].personal and not ours:
                self.problems.append(
                    f"{name} in {path} is for your own file or the environment; it is not used"
                )
            elif name not in decided:
                try:
                    value, from_variable = self._value(name, written, self.env if ours else None)
                    if name == "outbox":
                        value = "sqlite:///" + value.removeprefix("sqlite:///")
                    if name == "embedder" and not ours and ":" in value:
                        raise ValueError("names a server, which only your own settings may do")
                    if name == "outbox" or _is_url(name):
                        value = resolve_url(value, base, inside=not ours)
                except ValueError as fault:
                    self.problems.append(f"{name} in {path} {fault}; it is not used")
                    continue
                self._keep(name, value, f"{level} {path}", written if from_variable else None)
        self._one_place(str(path))

    def take_catalog(self, path: Path, base: Path) -> None:
        """Read the agents of a project."""
        try:
            file.check_inside(path, base)
            agents = file.agents(path)
        except ConfigError as error:
            self.problems.append(f"{error.message}; no agent of it is known")
            return
        for name, agent in agents.items():
            if isinstance(agent, dict):
                self.agents[name] = agent
            else:
                self.problems.append(f"agent {_quote(name)} in {path} must be an object; it is not used")

    def _value(self, name: str, written: Any, env: Mapping[str, str] | None) -> tuple[Any, bool]:
        value, from_variable = written, False
        if isinstance(written, str):
            value, from_variable = file.expand_variables(written, env)
        fault = _fault(name, value)
        if fault:
            raise ValueError(fault)
        return value, from_variable

    def _keep(self, name: str, value: Any, source: str, written: str | None = None) -> None:
        key = KEYS[name]
        if isinstance(value, str) and _is_url(name):
            value = spell_url(value)
        secret = written is not None or key.hidden or (key.secret and mask(value) != value)
        self.found[name] = Setting(name, value, source, secret)
        if written is not None:
            self.shown[name] = written

    def _find_decided(self) -> set[str]:
        """Return the keys that higher levels have set: a place there, in either way, decides both keys."""
        both = {"url", "constellation"}
        return self.found.keys() | (both if both & self.found.keys() else set())

    def _one_place(self, level: str) -> None:
        if {"url", "constellation"} <= self.found.keys():
            del self.found["constellation"]
            self.shown.pop("constellation", None)
            self.problems.append(f"{level} has a url and a constellation; the url is used")


# -- values -------------------------------------------------------------------------------


def _is_url(name: str) -> bool:
    return name in ("url", "stand_in") or name.endswith(".url")


def _fault(name: str, value: object) -> str | None:
    """Return why a value is not valid for a setting, in words that do not show it; None if it is valid."""
    key = KEYS[name]
    if key.type is bool:
        return None if isinstance(value, bool) else "must be true or false"
    if key.type is int:
        return None if type(value) is int and value >= 0 else "must be a number from 0"
    if not isinstance(value, str):
        return "must be text"
    if key.choices:
        return None if value in key.choices else f"must be one of {', '.join(key.choices)}"
    if name == "constellation":
        return name_fault(value)
    if _is_url(name) and not _matches(r"[a-z][a-z0-9+.-]*:(?s:.*)", value):
        return "must be a URL such as sqlite:///path/to/file.db"
    if name == "embedder" and not _matches(r"none|minilm|hashed|https?://(?s:.+)", value):
        return "must be none, minilm, hashed or a URL such as http://127.0.0.1:11434/v1"
    if name == "author" and len(value.encode(errors="replace")) > MAX_AUTHOR_BYTES:
        return f"must have at most {MAX_AUTHOR_BYTES} bytes"
    return _text_fault(value)


def show_value(name: str, value: str) -> str:
    """Return a value as it may be shown: a variable as it is written, a key not at all."""
    return "***" if KEYS[name].hidden and not _matches(r"\$\{\w+\}", value) else mask(value)


def _text_fault(value: str) -> str | None:
    if _matches(r"[^\x00-\x1f\x7f\ud800-\udfff]+", value):
        return None
    return "must be text that is not empty and has no control characters"


def _matches(pattern: str, value: str) -> bool:
    import re

    return re.fullmatch(pattern, value) is not None


def _flag(text: str) -> bool | None:
    return True if text.lower() in _YES else False if text.lower() in _NO else None


def _parse_plain(key: Key, text: str) -> Any:
    """Return the value of a text that is no TOML; what is wrong with it shows when it is checked."""
    if key.type is bool:
        return _flag(text)
    return int(text) if key.type is int and text.isascii() and text.isdecimal() else text


def _flatten(table: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the keys of a settings file, those of `[storage.…]` with their tables' names before them."""
    for name, value in table.items():
        if name == "storage" and isinstance(value, dict):
            for port, options in value.items():
                if isinstance(options, dict):
                    yield from ((f"storage.{port}.{option}", each) for option, each in options.items())
                else:
                    yield f"storage.{port}", options
        else:
            yield name, value


def _quote(name: str) -> str:
    name = mask(name)
    return repr(name if len(name) <= 60 else name[:57] + "...")


def _nearest(name: str) -> str:
    from dgent.system.near import ask, find_near

    return ask(map(repr, find_near(name, KEYS, 1))) or f"known are {', '.join(KEYS)}"


# -- changing a setting -------------------------------------------------------------------


def write_setting(path: Path, name: str, value: str | None, *, project: Path | None = None) -> None:
    """Set one key of a settings file, or remove it with None. All else in the file stays, byte for byte.

    The new file takes the old one's place in one step, readable by the user only; if the change cannot
    be made, nothing changes. `project` is the folder of the project whose file it is.
    """
    if name not in KEYS:
        raise InputError(f"unknown key {_quote(name)}, {_nearest(name)}", field=name)
    if project is not None and KEYS[name].personal and value is not None:
        raise InputError(f"{name} is only for your own settings", hint="leave out --project", field=name)
    entry: Any = value
    if value is not None:
        entry = _parse_plain(KEYS[name], value)
        # What variables will make of it shows when it is read.
        fault = _text_fault(value) if entry == value and "${" in value else _fault(name, entry)
        if fault:
            raise InputError(f"{name} {fault}", field=name)
    make_private(path.parent)
    file.change(path, name, entry, project)


# -- the terminal -------------------------------------------------------------------------


def wants_color(setting: str, terminal: bool, environment: Mapping[str, str] | None = None) -> bool:
    """Return whether to colour: `auto` does on a terminal, unless NO_COLOR is set or it is dumb."""
    if setting != "auto":
        return setting == "always"
    env = os.environ if environment is None else environment
    return terminal and not env.get("NO_COLOR") and env.get("TERM") != "dumb"
