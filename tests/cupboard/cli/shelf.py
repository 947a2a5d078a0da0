"""The command line as the tests of the cupboard use it."""

from __future__ import annotations

from typing import Any

import msgspec

from tests.cli.terminal import Said, Terminal


class Shelf:
    """`dgent` with a cupboard: a word for each table command, whose answers are what `--json` gives."""

    def __init__(self, terminal: Terminal, url: str | None = None) -> None:
        self.terminal, self._url = terminal, [] if url is None else ["--url", url]

    def __call__(self, *words: str, stdin: str = "") -> Said:
        """Run a command as it is, for people."""
        return self.terminal(*self._url, *words, stdin=stdin)

    def ask(self, *words: str) -> Any:
        """The data of a command that works."""
        told = self("--json", *words)
        assert told.code == 0, told.err
        return told.data

    def fails(self, *words: str) -> tuple[int, str]:
        """The exit code and the code of a command that does not."""
        told = self("--json", *words)
        assert told.code != 0 and not told.out
        return told.code, told.error["code"]

    def set(self, table: str, id: str = "", **fields: Any) -> Any:
        """`dgent cupboard set`: the row as it is stored."""
        return self.ask("cupboard", "set", table, id, msgspec.json.encode(fields).decode())

    def get(self, table: str, id: str) -> Any:
        """`dgent cupboard get`."""
        return self.ask("cupboard", "get", table, id)

    def list(self, table: str, *filters: str) -> list[Any]:
        """`dgent cupboard list`."""
        rows: list[Any] = self.ask("cupboard", "list", table, *filters)["items"]
        return rows

    def delete(self, table: str, id: str) -> Any:
        """`dgent cupboard delete`."""
        return self.ask("cupboard", "delete", table, id)
