"""``zaia org``: what it prints, its JSON and its exit codes."""

from __future__ import annotations

import json
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

FILE = """
[organization]
slug = "{slug}"
name = "Loja"
handoff_message = "Um instante"
human_assignee = "plantao"

[[assistants]]
slug = "atendimento"
prompt = "atendimento"
prompt_version = "v1"
model = "scripted/demo"

[[channels]]
kind = "whatsapp"
account = "{account}"
assistant = "atendimento"
token_env = "WHATSAPP_TOKEN"
"""

Zaia = Callable[..., Any]


@pytest.fixture
def organization(tmp_path: Path) -> Callable[..., Path]:
    def write(slug: str = "loja", account: str = "100", extra: str = "") -> Path:
        path = tmp_path / f"{slug}.toml"
        path.write_text(FILE.format(slug=slug, account=account) + extra, encoding="utf-8")
        return path

    return write


@pytest.fixture
def on(zaia: Zaia, workspace: Path, dsn: str) -> Zaia:
    return lambda *arguments: zaia(*arguments, "--workspace", workspace, "--database-url", dsn)


def test_apply_says_what_became_of_each_thing(on: Zaia, organization: Callable[..., Path]) -> None:
    first = on("org", "apply", organization(), "--json")
    assert first.exit_code == 0, first.output
    answer = json.loads(first.stdout)
    assert answer["schema_version"] == 1
    assert answer["organizations"][0]["organization"] == "loja"
    assert answer["organizations"][0]["outcome"] == "created"
    again = on("org", "apply", organization())
    assert again.exit_code == 0
    lines = [line.split("\t")[:3] for line in again.stdout.splitlines()]
    assert lines == [
        ["organization", "what", "change"],
        ["loja", "organization loja", "unchanged"],
        ["loja", "assistant atendimento", "unchanged"],
        ["loja", "channel whatsapp:100", "unchanged"],
    ]


def test_a_bad_file_among_good_ones_changes_nothing(on: Zaia, organization: Callable[..., Path]) -> None:
    good, bad = organization("good"), organization("bad", extra="\n[nonsense]\n")
    refused = on("org", "apply", good, bad, "--json")
    assert refused.exit_code == 2
    assert json.loads(refused.stdout)["error"]["kind"] == "configuration"
    assert json.loads(on("org", "list", "--json").stdout)["organizations"] == []


def test_an_account_of_another_organization_exits_6(on: Zaia, organization: Callable[..., Path]) -> None:
    assert on("org", "apply", organization("one")).exit_code == 0
    refused = on("org", "apply", organization("two"), "--json")
    assert refused.exit_code == 6
    error = json.loads(refused.stdout)["error"]
    assert error["kind"] == "channel_taken"
    assert "whatsapp account 100" in error["message"]
    assert error["hint"]


def test_export_prints_a_file_that_applies_back(on: Zaia, organization: Callable[..., Path], tmp_path: Path) -> None:
    on("org", "apply", organization())
    exported = on("org", "export", "loja")
    assert exported.exit_code == 0
    assert tomllib.loads(exported.stdout)["channels"][0]["account"] == "100"
    (tmp_path / "again.toml").write_text(exported.stdout, encoding="utf-8")
    again = on("org", "apply", tmp_path / "again.toml", "--json")
    assert json.loads(again.stdout)["organizations"][0]["outcome"] == "unchanged"


def test_list_and_show_read_back_what_was_applied(on: Zaia, organization: Callable[..., Path]) -> None:
    on("org", "apply", organization("one", "1"), organization("two", "2"))
    listed = on("org", "list")
    assert [line.split("\t")[0] for line in listed.stdout.splitlines()] == ["organization", "one", "two"]
    shown = json.loads(on("org", "show", "two", "--json").stdout)
    assert shown["organization"]["human_assignee"] == "plantao"
    assert shown["channels"][0]["token_env"] == "WHATSAPP_TOKEN"
    assert "channel\twhatsapp:2 -> atendimento" in on("org", "show", "two").stdout


@pytest.mark.parametrize("action", ["show", "export"])
def test_an_unknown_organization_exits_4(on: Zaia, action: str) -> None:
    missing = on("org", action, "nenhuma", "--json")
    assert missing.exit_code == 4
    assert json.loads(missing.stdout)["error"]["hint"] == "zaia org list"


def test_a_missing_file_exits_4(on: Zaia, tmp_path: Path) -> None:
    assert on("org", "apply", tmp_path / "nothing.toml").exit_code == 4


@pytest.mark.parametrize(
    ("before", "after", "told"),
    [
        ('prompt_version = "v1"', 'prompt_version = "v9"', "v9"),
        ('"close_conversation"', '"close_conversasion"', "close_conversation"),
    ],
)
def test_a_prompt_or_tool_that_does_not_exist_is_refused_and_nothing_is_changed(
    zaia: Zaia, workspace: Path, before: str, after: str, told: str
) -> None:
    file = workspace / "fixtures" / "organizations" / "loja-exemplo.toml"
    text = file.read_text("utf-8")
    assert before in text
    file.write_text(text.replace(before, after), "utf-8")
    refused = zaia("org", "apply", file, "--workspace", workspace)
    assert refused.exit_code == 2
    assert told in refused.stderr
    assert zaia("org", "list", "--workspace", workspace, "--json").stdout.count("loja-exemplo") == 0
