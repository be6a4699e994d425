"""Classes by the organization's rules."""

from __future__ import annotations

from typing import Any

import pytest

from zaia_cli.core.priority import ClassDecision, band, decide_class, higher

RULES: list[dict[str, Any]] = [
    {
        "when": {"channel": "http", "field": {"tipo": "avaria"}},
        "class": "urgent",
        "owner": "operacoes",
        "description": "palete danificado",
        "alert": "supervisor",
    },
    {"when": {"keywords": ["reembolso", "não chegou"]}, "class": "urgent", "owner": "fin", "description": "dinheiro"},
    {"when": {"account_type": "gratuito"}, "class": "background", "owner": "fin", "description": "conta gratuita"},
]


@pytest.mark.parametrize(
    ("channel", "text", "fields", "wanted"),
    [
        ("http", "quebrou", {"tipo": "Avaria"}, ClassDecision("urgent", "palete danificado (operacoes)", "supervisor")),
        ("whatsapp", "quebrou", {"tipo": "avaria"}, ClassDecision("standard")),
        ("whatsapp", "Quero meu REEMBOLSO!", {}, ClassDecision("urgent", "dinheiro (fin)")),
        ("whatsapp", "o pedido nao chegou", {}, ClassDecision("urgent", "dinheiro (fin)")),
        ("whatsapp", "reembolsos em geral", {}, ClassDecision("standard")),
        ("http", "oi", {"account_type": "Gratuito"}, ClassDecision("background", "conta gratuita (fin)")),
    ],
)
def test_the_first_rule_whose_conditions_all_hold_decides(
    channel: str, text: str, fields: dict[str, str], wanted: ClassDecision
) -> None:
    assert decide_class(RULES, channel=channel, text=text, fields=fields) == wanted


def test_a_later_message_raises_the_class_and_never_lowers_it() -> None:
    urgent, standard = ClassDecision("urgent", "r"), ClassDecision("standard")
    assert higher(standard, urgent) is urgent
    assert higher(urgent, standard) is urgent
    assert [band(name) for name in ("urgent", "standard", "background")] == [0, 1, 2]
