"""The pages of the studio as an ASGI application: files, the login with a token, links that work once."""

from __future__ import annotations

import gzip
import hashlib
from collections.abc import Awaitable, Callable
from importlib.resources import files
from typing import NamedTuple
from urllib.parse import parse_qs

import msgspec
from starlette.responses import RedirectResponse, Response
from starlette.types import Receive, Scope, Send

from dgent.doors.http.answer import answer, refuse
from dgent.doors.http.app import BY_COOKIE, cookie_name
from dgent.doors.http.limit import Buckets, Limits, read_body
from dgent.doors.studio.session import Sessions
from dgent.errors import Denied, InputError

CSP = (
    "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
    "base-uri 'none'; frame-ancestors 'none'; form-action 'self'; "
    "require-trusted-types-for 'script'; trusted-types 'none'"
)
HEADERS = {
    "Content-Security-Policy": CSP,
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
    "Permissions-Policy": "camera=(), geolocation=(), microphone=()",
}
KINDS = {
    "html": "text/html; charset=utf-8",
    "css": "text/css; charset=utf-8",
    "js": "text/javascript; charset=utf-8",
    "svg": "image/svg+xml",
}
LOGIN = Limits(body_bytes=4096)

Check = Callable[[str, str], Awaitable[object]]
"""Checks the name of a constellation and a token; raises Denied for a wrong one."""


class File(NamedTuple):
    """A file of the package, as it is sent."""

    kind: str
    body: bytes
    zipped: bytes
    etag: str


class Login(msgspec.Struct):
    """The body that the login page sends."""

    token: str
    constellation: str = ""


def load_files() -> dict[str, File]:
    """Return the files of the studio by the path at which they are served."""
    found: dict[str, File] = {}
    for each in files("dgent.doors.studio").joinpath("files").iterdir():
        ending = each.name.rpartition(".")[2]
        if ending in KINDS:
            body = each.read_bytes()
            etag = f'"{hashlib.sha256(body).hexdigest()[:20]}"'
            found["/" + each.name] = File(KINDS[ending], body, gzip.compress(body, 9, mtime=0), etag)
    found["/"], found["/login"] = found.pop("/index.html"), found.pop("/login.html")
    return found


class Pages:
    """Serves the studio. Its files hold nothing of the store, so anybody may read them."""

    def __init__(self, check: Check, sessions: Sessions | None = None, limits: Limits | None = None) -> None:
        usual = limits or Limits()
        self._check, self._sessions = check, sessions
        self._wrong = Buckets(usual.wrong_rate, usual.wrong_burst)
        self._files = load_files()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        response = await self._answer(scope, receive)
        for name, value in HEADERS.items():
            response.headers[name] = value
        await response(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive) -> Response:
        path, method = scope["path"], scope["method"]
        headers: dict[bytes, bytes] = dict(scope["headers"])
        if method == "POST" and path in ("/login", "/logout"):
            if BY_COOKIE not in headers:
                raise Denied("a page may only change things through the studio")
            body = await read_body(headers, receive, LOGIN)
            return await self._log_in(scope, body) if path == "/login" else self._log_out(scope, headers)
        if method not in ("GET", "HEAD"):
            return refuse(405, "method", f"{method} is not for this address", Allow="GET, HEAD")
        if path == "/enter":
            if method != "GET":  # to look whether it is there must not use it up
                return refuse(405, "method", f"{method} is not for this address", Allow="GET")
            return self._enter(scope)
        file = self._files.get(path)
        if file is None:
            return refuse(404, "not_found", "there is no such page", "the studio is at /")
        return _send_file(file, headers)

    def _enter(self, scope: Scope) -> Response:
        """Open a session with a link. Its code goes out of the address at once."""
        code = parse_qs(scope["query_string"].decode("latin-1")).get("code", [""])[0]
        cookie = None if self._sessions is None else self._sessions.open(code)
        if cookie is None:
            self._wrong.take(_peer(scope))
            return RedirectResponse("/login?used=1", 303, {"Cache-Control": "no-store"})
        return _set_cookie(RedirectResponse("/", 303, {"Cache-Control": "no-store"}), scope, cookie)

    async def _log_in(self, scope: Scope, body: bytes) -> Response:
        try:
            given = msgspec.json.decode(body, type=Login)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
            raise InputError("the login is JSON with a token", field="token") from None
        try:
            await self._check(given.constellation, given.token)
        except Denied as error:
            self._wrong.take(_peer(scope))
            return refuse(401, "unknown_visitor", error.message, "`dgent token create --agent you` makes one")
        return _set_cookie(answer("in"), scope, given.token)

    def _log_out(self, scope: Scope, headers: dict[bytes, bytes]) -> Response:
        response = answer("out")
        name = _name(scope)
        for part in headers.get(b"cookie", b"").decode("latin-1").split(";"):
            key, _, value = part.strip().partition("=")
            if key == name and self._sessions is not None:
                self._sessions.close(value)
        response.delete_cookie(name, path="/", secure=_is_https(scope), httponly=True, samesite="strict")
        return response


def _send_file(file: File, headers: dict[bytes, bytes]) -> Response:
    common = {"ETag": file.etag, "Cache-Control": "no-cache", "Vary": "Accept-Encoding"}
    if headers.get(b"if-none-match", b"").decode("latin-1") == file.etag:
        return Response(status_code=304, headers=common)
    if b"gzip" in headers.get(b"accept-encoding", b""):
        return Response(file.zipped, 200, {**common, "Content-Encoding": "gzip"}, file.kind)
    return Response(file.body, 200, common, file.kind)


def _set_cookie(response: Response, scope: Scope, value: str) -> Response:
    name, secure = _name(scope), _is_https(scope)
    response.set_cookie(name, value, path="/", secure=secure, httponly=True, samesite="strict")
    return response


def _name(scope: Scope) -> str:
    return cookie_name(dict(scope["headers"]).get(b"host", b"").decode("latin-1"))


def _is_https(scope: Scope) -> bool:
    return bool(scope.get("scheme") == "https")


def _peer(scope: Scope) -> str:
    return str((scope.get("client") or ("?", 0))[0])
