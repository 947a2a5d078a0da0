"""Every SQL text of the engine that reads, made once for a universe."""

from __future__ import annotations

from typing import Any

from dgent.store.engine.row import Brief, Row, columns_of
from dgent.store.engine.versions import DELTA
from dgent.store.postgres.format import check_universe_name

COLUMNS = ", ".join(columns_of(Row))
_PREFIXED = ", ".join("d." + column for column in columns_of(Row)[:-1])
_BRIEF = ", ".join("d." + field for field in columns_of(Brief)[:-1])
LOG = "seq, at, author, kind, note, of_seq, ops, key, digest, dk"


class Texts:
    """The statements for one universe; its name is checked, so it cannot inject SQL."""

    def __init__(self, name: str, patience_s: float = 10.0) -> None:
        self.universe = name
        u = self.u = f'"{check_universe_name(name)}"'
        self.clock = f"SELECT seq, at, dk, catalog, lag FROM {u}.clock"
        # A silent holder of the clock loses it after a while, also behind a pooler.
        self.patience = f"SET LOCAL idle_in_transaction_session_timeout = {int(patience_s * 1000)}"
        self.lock = (
            f"SELECT c.seq, c.at, c.dk, c.catalog, c.lag FROM {u}.clock c, set_config("
            f"'idle_in_transaction_session_timeout', '{int(patience_s * 1000)}', true) FOR UPDATE OF c"
        )
        self.lock_table = f"LOCK TABLE {u}.clock IN EXCLUSIVE MODE"
        self.fresh = f"SELECT catalog, EXISTS (SELECT FROM {u}.lag) FROM {u}.clock"
        self.bytes = (
            "SELECT coalesce(sum(pg_total_relation_size(c.oid)), 0)::bigint FROM pg_class c"
            " JOIN pg_namespace n ON n.oid = c.relnamespace WHERE n.nspname = $1 AND c.relkind = 'r'"
        )
        self.meta = f"SELECT name, number, bytes FROM {u}.meta"
        self.schemas = f"SELECT schema, decl FROM {u}.schema"
        self.name = f"SELECT text FROM {u}.name WHERE n = $1"
        self.names = f"SELECT n, text FROM {u}.name WHERE n = ANY ($1::int[])"
        self.number = f"SELECT n FROM {u}.name WHERE text = $1"
        self.make_number = f"INSERT INTO {u}.name (text) VALUES ($1) ON CONFLICT DO NOTHING RETURNING n"
        self.index = (
            f"SELECT ix FROM {u}.ix WHERE schema = $1 AND tag = $2 AND path = $3 AND iv = $4 AND trail = 0"
        )
        self.make_index = (
            f"INSERT INTO {u}.ix (schema, tag, path, iv) VALUES ($1, $2, $3, $4)"
            " ON CONFLICT DO NOTHING RETURNING ix"
        )
        self.indexes = f"SELECT ix, schema, iv, tag, path FROM {u}.ix WHERE schema = $1 AND trail = 0"
        self._rows(u)
        self._walks(u)
        self._log(u)
        self._searches(u)

    def _searches(self, u: str) -> None:
        """Make the statements of a search; each row of the first one says of what kind it is.

        `search_pages` is enough for the first one where all but the pages of some words is known.
        """
        none = "NULL::bigint"
        self.search = (
            "WITH waiting AS MATERIALIZED (SELECT i.n, i.ix, e.*"
            " FROM unnest($4::int[]) WITH ORDINALITY i (ix, n) CROSS JOIN LATERAL (SELECT key, t, dk"
            f" FROM {u}.entry WHERE ix = i.ix {_order(True)} LIMIT $5) e)"
            f" SELECT 0, 0::bigint, NULL::bytea, seq, catalog, at, {none}, NULL::bytea FROM {u}.clock"
            f" UNION ALL SELECT 1, w.n, p.word, p.first, {none}, {none}, {none}, p.body"
            " FROM unnest($1::int[], $2::bytea[], $3::bytea[]) WITH ORDINALITY w (ix, low, high, n)"
            f" CROSS JOIN LATERAL (SELECT word, first, body FROM {u}.page WHERE ix = w.ix AND word >= w.low"
            f" AND word < w.high ORDER BY word, first{_ALL}) p"
            f" UNION ALL SELECT 2, n, key, t, dk, {none}, {none}, NULL FROM waiting"
            " UNION ALL SELECT 3, w.n, d.words, d.dk, d.rev, d.size, d.page_rev, NULL"
            " FROM (SELECT DISTINCT n, ix, dk FROM waiting) w CROSS JOIN LATERAL (SELECT *"
            f" FROM {u}.doc d WHERE d.ix = w.ix AND d.dk = w.dk OFFSET 0) d"
            f" UNION ALL SELECT 4, w.n, NULL, x.ix, {none}, {none}, {none}, NULL"
            " FROM unnest($6::int[], $7::text[], $8::int[]) WITH ORDINALITY w (schema, path, iv, n)"
            f" JOIN {u}.ix x ON x.schema = w.schema AND x.tag = '' AND x.path = w.path AND x.iv = w.iv"
            " AND x.trail = 0"
        )
        self.search_pages = (
            f"SELECT c.seq, c.catalog, w.n, p.word, p.first, p.body FROM {u}.clock c"
            " CROSS JOIN unnest($1::int[], $2::bytea[], $3::bytea[]) WITH ORDINALITY w (ix, low, high, n)"
            f" LEFT JOIN LATERAL (SELECT word, first, body FROM {u}.page WHERE ix = w.ix AND word >= w.low"
            f" AND word < w.high ORDER BY word, first{_ALL}) p ON true"
        )
        now = f"SELECT (SELECT seq FROM {u}.clock), (SELECT catalog FROM {u}.clock), "
        self.rows_now = {
            content: sql.replace("SELECT ", now, 1)
            for content, sql in ((True, self.rows), (False, self.rows_without))
        }

    def _rows(self, u: str) -> None:
        self.brief = (
            f"SELECT {_BRIEF}, d.content FROM {u}.datum d WHERE d.id = $1 AND d.trail = 0 AND d.live = 1"
        )
        self.briefs = (
            f"SELECT {_BRIEF}, d.content FROM unnest($1::text[]) w(id) JOIN LATERAL (SELECT *"
            f" FROM {u}.datum d WHERE d.id = w.id AND d.trail = 0 AND d.live = 1 OFFSET 0) d ON true"
        )
        # UNION ends a circle. The order is worked out by the caller: a depth would make every row another.
        self.ancestors = (
            "WITH RECURSIVE chain(id, parent) AS ("
            f" SELECT d.id, d.parent FROM {u}.datum d WHERE d.id = $1 AND d.trail = 0 AND d.live = 1"
            " UNION SELECT p.id, p.parent FROM chain c JOIN LATERAL (SELECT d.id, d.parent"
            f" FROM {u}.datum d WHERE d.id = c.parent AND d.trail = 0 AND d.live = 1 OFFSET 0) p ON true)"
            f" SELECT {_BRIEF}, d.content FROM (SELECT id FROM chain LIMIT $2) w JOIN LATERAL (SELECT *"
            f" FROM {u}.datum d WHERE d.id = w.id AND d.trail = 0 AND d.live = 1 OFFSET 0) d ON true"
        )
        self.head = f"SELECT {COLUMNS} FROM {u}.datum WHERE id = $1 AND trail = 0"
        # One index search for each id; `= ANY` would search every partition for all of them.
        self.heads = (
            f"SELECT c.seq, c.at, c.catalog, {_PREFIXED}, d.content"
            f" FROM {u}.clock c CROSS JOIN unnest($1::text[]) w(id)"
            f" LEFT JOIN LATERAL (SELECT * FROM {u}.datum d WHERE d.id = w.id AND d.trail = 0 OFFSET 0) d"
            " ON true"
        )
        self.ranks = (
            "SELECT d.id, d.dk, CASE WHEN d.live = 1 THEN d.t END FROM unnest($1::text[]) w(id)"
            f" JOIN LATERAL (SELECT * FROM {u}.datum d WHERE d.id = w.id AND d.trail = 0 OFFSET 0) d ON true"
        )
        # Not `trail = 0`: before it has counted, the server takes this for rare, and reads all of that index.
        self.rows = f"SELECT {COLUMNS} FROM {u}.datum WHERE dk = ANY ($1::bigint[]) AND trail + 0 = 0"
        self.rows_without = self.rows.replace(", content FROM", ", NULL::bytea FROM")
        self.past = f"SELECT {COLUMNS} FROM {u}.past WHERE dk = $1 ORDER BY rev DESC"
        self.past_from = (
            f"SELECT {COLUMNS} FROM {u}.past WHERE dk = $1 AND rev >= $2 AND rev <= coalesce("
            f"(SELECT rev FROM {u}.past WHERE dk = $1 AND rev >= $2 AND enc <> {DELTA} ORDER BY rev LIMIT 1),"
            f" {2**31 - 1}) ORDER BY rev"
        )
        self.past_exact = (
            f"SELECT {COLUMNS} FROM {u}.past"
            " WHERE (dk, rev) IN (SELECT * FROM unnest($1::bigint[], $2::int[])) AND enc <> 2"
        )
        self.spans = f"SELECT dk, rev, seq, at FROM {u}.past WHERE dk = ANY ($1::bigint[]) ORDER BY dk, rev"
        self.unindexed = (
            f"SELECT {_PREFIXED}, d.content FROM {u}.lag l"
            f" JOIN {u}.datum d ON d.id = l.id AND d.trail = 0 WHERE l.schema = $1"
        )
        self.forgotten = f"SELECT last_rev FROM {u}.forgotten WHERE h = $1"
        self.forgotten_among = f"SELECT h, last_rev FROM {u}.forgotten WHERE h = ANY ($1::bytea[])"
        self.kept_after = f"SELECT DISTINCT dk FROM {u}.past WHERE dk > $1 ORDER BY dk LIMIT $2"

    def _walks(self, u: str) -> None:
        self._scans: dict[tuple[Any, ...], str] = {}
        from_id = f"FROM {u}.datum d WHERE d.id >= $1 AND d.id < $2 AND d.trail = 0 AND d.live = 1"
        self.walk_ids = {
            content: f"SELECT {_PREFIXED}, {_body(content)} {from_id} AND d.id > $3 ORDER BY d.id LIMIT $4"
            for content in (False, True)
        }
        self.groups = (
            f"SELECT e.key, count(*) FROM {u}.entry e WHERE e.ix = $1 AND (e.key, e.t, e.dk) >= ($2, $3, $4)"
            " AND (e.key, e.t, e.dk) < ($5, $6, $7) GROUP BY e.key ORDER BY e.key LIMIT $8"
        )
        self.size_ids = f"SELECT count(*) FROM (SELECT {from_id} LIMIT $3) e"

    def walk(self, others: int, author: bool, descending: bool, content: bool) -> str:
        """Return the statement that walks a scan."""
        return self._scan("walk", _BETWEEN, others, author, descending, content)

    def fetch(self, one_key: bool, others: int, author: bool, descending: bool, content: bool) -> str:
        """Return the statement that fetches a page of a scan, from some place to another or of one key."""
        return self._scan("fetch", _ONE_KEY if one_key else _BETWEEN, others, author, descending, content)

    def size(self, others: int, author: bool) -> str:
        """Return the statement that counts the entries of a scan."""
        return self._scan("size", _BETWEEN, others, author, False, False)

    def keys(self, others: int, author: bool) -> str:
        """Return the statement that gives the keys of some records of a scan."""
        return self._scan("keys", _BETWEEN, others, author, False, False)

    def skip(self, others: int, author: bool, descending: bool) -> str:
        """Return the statement that finds a place in a scan."""
        return self._scan("skip", _BETWEEN, others, author, descending, False)

    def _scan(
        self, work: str, between: str, others: int, author: bool, descending: bool, content: bool
    ) -> str:
        asked = work, between, others, author, descending, content
        if asked not in self._scans:
            self._scans[asked] = self._write_scan(*asked)
        return self._scans[asked]

    def _write_scan(
        self, work: str, between: str, others: int, author: bool, descending: bool, content: bool
    ) -> str:
        place = 3 if between == _ONE_KEY else 8
        last = f"${place + 2 * others + author}"
        walked = _Walked(self.u, between, place, others, author, descending)
        if work == "size":
            return f"SELECT count(*) FROM (SELECT {walked.entries(ordered=False)} LIMIT {last}) e"
        if work == "keys":
            return f"SELECT e.dk {walked.entries(ordered=False)} LIMIT {last}"
        if work == "skip":
            return (
                f"SELECT e.key, e.t, e.dk {walked.entries(ordered=True)} {walked.order} LIMIT 1 OFFSET {last}"
            )
        if work == "walk":
            return walked.rows("e.key, " + _PREFIXED, content, last)
        return self._with_clock(walked.rows(_BRIEF, content, last))

    def times(self, scans: int, descending: bool) -> str:
        """Return the statement that finds the creation time at a place in each of some scans."""
        each = [
            f"(SELECT t FROM {self.u}.entry WHERE {_BETWEEN.format(*range(n, n + 7))} {_order(descending)}"
            f" LIMIT 1 OFFSET ${n + 7})"
            for n in range(1, 8 * scans, 8)
        ]
        return "SELECT " + ", ".join(each)

    @property
    def positions(self) -> dict[bool, str]:
        """The statements that find the first entries of many scans at once, by their direction."""
        columns = ["int", "bytea", "bigint", "bigint", "bytea", "bigint", "bigint"]
        scans = ", ".join(f"${place}::{kind}[]" for place, kind in enumerate(columns, 1))
        return {
            descending: f"SELECT s.n, e.key, e.t, e.dk FROM unnest({scans}) WITH ORDINALITY"
            " s(ix, low_key, low_t, low_dk, high_key, high_t, high_dk, n)"
            f" CROSS JOIN LATERAL (SELECT key, t, dk FROM {self.u}.entry WHERE ix = s.ix"
            " AND (key, t, dk) >= (s.low_key, s.low_t, s.low_dk)"
            f" AND (key, t, dk) < (s.high_key, s.high_t, s.high_dk) {_order(descending)} LIMIT $8) e"
            for descending in (False, True)
        }

    def _with_clock(self, sql: str) -> str:
        """Return the same rows, or one without a record if there are none, each with the catalog's number.

        That number shows in the same moment whether the assumptions of the plan still hold.
        """
        return f"SELECT c.catalog, c.lag, r.* FROM {self.u}.clock c LEFT JOIN LATERAL ({sql}) r ON true"

    def _log(self, u: str) -> None:
        self.log = f"SELECT {LOG} FROM {u}.commits WHERE seq > $1 AND trail = 0 ORDER BY seq LIMIT $2"
        self.log_back = (
            f"SELECT {LOG} FROM {u}.commits WHERE seq <= $1 AND trail = 0 ORDER BY seq DESC LIMIT $2"
        )
        self.logged = f"SELECT {LOG} FROM {u}.commits WHERE seq = ANY ($1::bigint[])"
        self.keyed = f"SELECT {LOG} FROM {u}.commits WHERE key = ANY ($1::bytea[])"
        self.before = f"SELECT at FROM {u}.commits WHERE seq <= $1 ORDER BY seq DESC LIMIT 1"
        self.once = f"SELECT seq, dk, at FROM {u}.once WHERE writer = $1 AND n = $2"
        # Holding the clock makes this wait, as the commit itself should have, for standbys to have it.
        self.happened = (
            f"SELECT o.seq, o.dk, o.at FROM {u}.once o, (SELECT one FROM {u}.clock FOR UPDATE) c"
            " WHERE o.writer = $1 AND o.n = $2"
        )
        self.commit = f"SELECT seq, dk, at FROM {u}.dgent_commit({_places(21)})"
        self.put: str | None = f"SELECT seq, dk, at FROM {u}.dgent_put({_places(17)})"
        self.apply = f"SELECT {u}.dgent_apply({_places(15)})"


def _places(count: int) -> str:
    return ", ".join(f"${place}" for place in range(1, count + 1))


def _body(content: bool) -> str:
    return "d.content" if content else "NULL::bytea AS content"


_BETWEEN = (
    "ix = ${} AND (key, t, dk) >= (${}::bytea, ${}::bigint, ${}::bigint)"
    " AND (key, t, dk) < (${}::bytea, ${}::bigint, ${}::bigint)"
)
_ONE_KEY = "ix = ${} AND key = ${}"


_ALL = " LIMIT (SELECT 9223372036854775807)"
"""Limits nothing, but lets the server expect that few are wanted: it walks an index instead of sorting."""


def _order(descending: bool, table: str = "", columns: str = "key t dk") -> str:
    way = "DESC" if descending else "ASC"
    return "ORDER BY " + ", ".join(f"{table}{column} {way}" for column in columns.split())


class _Walked:
    """The parts of a statement that walks a scan; its last value is a limit."""

    def __init__(self, u: str, between: str, place: int, others: int, author: bool, descending: bool) -> None:
        self._u, self._between = u, between.format(*range(1, place))
        self._others = "".join(
            f" JOIN LATERAL (SELECT FROM {u}.entry o WHERE o.ix = ${n} AND o.key = ${n + 1} AND o.t = e.t"
            f" AND o.dk = e.dk AND o.id = e.id OFFSET 0) o{n} ON true"
            for n in range(place, place + 2 * others, 2)
        )
        self._author = f" AND d.author = ${place + 2 * others}" if author else ""
        self._inner = _order(descending)
        # Sorted as the entries are; of one key, by time alone, or the server sorts all of them again.
        self.order = _order(descending, "e.", "t dk" if between == _ONE_KEY else "key t dk")

    def rows(self, columns: str, content: bool, limit: str) -> str:
        """Return a statement for some columns of the rows."""
        inner, outer = f" LIMIT {limit}", ""
        if self._others or self._author:
            inner, outer = _ALL, inner  # only the rows that are in the others count
        return (
            f"SELECT {columns}, {_body(content)} FROM (SELECT key, t, dk, id FROM {self._u}.entry"
            f" WHERE {self._between} {self._inner}{inner}) e{self._others}{self._row()} {self.order}{outer}"
        )

    def entries(self, ordered: bool) -> str:
        """Return the tables and conditions of a statement that needs the entries only."""
        joined = self._others + (self._row() if self._author else "")
        order = f" {self._inner}{_ALL}" if ordered else ""
        return f"FROM (SELECT key, t, dk, id FROM {self._u}.entry WHERE {self._between}{order}) e{joined}"

    def _row(self) -> str:
        return (
            f" JOIN LATERAL (SELECT * FROM {self._u}.datum d WHERE d.id = e.id AND d.trail = 0{self._author}"
            " OFFSET 0) d ON true"
        )
