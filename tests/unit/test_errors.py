"""The error tree: codes, exit codes and who may try again."""

from __future__ import annotations

from typing import get_args

import pytest

from zaia_cli.core import errors
from zaia_cli.core.chat import Usage
from zaia_cli.core.errors import ModelError, ModelErrorKind, TurnError, ZaiaError


def tree(root: type[ZaiaError]) -> list[type[ZaiaError]]:
    return [root] + [leaf for child in root.__subclasses__() for leaf in tree(child)]


OWN = [error for error in tree(ZaiaError) if error.__module__ == errors.__name__]


def test_every_error_is_public_named_and_drawn_on_the_page() -> None:
    page = errors.__doc__ or ""
    for error in OWN:
        assert error.__name__ in errors.__all__
        assert error.__name__.endswith("Error")
        assert error.__name__ in page


def test_exit_codes_are_those_of_the_table() -> None:
    codes = {error.__name__: error.exit_code for error in OWN if not issubclass(error, TurnError)}
    assert codes == {
        "ZaiaError": 1,
        "ConfigError": 2,
        "CheckFailedError": 3,
        "NotFoundError": 4,
        "UnavailableError": 5,
        "RefusedError": 6,
        "InconclusiveError": 7,
    }


def test_codes_are_stable_and_unique() -> None:
    codes = [error.code for error in OWN]
    assert len(set(codes)) == len(codes) - 1  # ModelError carries one code per kind, so its class keeps its parent's
    assert {ModelError(kind, "x").code for kind in get_args(ModelErrorKind)} == {
        f"model_{kind}" for kind in get_args(ModelErrorKind)
    }


@pytest.mark.parametrize("kind", get_args(ModelErrorKind))
def test_a_failure_either_passes_or_stays_and_only_money_keys_and_rights_alert(kind: ModelErrorKind) -> None:
    error = ModelError(kind, "x")
    assert error.retryable == (kind in {"rate_limit", "transient", "timeout"})
    assert error.alerts == (kind in {"payment", "unauthorized", "forbidden"})


def test_loops_and_preconditions_are_never_retried() -> None:
    assert not any(error.retryable for error in tree(TurnError))


def test_error_carries_what_a_person_needs() -> None:
    error = ModelError("payment", "spent", status=429, provider_code="insufficient_quota", usage=Usage(3))
    assert (str(error), error.status, error.provider_code, error.usage) == (
        "spent",
        429,
        "insufficient_quota",
        Usage(3),
    )
    assert ZaiaError("x", hint="y", code="z").code == "z"
    assert ZaiaError.code == "internal"
