"""SQL of callers: find parameters, words and the ends of statements, without a guess about the rest.

Only what is outside of texts, quoted names, comments and dollar quotes counts. So `'10:30'`, `x::int`,
`"a:b"` and the operators of JSON stay as they are.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cache, lru_cache
from typing import Any, Literal, NamedTuple

from dgent.errors import InputError, QueryError

Dialect = Literal["sqlite", "postgres"]
Params = Mapping[str, Any]

LONGEST_KEPT = 20_000  # characters; what is longer is not likely to come again
_PLAIN = frozenset((str, int, bytes, bool, type(None)))

# To both engines every character beyond ASCII is a letter of a name, also one that Python calls a blank or a
# sign. Where this text and the engine differ about a quote, one of them reads as code what the other skips.
_START, _REST = r"[A-Za-z_\x80-\U0010ffff]", r"[A-Za-z0-9_\x80-\U0010ffff]"
_COMMON = rf"""
    (?P<block> /\* )
  | (?P<parameter> (?<! [A-Za-z0-9_:\x80-\U0010ffff] ) : (?P<name> {_START}{_REST}* ) )
  | (?P<colons> :+ )
  | (?P<end> ; )
  | (?P<word> {_START} (?: {_REST} | \$ )* | [0-9] (?: {_REST} | \. )* )
"""
_TOKENS: dict[Dialect, str] = {
    "sqlite": rf"""
        (?P<blank> [ \t\n\r\f\v]+ | --[^\n]* )
      | (?P<text> [xX]?'(?: [^'] | '' )*' )
      | (?P<quoted> "(?: [^"] | "" )*" | `(?: [^`] | `` )*` | \[[^]]*] )
      | {_COMMON}
      | (?P<place> \? | [@$#]\w )
      | (?P<open> ['"`\[] )
      | (?P<sign> . )""",
    "postgres": rf"""
        (?P<blank> [ \t\n\r\f\v]+ | --[^\n\r]* )
      | (?P<text> [eE]'(?: [^'\\] | '' | \\. )*' | (?: [bBxXnN] | [uU]& )? '(?: [^'] | '' )*'
          | \$(?P<tag> (?: {_START}{_REST}* )? )\$ .*? \$(?P=tag)\$ )
      | (?P<escaped> [uU]&" )
      | (?P<quoted> "(?: [^"] | "" )*" )
      | {_COMMON}
      | (?P<place> \$\d )
      | (?P<open> ['"] | \$(?: {_START}{_REST}* )?\$ )
      | (?P<sign> . )""",
}
_NEVER = {
    **dict.fromkeys(("begin", "start"), "use `async with store.transaction() as tx`"),
    **dict.fromkeys(
        ("commit", "end", "rollback", "abort", "savepoint", "release"),
        "a transaction ends with its block, and is undone by raising an error in it",
    ),
}


class Statement:
    """One statement: the SQL as the driver takes it, its parameters by name, and its words in lower case.

    `names_used` has each word and quoted name once; a quoted name keeps its case.
    """

    __slots__ = ("first", "names", "names_used", "sql", "words", "writes")

    def __init__(self, sql: str, names: Sequence[str], words: Sequence[str]) -> None:
        self.sql, self.names, self.words = sql, tuple(names), tuple(words)
        self.names_used = frozenset(words)
        self.first = words[0] if words else ""
        self.writes: bool | None = None  # whether it changes anything, once that is known


def split(query: str, dialect: Dialect) -> tuple[Statement, ...]:
    """Return the statements of a query; raises QueryError for one that is empty or not complete."""
    if not isinstance(query, str):
        raise InputError(f"a query is text, not {type(query).__name__}", field="query")
    return _split_once(query, dialect) if len(query) <= LONGEST_KEPT else _split(query, dialect)


def one(query: str, dialect: Dialect) -> Statement:
    """Return the only statement of a query; raises QueryError when there are several."""
    found = split(query, dialect)
    if len(found) > 1:
        raise QueryError(
            f"this takes one statement, and got {len(found)}", hint="run each by itself", field="query"
        )
    return found[0]


def bind(statement: Statement, params: Params | None) -> Params | None:
    """Return the parameters of a statement, checked; raises InputError naming one that is missing."""
    if params is None:
        if not statement.names:
            return None
        params = {}
    if type(params) is not dict and not isinstance(params, Mapping):
        raise InputError(
            f"parameters are a dict by name, not {type(params).__name__}",
            hint='write execute("… WHERE id = :id", {"id": 7})',
            field="params",
        )
    for name in statement.names:
        get_value(params, name)
    return params


def get_value(params: Params, name: str) -> Any:
    """Return the value of a parameter; raises InputError naming one that is missing or not a number."""
    try:
        value = params[name]
    except KeyError:
        raise _missing(name, params) from None
    if type(value) is float and value != value:
        raise InputError(f"the parameter {name!r} is NaN, which SQL cannot compare", field=name)
    return value


def is_plain(value: object) -> bool:
    """Return whether a value is one that every engine stores: text, a number, bytes, or nothing."""
    return type(value) in _PLAIN or type(value) is float


def _missing(name: str, params: Params) -> InputError:
    known = ", ".join(sorted(map(str, params))) or "none"
    return InputError(
        f"the statement names the parameter :{name}, which was not given (given: {known})",
        hint=f'add {{"{name}": …}}; quote a colon that belongs to no parameter, or put a space after it',
        field=name,
    )


class Token(NamedTuple):
    """A part of a statement that is not blank; `kind` is word, quoted, text, parameter, sign, colons or end.

    `name` is that of a parameter, or of what is quoted; `at` is where it begins in the query.
    """

    kind: str
    text: str
    name: str = ""
    at: int = 0


@cache
def _compile_tokens(dialect: Dialect) -> re.Pattern[str]:
    """Return the pattern of a dialect: compiling both takes a quarter of the start of a short program."""
    return re.compile(_TOKENS[dialect], re.VERBOSE | re.DOTALL)


def read_tokens(query: str, dialect: Dialect) -> Iterator[Token]:
    """Yield the parts of a text, blanks among them; raises QueryError for one that does not end."""
    pattern, at = _compile_tokens(dialect), 0
    escapes = False  # whether the last part was a text with escapes
    while at < len(query):
        found = pattern.match(query, at)
        assert found is not None  # the last alternative takes any character
        kind, text, end = found.lastgroup or "sign", found[0], found.end()
        if escapes and text[0] == "'":
            raise QueryError(
                f"the text with escapes before {query[at : at + 20]!r} goes on in another line",
                hint="write it as one, or give it as a parameter",
                field="query",
            )
        if kind not in ("blank", "block"):
            escapes = kind == "text" and text[0] in "eE"
        if kind == "block":
            end = _end_of_comment(query, at, dialect)
            yield Token("blank", " ", "", at)
        elif kind == "open":
            raise QueryError(
                f"the quote that begins with {query[at : at + 20]!r} does not end", field="query"
            )
        elif kind in ("place", "escaped"):
            raise QueryError(
                f"{query[at : at + 12]!r} is not taken in a statement",
                hint="write parameters as :name" if kind == "place" else "write the name without U&",
                field="query",
            )
        elif kind == "quoted":
            mark = "]" if text[0] == "[" else text[0]
            yield Token(kind, text, text[1:-1].replace(mark * 2, mark), at)
        else:
            yield Token(kind, text, found["name"] or "", at)
        at = end


def _split(query: str, dialect: Dialect) -> tuple[Statement, ...]:
    found, current = [], _Pending(dialect)
    for token in read_tokens(query, dialect):
        if token.kind == "end" and not current.is_inside():
            found += current.finish()
            current = _Pending(dialect)
        else:
            current.add(token)
    found += current.finish()
    if not found:
        raise QueryError("the query is empty", field="query")
    return tuple(found)


_split_once = lru_cache(maxsize=512)(_split)


def _end_of_comment(query: str, start: int, dialect: Dialect) -> int:
    """Return where a comment ends; Postgres has comments in comments, SQLite ends one with the text."""
    depth, at = 1, start + 2
    for mark in re.finditer(r"/\*|\*/", query[at:]):
        if mark[0] == "*/":
            depth -= 1
        elif dialect == "postgres":
            depth += 1
        if not depth:
            return at + mark.end()
    if dialect == "sqlite":
        return len(query)
    raise QueryError(
        f"the comment that begins with {query[start : start + 20]!r} does not end", field="query"
    )


class _Pending:
    """The statement that is being read."""

    def __init__(self, dialect: Dialect) -> None:
        self.dialect = dialect
        self.parts: list[str] = []
        self.names: dict[str, int] = {}
        self.words: list[str] = []
        self._blank = True
        self._depth = 0  # of BEGIN and CASE in the body of a trigger

    def add(self, token: Token) -> None:
        kind, text = token.kind, token.text
        self._blank = self._blank and kind == "blank"
        if kind == "parameter":
            number = self.names.setdefault(token.name, len(self.names) + 1)
            text = text if self.dialect == "sqlite" else f"${number}"
        elif kind == "word":
            word = text.lower()
            self.words.append(word)
            if self.words[0] == "create" and "trigger" in self.words[1:4]:
                self._depth += (word in ("begin", "case")) - (word == "end")
        elif kind == "quoted":
            self.words.append(token.name)
        self.parts.append(text)

    def is_inside(self) -> bool:
        """Return whether a semicolon here belongs to the body of a trigger."""
        return self._depth > 0

    def finish(self) -> list[Statement]:
        """Return the statement, or none if there is nothing but blanks."""
        if self._blank:
            return []
        made = Statement("".join(self.parts).strip(), tuple(self.names), self.words)
        if made.first in _NEVER:
            raise QueryError(
                f"{made.first.upper()} is not run as a statement", hint=_NEVER[made.first], field="query"
            )
        return [made]
