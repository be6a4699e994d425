"""The price table that the program ships, with the configuration's prices over it.

Idea: one TOML file beside this module, each entry with its day and source. Invariant: numbers are read as decimal text,
never as floats. Tested in ``tests/unit/test_prices.py``.
"""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from importlib import resources

from pydantic import BaseModel, ConfigDict

from zaia_cli.core.config import PriceConfig
from zaia_cli.core.prices import Price, PriceTable

__all__ = ["load_prices"]


class _BundledFile(BaseModel):
    model_config = ConfigDict(extra="forbid")

    source: str
    prices: dict[str, PriceConfig | list[PriceConfig]]


def load_prices(overrides: Mapping[str, PriceConfig]) -> PriceTable:
    """Load the bundled table and lay the configured prices over it.

    Args:
        overrides: The ``prices`` section of the configuration, by model id or glob.
    """
    text = resources.files("zaia_cli.models").joinpath("prices.toml").read_text(encoding="utf-8")
    bundled = _BundledFile.model_validate(tomllib.loads(text))
    return PriceTable(
        {
            model: [_price(entry, bundled.source) for entry in (entries if isinstance(entries, list) else [entries])]
            for model, entries in bundled.prices.items()
        },
        {model: [_price(entry, "configuration")] for model, entry in overrides.items()},
    )


def _price(entry: PriceConfig, source: str) -> Price:
    return Price(**entry.model_dump(), source=source)
