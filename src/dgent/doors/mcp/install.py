"""Write dgent into the configuration of an agent's host, and take it out again; all else there stays."""

from __future__ import annotations

import json
import os
import re
import stat
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from dgent.config import file, jsonc
from dgent.config.hosts import Host
from dgent.config.places import make_private
from dgent.errors import ConfigError, InputError
from dgent.system.files import FILE

MAX_BYTES = 64 * 1024 * 1024  # Claude Code keeps more than settings in its file
NAME = "dgent"
_VALID_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
_REMOTE = ("url", "serverUrl", "httpUrl")  # keys of a server that is not started but connected to


def command() -> list[str]:
    """Return the words that start this dgent, from any folder."""
    here = Path(os.path.abspath(sys.executable)).parent
    script = here / ("dgent.exe" if sys.platform == "win32" else "dgent")
    if script.is_file() and os.access(script, os.X_OK):
        return [str(script)]
    # -P: a folder that the host happens to be in must not give us modules.
    return [os.path.abspath(sys.executable), "-P", "-c", "from dgent.doors.cli.main import main; main()"]


def entry(host: Host, words: Sequence[str]) -> dict[str, Any]:
    """Return the entry of a server that is started with these words."""
    for word in words:
        if not word.isascii() and word != word.encode(errors="replace").decode():
            raise InputError(f"{word!r} is not valid text, which a configuration must be")
        if "${" in word:
            raise InputError(f"{word!r} has a ${{, which hosts read as a variable")
    program, *rest = words
    typed = {"type": "stdio"} if host.typed else {}
    return {**typed, "command": program, "args": rest}


def check_name(name: str) -> None:
    """Refuse a name that a host could not list a server by."""
    if not _VALID_NAME.fullmatch(name):
        raise InputError(f"{name!r} is not a valid name (use 1 to 64 letters, digits, _ and -)", field="name")


# -- files ------------------------------------------------------------------------------------------


def change(path: Path, host: Host, name: str, server: Mapping[str, Any] | None, project: Path | None) -> bool:
    """Set the entry of a server in a host's file, or remove it with None; False if it was so already.

    The file is replaced in one step. One that is made is for the user only. A link in the user's home stays
    a link; in a project none is followed.
    """
    if project is not None:
        file.check_inside(path, project)
    path = Path(os.path.realpath(path))
    old = file.read(path, MAX_BYTES)
    new = edit(path, old, host, name, server)
    if new == old:
        return False
    make_private(path.parent)
    try:
        mode = stat.S_IMODE(os.stat(path).st_mode)
    except OSError:
        mode = FILE
    if file.read(path, MAX_BYTES) != old:
        raise ConfigError(f"{path} was changed by another program meanwhile", hint="try again")
    file.replace(path, new, mode)
    return True


def edit(path: Path, text: str, host: Host, name: str, server: Mapping[str, Any] | None) -> str:
    """Return a host's file with the entry of a server, or without it; ConfigError names the line."""
    check_name(name)
    try:
        before = _parse(path, text, host)
        keys = (host.key, name)
        if server is None:
            new = _remove_toml(text, keys) if host.toml else jsonc.remove(text, keys)
        else:
            _check_local(path, before, keys)
            new = _set_toml(text, keys, server) if host.toml else _set_json(text, keys, server)
    except jsonc.JsoncError as error:
        raise ConfigError(f"{path}, line {error.line}: {error}") from None
    try:
        after = _parse(path, new, host)
    except (ConfigError, jsonc.JsoncError):
        after = {}
    if _as_text(after, host) != _as_text(_add_server(before, keys, server), host):
        raise ConfigError(f"{'.'.join(keys)} in {path} is written in a way that only an editor can change")
    return new


def _parse(path: Path, text: str, host: Host) -> dict[str, Any]:
    if host.toml:
        return file.parse_toml(path, text)
    node = jsonc.parse(text)
    if node is not None and not isinstance(node.value, dict):
        raise ConfigError(f"{path} is not an object")
    return {} if node is None else node.value


def _check_local(path: Path, table: dict[str, Any], keys: tuple[str, str]) -> None:
    servers = table.get(keys[0])
    found = servers.get(keys[1]) if isinstance(servers, dict) else None
    if isinstance(found, dict) and any(key in found for key in _REMOTE):
        raise ConfigError(
            f"{'.'.join(keys)} in {path} is a server at an address",
            hint="give another --name, or uninstall that one first",
        )


def _add_server(
    before: dict[str, Any], keys: tuple[str, str], server: Mapping[str, Any] | None
) -> dict[str, Any]:
    group, name = keys
    servers = dict(before.get(group, {}))
    if server is None:
        servers.pop(name, None)
    else:
        old = servers.get(name)
        servers[name] = {**(old if isinstance(old, dict) else {}), **server}
    return {**before, group: servers}


def _as_text(table: dict[str, Any], host: Host) -> str:
    """Return a table as a text to compare: NaN is not equal to itself, and no servers are an empty table."""
    kept = {name: each for name, each in table.items() if name != host.key or each}
    return json.dumps(kept, sort_keys=True, default=repr)


# -- JSON -------------------------------------------------------------------------------------------


def _set_json(text: str, keys: tuple[str, str], server: Mapping[str, Any]) -> str:
    found = jsonc.find(text, keys)
    if found is None or not isinstance(found.value, dict):
        return jsonc.set_value(text, keys, dict(server))
    for key, value in server.items():  # what the user added to the entry stays
        text = jsonc.set_value(text, (*keys, key), value)
    return text


# -- TOML -------------------------------------------------------------------------------------------


def _set_toml(text: str, keys: tuple[str, str], server: Mapping[str, Any]) -> str:
    newline = "\r\n" if "\r\n" in text else "\n"
    lines = {key: f"{key} = {_literal(value)}{newline}" for key, value in server.items()}
    header = inside = None
    for each in file.statements(text.removeprefix("\ufeff")):
        if each.is_table:
            inside = each if each.path == keys else None
            header = inside or header
        elif inside is not None and each.path[0] in lines:
            lines[each.path[0]] = ""
    if header is None:
        end = newline if text and not text.endswith("\n") else ""
        gap = newline if text.strip() else ""
        return f"{text}{end}{gap}[{'.'.join(keys)}]{newline}{''.join(lines.values())}"
    mark = text[: len(text) - len(text.removeprefix("\ufeff"))]
    text = _set_values(text.removeprefix("\ufeff"), keys, server)
    at = next(each.end for each in file.statements(text) if each.is_table and each.path == keys)
    end = newline if text[at - 1] != "\n" else ""
    return mark + text[:at] + end * any(lines.values()) + "".join(lines.values()) + text[at:]


def _set_values(text: str, keys: tuple[str, str], server: Mapping[str, Any]) -> str:
    """Return the text with other values of keys that a table has."""
    import tomllib

    made, at, inside = "", 0, False
    for start, end, path, is_table in file.statements(text):
        inside = path == keys if is_table else inside
        key = path[0]
        if is_table or not inside or key not in server:
            continue
        if tomllib.loads(text[start:end])[key] != server[key]:
            made += text[at:start] + file.with_value(text[start:end], key, _literal(server[key]))
            at = end
    return made + text[at:]


def _remove_toml(text: str, keys: tuple[str, str]) -> str:
    """Return the text without a table and those below it; comments before the next table stay."""
    mark = text[: len(text) - len(text.removeprefix("\ufeff"))]
    text = text.removeprefix("\ufeff")
    made, at, inside = "", 0, False
    for start, end, path, is_table in file.statements(text):
        if is_table:
            inside = path[:2] == keys
        if inside:
            kept = text[at:start]
            made, at = made + (kept if kept.strip() else ""), end
    rest = text[at:]
    if at and not rest.strip():
        newline = "\r\n" if made.endswith("\r\n") else "\n"
        made = made.removesuffix(newline) if made.endswith(newline * 2) else made
    return mark + made + rest


def _literal(value: str | list[str]) -> str:
    # A text of JSON is one of TOML, but for one control character.
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
