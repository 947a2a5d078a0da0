"""The cost of an answer, by the price table of genai-prices, which comes with the extra `agent`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from dgent.runtime.model.call import TokenUsage


def find_cost(name: str, usage: TokenUsage, served: str | None = None) -> float | None:
    """Return the cost in US dollars of an answer by a model; None where no price is known.

    `served` is the name that the provider answered with, which is often more exact.
    """
    provider, _, model = name.partition(":")
    prices = _load()
    if prices is None or provider == "script":
        return None
    for asked in (served, model):
        if not asked:
            continue
        try:
            counted = prices.Usage(
                input_tokens=usage.input_tokens,
                output_tokens=usage.output_tokens,
                cache_read_tokens=usage.cache_read_tokens,
                cache_write_tokens=usage.cache_write_tokens,
            )
            return float(
                prices.calc_price(counted, asked, provider_id=_PROVIDERS.get(provider, provider)).total_price
            )
        except (LookupError, ValueError):  # no such model, or counts that no price fits
            continue
    return None


_PROVIDERS = {"openai-chat": "openai", "openai-responses": "openai", "google-gla": "google"}


@lru_cache(maxsize=1)
def _load() -> Any:
    try:
        import genai_prices
    except ImportError:
        return None
    return genai_prices
