"""``zaia doctor``: what it finds, and the exit code by what is wrong."""

import json
from pathlib import Path
from typing import Any

import pytest

COMPANY = Path("fixtures/organizations/loja-exemplo.toml")


def states(document: dict[str, Any], name: str) -> list[str]:
    return [check["state"] for check in document["checks"] if check["name"] == name]


def edit(file: Path, old: str, new: str) -> None:
    text = file.read_text("utf-8")
    assert old in text
    file.write_text(text.replace(old, new), encoding="utf-8")


def test_a_fresh_workspace_is_well_without_any_key(zaia: Any, workspace: Path) -> None:
    done = zaia("doctor", "--workspace", workspace, "--json")
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["ok"] is True
    for name in ("configuration", "organization", "prompt", "model keys", "prices", "database", "migrations"):
        assert set(states(document, name)) == {"ok"}, name
    assert set(states(document, "channel keys")) == {"warning"}


def test_the_plain_answer_is_one_row_per_check(zaia: Any, workspace: Path) -> None:
    done = zaia("doctor", "--workspace", workspace)
    rows = [line.split("\t") for line in done.stdout.splitlines()]
    assert rows[0] == ["check", "state", "detail", "what to do"]
    assert {len(row) for row in rows} == {4}


def test_a_wrong_configuration_ends_with_2_and_names_the_key(zaia: Any, workspace: Path) -> None:
    (workspace / "zaia.toml").write_text("[turn]\ndeadline = 3\n", encoding="utf-8")
    done = zaia("doctor", "--workspace", workspace, "--json")
    assert done.exit_code == 2
    assert "turn.deadline" in json.loads(done.stdout)["error"]["message"]


def test_an_organization_and_a_prompt_that_are_wrong_end_with_2(zaia: Any, workspace: Path, dsn: str) -> None:
    edit(workspace / COMPANY, 'prompt_version = "v1"', 'prompt_version = "v9"')
    edit(workspace / "prompts/atendimento/v2.md", "{{ contact.name }}", "{{ contact.nme }}")
    (workspace / "fixtures/organizations/other.toml").write_text("[organization]\n", encoding="utf-8")
    done = zaia("doctor", "--workspace", workspace, "--json", "--database-url", dsn)
    document = json.loads(done.stdout)
    assert done.exit_code == 2
    assert sorted(states(document, "organization")) == ["failed", "ok"]
    details = [check["detail"] for check in document["checks"] if check["name"] == "prompt"]
    assert any("there is no prompt atendimento/v9" in detail for detail in details)
    assert any("variable 'nme' is not defined" in detail for detail in details)


def test_a_missing_key_of_a_real_model_ends_with_2(
    zaia: Any, workspace: Path, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    edit(workspace / COMPANY, '"scripted/demo"', '"openai/gpt-4o-mini"')
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    arguments = ("doctor", "--workspace", workspace, "--json", "--database-url", dsn)
    missing = zaia(*arguments)
    assert missing.exit_code == 2
    assert "OPENAI_API_KEY" in json.loads(missing.stdout)["error"]["message"]
    monkeypatch.setenv("OPENAI_API_KEY", "very-secret")
    present = zaia(*arguments)
    assert present.exit_code == 0
    assert "very-secret" not in present.output


def test_a_secret_in_place_of_a_variable_name_is_found_and_not_repeated(zaia: Any, workspace: Path, dsn: str) -> None:
    edit(workspace / COMPANY, '"WHATSAPP_TOKEN"', '"EAAB.very-secret"')
    done = zaia("doctor", "--workspace", workspace, "--json", "--database-url", dsn)
    assert done.exit_code == 2
    assert "very-secret" not in done.output


def test_an_unpriced_model_is_a_warning(zaia: Any, workspace: Path, dsn: str) -> None:
    edit(workspace / COMPANY, '"scripted/demo"', '"nowhere/unknown-model"')
    done = zaia("doctor", "--workspace", workspace, "--json", "--database-url", dsn)
    assert done.exit_code == 0
    assert states(json.loads(done.stdout), "prices") == ["warning"]
    assert states(json.loads(done.stdout), "model keys") == ["warning"]


def test_a_database_that_is_away_ends_with_5(zaia: Any, workspace: Path) -> None:
    url = "postgresql://zaia:very-secret@127.0.0.1:1/zaia"
    done = zaia("doctor", "--workspace", workspace, "--json", "--database-url", url)
    assert done.exit_code == 5
    assert states(json.loads(done.stdout), "database") == ["failed"]
    assert "very-secret" not in done.output


def test_configuration_comes_before_the_database_in_the_exit_code(zaia: Any, workspace: Path) -> None:
    edit(workspace / COMPANY, "slug", "slag")
    done = zaia("doctor", "--workspace", workspace, "--database-url", "postgresql://zaia@127.0.0.1:1/zaia")
    assert done.exit_code == 2


def test_an_external_database_that_is_not_migrated_ends_with_6(zaia: Any, workspace: Path, empty_dsn: str) -> None:
    done = zaia("doctor", "--workspace", workspace, "--json", "--database-url", empty_dsn)
    assert done.exit_code == 6
    assert "zaia db upgrade" in json.loads(done.stdout)["error"]["hint"]
