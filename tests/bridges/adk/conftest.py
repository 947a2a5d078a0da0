"""ADK cannot be installed beside all that the other tests need: `make adk` runs these in their own venv."""

from __future__ import annotations

from importlib.util import find_spec

collect_ignore_glob = [] if find_spec("google") and find_spec("google.adk") else ["test_*.py"]
