"""What dgent shows to the world: exactly these names, quickly loaded, and errors that help."""

from __future__ import annotations

import ast
import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

import dgent
from dgent import errors

SOURCE = Path(dgent.__file__).parent
ERRORS = [
    kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.DgentError)
]


def type_checked_names() -> set[str]:
    """The names that type checkers see: those of the TYPE_CHECKING block."""
    tree = ast.parse((SOURCE / "__init__.py").read_text())
    blocks = [
        node for node in tree.body if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING"
    ]
    return {
        alias.asname or alias.name
        for block in blocks
        for node in ast.walk(block)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }


def test_the_public_names() -> None:
    assert len(dgent.__all__) <= 24
    assert sorted(dgent.__all__) == list(dgent.__all__)
    assert set(dgent.__all__) == type_checked_names() == set(dgent._HOME)
    assert dir(dgent) == sorted(dgent.__all__)


@pytest.mark.parametrize("name", dgent.__all__)
def test_each_can_be_imported_and_says_what_it_is(name: str) -> None:
    value = getattr(dgent, name)
    assert getattr(value, "__module__", None) == dgent._HOME[name]
    assert inspect.getdoc(value)


def test_other_names_are_not_there() -> None:
    with pytest.raises(AttributeError, match="nonsense"):
        _ = dgent.nonsense
    namespace: dict[str, object] = {}
    exec("from dgent import *", namespace)
    assert set(dgent.__all__) <= set(namespace)


def loaded_by(code: str) -> set[str]:
    program = f"import sys; before = set(sys.modules); {code}; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


def test_importing_dgent_loads_next_to_nothing() -> None:
    loaded = loaded_by("import dgent")
    assert not {"apsw", "asyncio", "msgspec", "sqlite3", "zstandard"} & loaded
    assert {name for name in loaded if name.startswith("dgent")} == {"dgent"}


def test_the_engine_loads_when_it_is_used() -> None:
    assert "apsw" not in loaded_by("import dgent; dgent.open('memory:'); dgent.Datum; dgent.Query")
    assert "apsw" in loaded_by("import dgent; dgent.open('sqlite:///x.db')")


@pytest.mark.parametrize("engine", ["memory", "sqlite", "jsonl", "postgres"])
def test_patterns_of_sql_are_compiled_when_they_are_used(engine: str) -> None:
    """Both take 50 ms of the processor, a quarter of the start of a short program."""
    program = (
        f"import dgent.store.{engine}.backend; from dgent.store.port import statement;"
        "print(statement._compile_tokens.cache_info().currsize)"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "0\n"


def test_modules_have_names_that_mean_something() -> None:
    refused = {"utils", "util", "helpers", "helper", "manager", "base", "common", "misc", "core"}
    modules = [path.relative_to(SOURCE).with_suffix("") for path in SOURCE.rglob("*.py")]
    assert len(modules) > 30
    assert not [path for path in modules if refused & set(path.parts)]


# -- errors -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ERRORS, ids=lambda kind: kind.__name__)
def test_every_error_says_what_it_is(kind: type[errors.DgentError]) -> None:
    assert isinstance(kind.code, str) and re.fullmatch(r"[a-z_]+", kind.code)
    assert isinstance(kind.hint, str)
    assert isinstance(kind.retryable, bool)
    assert kind.__doc__
    raised = kind("what happened", hint="what to do", field="where")
    assert (str(raised), raised.details) == ("what happened (what to do)", {"field": "where"})
    assert issubclass(kind, ValueError) == issubclass(kind, errors.InputError)
    assert issubclass(kind, KeyError) == issubclass(kind, errors.NotFound)


def test_codes_tell_errors_apart() -> None:
    codes = [kind.code for kind in ERRORS]
    assert len(set(codes)) == len(codes)


def test_the_tree_in_the_docstring_is_the_tree() -> None:
    """Each line: how deep, the name, and (retryable) where it is."""
    above: list[str] = []
    drawn: dict[str, tuple[str, bool]] = {}
    for line in (errors.__doc__ or "").splitlines()[2:]:
        found = re.match(r"([│├└─ ]*)([A-Z]\w+)", line)
        assert found, line
        depth = len(found[1]) // 4
        above[depth:] = [found[2]]
        drawn[found[2]] = (above[depth - 1] if depth else "Exception", "(retryable)" in line)
    defined = {kind.__name__: (kind.__bases__[0].__name__, kind.retryable) for kind in ERRORS}
    assert drawn == defined


def test_the_errors_in_the_source_are_all_from_there() -> None:
    """No other module defines an error of its own for callers to meet."""
    strays = []
    for path in SOURCE.rglob("*.py"):
        if path.name == "errors.py":
            continue
        source = path.read_text()
        if not re.search(r"\bclass [A-Za-z]\w*\(", source):  # reading them all takes seconds
            continue
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                bases = {ast.unparse(base).split(".")[-1] for base in node.bases}
                if bases & {"Exception", "BaseException", *(kind.__name__ for kind in ERRORS)}:
                    strays.append(f"{path.name}: {node.name}")
    assert strays == []


def test_asserts_only_narrow_types() -> None:
    """`python -O` leaves asserts out, so none may stand between stored bytes, a caller and the store."""

    def narrows(test: ast.expr) -> bool:
        if isinstance(test, ast.BoolOp):
            return all(map(narrows, test.values))
        return ast.unparse(test).endswith(" is not None") or ast.unparse(test).startswith("isinstance(")

    kept = SOURCE / "testing"  # tests themselves
    others = [
        f"{path.relative_to(SOURCE)}:{node.lineno}"
        for path in SOURCE.rglob("*.py")
        if kept not in path.parents and "assert " in path.read_text()
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Assert) and not narrows(node.test)
    ]
    assert others == []
