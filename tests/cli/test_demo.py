"""``zaia demo`` as a person types it: from an empty folder, without keys, twice."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from tests.cli.conftest import Zaia
from tests.cli.processes import started


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
