"""Measure how readable the source tree is: `python tools/measure.py [folder of the package]`.

Figures to compare over time, not verdicts. `--names` lists what each figure counts.
"""

from __future__ import annotations

import ast
import re
import sys
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

PARTICIPLE = re.compile(
    r"_*(told|made|kept|taken|held|given|found|checked|known|seen|said|meant|gone|written|shown|drawn|chosen|bound"
    r"|read_of|(?!need|seed|feed|speed|embed|red|bed|shed|exceed|proceed|succeed|led|fed)[a-z]+ed)"
)
RIDDLE = re.compile(r"(What|Whether|Whoever|Who|How|Where|That|Those|Whatever|Which)\b")
IS_NO = re.compile(r"(?<!there )\bis no (?!longer|conflict)[a-z]")
BRANCHES = (
    ast.If,
    ast.For,
    ast.AsyncFor,
    ast.While,
    ast.ExceptHandler,
    ast.IfExp,
    ast.comprehension,
    ast.match_case,
)
FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)


class Tree:
    """The modules of a package, parsed."""

    def __init__(self, package: Path) -> None:
        self.package = package
        self.texts = {self._name(path): path.read_text(encoding="utf-8") for path in package.rglob("*.py")}
        self.modules = {name: ast.parse(text) for name, text in self.texts.items()}

    def _name(self, path: Path) -> str:
        parts = (self.package.name, *path.relative_to(self.package).with_suffix("").parts)
        return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)

    def nodes(self, *kinds: type[ast.AST]) -> Iterator[tuple[str, ast.AST]]:
        for name, module in self.modules.items():
            for node in ast.walk(module):
                if isinstance(node, kinds):
                    yield name, node

    def imports(self, name: str) -> Iterator[str]:
        """Yield the modules that a module imports, as far as they are of this package."""
        for node in ast.walk(self.modules[name]):
            if isinstance(node, ast.Import):
                yield from (each.name for each in node.names if each.name in self.modules)
            elif isinstance(node, ast.ImportFrom) and node.module is not None:
                for each in node.names:
                    found = f"{node.module}.{each.name}"
                    found = found if found in self.modules else node.module
                    if found in self.modules:
                        yield found


def participles(tree: Tree) -> list[str]:
    """Functions whose names are participles instead of verbs with an object."""
    return [f"{name}.{node.name}" for name, node in tree.nodes(*FUNCTIONS) if PARTICIPLE.fullmatch(node.name)]


def riddles(tree: Tree) -> list[str]:
    """Docstrings that open with a question word."""
    kinds = (ast.Module, ast.ClassDef, *FUNCTIONS)
    docs = [(name, ast.get_docstring(node) or "") for name, node in tree.nodes(*kinds)]
    return [f"{name}: {doc.splitlines()[0]}" for name, doc in docs if RIDDLE.match(doc)]


def texts_with_is_no(tree: Tree) -> list[str]:
    """Texts that say "is no X" where "is not a valid X" is meant."""
    found = [(name, node.value) for name, node in tree.nodes(ast.Constant) if isinstance(node.value, str)]
    return [f"{name}: {text.splitlines()[0]}" for name, text in found if IS_NO.search(text)]


def classes_with_several_homes(tree: Tree) -> list[str]:
    """Class names that are defined in more than one module."""
    homes: dict[str, set[str]] = defaultdict(set)
    for name, node in tree.nodes(ast.ClassDef):
        homes[node.name].add(name)
    return [f"{name}: {', '.join(sorted(where))}" for name, where in sorted(homes.items()) if len(where) > 1]


def complex_functions(tree: Tree, most: int = 15) -> list[str]:
    """Functions with a cyclomatic complexity above `most`, counting boolean operators."""
    found = []
    for name, node in tree.nodes(*FUNCTIONS):
        size = complexity(node)
        if size > most:
            found.append(f"{name}.{node.name}: {size}")
    return found


def complexity(function: ast.AST) -> int:
    """Count the branches of a function; those of functions inside it are their own."""
    total, left = 1, list(ast.iter_child_nodes(function))
    while left:
        node = left.pop()
        if isinstance(node, FUNCTIONS):
            continue
        total += isinstance(node, BRANCHES)
        total += len(node.values) - 1 if isinstance(node, ast.BoolOp) else 0
        total += len(node.ifs) if isinstance(node, ast.comprehension) else 0
        left += ast.iter_child_nodes(node)
    return total


def modules_with_one_importer(tree: Tree) -> list[str]:
    """Modules that exactly one other module imports, unless that is the package which exports them."""
    importers: dict[str, set[str]] = defaultdict(set)
    for name in tree.modules:
        for imported in tree.imports(name):
            if imported != name:
                importers[imported].add(name)
    packages = {name.rpartition(".")[0] for name in tree.modules}
    return [
        f"{name} <- {next(iter(who))}"
        for name, who in sorted(importers.items())
        if len(who) == 1 and name not in packages and name.rpartition(".")[0] not in who
    ]


def split_classes(tree: Tree) -> list[str]:
    """Classes that nobody makes and one class in another file inherits: a file split by inheritance."""
    homes: dict[str, set[str]] = defaultdict(set)
    below: dict[str, list[str]] = defaultdict(list)
    for name, node in tree.nodes(ast.ClassDef):
        homes[node.name].add(name)
        for base in node.bases:
            plain = base.value if isinstance(base, ast.Subscript) else base
            if isinstance(plain, ast.Name | ast.Attribute):
                below[ast.unparse(plain).rpartition(".")[2]].append(f"{name}.{node.name}")
    made = {ast.unparse(node.func).rpartition(".")[2] for _, node in tree.nodes(ast.Call)}
    found = []
    for base, users in sorted(below.items()):
        alone = len(users) == 1 and len(homes[base]) == 1 and base not in made
        if (
            alone
            and not base.endswith(("Error", "Protocol"))
            and users[0].rpartition(".")[0] not in homes[base]
        ):
            found.append(f"{next(iter(homes[base]))}.{base} -> {users[0]}")
    return found


def main(args: list[str]) -> None:
    paths = [each for each in args if not each.startswith("-")]
    tree = Tree(Path(paths[0] if paths else "src/dgent"))
    lines = sum(text.count("\n") for text in tree.texts.values())
    functions = sum(1 for _ in tree.nodes(*FUNCTIONS))
    print(f"files {len(tree.texts)}, lines {lines}, functions {functions}")
    for measure in (
        participles,
        riddles,
        texts_with_is_no,
        classes_with_several_homes,
        complex_functions,
        modules_with_one_importer,
        split_classes,
    ):
        found = measure(tree)
        share = f" ({100 * len(found) / functions:.1f} %)" if measure is participles else ""
        print(f"{measure.__name__.replace('_', ' ')}: {len(found)}{share}")
        if "--names" in args:
            print("".join(f"    {each}\n" for each in found), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
