"""A workspace with a few files, and its tools."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from dgent.runtime.code.context import CodeContext
from dgent.runtime.code.policy import Policy
from dgent.runtime.code.toolset import code_tools
from dgent.runtime.code.workspace import Workspace
from dgent.runtime.tool.tool import Toolset


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A folder that has a secret beside it."""
    (tmp_path / "secret.txt").write_text("secret")
    made = tmp_path / "project"
    (made / "src").mkdir(parents=True)
    (made / "src" / "a.py").write_text("import os\n\nprint(1)\nprint(2)\n")
    (made / "notes.txt").write_text("one\ntwo\nthree\n")
    return made


@pytest.fixture
def context(root: Path) -> Iterator[CodeContext]:
    """What the tools are given, with rules that allow everything usual."""
    with Workspace(root) as workspace:
        yield CodeContext(workspace, Policy(write="allow", run="allow"))


@pytest.fixture
def tools(context: CodeContext) -> Toolset:
    """The tools."""
    return code_tools(context)
