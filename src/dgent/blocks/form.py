"""What a block's document looks like as text: for prompts, limits, searches and differences.

Templates add their own forms; this is the plain one of each kind of document.
"""

from __future__ import annotations

from typing import Any

from dgent.blocks.document import Document


def rendered(kind: str, shape: dict[str, Any], document: Document) -> str:
    """A document as text."""
    if kind == "text":
        return document.text()
    from dgent.blocks import template  # structured ones only

    return template.rendered(kind, shape, document)
