"""Find a model by name: `anthropic:…`, `openai:…`, another provider, or `script:FILE`."""

from __future__ import annotations

from typing import TypeAlias

from dgent.errors import InputError
from dgent.runtime.model.call import Model

ModelSpec: TypeAlias = str | Model


def resolve(model: ModelSpec, *, key: str | None = None, base_url: str | None = None) -> Model:
    """Return the model of a name; a model is returned as it is.

    `key` and `base_url` are for the provider; without them it reads its own variables, such as
    ANTHROPIC_API_KEY. Raises InputError for what is not a name, Unsupported where the extra is missing.
    """
    if not isinstance(model, str):
        if isinstance(model, Model):
            return model
        raise InputError(
            f"a model is a name or an object with stream(), not {type(model).__name__}", field="model"
        )
    provider, colon, name = model.partition(":")
    if not colon or not provider or not name:
        raise InputError(
            f"{model!r:.80} is not the name of a model",
            hint="write it like anthropic:claude-sonnet-5-5, openai:gpt-5 or script:FILE",
            field="model",
        )
    if provider == "script":
        from dgent.runtime.model.script import open_script

        return open_script(name)
    from dgent.runtime.model.provider import ProviderModel

    return ProviderModel(model, key=key, base_url=base_url)
