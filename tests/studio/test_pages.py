"""The pages without a browser: what is sent, to whom, and which doors stay shut."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from importlib.resources import files
from typing import Any, NamedTuple

import pytest

import dgent
from dgent.doors.http.app import Server
from dgent.doors.http.house import House, enter
from dgent.doors.studio.pages import CSP, Pages
from dgent.doors.studio.session import MOST, Sessions
from dgent.universe.gate import Principal
from dgent.universe.token import create_token
from dgent.universe.universe import Universe

HOST = "127.0.0.1:8730"
COOKIE = "dgent_session_8730"
STUDIO = {"X-Dgent-Studio": "1"}
FILES = sorted(each.name for each in files("dgent.doors.studio").joinpath("files").iterdir())


class Answer(NamedTuple):
    """What a server answered."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        """The body, read."""
        return json.loads(self.body)


class Site:
    """A server with a studio, asked without a network."""

    def __init__(self) -> None:
        self.sessions = Sessions("ann")
        self.house = House({"main": self._open, "other": self._open})

        async def check(name: str, token: str) -> None:
            await enter(self.house, name or self.house.default, token)

        self.server = Server(
            self.house,
            hosts=("127.0.0.1", "localhost"),
            sessions=self.sessions.find,
            pages=Pages(check, self.sessions),
        )

    async def _open(self, stack: AsyncExitStack) -> Universe:
        return await stack.enter_async_context(dgent.open("memory:", author="ann"))

    async def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        headers: dict[str, str] | None = None,
        *,
        host: str = HOST,
        scheme: str = "http",
    ) -> Answer:
        """Send a request, and return the answer."""
        raw = b"" if body is None else json.dumps(body).encode()
        named = {"host": host, "content-length": str(len(raw)), **(headers or {})}
        path, _, query = path.partition("?")
        scope = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": query.encode(),
            "headers": [(name.lower().encode(), value.encode()) for name, value in named.items()],
            "scheme": scheme,
            "client": ("127.0.0.1", 4711),
        }
        sent: list[Any] = []

        async def receive() -> Any:
            return {"type": "http.request", "body": raw, "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self.server(scope, receive, send)
        found = {name.decode(): value.decode() for name, value in sent[0]["headers"]}
        return Answer(sent[0]["status"], found, b"".join(each.get("body", b"") for each in sent[1:]))

    async def sign_in(self) -> dict[str, str]:
        """Open a session by a link; returns the header with its cookie."""
        answer = await self.ask("GET", f"/enter?code={self.sessions.create_link()}")
        return {"cookie": answer.headers["set-cookie"].partition(";")[0]}


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    """A server with two empty constellations."""
    made = Site()
    yield made
    await made.house.close()


PAGES = ["/", "/login", *(f"/{name}" for name in FILES if not name.endswith(".html"))]


@pytest.mark.parametrize("path", [*PAGES, "/nothing", "/enter?code=wrong"])
async def test_every_page_has_the_policy(site: Site, path: str) -> None:
    answer = await site.ask("GET", path)
    assert answer.status == {"/nothing": 404, "/enter?code=wrong": 303}.get(path, 200)
    assert answer.headers["content-security-policy"] == CSP
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert answer.headers["referrer-policy"] == "no-referrer"
    assert "'unsafe" not in CSP
    assert "default-src 'none'" in CSP


def test_nothing_is_inline_and_nothing_parses_html() -> None:
    root = files("dgent.doors.studio").joinpath("files")
    for name in FILES:
        text = root.joinpath(name).read_text()
        if name.endswith(".html"):
            assert re.findall(r"<script(?![^>]*\bsrc=)[^>]*>", text) == [], name
            assert re.findall(r"<style|\sstyle=|\son\w+=", text) == [], name
        unsafe = r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc"
        assert re.findall(unsafe, text) == [], name
        outside = re.findall(r"https?://(?!www\.w3\.org/2000/svg)[^\s\"'`]+", text)
        assert outside == [], name


def test_all_of_it_is_small() -> None:
    root = files("dgent.doors.studio").joinpath("files")
    assert sum(len(root.joinpath(name).read_bytes()) for name in FILES) < 165_000


async def test_a_file_is_sent_once(site: Site) -> None:
    first = await site.ask("GET", "/studio.css")
    again = await site.ask("GET", "/studio.css", headers={"if-none-match": first.headers["etag"]})
    assert (again.status, again.body) == (304, b"")
    small = await site.ask("GET", "/studio.css", headers={"accept-encoding": "gzip, br"})
    assert gzip.decompress(small.body) == first.body
    assert len(small.body) < len(first.body) / 2


@pytest.mark.parametrize("path", ["/index.html", "/pages.py", "/..", "/%2e%2e%2fpages.py", "/v1"])
async def test_only_its_own_files_are_sent(site: Site, path: str) -> None:
    assert (await site.ask("GET", path)).status == 404


@pytest.mark.parametrize("path", ["/../pages.py", "/files/app.js", "/app.js/", "/second/v1/status", "//"])
async def test_an_address_with_more_parts_needs_a_token(site: Site, path: str) -> None:
    assert (await site.ask("GET", path)).status == 401


async def test_a_link_works_once(site: Site) -> None:
    code = site.sessions.create_link()
    first = await site.ask("GET", f"/enter?code={code}")
    assert (first.status, first.headers["location"]) == (303, "/")
    cookie = first.headers["set-cookie"]
    assert cookie.startswith(f"{COOKIE}=")
    flags = {part.strip().lower() for part in cookie.split(";")[1:]}
    assert flags == {"httponly", "path=/", "samesite=strict"}
    again = await site.ask("GET", f"/enter?code={code}")
    assert (again.status, again.headers["location"]) == (303, "/login?used=1")
    assert "set-cookie" not in again.headers


async def test_the_cookie_is_secure_over_https(site: Site) -> None:
    answer = await site.ask(
        "GET", f"/enter?code={site.sessions.create_link()}", host="localhost", scheme="https"
    )
    name, _, flags = answer.headers["set-cookie"].partition("=")
    assert name == "dgent_session"
    assert "secure" in flags.lower()


async def test_a_session_acts_as_any_agent(site: Site) -> None:
    cookie = await site.sign_in()
    who = await site.ask("GET", "/v1/constellations", headers=cookie)
    assert [each["name"] for each in who.json["data"]["items"]] == ["main", "other"]
    assert who.json["data"]["you"] == {"agent": "ann", "trust": "partner", "here": True}
    headers = {**cookie, **STUDIO, "X-Dgent-Agent": "sc%C3%B6ut"}
    await site.ask("POST", "/v1/verbs/block.create", {"label": "persona"}, headers)
    named = await site.ask("POST", "/v1/verbs/agent.list", {}, {**cookie, **STUDIO})
    assert [each["name"] for each in named.json["data"]["items"]] == ["scöut"]


async def test_a_change_needs_the_header_of_the_studio(site: Site) -> None:
    cookie = await site.sign_in()
    refused = await site.ask("POST", "/v1/verbs/data.put", {"data": "x"}, cookie)
    assert refused.status == 403
    count = await site.ask("POST", "/v1/verbs/data.count", {}, {**cookie, **STUDIO})
    assert count.json["data"]["count"] == 0
    for path in ("/login", "/logout"):
        assert (await site.ask("POST", path, {"token": "x"}, cookie)).status == 403


async def test_a_foreign_host_or_origin_is_refused(site: Site) -> None:
    cookie = await site.sign_in()
    assert (await site.ask("GET", "/", host="evil.example")).status == 421
    for origin in ("http://evil.example", "http://127.0.0.1:9999", "null"):
        answer = await site.ask("GET", "/v1/constellations", headers={**cookie, "origin": origin})
        assert answer.status == 403, origin


async def test_without_a_cookie_nothing_is_read(site: Site) -> None:
    for headers in ({}, STUDIO, {"cookie": f"{COOKIE}=wrong"}, {"cookie": "dgent_session=wrong"}):
        assert (await site.ask("GET", "/v1/constellations", headers=headers)).status == 401


async def test_a_session_ends(site: Site) -> None:
    cookie = await site.sign_in()
    out = await site.ask("POST", "/logout", None, {**cookie, **STUDIO})
    assert out.status == 200
    assert "max-age=0" in out.headers["set-cookie"].lower()
    assert (await site.ask("GET", "/v1/constellations", headers=cookie)).status == 401


async def test_a_token_logs_in(site: Site) -> None:
    store = await site.house.store("main")
    _, text = await create_token(store.universe, Principal("scout", "friend"))
    answer = await site.ask("POST", "/login", {"token": text}, STUDIO)
    assert answer.status == 200
    cookie = {"cookie": answer.headers["set-cookie"].partition(";")[0]}
    you = (await site.ask("GET", "/v1/constellations", headers=cookie)).json["data"]
    assert you == {
        "seq": you["seq"],
        "items": [{"name": "main"}],
        "here": "main",
        "you": {"agent": "scout", "trust": "friend", "here": False},
    }
    # A token is of one agent: it cannot act as another, nor in another constellation.
    acted = await site.ask(
        "POST", "/v1/verbs/block.list", {}, {**cookie, **STUDIO, "X-Dgent-Agent": "critic"}
    )
    assert acted.json["data"]["agent"] == "scout"
    assert (await site.ask("GET", "/other/v1/constellations", headers=cookie)).status == 401
    assert (await site.ask("POST", "/login", {"token": text, "constellation": "other"}, STUDIO)).status == 401


@pytest.mark.parametrize("body", [{"token": "dgent_wrong"}, {"token": ""}, {"token": "x" * 3000}])
async def test_a_wrong_token_does_not(site: Site, body: Any) -> None:
    answer = await site.ask("POST", "/login", body, STUDIO)
    assert answer.status == 401
    assert "set-cookie" not in answer.headers


@pytest.mark.parametrize(
    ("body", "status"), [([], 400), ({}, 400), ({"token": 5}, 400), ({"token": "x" * 5000}, 413)]
)
async def test_a_login_that_is_none(site: Site, body: Any, status: int) -> None:
    assert (await site.ask("POST", "/login", body, STUDIO)).status == status


async def test_guessing_is_slowed_down(site: Site) -> None:
    for path, body in (("/login", {"token": "wrong"}), ("/enter?code=wrong", None)):
        method = "POST" if body else "GET"
        statuses = [(await site.ask(method, path, body, STUDIO)).status for _ in range(60)]
        assert statuses[-1] == 429, path


def test_old_links_and_sessions_go() -> None:
    sessions = Sessions("ann")
    links = [sessions.create_link() for _ in range(MOST + 1)]
    assert sessions.open(links[0]) is None
    cookie = sessions.open(links[-1])
    assert cookie is not None
    assert sessions.find(cookie) == "ann"
    assert sessions.find(cookie + "x") is None
    assert sessions.find("ü") is None


def test_a_session_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    sessions = Sessions("ann")
    now = [1000.0]
    monkeypatch.setattr("dgent.doors.studio.session.time.monotonic", lambda: now[0])
    cookie, late = sessions.open(sessions.create_link()), sessions.create_link()
    assert cookie is not None
    now[0] += 11 * 3600
    assert sessions.find(cookie) == "ann"
    now[0] += 11 * 3600  # each request makes it last longer
    assert sessions.find(cookie) == "ann"
    assert sessions.open(late) is None
    now[0] += 13 * 3600
    assert sessions.find(cookie) is None


# -- colours ------------------------------------------------------------------------------------


def _themes() -> dict[str, dict[str, str]]:
    """Return the colours of each theme by name."""
    css = files("dgent.doors.studio").joinpath("files", "studio.css").read_text()
    light = re.search(r"^:root \{(.*?)\}", css, re.MULTILINE | re.DOTALL)
    dark = re.search(r'^:root\[data-theme="dark"\] \{(.*?)\}', css, re.MULTILINE | re.DOTALL)
    asked = re.search(
        r'prefers-color-scheme: dark\) \{ :root:not\(\[data-theme="light"\]\) \{(.*?)\}', css, re.DOTALL
    )
    assert light and dark and asked
    assert asked[1].split() == dark[1].split(), "both ways to a dark page give the same colours"
    return {
        name: dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", found[1]))
        for name, found in (("light", light), ("dark", dark))
    }


def _luminance(colour: str) -> float:
    parts = [int(colour[place : place + 2], 16) / 255 for place in (1, 3, 5)]
    linear = [part / 12.92 if part <= 0.03928 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


TEXTS = [
    *(
        (text, under)
        for text in ("text", "muted", "accent-text")
        for under in ("bg", "surface", "sunken", "tint")
    ),
    *((name, f"{name}-tint") for name in ("good", "bad", "warn")),
    *((name, under) for name in ("good", "bad", "warn") for under in ("surface", "bg", "sunken")),
    *(("text", under) for under in ("good-tint", "bad-tint", "warn-tint")),
    ("muted", "warn-tint"),
    ("muted", "good-tint"),
    ("on-accent", "accent"),
    ("on-accent", "accent-text"),
    ("surface", "bad"),
    ("bg", "text"),
    ("mark-text", "mark"),
]


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_colours_can_be_read(theme: str) -> None:
    colours = _themes()[theme]
    found = {pair: _contrast(colours[pair[0]], colours[pair[1]]) for pair in TEXTS}
    assert {pair: round(ratio, 2) for pair, ratio in found.items() if ratio < 4.5} == {}
    # What is no text: borders of fields, lines, the focus.
    shapes = {
        (name, under): _contrast(colours[name], colours[under])
        for name in ("line-strong", "accent")
        for under in ("bg", "surface", "sunken")
    }
    assert {pair: round(ratio, 2) for pair, ratio in shapes.items() if ratio < 3} == {}
