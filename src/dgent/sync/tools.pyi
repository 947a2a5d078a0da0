"""The same names for code without an event loop: every call blocks until it is answered."""

# Generated from the async classes by tools/sync_stubs.py: change those, and run it again.
# mypy: disable-error-code="overload-overlap"

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from dgent.doors.tools.answer import Answer
from dgent.runtime.tool.tool import Arguments, CallInfo
from dgent.sync import Universe
from dgent.sync.blocks import Library
from dgent.verbs.context import Context

__all__ = ["Toolbox"]

class Toolbox:
    """The tools of one agent for a model: `Toolbox(Library(u, agent="scout", trust="friend"))`.

    A library has the tools of blocks, and those of other `rooms` when they are named; a universe has those of
    `("blocks", "cupboard", "data")`, and with `rooms` also `"messages"`. `tools` names single ones. A call is
    checked against the trust of the library, or of the principal that the universe acts for. An answer is
    `{"ok": bool, "message": str, "data": ...}`. What a model gets wrong is an answer too, no exception.
    """

    @property
    def library(self) -> Library: ...
    @property
    def context(self) -> Context: ...
    def __init__(
        self,
        source: Library | Universe,
        *,
        rooms: Iterable[str] | None = None,
        tools: Iterable[str] | None = None,
    ) -> None: ...
    def schemas(self) -> list[dict[str, Any]]:
        """Return name, description, and parameters as flat JSON schema of each tool."""

    def call(self, name: str, arguments: Mapping[str, Any] | str | bytes | None = None) -> Answer:
        """Call a tool by its name, with arguments as a map or as JSON text."""

    def describe(self, name: str, arguments: Arguments = None) -> CallInfo | None:
        """Return the effect of a call, for a loop that decides whether to make it; None for a wrong call."""

    def functions(self) -> dict[str, Callable[..., Any]]:
        """Return the tools by name, as async functions whose signatures say what they take."""
