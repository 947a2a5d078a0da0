"""How hypothesis runs here: the same number of examples everywhere, new ones every time."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

# Before anything imports it: the contract's asserts are to say what they saw.
pytest.register_assert_rewrite("dgent.testing")

# Deadlines and the too_slow check measure a loaded machine, not dgent; pytest-timeout catches what hangs.
settings.register_profile(
    "dgent",
    max_examples=50,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow],
)
# Hypothesis's own "ci" profile repeats the same examples forever; ours keeps looking.
settings.register_profile("ci", settings.get_profile("dgent"), derandomize=False, database=None)
settings.load_profile("ci" if os.environ.get("CI") else "dgent")
