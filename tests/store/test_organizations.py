"""Organization files against a real database: idempotent, one owner per account, nothing torn out of history."""

from __future__ import annotations

import asyncio
import tomllib
from pathlib import Path
from typing import Any

import psycopg
import pytest

from zaia_cli.core.errors import NotFoundError, RefusedError
from zaia_cli.core.ids import new_id
from zaia_cli.core.loading import load_organization, parse_organization
from zaia_cli.core.organization import OrganizationFile
from zaia_cli.store.database import Database
from zaia_cli.store.organizations import apply, export, list_organizations, read, to_toml

EXAMPLE = Path(__file__).parents[2] / "fixtures" / "organizations" / "loja-exemplo.toml"


def company(slug: str = "loja", **changed: Any) -> OrganizationFile:
    document: dict[str, Any] = {
        "organization": {
            "slug": slug,
            "name": "Loja",
            "handoff_message": "Um instante",
            "human_assignee": "plantao",
            "daily_budget_usd": "50.00",
        },
        "departments": [{"name": "Financeiro", "assignee": "caixa"}, {"name": "Trocas e Devoluções"}],
        "assistants": [
            {"slug": "atendimento", "prompt": "atendimento", "prompt_version": "v1", "model": "scripted/demo"}
        ],
        "channels": [
            {"kind": "whatsapp", "account": f"1{slug}", "assistant": "atendimento", "token_env": "WHATSAPP_TOKEN"},
            {"kind": "http", "account": f"form-{slug}", "assistant": "atendimento"},
        ],
        "priority_rules": [
            {
                "when": {"keywords": ["urgente"]},
                "class": "urgent",
                "owner": "operacoes",
                "description": "pede urgência",
            },
            {
                "when": {"channel": "http", "field": {"tipo": "avaria"}},
                "class": "background",
                "owner": "x",
                "description": "y",
            },
        ],
    }
    document["organization"] |= changed.pop("organization", {})
    return OrganizationFile.model_validate(document | changed)


def outcomes(applied: Any) -> dict[str, str]:
    return {change.what: change.change for change in applied.changes}


def counts(dsn: str) -> dict[str, int]:
    tables = ("organizations", "departments", "assistants", "channel_accounts", "channel_routes")
    with psycopg.connect(dsn) as connection:
        return {name: connection.execute(f"SELECT count(*) FROM {name}").fetchone()[0] for name in tables}  # type: ignore[index]


def versions(dsn: str) -> list[tuple[Any, ...]]:
    """Which row versions are there: a row that was written again has another xmin."""
    tables = ("organizations", "departments", "assistants", "channel_accounts", "channel_routes")
    with psycopg.connect(dsn) as connection:
        return [
            row for name in tables for row in connection.execute(f"SELECT '{name}', ctid, xmin FROM {name} ORDER BY 2")
        ]


async def test_applying_twice_changes_nothing(db: Database, dsn: str) -> None:
    first = await apply(db, company())
    written = versions(dsn)
    second = await apply(db, company())
    assert first.outcome == "created"
    assert set(outcomes(first).values()) == {"created"}
    assert second.outcome == "unchanged"
    assert set(outcomes(second).values()) == {"unchanged"}
    assert versions(dsn) == written
    assert counts(dsn) == {
        "organizations": 1,
        "departments": 2,
        "assistants": 1,
        "channel_accounts": 2,
        "channel_routes": 2,
    }


async def test_every_changed_thing_is_told_and_the_rest_is_not(db: Database) -> None:
    await apply(db, company())
    applied = await apply(
        db,
        company(
            organization={"ack_message": "Recebido: {reference}"},
            departments=[
                {"name": "FINANCEIRO", "assignee": "caixa"},
                {"name": "Trocas e Devoluções"},
                {"name": "Entregas"},
            ],
        ),
    )
    assert applied.outcome == "updated"
    assert outcomes(applied) == {
        "organization loja": "updated",
        "department FINANCEIRO": "updated",
        "department Trocas e Devoluções": "unchanged",
        "department Entregas": "created",
        "assistant atendimento": "unchanged",
        "channel whatsapp:1loja": "unchanged",
        "channel http:form-loja": "unchanged",
    }


async def test_priority_rules_are_stored_in_order(db: Database, dsn: str) -> None:
    await apply(db, company())
    with psycopg.connect(dsn) as connection:
        row = connection.execute("SELECT settings FROM organizations").fetchone()
    assert row is not None
    assert [rule["class"] for rule in row[0]["priority_rules"]] == ["urgent", "background"]
    assert row[0]["priority_rules"][1]["when"]["field"] == {"tipo": "avaria"}
    assert row[0]["budgets"] == {"daily_budget_usd": "50.00"}
    assert row[0]["human_assignee"] == "plantao"


async def test_settings_that_the_file_does_not_know_survive(db: Database, dsn: str) -> None:
    await apply(db, company())
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("""UPDATE organizations SET settings = settings || '{"paused": true}'""")
    assert (await apply(db, company())).outcome == "unchanged"
    await apply(db, company(organization={"name": "Outra"}))
    with psycopg.connect(dsn) as connection:
        assert connection.execute("SELECT settings -> 'paused', name FROM organizations").fetchone() == (True, "Outra")


async def test_the_file_decides_the_prompt_version(db: Database) -> None:
    assistant = {"slug": "atendimento", "prompt": "atendimento", "model": "scripted/demo"}
    await apply(db, company())
    applied = await apply(db, company(assistants=[assistant | {"prompt_version": "v2"}]))
    assert outcomes(applied)["assistant atendimento"] == "updated"
    assert (await read(db, "loja"))["assistants"][0]["prompt_version"] == "v2"


async def test_another_prompt_brings_its_own_version(db: Database) -> None:
    await apply(db, company())
    other = {"slug": "atendimento", "prompt": "vendas", "prompt_version": "v7", "model": "scripted/demo"}
    assert outcomes(await apply(db, company(assistants=[other])))["assistant atendimento"] == "updated"
    assert (await read(db, "loja"))["assistants"][0]["prompt_version"] == "v7"


async def test_an_account_of_another_organization_is_refused_and_nothing_is_changed(db: Database, dsn: str) -> None:
    await apply(db, company("one"))
    before = counts(dsn)
    taken = [{"kind": "whatsapp", "account": "1one", "assistant": "atendimento"}]
    with pytest.raises(RefusedError, match="whatsapp account 1one") as refused:
        await apply(db, company("two", channels=taken))
    assert refused.value.exit_code == 6
    assert counts(dsn) == before


async def test_two_organizations_that_claim_one_account_at_once_get_one_owner(db: Database, dsn: str) -> None:
    same = [{"kind": "whatsapp", "account": "100", "assistant": "atendimento"}]
    files = [company(slug, channels=same) for slug in ("one", "two", "three")]
    ended = await asyncio.gather(*(apply(db, file) for file in files), return_exceptions=True)
    assert sorted(type(each).__name__ for each in ended) == ["Applied", "RefusedError", "RefusedError"]
    assert counts(dsn) | {"assistants": 1, "departments": 2} == counts(dsn)
    assert counts(dsn)["channel_routes"] == 1


async def test_one_file_applied_twice_at_once_is_created_once(db: Database) -> None:
    ended = await asyncio.gather(apply(db, company()), apply(db, company()))
    assert sorted(each.outcome for each in ended) == ["created", "unchanged"]


async def test_what_nothing_refers_to_is_removed(db: Database, dsn: str) -> None:
    await apply(db, company())
    other = [{"slug": "vendas", "prompt": "vendas", "prompt_version": "v1", "model": "scripted/demo"}]
    applied = await apply(db, company(channels=[], departments=[], assistants=other))
    assert outcomes(applied) == {
        "organization loja": "unchanged",
        "assistant vendas": "created",
        "channel http:form-loja": "removed",
        "channel whatsapp:1loja": "removed",
        "assistant atendimento": "removed",
        "department Financeiro": "removed",
        "department Trocas e Devoluções": "removed",
    }
    assert applied.outcome == "updated"
    assert counts(dsn) | {"channel_accounts": 0, "channel_routes": 0, "departments": 0, "assistants": 1} == counts(dsn)


async def test_what_history_refers_to_is_kept_and_said(db: Database, dsn: str) -> None:
    await apply(db, company())
    contact, conversation = new_id(), new_id()
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute(
            "INSERT INTO contacts (organization_id, id, address) VALUES ('loja', %s, '5511900010000')", [contact]
        )
        connection.execute(
            "INSERT INTO conversations (organization_id, id, contact_id, channel, account, address, assistant)"
            " VALUES ('loja', %s, %s, 'whatsapp', '1loja', '5511900010000', 'atendimento')",
            [conversation, contact],
        )
        connection.execute(
            "INSERT INTO handoffs (organization_id, id, conversation_id, department_id, assignee, reason)"
            " SELECT 'loja', %s, %s, id, 'caixa', 'asked' FROM departments WHERE name = 'Financeiro'",
            [new_id(), conversation],
        )
    other = [{"slug": "vendas", "prompt": "vendas", "prompt_version": "v1", "model": "scripted/demo"}]
    applied = await apply(db, company(channels=[], departments=[], assistants=other))
    assert outcomes(applied) == {
        "organization loja": "unchanged",
        "assistant vendas": "created",
        "channel http:form-loja": "removed",
        "channel whatsapp:1loja": "kept",
        "assistant atendimento": "kept",
        "department Financeiro": "kept",
        "department Trocas e Devoluções": "removed",
    }
    assert all(change.why for change in applied.changes if change.change == "kept")
    assert counts(dsn)["channel_routes"] == 1


async def test_an_exported_file_applies_back_without_a_change(db: Database) -> None:
    hard = 'aspas " barra \\ linha\nnova \t tab \x7f emoji 👩\u200d🚀 {reference}'
    file = company(
        organization={"handoff_message": hard, "ack_after_s": 2.5, "monthly_budget_usd": "900"},
        priority_rules=[
            {
                "when": {
                    "account_type": "vip",
                    "field": {"tipo de\tpedido": hard, "a.b": "ç"},
                    "keywords": [hard, "avaria"],
                },
                "class": "urgent",
                "owner": "operacoes",
                "description": hard,
                "alert": "supervisor",
            }
        ],
    )
    await apply(db, file)
    text = await export(db, "loja")
    again = parse_organization(text, "export")
    assert (await apply(db, again)).outcome == "unchanged"
    assert again.organization == file.organization
    assert again.priority_rules == file.priority_rules
    assert set(again.channels) == set(file.channels)
    assert await export(db, "loja") == text


@pytest.mark.skipif(not EXAMPLE.is_file(), reason="no example organization in this checkout")
async def test_the_example_organization_round_trips(db: Database) -> None:
    file = load_organization(EXAMPLE)
    assert (await apply(db, file)).outcome == "created"
    again = parse_organization(await export(db, file.organization.slug), "export")
    assert (await apply(db, again)).outcome == "unchanged"


async def test_an_export_holds_the_published_prompt_version(db: Database, dsn: str) -> None:
    await apply(db, company())
    with psycopg.connect(dsn, autocommit=True) as connection:
        connection.execute("UPDATE assistants SET prompt_version = 'v9'")
    assert tomllib.loads(await export(db, "loja"))["assistants"][0]["prompt_version"] == "v9"


async def test_an_unknown_organization_is_not_found(db: Database) -> None:
    with pytest.raises(NotFoundError, match="nenhuma"):
        await read(db, "nenhuma")
    with pytest.raises(NotFoundError):
        await export(db, "nenhuma")


async def test_organizations_are_listed_with_their_sizes(db: Database) -> None:
    await apply(db, company("two"))
    await apply(db, company("one", channels=[]))
    rows = await list_organizations(db)
    assert [(row["organization"], row["assistants"], row["departments"], row["channels"]) for row in rows] == [
        ("one", 1, 2, 0),
        ("two", 1, 2, 2),
    ]


def test_written_toml_keeps_every_character() -> None:
    said = "".join(map(chr, [*range(1, 0x20), 0x22, 0x5C, 0x7F, 0x80, 0x2028, 0x1F600]))
    written = to_toml(
        {"organization": {"name": said}, "departments": [], "assistants": [], "channels": [], "priority_rules": []}
    )
    assert tomllib.loads(written) == {"organization": {"name": said}}
