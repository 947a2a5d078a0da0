"""The parts of SQLAlchemy's own suite for dialects that concern dgent; `test_suite.py` runs them."""

from __future__ import annotations

import re

from sqlalchemy.testing import suite

PARTS = (
    "InsertBehavior|SimpleUpdateDelete|Transaction|.*Isolation|JSON|Date|Time|Numeric|String"
    "|ComponentReflection"
)
# A name that begins with an underscore is a base of others.
globals().update({name: made for name, made in vars(suite).items() if re.match(rf"(?:{PARTS})\w*Test", name)})
