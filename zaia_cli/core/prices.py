"""What a model request costs: dated prices per million tokens, and exact arithmetic.

Idea: the engine's own table, keyed by the model id that is configured, never by the name a server answers with.
Invariant: money is ``Decimal``; an unknown price or unknown usage costs ``None``, never zero. Tested in
``tests/unit/test_prices.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from fnmatch import fnmatchcase

from zaia_cli.core.chat import Usage

__all__ = ["Price", "PriceTable", "cost_usd"]


@dataclass(frozen=True, slots=True)
class Price:
    """USD per million tokens, valid from a day on until a later price takes over.

    A missing cache price falls back to the nearest price that is known: ``cached_input`` and ``cache_write`` to
    ``input``, ``cache_write_1h`` to ``cache_write``. ``source`` says where the numbers were taken from.
    """

    input: Decimal
    output: Decimal
    cached_input: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    valid_from: date = date(2000, 1, 1)
    source: str = ""


class PriceTable:
    """Prices by model id; a key may be a glob such as ``scripted/*``.

    Args:
        bundled: Prices that ship with the program, per model id.
        overrides: Prices of the configuration; they win over bundled ones from their own ``valid_from`` on.
    """

    def __init__(
        self, bundled: Mapping[str, Sequence[Price]], overrides: Mapping[str, Sequence[Price]] | None = None
    ) -> None:
        self._layers = (overrides or {}, bundled)

    def lookup(self, model: str, at: date) -> Price | None:
        """Find the price of ``model`` on the day ``at``: configuration first, an exact id before a glob.

        Returns:
            The latest price that was valid on that day, or None when the table does not know.
        """
        for layer in self._layers:
            for key in (model, *(glob for glob in layer if glob != model and fnmatchcase(model, glob))):
                valid = [price for price in layer.get(key, ()) if price.valid_from <= at]
                if valid:
                    return max(valid, key=lambda price: price.valid_from)
        return None

    def items(self) -> list[tuple[str, Price]]:
        """List every price with its model id, by id and day; overrides come before what they override."""
        rows = [(key, price) for layer in self._layers for key, prices in layer.items() for price in prices]
        return sorted(rows, key=lambda row: (row[0], row[1].valid_from))


def cost_usd(usage: Usage | None, price: Price | None) -> Decimal | None:
    """Compute the exact cost of one request in USD, not rounded.

    Returns:
        None when usage or price is unknown.
    """
    if usage is None or price is None:
        return None
    cached = price.input if price.cached_input is None else price.cached_input
    write = price.input if price.cache_write is None else price.cache_write
    write_1h = write if price.cache_write_1h is None else price.cache_write_1h
    micro = (
        usage.input_tokens * price.input
        + usage.cache_read_tokens * cached
        + (usage.cache_write_tokens - usage.cache_write_1h_tokens) * write
        + usage.cache_write_1h_tokens * write_1h
        + usage.output_tokens * price.output
    )
    return micro.scaleb(-6)
