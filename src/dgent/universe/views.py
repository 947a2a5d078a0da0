"""Records of rooms as tables of SQL: read in any statement, and written by INSERT, which is a commit.

A statement that names such a table gets its records along, as a common table expression of that name over
one parameter of JSON. So one way does for every engine, and the rows are what the universe shows.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, is_dataclass
from datetime import datetime
from decimal import Decimal
from itertools import pairwise
from typing import TYPE_CHECKING, Any, NamedTuple

from dgent import clock
from dgent.errors import Denied, InputError, QueryError
from dgent.model.crystal import Crystal
from dgent.model.query import Query
from dgent.store.port.statement import (
    Dialect,
    Params,
    Statement,
    Token,
    get_value,
    one,
    read_tokens,
    split,
)
from dgent.universe.contract import Contracts
from dgent.universe.room import Room, Table, load_room

if TYPE_CHECKING:
    from dgent.store.port.relational import SQLRunner
    from dgent.universe.universe import Universe

ROOMS = ("membrane",)
"""The rooms that have tables."""

VERSION = Table("schema_version", ("version", "applied_at"), "", "version")
_TYPES = {"int": "bigint", "bool": "bigint", "float": "double precision"}
_PARAMETER = "dgent_rows_"
_STOPS = frozenset(("on", "returning"))
_DEFINE = frozenset(("create", "alter", "drop"))
_BEFORE = frozenset(("from", "join", "on", "table", "view", "exists", "references", "into", "update"))


class ViewInsert(NamedTuple):
    """An INSERT into a table of a room: expressions for each row, or a statement that gives rows."""

    table: str
    columns: tuple[str, ...]
    replace: bool
    rows: tuple[tuple[str, ...], ...]
    select: str


class Views:
    """The tables of rooms, in a dialect of SQL."""

    def __init__(self, universe: Universe, dialect: Dialect) -> None:
        self._universe, self._dialect = universe, dialect
        self._rooms: dict[str, Room] = {}
        self._tables: dict[str, Table] = {VERSION.name: VERSION}
        for name in ROOMS:
            room = load_room(name)
            for table in room.tables.values():
                self._tables[table.name], self._rooms[table.name] = table, room

    # -- what a statement wants -----------------------------------------------------------

    def find_names(self, statements: Sequence[Statement]) -> list[str]:
        """Return the tables of rooms that statements name; where a table is made, columns do not count."""
        named: set[str] = set()
        for each in statements:
            if each.first in _DEFINE:
                named.update(word for before, word in pairwise(each.words) if before in _BEFORE)
            else:
                named |= each.names_used
        if self._dialect == "sqlite":  # where quotes keep no case
            named = {name.lower() for name in named}
        return [name for name in self._tables if name in named]

    def find_target(self, statement: Statement) -> str | None:
        """Return the table of a room that a statement would write, make or drop; None if it does not."""
        words = [word.lower() for word in statement.words]
        if words[:1] in (["select"], ["values"], ["explain"]):
            return None
        if words[:1] == ["with"]:
            return self._find_target_after(words)
        for at, word in enumerate(words):
            if word in ("into", "update", "from", "table", "view", "truncate"):
                rest = [each for each in words[at + 1 : at + 6] if each not in _BETWEEN]
                return rest[0] if rest and rest[0] in self._tables else None
        return None

    def _find_target_after(self, words: Sequence[str]) -> str | None:
        """Return the table of a room that a statement after WITH would write."""
        for at, pair in enumerate(pairwise(words)):
            if pair in _WRITES or pair[0] == "update":
                rest = [each for each in words[at + 1 : at + 6] if each not in _BETWEEN]
                if rest and rest[0] in self._tables:
                    return rest[0]
        return None

    def read_insert(self, query: str) -> ViewInsert:
        """Return an INSERT into a table of a room; raises Denied for any other way to write one."""
        tokens = [token for token in read_tokens(query, self._dialect) if token.kind not in ("blank", "end")]
        words = [token.text.lower() if token.kind == "word" else token.name for token in tokens]
        target = self.find_target(one(query, self._dialect)) or ""
        replace = words[0] == "replace" or words[1:3] == ["or", "replace"]
        if words[0] == "with" and target != VERSION.name:
            raise Denied(
                f"{target} holds records of a room, which are not written after WITH",
                hint=f"write INSERT INTO {target} (…) WITH … SELECT …",
            )
        if words[0] not in ("insert", "replace") or target == VERSION.name:
            raise self._refuse(target, words[0])
        if words[1:2] == ["or"] and not replace:
            raise self._refuse(target, f"insert or {words[2]}")
        at = [word.lower() for word in words].index(target) + 1
        columns = self._tables[target].columns
        if at < len(tokens) and tokens[at].text == "(":
            end = _closing(tokens, at)
            columns = tuple(words[place] for place in range(at + 1, end) if tokens[place].text != ",")
            at = end + 1
            for name in columns:
                if name not in self._tables[target].columns:
                    known = ", ".join(self._tables[target].columns)
                    raise InputError(f"{target} has no column {name!r}", hint=f"it has {known}", field=name)
        rest = tokens[at:]
        for word in _STOPS & {token.text.lower() for token in rest if token.kind == "word"}:
            raise self._refuse(target, f"insert … {word}")
        if words[at : at + 1] == ["values"]:
            return ViewInsert(target, columns, replace, _tuples(query, rest[1:], len(columns)), "")
        if words[at : at + 1] not in (["select"], ["with"]):
            raise self._refuse(target, "insert … default values")
        # Named by the columns, since those of the answer may have no names, or the same one.
        select = f"WITH dgent_new({', '.join(columns)}) AS ({_text(query, rest)}) SELECT * FROM dgent_new"
        return ViewInsert(target, columns, replace, (), select)

    def _refuse(self, table: str, what: str) -> Denied:
        if table == VERSION.name:
            return Denied("schema_version is read only", hint="`await storage.run_migrations()` writes it")
        return Denied(
            f"{table} holds records of a room, which {what.upper()} does not change",
            hint=f"use INSERT INTO {table} or INSERT OR REPLACE INTO {table}, or in Python"
            " Membrane(u).put(record), .change(kind, key, work) or .delete(kind, key)",
        )

    # -- reading --------------------------------------------------------------------------

    async def attach(self, query: str, params: Params | None, names: Sequence[str]) -> tuple[str, Params]:
        """Return a statement with the records that it names before it, and its parameters with their rows."""
        statement = one(query, self._dialect)
        if statement.first in _DEFINE:
            raise Denied(
                f"{names[0]} holds records of a room, which no table or view can be made of",
                hint="select from it, or make a table with INSERT INTO … SELECT",
            )
        if statement.first == "explain":
            raise Denied(
                f"{names[0]} holds records of a room, of which there is no plan",
                hint="explain a statement that names your own tables only",
            )
        self._check_schemas(query, names)
        given, parts = dict(params or {}), []
        for name in names:
            given[_PARAMETER + name] = json.dumps(await self._load(name))
            parts.append(self._expression(self._tables[name]))
        tables = ", ".join(parts)
        if statement.first != "with":
            return f"WITH {tables} {query}", given
        recursive = statement.words[1] == "recursive"
        rest = _cut_words(query, self._dialect, 2 if recursive else 1)
        return f"WITH {'RECURSIVE ' if recursive else ''}{tables}, {rest}", given

    def _check_schemas(self, query: str, names: Sequence[str]) -> None:
        """Raise QueryError where a table of a room is looked for in a schema, which has none of them."""
        tokens = [token for token in read_tokens(query, self._dialect) if token.kind != "blank"]
        for schema, dot, table in zip(tokens, tokens[1:], tokens[2:], strict=False):
            if dot.text == "." and _name(table) in names and _name(schema) in _SCHEMAS:
                raise QueryError(
                    f"{_name(table)} holds records of a room, and is in no schema",
                    hint=f"write {_name(table)} without {schema.text}.",
                    field="query",
                )

    def _expression(self, table: Table) -> str:
        columns = ", ".join(table.columns)
        if self._dialect == "sqlite":
            values = ", ".join(f"value ->> {at}" for at in range(len(table.columns)))
            return f"{table.name}({columns}) AS (SELECT {values} FROM json_each(:{_PARAMETER}{table.name}))"
        kinds = self._kinds(table)
        values = ", ".join(
            f"CAST(r ->> {at} AS {_TYPES.get(kinds[name], 'text')})" for at, name in enumerate(table.columns)
        )
        source = f"jsonb_array_elements(CAST(:{_PARAMETER}{table.name} AS jsonb)) AS e(r)"
        return f"{table.name}({columns}) AS (SELECT {values} FROM {source})"

    def _kinds(self, table: Table) -> dict[str, str]:
        """Return the type of each column, without that it may be empty."""
        if table is VERSION:
            return {"version": "int", "applied_at": "datetime"}
        schema = next(each for each in self._rooms[table.name].schemas if each.name == table.schema)
        return {name: kind.removeprefix("NoneType|") for name, kind in schema.shape.fields.items()}

    async def _load(self, name: str) -> list[list[Any]]:
        """Return the rows of a table, oldest first."""
        table = self._tables[name]
        if table is VERSION:
            stats = await self._universe.stats()
            return [[stats.details.get("format", 1), None]]
        contracts = Contracts()
        for schema in self._rooms[name].schemas:
            contracts.add(schema)
        reader = self._universe.for_room(ROOMS[0], contracts=contracts)
        found = await reader.recall(Query(schema=table.schema, limit=None, descending=False))
        return [_row(each.value, table.columns) for each in found if isinstance(each, Crystal)]

    # -- writing --------------------------------------------------------------------------

    async def insert(self, insert: ViewInsert, given: Sequence[Params], runner: SQLRunner) -> int:
        """Commit the rows of an INSERT, for each of several parameters; return how many there are."""
        rows: list[Mapping[str, Any]] = []
        for params in given:
            if insert.select:
                names = self.find_names(split(insert.select, self._dialect))
                query, wanted = insert.select, params
                if names:
                    query, wanted = await self.attach(query, params, names)
                found = [list(row.values()) for row in await runner.fetch_all(query, wanted)]
            else:
                found = [await self._evaluate(row, params, runner) for row in insert.rows]
            for values in found:
                if len(values) != len(insert.columns):
                    raise QueryError(
                        f"{insert.table}: {len(insert.columns)} columns and {len(values)} values"
                    )
                rows.append(dict(zip(insert.columns, map(_number, values), strict=True)))
        return await self._rooms[insert.table].insert(
            self._universe, insert.table, rows, replace=insert.replace
        )

    async def _evaluate(self, row: Sequence[str], params: Params, runner: SQLRunner) -> list[Any]:
        """Return the values of a row; parameters as they were given, the rest as the engine says."""
        values: list[Any] = [None] * len(row)
        asked: dict[str, str] = {}
        for at, text in enumerate(row):
            if text[0] == ":" and text[1:].isidentifier():
                values[at] = get_value(params, text[1:])
            else:
                asked[f"v{at}"] = text
        if asked:
            sql = ", ".join(f"{text} AS {name}" for name, text in asked.items())
            found = await runner.fetch_one(f"SELECT {sql}", params) or {}
            for name, value in found.items():
                values[int(name[1:])] = value
        return values


_SCHEMAS = frozenset(("main", "temp", "public"))
_WRITES = frozenset((("insert", "into"), ("insert", "or"), ("replace", "into"), ("delete", "from")))


def _name(token: Token) -> str:
    return (token.text if token.kind == "word" else token.name).lower()


_BETWEEN = frozenset(("if", "not", "exists", "only", "table", "main", "or", "replace", "into", "from"))


def _closing(tokens: Sequence[Token], start: int) -> int:
    """Return where the bracket that opens at `start` is closed."""
    depth = 0
    for at in range(start, len(tokens)):
        depth += (tokens[at].text == "(") - (tokens[at].text == ")")
        if not depth:
            return at
    raise QueryError("a bracket is not closed", field="query")


def _text(query: str, tokens: Sequence[Token]) -> str:
    """Return the text of some tokens as it is in the query."""
    return query[tokens[0].at : tokens[-1].at + len(tokens[-1].text)]


def _tuples(query: str, tokens: Sequence[Token], width: int) -> tuple[tuple[str, ...], ...]:
    """Return the expressions of VALUES (…), (…)."""
    rows, at = [], 0
    while at < len(tokens):
        if tokens[at].text != "(":
            raise QueryError(f"expected ( after VALUES, got {tokens[at].text!r:.20}", field="query")
        end = _closing(tokens, at)
        row = _parts(query, tokens[at + 1 : end])
        if len(row) != width:
            raise QueryError(f"there are {width} columns and {len(row)} values", field="query")
        rows.append(row)
        at = end + 1
        if at < len(tokens) and tokens[at].text == ",":
            at += 1
    if not rows:
        raise QueryError("VALUES has no rows", field="query")
    return tuple(rows)


def _parts(query: str, tokens: Sequence[Token]) -> tuple[str, ...]:
    """Return what the commas outside of brackets separate."""
    parts: list[list[Token]] = [[]]
    depth = 0
    for token in tokens:
        depth += (token.text == "(") - (token.text == ")")
        if token.text == "," and not depth:
            parts.append([])
        else:
            parts[-1].append(token)
    if not all(parts):
        raise QueryError("a value is missing in VALUES", field="query")
    return tuple(_text(query, part) for part in parts)


def _cut_words(query: str, dialect: Dialect, words: int) -> str:
    """Return a text without its first words."""
    rest = []
    for token in read_tokens(query, dialect):
        if words > 0:
            words -= token.kind == "word"
        else:
            rest.append(token.text)
    return "".join(rest)


def _number(value: Any) -> Any:
    """Return the plain number of a decimal one, as Postgres computes with."""
    return float(value) if isinstance(value, Decimal) else value


def _row(value: Any, columns: Sequence[str]) -> list[Any]:
    fields = asdict(value) if is_dataclass(value) and not isinstance(value, type) else {}
    return [_plain(fields[name]) for name in columns]


def _plain(value: Any) -> Any:
    """Return a value as SQL has it: times as text, objects and lists as JSON, truth as 0 or 1."""
    if isinstance(value, datetime):
        return clock.text(value)
    if isinstance(value, bool):
        return int(value)
    return json.dumps(value) if isinstance(value, dict | list) else value
