"""Prices by day and exact cost."""

from __future__ import annotations

import json
from datetime import date
from decimal import Decimal
from pathlib import Path

import pytest

from zaia_cli.core.chat import Usage
from zaia_cli.core.config import PriceConfig
from zaia_cli.core.prices import Price, PriceTable, cost_usd
from zaia_cli.models.prices import load_prices

TODAY = date(2026, 12, 1)
CASE = Path(__file__).parents[2].parent / "shared" / "cases" / "channels" / "075_cached_tokens_inside_prompt.json"


def price(usd: str, since: str = "2000-01-01") -> Price:
    return Price(Decimal(usd), Decimal(usd), valid_from=date.fromisoformat(since))


def test_price_is_the_latest_that_was_valid_on_the_day() -> None:
    table = PriceTable({"m": [price("2", "2026-01-01"), price("1"), price("3", "2027-01-01")]})
    found = [table.lookup("m", day) for day in (date(2025, 12, 31), date(2026, 1, 1), TODAY, date(2027, 1, 1))]
    assert [entry.input for entry in found if entry] == [Decimal(number) for number in "1223"]
    assert PriceTable({"m": [price("1", "2026-01-01")]}).lookup("m", date(2025, 1, 1)) is None


def test_configuration_wins_from_its_day_on_and_an_exact_id_before_a_glob() -> None:
    table = PriceTable({"a/*": [price("1")], "a/b": [price("2")]}, {"a/b": [price("3", "2026-06-01")]})
    days = (date(2026, 5, 31), date(2026, 6, 1))
    assert [table.lookup("a/b", day) for day in days] == [price("2"), price("3", "2026-06-01")]
    assert table.lookup("a/c", TODAY) == price("1")
    assert table.lookup("b/c", TODAY) is None
    assert [key for key, _ in table.items()] == ["a/*", "a/b", "a/b"]


def test_unknown_is_none_and_never_zero() -> None:
    assert cost_usd(None, price("1")) is None
    assert cost_usd(Usage(1), None) is None
    assert cost_usd(Usage(), price("1")) == 0


def test_cost_is_exact_over_disjoint_buckets() -> None:
    full = Price(Decimal("3"), Decimal("15"), Decimal("0.3"), Decimal("3.75"), Decimal("6"))
    usage = Usage(21, 1800, 188, 100, 393, reasoning_tokens=50)
    expected = Decimal("21") * 3 + Decimal("1800") * Decimal("0.3") + 88 * Decimal("3.75") + 100 * 6 + 393 * 15
    assert cost_usd(usage, full) == expected / 1_000_000
    assert cost_usd(Usage(1), price("0.1")) == Decimal("0.0000001")


def test_missing_cache_prices_fall_back_to_the_input_price() -> None:
    usage = Usage(input_tokens=1, cache_read_tokens=1, cache_write_tokens=2, cache_write_1h_tokens=1)
    assert cost_usd(usage, price("1")) == Decimal("0.000004")


def test_recorded_case_is_not_double_counted() -> None:
    if not CASE.exists():
        pytest.skip("the shared folder is not here")
    case = json.loads(CASE.read_text(encoding="utf-8"))
    numbers = {name: Decimal(value) for name, value in case["input"]["price_per_million"].items()}
    expected = case["expected"]
    usage = Usage(expected["input_uncached"], expected["input_cached"], output_tokens=expected["output"])
    assert cost_usd(usage, Price(**numbers)) == Decimal(expected["cost_usd"])


def test_bundled_table_knows_its_models_and_sources() -> None:
    table = load_prices({})
    mini = table.lookup("openai/gpt-4o-mini", TODAY)
    assert mini is not None
    assert (mini.input, mini.cached_input, mini.output) == (Decimal("0.15"), Decimal("0.075"), Decimal("0.6"))
    assert table.lookup("scripted/anything", TODAY) is not None
    assert cost_usd(Usage(5, 5, 5, 5, 5), table.lookup("scripted/anything", TODAY)) == 0
    assert table.lookup("openai/some-own-model", TODAY) is None
    for model, entry in table.items():
        assert entry.source, model
        assert entry.cached_input is not None, model


def test_configured_price_overrides_the_bundled_one() -> None:
    entry = PriceConfig(input=Decimal("9"), output=Decimal("9"))
    found = load_prices({"openai/gpt-4o-mini": entry}).lookup("openai/gpt-4o-mini", TODAY)
    assert found is not None
    assert (found.input, found.source) == (Decimal("9"), "configuration")
