"""The address of a universe on Postgres: the server, the universe's name, and connection settings."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, quote, urlencode, urlsplit, urlunsplit

import msgspec

from dgent.config.secret import mask
from dgent.errors import InputError
from dgent.store.postgres.format import check_universe_name

TIMEOUT_S = 30.0
POOL = 10
DURABILITIES = ("full", "relaxed")
_OURS = ("universe", "timeout", "pool", "pgbouncer", "read_url")


class Address(msgspec.Struct, frozen=True):
    """A place on a Postgres server, parsed from its URL."""

    dsn: str
    universe: str = "dgent"
    timeout: float = TIMEOUT_S
    pool: int = POOL
    pgbouncer: bool = False
    read_dsn: str | None = None
    durability: str = "full"
    read_only: bool = False

    @property
    def place(self) -> str:
        """The place as text without secrets."""
        return mask(f"{self.dsn}{'&' if '?' in self.dsn else '?'}universe={self.universe}")

    def settings(self) -> dict[str, str]:
        """The settings that each session asks of the server; a pooler passes hardly any of them on."""
        if self.pgbouncer:
            return {"application_name": "dgent"}
        wanted = {"application_name": "dgent", "jit": "off", "plan_cache_mode": "force_generic_plan"}
        if self.durability == "relaxed":
            wanted["synchronous_commit"] = "off"
        if self.read_only:
            wanted["default_transaction_read_only"] = "on"
        return wanted


def address_of(url: str, **options: Any) -> Address:
    """Parse a URL like postgresql://user@host/database?universe=name&timeout=10."""
    try:
        parts = urlsplit(url)
        _ = parts.port, parts.hostname  # what is wrong with them shows only when they are asked for
    except ValueError as error:
        # Several hosts with a port each are one port too many to Python, and fine to Postgres.
        if "," not in url:
            raise InputError(f"{mask(url)} is not a valid URL: {error}", field="url") from None
        parts = urlsplit(url)
    if not (parts.hostname or parts.netloc or "host=" in parts.query):
        raise InputError(
            f"{mask(url)} names no server",
            hint="write postgresql://user@host/database?universe=name",
            field="url",
        )
    asked: dict[str, Any] = {}
    rest = []
    for name, value in parse_qsl(parts.query, keep_blank_values=True):
        if name in _OURS:
            asked[name] = value
        else:
            rest.append((name, value))
    asked.update((name, value) for name, value in options.items() if value is not None)
    durability = asked.pop("durability", "full")
    if durability not in DURABILITIES:
        raise InputError(
            f"durability is {durability!r}; it is one of {', '.join(DURABILITIES)}", field="durability"
        )
    pgbouncer = _truth(asked.get("pgbouncer", False))
    if pgbouncer and durability == "relaxed":
        raise InputError(
            "durability='relaxed' cannot be asked for through PgBouncer",
            hint="set synchronous_commit for the role instead",
            field="durability",
        )
    read_url = asked.get("read_url")
    return Address(
        urlunsplit(parts._replace(query=urlencode(rest, quote_via=quote))),
        check_universe_name(asked.get("universe", "dgent")),
        _number(asked.get("timeout", TIMEOUT_S), "timeout"),
        int(_number(asked.get("pool", POOL), "pool")),
        pgbouncer,
        None if read_url is None else address_of(read_url).dsn,
        durability,
        bool(asked.get("read_only", False)),
    )


def one_by_one(dsn: str) -> list[str]:
    """Split a URL that names several servers into a URL for each of them."""
    parts = urlsplit(dsn)
    user, at, hosts = parts.netloc.rpartition("@")
    return [parts._replace(netloc=user + at + host).geturl() for host in hosts.split(",")]


def _number(value: Any, field: str) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not 1 <= number <= 3600:
        raise InputError(f"{field} must be a number from 1 to 3600, not {value!r}", field=field)
    return number


def _truth(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    if value in ("1", "true", "yes", "on"):
        return True
    if value in ("0", "false", "no", "off"):
        return False
    raise InputError(f"pgbouncer is true or false, not {value!r}", field="pgbouncer")
