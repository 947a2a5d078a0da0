"""HTML for notebooks: values in tables, texts in boxes; everything is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

MAX_CELL = 200  # characters of a value
MAX_ROWS = 50

# Not html.escape: every start of the command line would load its table of entities.
_ESCAPES = str.maketrans({"&": "&amp;", "<": "&lt;", ">": "&gt;", '"': "&quot;", "'": "&#x27;"})


def draw_fields(title: str, fields: Mapping[str, object]) -> str:
    """Return a thing as a table with one row for each field, without those that are empty."""
    shown = [(name, value) for name, value in fields.items() if value not in (None, "", (), frozenset())]
    rows = "".join(f"<tr><th>{_cell(name)}</th><td>{_cell(value)}</td></tr>" for name, value in shown)
    return f"<table><caption>{_cell(title)}</caption>{rows}</table>"


def draw_rows(heads: Sequence[str], rows: Sequence[Sequence[object]], more: str = "") -> str:
    """Return many things as a table, at most MAX_ROWS of them; `more` stands below."""
    head = "".join(f"<th>{_cell(each)}</th>" for each in heads)
    body = "".join(
        f"<tr>{''.join(f'<td>{_cell(each)}</td>' for each in row)}</tr>" for row in rows[:MAX_ROWS]
    )
    left = f"and {len(rows) - MAX_ROWS} more" if len(rows) > MAX_ROWS else more
    note = f"<p>{_cell(left)}</p>" if left else ""
    return f"<table><tr>{head}</tr>{body}</table>{note}"


def draw_lines(lines: Iterable[str]) -> str:
    """Return the lines of a difference, with added and removed ones in colour."""
    colors = {"+": "green", "-": "#c33", "@": "teal"}
    made = [
        f'<span style="color:{colors.get(line[:1], "inherit")}">{line.translate(_ESCAPES)}</span>'
        for line in lines
    ]
    return "<pre>" + "\n".join(made) + "</pre>"


def shorten(value: object) -> str:
    """Return a value as a text of at most MAX_CELL characters."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= MAX_CELL else text[: MAX_CELL - 1] + "…"


def _cell(value: object) -> str:
    return shorten(value).translate(_ESCAPES)
