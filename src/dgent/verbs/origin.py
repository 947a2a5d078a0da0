"""Origins in answers: the trust of those whose words something was made from, where it is low."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

LowTrust: TypeAlias = str | msgspec.UnsetType


def mark_of(trust: str) -> LowTrust:
    """Return a trust as answers have it: only where it is less than a partner's."""
    return msgspec.UNSET if trust == "partner" else trust
