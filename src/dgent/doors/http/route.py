"""The addresses of the server: each names a verb and the fields that the address itself gives."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import unquote

NO_SCHEMA = "-"
"""Stands in an address for records without a schema."""


class Route(NamedTuple):
    """One address: `{name}` in its path is a field of the verb; `preset` are fields that it always has."""

    method: str
    path: str
    verb: str
    preset: Mapping[str, Any] = {}


def _crumb(method: str, action: str, verb: str) -> Route:
    return Route(method, f"/v1/crumbs/{{id}}/{action}", verb)


def _block(method: str, action: str, verb: str) -> Route:
    return Route(method, f"/v1/blocks/{{label}}/{action}", verb)


ROUTES: tuple[Route, ...] = (
    Route("GET", "/v1/status", "store.status"),
    Route("GET", "/v1/stats", "data.stats"),
    # records
    Route("GET", "/v1/schemas", "data.schemas"),
    Route("GET", "/v1/data", "data.query"),
    Route("POST", "/v1/data", "data.put"),
    Route("GET", "/v1/data/{schema}", "data.query"),
    Route("POST", "/v1/data/{schema}", "data.put"),
    Route("GET", "/v1/data/{schema}/{id}", "data.get"),
    Route("PUT", "/v1/data/{schema}/{id}", "data.put"),
    Route("DELETE", "/v1/data/{schema}/{id}", "data.delete"),
    Route("GET", "/v1/data/{schema}/{id}/history", "data.history"),
    Route("GET", "/v1/data/{schema}/{id}/diff", "data.diff"),
    Route("GET", "/v1/data/{schema}/{id}/chain", "data.chain"),
    Route("POST", "/v1/query", "data.query"),
    Route("POST", "/v1/count", "data.count"),
    Route("GET", "/v1/search", "data.search"),
    Route("POST", "/v1/search", "data.search"),
    # blobs
    Route("GET", "/v1/blobs", "blob.list"),
    Route("GET", "/v1/blobs/{key}", "blob.get", {"to": "-"}),
    Route("PUT", "/v1/blobs/{key}", "blob.put", {"path": "-"}),
    Route("DELETE", "/v1/blobs/{key}", "blob.delete"),
    # commits
    Route("GET", "/v1/log", "data.log"),
    Route("GET", "/v1/log/{seq}", "data.get-commit"),
    Route("POST", "/v1/undo", "data.undo"),
    Route("POST", "/v1/redo", "data.redo"),
    # memory
    Route("GET", "/v1/agents", "agent.list"),
    Route("POST", "/v1/agents", "agent.create"),
    Route("GET", "/v1/agents/{name}", "agent.get"),
    Route("PATCH", "/v1/agents/{name}", "agent.describe"),
    Route("GET", "/v1/agents/{name}/context", "agent.context"),
    Route("GET", "/v1/agents/{of_agent}/consents", "consent.list"),
    Route("POST", "/v1/agents/{of_agent}/consents/{id}", "consent.answer"),
    Route("GET", "/v1/blocks", "block.list"),
    Route("POST", "/v1/blocks", "block.create"),
    Route("GET", "/v1/blocks/{label}", "block.get"),
    Route("PUT", "/v1/blocks/{label}", "block.write"),
    Route("PATCH", "/v1/blocks/{label}", "block.edit-many"),
    Route("DELETE", "/v1/blocks/{label}", "block.delete"),
    _block("GET", "info", "block.info"),
    _block("GET", "history", "block.history"),
    _block("GET", "diff", "block.diff"),
    _block("GET", "branches", "block.branches"),
    _block("GET", "checkpoints", "block.checkpoints"),
    _block("GET", "versions/{version}", "block.at"),
    _block("POST", "append", "block.append"),
    _block("POST", "replace", "block.replace"),
    _block("POST", "rollback", "block.rollback"),
    _block("POST", "undo", "block.undo"),
    _block("POST", "redo", "block.redo"),
    _block("POST", "checkpoint", "block.checkpoint"),
    _block("POST", "share", "block.share"),
    _block("POST", "unshare", "block.unshare"),
    Route("GET", "/v1/prompt", "block.render"),
    Route("GET", "/v1/archive", "archive.search"),
    Route("POST", "/v1/archive", "archive.insert"),
    Route("GET", "/v1/archive/{id}", "archive.get"),
    Route("DELETE", "/v1/archive/{id}", "archive.delete"),
    # work
    Route("GET", "/v1/crumbs", "crumb.list"),
    Route("POST", "/v1/crumbs", "crumb.new"),
    Route("GET", "/v1/crumbs/{id}", "crumb.get"),
    Route("PATCH", "/v1/crumbs/{id}", "crumb.set"),
    Route("DELETE", "/v1/crumbs/{id}", "crumb.delete"),
    _crumb("GET", "history", "crumb.history"),
    _crumb("GET", "explain", "crumb.explain"),
    _crumb("GET", "comments", "metadata.comments"),
    _crumb("POST", "comments", "metadata.comment"),
    _crumb("POST", "take", "crumb.take"),
    _crumb("POST", "done", "crumb.done"),
    _crumb("POST", "drop", "crumb.drop"),
    _crumb("POST", "release", "crumb.release"),
    _crumb("POST", "reopen", "crumb.reopen"),
    _crumb("POST", "heartbeat", "crumb.heartbeat"),
    Route("GET", "/v1/ready", "crumb.ready"),
    Route("POST", "/v1/take", "crumb.take"),
    Route("GET", "/v1/board", "crumb.board"),
    Route("GET", "/v1/graph", "cupboard.graph"),
    Route("GET", "/v1/trails", "trail.list"),
    Route("POST", "/v1/trails", "trail.start"),
    Route("GET", "/v1/trails/{id}", "trail.get"),
    Route("PATCH", "/v1/trails/{id}", "trail.set"),
    Route("DELETE", "/v1/trails/{id}", "trail.delete"),
    Route("POST", "/v1/trails/{id}/complete", "trail.complete"),
    Route("POST", "/v1/trails/{id}/abandon", "trail.abandon"),
    Route("GET", "/v1/lessons", "trail.lessons"),
    # the feed, and whole stores
    Route("GET", "/v1/changes", "data.watch"),
    Route("GET", "/v1/export", "data.export", {"to": "-"}),
    Route("POST", "/v1/import", "data.import", {"path": "-"}),
)


class Match(NamedTuple):
    """The route of a request, and what its address gives."""

    route: Route
    given: dict[str, str]


class Router:
    """Finds the route of an address. A segment is decoded after it was cut out, so it may hold a slash."""

    def __init__(self, routes: tuple[Route, ...] = ROUTES) -> None:
        self._by_path: dict[tuple[int, str], list[tuple[list[str], dict[str, Route]]]] = {}
        for route in routes:
            segments = route.path.split("/")[1:]
            near = self._by_path.setdefault((len(segments), segments[1]), [])
            methods = next((found for known, found in near if known == segments), None)
            if methods is None:
                methods = {}
                near.append((segments, methods))
            methods[route.method] = route

    def find(self, method: str, raw_path: str) -> Match | tuple[str, ...]:
        """Return the route, or the methods that the address has: none if there is no such address."""
        segments = raw_path.split("/")[1:]
        if len(segments) < 2:
            return ()
        for known, methods in self._by_path.get((len(segments), segments[1]), ()):
            if all(here == there or there[:1] == "{" for here, there in zip(segments, known, strict=True)):
                route = methods.get("GET" if method == "HEAD" else method)
                if route is None:
                    return tuple(methods)
                given = {
                    there[1:-1]: unquote(here)
                    for here, there in zip(segments, known, strict=True)
                    if there[:1] == "{"
                }
                return Match(route, given)
        return ()
