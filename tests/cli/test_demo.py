"""``zaia demo`` as a person types it: from an empty folder, without keys, twice."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import Any

import pytest

from tests.cli.conftest import Zaia
from tests.cli.processes import started
from zaia_cli.cli.demo import _problems
from zaia_cli.cli.demo_stage import Stage


def typed(line: str, folder: Path) -> subprocess.CompletedProcess[str]:
    with started(*shlex.split(line), cwd=folder) as process:
        stdout, stderr = process.communicate(timeout=50)
    return subprocess.CompletedProcess(line, process.returncode, stdout, stderr)


@pytest.mark.slow
def test_demo_runs_twice_from_an_empty_folder_and_its_commands_work(tmp_path: Path) -> None:
    folder = tmp_path / "empty"
    for run in (1, 2):
        done = typed("demo", folder)
        assert done.returncode == 0, done.stderr
        rows = [line.split("\t") for line in done.stdout.splitlines() if "\t" in line]
        assert [(row[0], row[2], row[3]) for row in rows[1:]] == [
            ("ana", "3", "1"),
            ("bruno", "1", "1"),
            ("carla", "1", "1"),
            ("davi", "1", "1"),
            ("elisa", "1", "1"),
        ], run
        assert [row[6] for row in rows[1:]] == ["agent", "human", "human", "agent", "agent"]
    assert list(folder.iterdir()) == []
    commands = re.findall(r"^  .*?((?:replay|trace|human|queue|cost-report) .*)$", done.stdout, re.MULTILINE)
    assert len(commands) == 5
    for line in commands:
        shown = typed(line, folder)
        assert shown.returncode == 0, (line, shown.stderr)
        assert shown.stdout


@pytest.mark.slow
def test_demo_answers_with_json_twice_in_a_workspace_made_by_init(tmp_path: Path) -> None:
    folder = tmp_path / "new"
    assert typed(f"init {shlex.quote(str(folder))}", tmp_path).returncode == 0
    customers: set[str] = set()
    for _ in (1, 2):
        done = typed("demo --json", folder)
        assert done.returncode == 0, done.stderr
        document = json.loads(done.stdout)
        assert document["schema_version"] == 1
        assert document["workspace"] == str(folder)
        assert document["problems"] == []
        rows = document["conversations"]
        assert [(row["customer"], row["replies"], row["sent"]) for row in rows] == [
            (name, 1, 1) for name in ("ana", "bruno", "carla", "davi", "elisa")
        ]
        assert rows[0]["messages"] == 3
        customers |= {row["conversation"] for row in rows}
    assert len(customers) == 10
    counted = json.loads(typed("queue stats --json", folder).stdout)
    assert (counted["pending"], counted["processing"], counted["replies"]["unknown"]) == (0, 0, 0)
    assert counted["human_open"] == 4


def test_a_second_copy_at_the_stand_in_is_a_failed_check(
    zaia: Zaia, workspace: Path, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    truth = Stage.sends
    monkeypatch.setattr(Stage, "sends", lambda stage, role: truth(stage, role) * (2 if role == "ana" else 1))
    done = zaia("demo", "--json", "--workspace", workspace, "--database-url", dsn)
    assert done.exit_code == 3
    assert "ana: 1 replies in the database, 2 sent" in done.output
    assert "check_failed" in done.stdout


def told(customer: str, **different: Any) -> dict[str, Any]:
    quoted = "Oi! | Vocês entregam no sábado? | É para o CEP 01310-100."
    owner = "human" if customer in ("bruno", "carla") else "agent"
    row = {"customer": customer, "messages": 3, "replies": 1, "sent": 1, "owner": owner, "said": quoted}
    return row | different


@pytest.mark.parametrize(
    ("position", "different", "problem"),
    [
        (0, {"sent": 0}, "ana: 1 replies in the database, 0 sent"),
        (3, {"replies": 2}, "davi: 2 replies in the database, 1 sent"),
        (0, {"messages": 5}, "ana: the answer does not quote her three messages"),
        (0, {"said": "Oi!"}, "ana: the answer does not quote her three messages: Oi!"),
        (1, {"owner": "agent"}, "bruno: the owner is agent"),
        (2, {"owner": "agent"}, "carla: the owner is agent"),
        (4, {"owner": "human"}, "elisa: the owner is human"),
    ],
)
def test_each_disagreement_is_named(position: int, different: dict[str, Any], problem: str) -> None:
    rows = [told(name) for name in ("ana", "bruno", "carla", "davi", "elisa")]
    assert _problems(rows) == []
    rows[position] |= different
    [found] = _problems(rows)
    assert found.startswith(problem)


def test_demo_answers_with_json_and_leaves_the_environment_alone(zaia: Zaia, workspace: Path, dsn: str) -> None:
    before = dict(os.environ)
    done = zaia("demo", "--json", "--workspace", workspace, "--database-url", dsn)
    assert done.exit_code == 0, done.output
    document = json.loads(done.stdout)
    assert document["problems"] == []
    assert [row["replies"] for row in document["conversations"]] == [1, 1, 1, 1, 1]
    assert dict(os.environ) == before


def test_demo_is_refused_where_its_worker_would_answer_real_customers(zaia: Zaia, workspace: Path, dsn: str) -> None:
    common = ("--workspace", workspace, "--database-url", dsn)
    assert zaia("org", "apply", workspace / "fixtures" / "organizations" / "loja-exemplo.toml", *common).exit_code == 0
    request = json.dumps({"from": "ana@example.com", "text": "Oi"})
    assert zaia("ingest", "-", "--channel", "http", *common, input=request).exit_code == 0
    done = zaia("demo", "--json", *common)
    assert done.exit_code == 6
    assert json.loads(done.stdout)["error"]["kind"] == "refused"
