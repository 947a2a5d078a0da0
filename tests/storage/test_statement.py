"""Parameters, words and ends of statements: what is quoted or a comment is left alone."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dgent.errors import InputError, QueryError
from dgent.store.port.statement import Dialect, bind, one, split

BOTH: tuple[Dialect, ...] = ("sqlite", "postgres")
SAME = [
    "SELECT '10:30', ':a', 'it''s :a'",
    'SELECT ":a", "x"":a" FROM t',
    "SELECT 1 -- :a ; 'open\n FROM t",
    "SELECT x ->> 'a:b', y -> ':a' FROM t",
    "SELECT a[1:2] FROM t",
    "SELECT ':a' || ';' FROM t",
]
ONLY: list[tuple[Dialect, str]] = [
    ("postgres", "SELECT x::int, y :: text, '1'::jsonb ? 'a', z @> '{}' FROM t"),
    ("postgres", "SELECT $$ :a ; ' $$, $q$ :a $$ $q$"),
    ("postgres", r"SELECT E'it\'s :a', e'\\'"),
    ("postgres", "SELECT U&'d\\0061t :a', x'00', B'01'"),
    ("postgres", "SELECT price$ FROM t"),
    ("sqlite", "SELECT `:a`, [:a], x'00' FROM t"),
]


@pytest.mark.parametrize(
    ("dialect", "sql"), [*((dialect, sql) for dialect in BOTH for sql in SAME), *ONLY], ids=str
)
def test_what_is_no_parameter_stays_as_it_is(dialect: Dialect, sql: str) -> None:
    found = one(sql, dialect)
    assert (found.sql, found.names) == (sql, ())


@pytest.mark.parametrize("dialect", BOTH)
def test_parameters_are_found_each_once(dialect: Dialect) -> None:
    found = one("UPDATE t SET a=:a, b = ':no' WHERE c IN(:c,:a) AND d = :d_1 -- :no", dialect)
    assert found.names == ("a", "c", "d_1")
    if dialect == "postgres":
        assert found.sql.startswith("UPDATE t SET a=$1, b = ':no' WHERE c IN($2,$1) AND d = $3")


def test_a_comment_in_a_comment_is_one_on_postgres_only() -> None:
    sql = "SELECT 1 /* a /* b */ , :c */"
    assert one(sql, "postgres").names == ()
    assert one(sql, "sqlite").names == ("c",)


@pytest.mark.parametrize(
    "sql",
    [
        "SELECT 1 --\r, f(1)",  # a comment ends with any end of a line
        "SELECT 1 AS €$$, f(1) AS €$$",  # a letter to Postgres, so this is a name
        "SELECT 1 AS \u00a0$$, f(1) AS \u00a0$$",
        "SELECT $€$ ' $€$, f(1) --'",
        "SELECT 1 AS €e'\\', f(1), ''",
    ],
)
def test_code_for_postgres_is_not_taken_for_a_text_or_a_comment(sql: str) -> None:
    assert "f" in one(sql, "postgres").words


def test_a_text_with_escapes_is_in_one_piece() -> None:
    with pytest.raises(QueryError, match="goes on in another line"):
        one("SELECT E'a' -- so\n '\\' || ' , f(1) --'", "postgres")
    assert one("SELECT E'a', 'b'", "postgres").words == ("select",)


@pytest.mark.parametrize("dialect", BOTH)
def test_statements_end_at_semicolons_outside_of_quotes(dialect: Dialect) -> None:
    found = split("SELECT ';'; -- ;\n DELETE FROM t WHERE a = :a;; /* ; */", dialect)
    assert [each.first for each in found] == ["select", "delete"]
    assert found[1].names == ("a",)


def test_the_body_of_a_trigger_is_one_statement() -> None:
    body = (
        "CREATE TRIGGER t AFTER INSERT ON a BEGIN UPDATE b SET c = CASE WHEN 1 THEN 2 END; DELETE FROM d; END"
    )
    assert [each.sql for each in split(body + "; SELECT 1", "sqlite")] == [body, "SELECT 1"]


@pytest.mark.parametrize("dialect", BOTH)
@pytest.mark.parametrize("sql", ["", " ; ", "-- nothing", "SELECT 'open", 'SELECT "open'])
def test_what_is_not_complete_is_refused(dialect: Dialect, sql: str) -> None:
    with pytest.raises(QueryError, match=r"empty|does not end"):
        split(sql, dialect)


@pytest.mark.parametrize("dialect", BOTH)
@pytest.mark.parametrize("sql", ["BEGIN", "commit;", "/* x */ Rollback", "SAVEPOINT a", "SELECT 1; COMMIT"])
def test_transactions_are_not_statements(dialect: Dialect, sql: str) -> None:
    with pytest.raises(QueryError, match="not run as a statement"):
        split(sql, dialect)


@pytest.mark.parametrize(
    ("dialect", "sql"), [("sqlite", "SELECT ?"), ("sqlite", "SELECT @a"), ("postgres", "SELECT $1")]
)
def test_parameters_by_place_are_refused(dialect: Dialect, sql: str) -> None:
    with pytest.raises(QueryError, match="not taken") as raised:
        split(sql, dialect)
    assert ":name" in raised.value.hint


def test_a_missing_parameter_is_named() -> None:
    with pytest.raises(InputError, match=r":b, which was not given \(given: a\)") as raised:
        bind(one("SELECT :a, :b", "sqlite"), {"a": 1})
    assert raised.value.details["field"] == "b"
    with pytest.raises(InputError, match="given: none"):
        bind(one("SELECT :a", "sqlite"), None)


@pytest.mark.parametrize("params", [[1], "a", 7])
def test_parameters_are_given_by_name(params: object) -> None:
    with pytest.raises(InputError, match="a dict by name"):
        bind(one("SELECT :a", "sqlite"), params)  # type: ignore[arg-type]


@given(st.text(), st.sampled_from(BOTH))
def test_any_text_is_read_or_refused(sql: str, dialect: Dialect) -> None:
    try:
        found = split(sql, dialect)
    except QueryError:
        return
    assert found


@given(
    st.text(alphabet=st.characters(exclude_characters="\0", exclude_categories=("Cs",))),
    st.sampled_from(BOTH),
)
def test_a_quoted_text_never_has_parameters(text: str, dialect: Dialect) -> None:
    quoted = text.replace("'", "''")
    assert one(f"SELECT '{quoted}'", dialect).sql == f"SELECT '{quoted}'"
