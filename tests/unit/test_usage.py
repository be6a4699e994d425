"""Usage in disjoint buckets; shapes as litellm 1.110.2 reports them."""

from __future__ import annotations

from typing import Any

import pytest

from zaia_cli.core.chat import Usage
from zaia_cli.models.usage import normalised_usage


def raw(prompt: int, completion: int, total: int = 0, **details: Any) -> dict[str, Any]:
    known = {"prompt_tokens": prompt, "completion_tokens": completion, "total_tokens": total or prompt + completion}
    return known | {"prompt_tokens_details": details}


@pytest.mark.parametrize("unknown", [{}, raw(0, 0), {"prompt_tokens": None}, {"prompt_tokens": "7"}])
def test_usage_that_was_not_reported_is_none(unknown: dict[str, Any]) -> None:
    assert normalised_usage(unknown) is None


def test_caches_are_taken_out_of_the_input() -> None:
    usage = normalised_usage(raw(2009, 393, cached_tokens=1800, cache_creation_tokens=188))
    assert usage == Usage(input_tokens=21, cache_read_tokens=1800, cache_write_tokens=188, output_tokens=393)
    assert usage is not None
    assert usage.total_tokens == 2009 + 393


def test_longer_cache_writes_are_a_part_of_all_writes() -> None:
    details = {"cache_creation_tokens": 3000, "cache_creation_token_details": {"ephemeral_1h_input_tokens": 2000}}
    assert normalised_usage(raw(3010, 5, **details)) == Usage(10, 0, 3000, 2000, 5)


def test_reasoning_is_a_part_of_the_output() -> None:
    usage = normalised_usage(raw(10, 300) | {"completion_tokens_details": {"reasoning_tokens": 128}})
    assert usage == Usage(input_tokens=10, output_tokens=300, reasoning_tokens=128)


def test_output_that_only_the_total_shows_is_recovered_and_marked() -> None:
    usage = normalised_usage(raw(2006, 100, 2234))
    assert usage == Usage(input_tokens=2006, output_tokens=228, is_estimated=True)


def test_invented_counts_are_marked() -> None:
    usage = normalised_usage(raw(10, 2), is_estimated=True)
    assert usage is not None
    assert usage.is_estimated


def test_buckets_never_go_below_zero() -> None:
    usage = normalised_usage(raw(10, 2, cached_tokens=50, cache_creation_tokens=50))
    assert usage == Usage(input_tokens=0, cache_read_tokens=10, output_tokens=2)
