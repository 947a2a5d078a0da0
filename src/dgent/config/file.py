"""A settings file: read within limits, and changed one key at a time."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

from dgent.config.secret import mask
from dgent.errors import ConfigError, InputError
from dgent.system.files import FILE

MAX_BYTES = 1024 * 1024  # of a settings file or a catalog


def _bytes(path: Path, most: int) -> bytes:
    """Return the bytes of a file, b"" if there is none; ConfigError if it cannot be read."""
    try:
        # Asked first: opening a named pipe would wait for its writer.
        if not stat.S_ISREG(os.stat(path).st_mode):
            if os.path.realpath(path) == os.devnull:
                return b""
            raise ConfigError(f"{path} is not a file")
        with open(path, "rb") as file:
            data = file.read(most + 1)
    except (FileNotFoundError, NotADirectoryError):
        return b""
    except OSError as error:
        raise ConfigError(f"{path} cannot be read: {error.strerror}") from None
    except ValueError:
        raise ConfigError("a path must not contain a NUL character") from None
    if len(data) > most:
        raise ConfigError(f"{path} has more than {most} bytes")
    return data


def read(path: Path, most: int = MAX_BYTES) -> str:
    """Return the text of a file; raises ConfigError naming the line that is not UTF-8."""
    data = _bytes(path, most)
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        line = data.count(b"\n", 0, error.start) + 1
        raise ConfigError(f"{path}, line {line}: not UTF-8 text") from None


def parse_toml(path: Path, text: str) -> dict[str, Any]:
    """Return a TOML text as a table; ConfigError names the file, the line and the reason."""
    import re
    import tomllib

    try:
        return tomllib.loads(text.removeprefix("\ufeff"))
    except RecursionError:
        raise ConfigError(f"{path}, line 1: nested too deeply") from None
    except ValueError as error:
        reason, at, where = str(error).rpartition(" (at ")
        number = re.search(r"line (\d+)", where)
        line = int(number[1]) if number else text.rstrip("\n").count("\n") + 1
        raise ConfigError(f"{path}, line {line}: {mask(reason if at else where)}") from None


def check_inside(path: Path, folder: Path) -> None:
    """Refuse a file of a folder that is a link, or lies behind one: it may lead anywhere."""
    if os.path.realpath(path) != os.path.join(os.path.realpath(folder), path.relative_to(folder)):
        raise ConfigError(f"{path} is a link or lies behind one, which is not followed")


def table(path: Path) -> dict[str, Any]:
    """Return the table of a TOML file."""
    text = read(path)
    return parse_toml(path, text) if text.strip() else {}


def agents(path: Path) -> dict[str, Any]:
    """Return the agents that a catalog, a JSON file, names."""
    import json

    text = read(path)
    if not text:
        return {}
    try:
        catalog = json.loads(text)
    except RecursionError:
        raise ConfigError(f"{path}, line 1: nested too deeply") from None
    except json.JSONDecodeError as error:
        raise ConfigError(f"{path}, line {error.lineno}: {error.msg}") from None
    except ValueError:
        raise ConfigError(f"{path}: a number with too many digits") from None
    named = catalog.get("agents", {}) if isinstance(catalog, dict) else None
    if not isinstance(named, dict):
        raise ConfigError(f'{path} must be an object like {{"agents": {{"scout": {{}}}}}}')
    return named


def change(path: Path, name: str, entry: str | bool | int | None, project: Path | None = None) -> None:
    """Set one key, or remove it with None. All else in the file stays, byte for byte.

    The key `a.b.c` is `c` in the table `[a.b]`, which is added at the end if there is none. The new file
    takes the old one's place in one step, readable by the user only; if the change cannot be made, nothing
    changes. In the file of a `project` there are no variables, and it is not a link.
    """
    if project is not None:
        check_inside(path, project)
        if isinstance(entry, str):
            try:
                expand_variables(entry, None)
            except ValueError as fault:
                raise InputError(f"{name} {fault}", field=name) from None
    path = Path(os.path.realpath(path))  # a link stays a link
    old = read(path)
    before, rest = _take(parse_toml(path, old), name)
    if before == entry and type(before) is type(entry):
        return
    new = _set_key(old, tuple(name.split(".")), None if entry is None else _literal(entry))
    try:
        after = _take(parse_toml(path, new), name)
    except ConfigError:
        after = (None, {})
    # As text, because NaN is not equal to itself.
    if (after[0], repr(after[1])) != (entry, repr(rest)):
        raise ConfigError(f"{name} in {path} is written in a way that only an editor can change")
    replace(path, new)


def _take(table: dict[str, Any], name: str) -> tuple[Any, dict[str, Any]]:
    """Return the value of a key, None if it is not set, and the table without it and without empty tables."""
    key, _, inner = name.partition(".")
    rest = {each: value for each, value in table.items() if each != key}
    if key not in table or not inner:
        return table.get(key), rest
    if not isinstance(table[key], dict):
        return None, table
    found, left = _take(table[key], inner)
    return found, {**rest, key: left} if left else rest


def _literal(value: str | bool | int) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    escaped = value.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


class Statement(NamedTuple):
    """A statement of a TOML text: the line of a table, or keys with a value."""

    start: int
    end: int
    path: tuple[str, ...]  # of the table, or the first key
    is_table: bool


def statements(text: str) -> Iterator[Statement]:
    """Yield the statements of a TOML text, which must be valid."""
    import tomllib

    at, start = 0, -1
    while at < len(text):
        end = text.find("\n", at) + 1 or len(text)
        line = text[at:end].strip()
        if start >= 0 or (line and not line.startswith("#")):
            is_table = start < 0 and line.startswith("[")
            start = at if start < 0 else start
            # A statement over several lines is whole when it can be read by itself.
            try:
                found = tomllib.loads(text[start:end])
            except tomllib.TOMLDecodeError:
                pass
            else:
                path = tuple(_keys(found)) if is_table else (next(iter(found)),)
                yield Statement(start, end, path, is_table)
                start = -1
        at = end


def _keys(table: Any) -> Iterator[str]:
    """Yield the keys that lead to the one table in a table."""
    while table := table[0] if isinstance(table, list) else table:
        key = next(iter(table))
        yield key
        table = table[key]


def _set_key(text: str, path: tuple[str, ...], literal: str | None) -> str:
    """Return the text with one key set, or removed.

    A new key is added below those of its table: above the first table, or in a new one at the end.
    """
    mark = "\ufeff" if text.startswith("\ufeff") else ""
    text = text.removeprefix("\ufeff")
    *wanted, name = path
    table: tuple[str, ...] = ()
    last = None if wanted else 0  # where the last statement of the table ends
    tables = False
    for start, end, found, is_table in statements(text):
        if is_table:
            table, tables = found, True
        if table != tuple(wanted):
            continue
        if not is_table and found == (name,):
            changed = "" if literal is None else with_value(text[start:end], name, literal)
            return mark + text[:start] + changed + text[end:]
        last = end
    if literal is None:
        return mark + text
    newline = "\r\n" if "\r\n" in text else "\n"
    head = ""
    if last is None:
        head = f"{newline if text.strip() else ''}[{'.'.join(wanted)}]{newline}"
    at = last if last or (tables and last is not None) else len(text)
    before = newline if at and text[at - 1] != "\n" else ""
    return f"{mark}{text[:at]}{before}{head}{name} = {literal}{newline}{text[at:]}"


def with_value(statement: str, name: str, literal: str) -> str:
    """Return a statement with another value, its spaces and its comment kept."""
    import re
    import tomllib

    head = re.match(rf"""[ \t]*(?:{name}|"{name}"|'{name}')[ \t]*=[ \t]*""", statement)
    if head is None:
        return statement
    rest = statement[head.end() :]
    for end in (*(match.start() for match in re.finditer("#", rest)), len(rest)):
        old = rest[:end].rstrip()
        with suppress(tomllib.TOMLDecodeError):
            tomllib.loads(f"value = {old}")
            return head[0] + literal + rest[len(old) :]
    return statement


def replace(path: Path, text: str, mode: int = FILE) -> None:
    """Put a file in the place of another in one step."""
    import tempfile

    try:
        handle, made = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with open(handle, "wb") as file:
                file.write(text.encode())
                file.flush()
                os.fsync(file.fileno())
            if mode != FILE:
                os.chmod(made, mode)
            os.replace(made, path)
        except BaseException:
            os.unlink(made)
            raise
    except OSError as error:
        raise ConfigError(f"{path} cannot be written: {error.strerror}") from None


# -- values as a file has them ------------------------------------------------------------


def expand_variables(text: str, env: Mapping[str, str] | None) -> tuple[str, bool]:
    """Return a text with each `${VAR}` replaced, and whether there was one; ValueError if one is not set.

    Without an environment, for a file that may come from anybody, every variable is a ValueError.
    """
    import re

    if "${" not in text:
        return text, False
    used = False

    def value(match: re.Match[str]) -> str:
        nonlocal used
        if match[0] == "$${":
            return "${"
        if not match[1]:
            raise ValueError("has a ${ that names no variable (for the characters themselves, write $${)")
        if env is None:
            raise ValueError("reads the environment, which only your own settings may do")
        if match[1] not in env:
            raise ValueError(f"needs the variable {match[1]}, which is not set")
        used = True
        return env[match[1]]

    return re.sub(r"\$\$\{|\$\{(?:([A-Za-z_][A-Za-z0-9_]*)\})?", value, text), used
