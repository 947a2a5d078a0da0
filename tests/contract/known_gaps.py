"""What an engine is known not to do, with the reason. A skip in this folder without a row here fails."""

from __future__ import annotations

GAPS: dict[tuple[str, str], str] = {}
"""(column, "ContractName.test_name") -> why it cannot be done."""
