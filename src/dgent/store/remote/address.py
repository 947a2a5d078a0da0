"""The address of a store on a server: https://host/constellation."""

from __future__ import annotations

from typing import Any
from urllib.parse import parse_qsl, urlsplit

import msgspec

from dgent.config.secret import mask
from dgent.errors import InputError

TIMEOUT_S = 30.0
POOL = 16
_PORTS = {"http": 80, "https": 443}
_EXAMPLE = "write https://host/constellation"


class Address(msgspec.Struct, frozen=True):
    """A server, and the store on it; the token does not show itself."""

    scheme: str
    host: str
    port: int
    prefix: str = ""
    token: str = ""
    timeout_s: float = TIMEOUT_S
    pool: int = POOL
    ca: str | None = None

    @property
    def place(self) -> str:
        """The place as text, without the token."""
        port = "" if self.port == _PORTS[self.scheme] else f":{self.port}"
        return f"{self.scheme}://{self._bracketed}{port}{self.prefix}"

    @property
    def authority(self) -> str:
        """The host and the port, as a request names them."""
        return self.place.removeprefix(f"{self.scheme}://").partition("/")[0]

    @property
    def _bracketed(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    def __repr__(self) -> str:
        return f"<Address {self.place}>"

    def __rich_repr__(self) -> list[tuple[str, Any]]:
        return [("place", self.place)]


def address_of(url: str, token: str | None = None) -> Address:
    """Parse a URL like https://host/constellation?timeout=10; the token is never a part of it."""
    try:
        parts = urlsplit(url)
        port = parts.port or _PORTS[parts.scheme]
    except ValueError as error:
        raise InputError(f"{mask(url)} is not a valid URL: {error}", hint=_EXAMPLE, field="url") from None
    if parts.username is not None or parts.password is not None:
        raise InputError(
            "the URL of a server has no user and no password", hint="give the token as token=…", field="url"
        )
    host = parts.hostname
    if not host or not host.isascii() or any(not each.isprintable() or each.isspace() for each in url):
        raise InputError(f"{mask(url)} names no server", hint=_EXAMPLE, field="url")
    name = parts.path.strip("/")
    if "/" in name or not name.isascii() or parts.fragment:
        raise InputError(f"{mask(url)} names no constellation of a server", hint=_EXAMPLE, field="url")
    asked = _settings(parts.query)
    return Address(
        parts.scheme,
        host,
        port,
        f"/{name}" if name else "",
        _check_token(token),
        _number(asked.get("timeout", TIMEOUT_S), "timeout", 1, 3600),
        int(_number(asked.get("pool", POOL), "pool", 1, 1000)),
        asked.get("ca"),
    )


def _settings(query: str) -> dict[str, Any]:
    found = dict(parse_qsl(query, keep_blank_values=True))
    for name in found:
        if name not in ("timeout", "pool", "ca"):
            raise InputError(
                f"a server's URL has no setting {mask(name)!r}",
                hint="it has timeout, pool and ca",
                field="url",
            )
    return found


def _check_token(token: str | None) -> str:
    if token is None:
        return ""
    if not isinstance(token, str) or not token.isascii() or not token.isprintable() or " " in token:
        # Never the token itself.
        raise InputError("the token is not one that `dgent token create` makes", field="token")
    return token


def _number(value: Any, field: str, least: int, most: int) -> float:
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = 0.0
    if not least <= number <= most:
        raise InputError(f"{field} must be a number from {least} to {most}, not {value!r}", field=field)
    return number
