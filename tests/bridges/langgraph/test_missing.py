"""The error where LangGraph is not installed."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import sys
sys.modules["langgraph"] = None
from dgent.errors import Unsupported
try:
    import dgent.bridges.langgraph
except Unsupported as error:
    print(error.hint)
"""


def test_the_extra_is_named() -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True, timeout=60)
    assert done.stdout.strip() == "pip install 'dgent[langgraph]'", done.stderr
