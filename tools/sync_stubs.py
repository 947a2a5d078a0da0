"""Write the types of dgent.sync, the `.pyi` files there, from the source of the async classes.

`python tools/sync_stubs.py` writes the files; `--check` only says whether they are as they should be.
"""

from __future__ import annotations

import ast
import builtins
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from dgent.sync import wording

ROOT = Path(__file__).parents[1] / "src" / "dgent"
HEADER = '''"""The same names for code without an event loop: every call blocks until it is answered."""

# Generated from the async classes by tools/sync_stubs.py: change those, and run it again.
# mypy: disable-error-code="overload-overlap"
'''
# Which names each stub declares, in this order; everything else about them is read from these files.
STUBS = {
    ROOT / "sync" / "__init__.pyi": {
        "universe/collection.py": ("Collection",),
        "universe/focus.py": ("Focus",),
        "universe/vectors.py": ("Vectors",),
        "universe/transaction.py": ("Transaction",),
        "universe/universe.py": ("Universe", "open"),
        "exchange/copy.py": ("copy", "mirror"),
        "universe/current.py": ("DataMixin", "get_universe", "set_universe"),
    },
    ROOT / "sync" / "cupboard.pyi": {
        "cupboard/tables/table.py": ("Table",),
        "cupboard/tables/crumb.py": ("Crumbs",),
        "cupboard/tables/trail.py": ("Trails",),
        "cupboard/tables/property.py": ("Properties", "Categories"),
        "cupboard/tables/link.py": ("Links",),
        "cupboard/tables/stash.py": ("Stashes",),
        "cupboard/tables/metadata.py": ("Metadatas", "MetadataSchemas"),
        "cupboard/config.py": ("AttachMethod",),
        "cupboard/cupboard.py": ("Cupboard",),
    },
    ROOT / "sync" / "blocks.pyi": {
        "blocks/edit/editable.py": ("Editable", "Section"),
        "blocks/block.py": ("Block",),
        "blocks/access/agents.py": ("Roster", "Groups"),
        "blocks/library.py": ("Library",),
    },
    ROOT / "sync" / "messages.pyi": {
        "messages/batch.py": ("Batch",),
        "messages/queue.py": ("Delivery", "Inbox"),
        "messages/messages.py": ("Messages",),
    },
    ROOT / "sync" / "storage.pyi": {
        "store/port/blob.py": ("BlobReader", "BlobWriter"),
        "store/port/telemetry.py": ("ITelemetryStore",),
        "universe/blob.py": ("BlobStore",),
        "universe/relational.py": ("RelationalTransaction", "RelationalStore"),
        "universe/storage.py": ("VectorStore", "StorageProvider"),
    },
    ROOT / "sync" / "membrane.pyi": {
        "membrane/membrane.py": ("Membrane",),
        "membrane/instance.py": ("Instances",),
        "membrane/growth.py": ("SelfGrow",),
        "membrane/session.py": ("CLISessionService", "create_cli_session_service"),
    },
    ROOT / "sync" / "tables.pyi": {
        "tables/place.py": ("Place", "connect"),
        "tables/focus.py": ("TableFocus",),
        "tables/adapter.py": ("TableAdapter",),
        "tables/brain.py": ("Brain",),
        "tables/town.py": ("Town",),
        "tables/gardener.py": ("Gardener",),
        "tables/migrate.py": ("ensure_migrations", "run_migrations"),
        "tables/halves.py": ("find_halves", "repair"),
    },
    ROOT / "sync" / "tools.pyi": {"doors/tools/toolbox.py": ("Toolbox",)},
    ROOT / "sync" / "runtime.pyi": {"runtime/agent.py": ("AgentRuntime",)},
}
# Classes whose members stand in several files, in this order; a stub has them in one class.
BASES = {
    "Universe": ("universe/handle.py", "universe/writer.py", "universe/reader.py"),
    "BlobStore": ("store/blob.py",),
}
# Names that stand for something else than in the async source, and so come from somewhere else.
OTHERS = {
    "Inbox": "from dgent.sync.messages import Inbox",
    "Messages": "from dgent.sync.messages import Messages",
    "Library": "from dgent.sync.blocks import Library",
    "Universe": "from dgent.sync import Universe",
    "Transaction": "from dgent.sync import Transaction",
    "StorageProvider": "from dgent.sync.storage import StorageProvider",
    "Stream": "from dgent.sync.stream import Stream",
    "AbstractContextManager": "from contextlib import AbstractContextManager",
}
# The types of public attributes that `__init__` sets from something without a visible type.
ATTRIBUTES = {
    "Universe.author": "str",
    "Collection.schema": "Schema[T]",
    "Focus.id": "str",
    "Vectors.name": "str",
    "Vectors.spec": "VectorSpec",
    "Library.trust": "str",
    "Delivery.message": "Incoming",
    "Membrane.universe": "Universe",
    "Place.engine": "AsyncEngine",
    "Place.universe": "Universe | None",
    "Place.sessions": "Any",
    "AgentRuntime.universe": "Universe",
    "AgentRuntime.partner": "str",
    "AgentRuntime.agent": "str",
    "AgentRuntime.messages": "Messages",
    "AgentRuntime.inbox": "Inbox",
    "AgentRuntime.limits": "Limits",
    "AgentRuntime.hub": "EventHub",
    "AgentRuntime.settings": "Settings",
}
DUNDERS = {
    "__init__": "__init__",
    "__repr__": "__repr__",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
    "__aiter__": "__iter__",
    "__get__": "__get__",
}

FunctionDef = ast.FunctionDef | ast.AsyncFunctionDef


class Stub:
    """The stub as it grows: what it declares, and what that needs to be imported."""

    def __init__(self, path: Path, sources: Mapping[str, tuple[str, ...]]) -> None:
        self.parts: list[str] = []
        self.imports: list[str] = []
        self.variables: dict[str, str] = {}
        made = {name for names in sources.values() for name in names}
        init = ast.parse(path.with_suffix(".py").read_text())
        every = next(node for node in init.body if isinstance(node, ast.Assign))
        self.every = ast.unparse(every)
        public = set(ast.literal_eval(every.value)) - made
        self.exported = {name: line for name, line in _imports(init).items() if name in public}
        self.present = made | self.exported.keys()

    def add(self, path: str, names: tuple[str, ...]) -> None:
        """Declare some names of one source file."""
        tree = _with_bases(ast.parse((ROOT / path).read_text()))
        known = _imports(tree)
        made = {node.name: node for node in tree.body if isinstance(node, FunctionDef | ast.ClassDef)}
        assigned = [node for node in tree.body if isinstance(node, ast.Assign | ast.AnnAssign)]
        aliases = {name.id for node in assigned for name in _targets(node)}
        types = _type_variables(tree)
        for name in names:
            node = made[name]
            text = _class(node) if isinstance(node, ast.ClassDef) else _function(node)
            self.parts.append(text)
            names_used = _names(text)
            bounds = "\n".join(types[used] for used in names_used & types.keys())
            for used in sorted((names_used | _names(bounds)) - self.present):
                if used in OTHERS:
                    self.imports.append(OTHERS[used])
                elif used in types:
                    self.variables[used] = types[used]
                elif used in known:
                    self.imports.append(known[used])
                elif used in made or used in aliases:
                    module = path.removesuffix(".py").replace("/", ".")
                    self.imports.append(f"from dgent.{module} import {used}")
                elif not hasattr(builtins, used):
                    raise SystemExit(f"{path}: where does {used} of {name} come from?")

    def text(self) -> str:
        """The whole file, formatted."""
        exported = [f"{line} as {name}" for name, line in self.exported.items()]
        lines = [HEADER, *self.imports, *exported, self.every, *self.variables.values(), *self.parts]
        return _formatted("\n".join(lines))


def generate(path: Path) -> str:
    """The text that a stub should have."""
    stub = Stub(path, STUBS[path])
    for source, names in STUBS[path].items():
        stub.add(source, names)
    return stub.text()


# -- reading the source -----------------------------------------------------------------------


def _targets(node: ast.Assign | ast.AnnAssign) -> list[ast.Name]:
    """The plain names that are assigned to."""
    targets = node.targets if isinstance(node, ast.Assign) else [node.target]
    return [each for each in targets if isinstance(each, ast.Name)]


def _imports(tree: ast.Module) -> dict[str, str]:
    """Each imported name, and the line that imports it."""
    found: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            found |= {_called(each): f"from {node.module} import {ast.unparse(each)}" for each in node.names}
        elif isinstance(node, ast.Import):
            found |= {_called(each): f"import {ast.unparse(each)}" for each in node.names}
    return found


def _with_bases(tree: ast.Module) -> ast.Module:
    """The module, where classes have the members that they inherit from other files."""
    for node in [each for each in tree.body if isinstance(each, ast.ClassDef) and each.name in BASES]:
        modules = [ast.parse((ROOT / path).read_text()) for path in BASES[node.name]]
        bases = [each for module in modules for each in module.body if isinstance(each, ast.ClassDef)]
        members = [member for base in bases for member in base.body[1:]]  # all but the docstrings
        node.body[1:1] = [member for member in members if not _is_abstract(member)]
        node.bases = []
        tree.body[:0] = [each for module in modules for each in module.body if each not in bases]
    return tree


def _is_abstract(member: ast.stmt) -> bool:
    """Return whether a member is one that the class itself has."""
    found = getattr(member, "decorator_list", [])
    return any(ast.unparse(each) == "abstractmethod" for each in found)


def _called(alias: ast.alias) -> str:
    return alias.asname or alias.name


def _type_variables(tree: ast.Module) -> dict[str, str]:
    return {
        ast.unparse(node.targets[0]): ast.unparse(node)
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.value).startswith("TypeVar(")
    }


def _names(text: str) -> set[str]:
    """The names that a piece of the stub uses; not those of its parameters."""
    used = (node for node in ast.walk(ast.parse(text)) if isinstance(node, ast.Name))
    return {node.id for node in used if isinstance(node.ctx, ast.Load)} - {"property"}


# -- writing the declarations -----------------------------------------------------------------


def _class(node: ast.ClassDef) -> str:
    # That something is abstract is for those who write the async classes.
    bases = ", ".join(base for base in map(ast.unparse, node.bases) if base != "ABC")
    parts = [_doc(node), *_attributes(node)]
    members = [member for member in node.body if isinstance(member, FunctionDef) and _kept(member)]
    heads = {member.name: member for member in members if _is_overload(member)}
    for member in members:
        if member.name in heads and not _is_overload(member):
            heads[member.name].body = member.body  # a stub has the overloads, the last one with the docstring
    parts += [_function(each) for each in members if each.name not in heads or _is_overload(each)]
    return f"class {node.name}({bases}):\n" + _indented("\n\n".join(parts))


def _is_overload(member: FunctionDef) -> bool:
    return any(ast.unparse(each) == "overload" for each in member.decorator_list)


def _kept(member: FunctionDef) -> bool:
    return member.name in DUNDERS or not member.name.startswith("_")


def _function(node: FunctionDef) -> str:
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg) and argument.annotation is not None:
            argument.annotation = _plain(argument.annotation)
    assert node.returns is not None, f"{node.name} says what it returns"
    decorators = [each for each in map(ast.unparse, node.decorator_list) if each != "abstractmethod"]
    answer = ast.unparse(_plain(node.returns))
    if "asynccontextmanager" in decorators:
        decorators.remove("asynccontextmanager")
        answer = answer.replace("Stream[", "AbstractContextManager[")
    name = DUNDERS.get(node.name, node.name)
    head = f"def {name}({ast.unparse(node.args)}) -> {answer}:"
    return "".join(f"@{each}\n" for each in decorators) + head + "\n" + _indented(_doc(node))


def _attributes(node: ast.ClassDef) -> list[str]:
    """The public attributes that the constructor sets: to be read, not to be set from another thread.

    And before them those of the class.
    """
    made = next((n for n in node.body if isinstance(n, ast.FunctionDef) and n.name == "__init__"), None)
    found = []
    for statement in node.body:
        if isinstance(statement, ast.AnnAssign) and not ast.unparse(statement.target).startswith("_"):
            found.append(f"{ast.unparse(statement.target)}: {ast.unparse(statement.annotation)}")
        elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Call):
            found.append(f"{ast.unparse(statement.targets[0])}: {ast.unparse(statement.value.func)}")
    for statement in made.body if made else ():
        target = statement.targets[0] if isinstance(statement, ast.Assign) else None
        target = statement.target if isinstance(statement, ast.AnnAssign) else target
        if made and isinstance(target, ast.Attribute) and not target.attr.startswith("_"):
            kind = _attribute_type(f"{node.name}.{target.attr}", made, statement)
            found.append(f"@property\ndef {target.attr}(self) -> {kind}: ...")
        elif isinstance(target, ast.Tuple):  # of several that are set at once, those that have a type here
            names = [each.attr for each in target.elts if isinstance(each, ast.Attribute)]
            kinds = {name: ATTRIBUTES.get(f"{node.name}.{name}") for name in names}
            found += [f"@property\ndef {name}(self) -> {kind}: ..." for name, kind in kinds.items() if kind]
    return found


def _attribute_type(name: str, made: ast.FunctionDef, statement: ast.stmt) -> str:
    if isinstance(statement, ast.AnnAssign):
        return ast.unparse(statement.annotation)
    assert isinstance(statement, ast.Assign)
    value = statement.value
    if isinstance(value, ast.Name):
        arguments = [*made.args.args, *made.args.kwonlyargs]
        return next(ast.unparse(a.annotation) for a in arguments if a.arg == value.id and a.annotation)
    if isinstance(value, ast.Call) and isinstance(value.func, ast.Name) and value.func.id[0].isupper():
        return value.func.id
    if name not in ATTRIBUTES:
        raise SystemExit(f"add the type of {name} to ATTRIBUTES in {Path(__file__).name}")
    return ATTRIBUTES[name]


def _plain(annotation: ast.expr) -> ast.expr:
    return ast.parse(wording.plain(ast.unparse(annotation)), mode="eval").body


def _doc(node: FunctionDef | ast.ClassDef) -> str:
    doc = wording.blocking(ast.get_docstring(node) or "")
    return f'"""{doc}\n"""' if doc and "\n" in doc else f'"""{doc}"""' if doc else "..."


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" if line else "" for line in text.splitlines())


def _formatted(text: str) -> str:
    ruff = [sys.executable, "-m", "ruff"]
    name = ["--stdin-filename", str(ROOT / "sync" / "stub.pyi"), "-"]
    sort = [*ruff, "check", "--quiet", "--select", "I", "--fix", *name]
    text = subprocess.run(sort, input=text, capture_output=True, text=True, check=True).stdout
    done = subprocess.run([*ruff, "format", *name], input=text, capture_output=True, text=True, check=True)
    return done.stdout


def main() -> int:
    """Write the stubs, or check them."""
    stale = 0
    for path in STUBS:
        text = generate(path)
        if "--check" in sys.argv[1:]:
            fresh = path.exists() and path.read_text() == text
            print(f"{path.name} is {'fresh' if fresh else 'stale: run tools/sync_stubs.py'}")
            stale += not fresh
        else:
            path.write_text(text)
    return stale


if __name__ == "__main__":
    sys.exit(main())
