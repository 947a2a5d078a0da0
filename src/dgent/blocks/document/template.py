"""Templates: the purpose, shape, limit and permission of new blocks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, is_dataclass, replace
from typing import Any

from dgent.blocks import errors
from dgent.blocks.document import custom
from dgent.blocks.document.shape import Field, Shape
from dgent.blocks.document.validate import check_shape

LIMIT = 5000
_TEXT = Shape()


@dataclass(frozen=True)
class Template:
    """The defaults of a new block; each can be overridden when the block is created."""

    name: str
    shape: Shape = _TEXT
    description: str = ""
    kind: str = "working"
    limit: int = LIMIT
    permission: str = "read_write"


PERSONA = Template(
    "persona",
    description="Who I am: my character, how I speak, and what I hold to.",
    kind="core",
)
HUMAN = Template(
    "human",
    description="What I know about the human I work with: name, wishes, habits, and what matters to them.",
    kind="core",
)
SCRATCHPAD = Template(
    "scratchpad",
    description="Notes on what I am doing now. It may be emptied at any time.",
)
ORGANIZATION = Template(
    "organization",
    Shape(
        "map",
        (
            Field("name", description="what it is called", required=True),
            Field("policies", "list", "the rules that everybody keeps to", items="text"),
        ),
    ),
    description="The organization I work for and its rules. I cannot change them.",
    kind="core",
    permission="read_only",
)
PARTNER_PROFILE = Template(
    "partner_profile",
    Shape(
        "map",
        (
            Field("name", description="what they are called", required=True),
            Field("preferences", "list", "what they like and do not like", items="text"),
            Field("energy_level", "counter", "from 0 to 10", default=5),
            Field("current_focus", description="what they are busy with"),
            Field("last_interaction", "timestamp", "when we last spoke"),
        ),
    ),
    description="My partner: how they are, what they prefer, and what they are busy with.",
    kind="core",
)
TASK_LIST = Template(
    "task_list",
    Shape(
        "list",
        (
            Field("title", description="what is to be done", required=True),
            Field("done", "boolean", required=True, default=False),
            Field("priority", "number", "from 1, the highest, to 5", default=3),
            Field("due", "timestamp", "when it should be done"),
        ),
    ),
    description="What is to be done, and what has been.",
)
OBSERVATION_LOG = Template(
    "observation_log",
    Shape("log", (Field("observation", required=True), Field("context"))),
    description="What I noticed, newest first.",
    kind="log",
    permission="append",
)
ROLLING_LOG = Template(
    "rolling_log",
    Shape("log", clip=500),
    description="What happened, newest first. It is written by the system; I can only read it.",
    kind="log",
    permission="read_only",
)

TEMPLATES: Mapping[str, Template] = {
    each.name: each
    for each in (
        PERSONA,
        HUMAN,
        SCRATCHPAD,
        ORGANIZATION,
        PARTNER_PROFILE,
        TASK_LIST,
        OBSERVATION_LOG,
        ROLLING_LOG,
    )
}

TemplateLike = str | Template | type[Any] | Mapping[str, Any] | None
"""A template by its name, itself, a dataclass or a JSON schema."""


def find_template(given: TemplateLike, document: str | None = None) -> Template:
    """Return a template by name, dataclass or schema; without one that of a plain document."""
    if given is None or given == "":
        return Template("", check_shape(Shape("text" if document is None else document)))
    made = _resolve(given)
    if document is not None and document != made.shape.document:
        raise errors.TemplateError(
            f"the template {made.name!r} is a {made.shape.document}, not a {document}",
            hint="leave out document=",
        )
    return replace(made, shape=check_shape(made.shape))


def _resolve(given: TemplateLike) -> Template:
    if isinstance(given, Template):
        return given
    if isinstance(given, str):
        if given not in TEMPLATES:
            raise errors.TemplateError(
                f"{given!r:.80} is not a known template", hint=f"use one of {', '.join(TEMPLATES)}"
            )
        return TEMPLATES[given]
    if isinstance(given, type) and is_dataclass(given):
        return Template(given.__name__, custom.of_dataclass(given), custom.doc_of(given))
    if isinstance(given, Mapping):
        description = given.get("description")
        return Template(
            str(given.get("title", "custom")),
            custom.of_schema(given),
            description if isinstance(description, str) else "",
        )
    raise errors.TemplateError(
        f"{given!r:.80} is not a valid template", hint="give a name, a Template, a dataclass or a JSON schema"
    )
