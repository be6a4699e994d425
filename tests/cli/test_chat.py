"""``zaia chat``: the console through the same engine, with a pipe."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Zaia


@pytest.fixture
def chat(zaia: Zaia, workspace: Path, dsn: str) -> Any:
    """Talk through a pipe in a workspace with the example company."""
    common = ("--workspace", workspace, "--database-url", dsn)
    assert zaia("org", "apply", workspace / "fixtures" / "organizations" / "loja-exemplo.toml", *common).exit_code == 0
    return lambda text, *options: zaia("chat", *options, *common, input=text)


def test_each_line_waits_for_its_answer(chat: Any) -> None:
    done = chat("Oi\n\nTudo bem?\n")
    assert done.exit_code == 0, done.output
    first, second = done.stdout.splitlines()
    assert "Oi" in first
    assert "Tudo bem?" in second
    assert "Oi" not in second


def test_the_same_line_twice_is_two_questions(chat: Any) -> None:
    done = chat("Oi\nOi\n", "--json")
    exchanges = json.loads(done.stdout)["exchanges"]
    assert [len(exchange["replies"]) for exchange in exchanges] == [1, 1]
    assert exchanges[0]["reference"] != exchanges[1]["reference"]


def test_a_handoff_is_shown_and_what_follows_is_kept_for_the_person(
    chat: Any, zaia: Zaia, workspace: Path, dsn: str
) -> None:
    done = chat("Quero falar com uma pessoa\nAlguém?\n")
    assert done.stdout.splitlines() == ["Vou te passar para uma pessoa do nosso time. Só um instante!"]
    assert "a person takes over" in done.stderr
    assert "kept for them" in done.stderr
    address = done.stderr.partition(" of ")[0]
    told = zaia("replay", address, "--json", "--workspace", workspace, "--database-url", dsn)
    story = json.loads(told.stdout)
    assert story["conversation"]["owner"] == "human"
    assert [m["text"] for m in story["messages"] if m["role"] == "customer"] == [
        "Quero falar com uma pessoa",
        "Alguém?",
    ]


def test_no_input_ends_at_once(chat: Any) -> None:
    done = chat("", "--json")
    assert done.exit_code == 0
    assert json.loads(done.stdout)["exchanges"] == []


def test_an_assistant_without_a_console_gets_one(chat: Any, zaia: Zaia, workspace: Path, dsn: str) -> None:
    file = workspace / "fixtures" / "organizations" / "loja-exemplo.toml"
    second = (
        '[[assistants]]\nslug = "vendas"\nprompt = "atendimento"\nprompt_version = "v1"\nmodel = "scripted/echo"\n\n'
    )
    text = file.read_text("utf-8").replace("[[channels]]", second + "[[channels]]", 1)
    file.write_text(text, encoding="utf-8")
    assert zaia("org", "apply", file, "--workspace", workspace, "--database-url", dsn).exit_code == 0
    for _ in range(2):
        done = chat("Oi\n", "--assistant", "vendas")
        assert done.stdout == "Você escreveu: Oi\n"
    shown = zaia("org", "show", "loja-exemplo", "--json", "--workspace", workspace, "--database-url", dsn)
    assert shown.stdout.count("loja-exemplo-vendas") == 1


def test_what_is_not_there_is_told_with_what_is(chat: Any, zaia: Zaia, workspace: Path, dsn: str) -> None:
    assert chat("Oi\n", "--assistant", "ninguem").exit_code == 4
    assert chat("Oi\n", "--org", "ninguem").exit_code == 4


def test_without_an_organization_the_next_command_is_named(zaia: Zaia, workspace: Path, dsn: str) -> None:
    done = zaia("chat", "--workspace", workspace, "--database-url", dsn, input="Oi\n")
    assert done.exit_code == 4
    assert "zaia org apply" in done.stderr
