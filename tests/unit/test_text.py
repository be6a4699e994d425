"""Emptiness, folding, thanks and cutting."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from zaia_cli.core.text import fold, is_effectively_empty, is_thanks, normalised, shorten, without_nul

FAMILY = "👩\u200d👩\u200d👧\u200d👦"

PATIENT = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


@pytest.mark.parametrize("text", ["", " \n\t", "\u200b", "\u200c\u200d", "\u2060\ufeff", "\u00ad", "\x00\x07"])
def test_text_that_shows_nothing_is_empty(text: str) -> None:
    assert is_effectively_empty(text)


@pytest.mark.parametrize("text", [".", "oi", FAMILY, "❤️", "\u200b?"])
def test_text_that_shows_something_is_not_empty(text: str) -> None:
    assert not is_effectively_empty(text)


def test_fold_drops_case_accents_and_extra_spaces() -> None:
    assert fold("  DEVOLUÇÃO\n do  Pedido ") == "devolucao do pedido"


@PATIENT
@given(st.text(max_size=40))
def test_text_and_its_other_case_fold_alike(text: str) -> None:
    assert fold("É a CAIXA " + text) == fold("é a caixa " + text)
    assert "  " not in fold(text)


def test_normalised_drops_punctuation_and_invisible_characters() -> None:
    assert normalised("Olá, \u200bmundo!!") == normalised("ola mundo") == "ola mundo"


@pytest.mark.parametrize("text", ["Obrigado!", "muito obrigada", "valeu, tchau", "ok, obg", "Obrigada pela ajuda 🙏"])
def test_thanks_are_thanks(text: str) -> None:
    assert is_thanks(text)


@pytest.mark.parametrize("text", ["obrigado, mas faltou um item", "ok", "bom dia", "não obrigado, quero trocar", ""])
def test_a_request_is_not_thanks(text: str) -> None:
    assert not is_thanks(text)


def test_shorten_says_that_something_was_lost() -> None:
    assert shorten("abc", 3) == "abc"
    assert shorten("abcd", 3) == "ab…"
    assert shorten(" a \n b ", 10) == "a b"


def test_only_nul_is_dropped() -> None:
    assert without_nul(f"a\x00{FAMILY}\n") == f"a{FAMILY}\n"
