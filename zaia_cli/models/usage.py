"""Token usage of litellm, normalised into disjoint buckets.

Idea: litellm reports prompt tokens that include both caches, for every provider. Invariant: buckets add up to what the
provider billed; nothing reported is ``None``, never zero; recovered counts are marked. Tested in
``tests/unit/test_usage.py`` and ``tests/models/test_provider_cases.py``.

Source: ``shared/facts/providers.md`` section 3.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zaia_cli.core.chat import Usage

__all__ = ["normalised_usage"]


def normalised_usage(raw: Mapping[str, Any], *, is_estimated: bool = False) -> Usage | None:
    """Split a usage object in the OpenAI shape, as plain mappings, into disjoint buckets.

    Args:
        raw: ``prompt_tokens``, ``completion_tokens``, ``total_tokens`` and their details.
        is_estimated: The counts are known to be invented (litellm counts for Ollama's own protocol).

    Returns:
        None when nothing was reported. Output that only shows in the total (a blocked Gemini answer loses its thoughts)
        is recovered as total minus prompt and marked as estimated.
    """
    prompt, completion = _count(raw, "prompt_tokens"), _count(raw, "completion_tokens")
    if prompt == 0 and completion == 0:
        return None
    details, out_details = _part(raw, "prompt_tokens_details"), _part(raw, "completion_tokens_details")
    read = min(_count(details, "cached_tokens"), prompt)
    write = min(_count(details, "cache_creation_tokens"), prompt - read)
    write_1h = _count(_part(details, "cache_creation_token_details"), "ephemeral_1h_input_tokens")
    hidden = max(_count(raw, "total_tokens") - prompt - completion, 0)
    return Usage(
        input_tokens=prompt - read - write,
        cache_read_tokens=read,
        cache_write_tokens=write,
        cache_write_1h_tokens=min(write_1h, write),
        output_tokens=completion + hidden,
        reasoning_tokens=min(_count(out_details, "reasoning_tokens"), completion + hidden),
        is_estimated=is_estimated or hidden > 0,
    )


def _part(raw: Mapping[str, Any], key: str) -> Mapping[str, Any]:
    part = raw.get(key)
    return part if isinstance(part, Mapping) else {}


def _count(raw: Mapping[str, Any], key: str) -> int:
    value = raw.get(key)
    return value if isinstance(value, int) and value > 0 else 0
