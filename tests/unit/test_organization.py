"""Organization files: the example loads, and each kind of mistake is told in the words of the file."""

from pathlib import Path

import pytest

from zaia_cli.core.errors import ConfigError, NotFoundError
from zaia_cli.core.loading import load_organization, parse_organization

EXAMPLE = Path(__file__).parents[2] / "fixtures" / "organizations" / "loja-exemplo.toml"


def changed(old: str, new: str) -> str:
    text = EXAMPLE.read_text("utf-8")
    assert old in text
    return text.replace(old, new, 1)


def test_the_example_needs_no_keys() -> None:
    company = load_organization(EXAMPLE)
    assert company.organization.slug == "loja-exemplo"
    models = [model for each in company.assistants for model in (each.model, *each.fallback_models)]
    assert models == ["scripted/demo"]
    assert {channel.kind for channel in company.channels} == {"whatsapp", "instagram", "http", "console"}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('slug = "loja-exemplo"', 'slug = "Loja Exemplo"', "organization.slug: 'Loja Exemplo' cannot be used"),
        ('timezone = "America/Sao_Paulo"', 'timezone = "Brasilia"', "no time zone named 'Brasilia'"),
        ("human_assignee", "human_asignee", "organization.human_asignee: unknown key; the nearest known one is"),
        ('name = "Entregas"', 'name = "financeiro"', "department named twice: financeiro"),
        (
            'account = "formulario"\nassistant = "atendimento"',
            'account = "formulario"\nassistant = "x"',
            "assistant 'x'",
        ),
        ('kind = "http"', 'kind = "email"', "channels[3].kind: 'email' cannot be used"),
        (
            'class = "background"',
            'clas = "background"',
            "priority_rules[2].clas: unknown key; the nearest known one is",
        ),
        ('class = "background"', 'class = "low"', "priority_rules[2].class: 'low' cannot be used"),
        ('when = { channel = "http", field = { tipo = "avaria" } }', "when = {}", "needs at least one condition"),
        ('owner = "marketing"\n', "", "priority_rules[2].owner: is missing; add it"),
        ("[[departments]]", "[[departments", "not valid TOML"),
    ],
)
def test_a_mistake_is_told_with_its_place(old: str, new: str, said: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse_organization(changed(old, new), "loja.toml")
    assert said in caught.value.message
    assert caught.value.message.startswith("loja.toml: ")


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError):
        load_organization(tmp_path / "none.toml")
