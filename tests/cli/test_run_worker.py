"""``zaia run-worker`` as a real process."""

from __future__ import annotations

import json
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import Zaia
from tests.cli.processes import started

SLOW = '[[rules]]\ntext = "Demorei."\ndelay_s = 15\n'
FAST = {"ZAIA_TURN__COALESCE_S": "0", "ZAIA_QUEUE__POLL_S": "0.1", "WHATSAPP_TOKEN": "t", "INSTAGRAM_TOKEN": "t"}


@pytest.fixture
def asked(zaia: Zaia, workspace: Path, dsn: str) -> tuple[str, ...]:
    """The options of a workspace with one pending request; the http account sends nowhere."""
    common = ("--workspace", str(workspace), "--database-url", dsn)
    assert zaia("org", "apply", workspace / "fixtures" / "organizations" / "loja-exemplo.toml", *common).exit_code == 0
    request = json.dumps({"from": "ana@example.com", "text": "segredo da cliente"})
    assert zaia("ingest", "-", "--channel", "http", *common, input=request).exit_code == 0
    return common


def one(dsn: str, question: Any) -> Any:
    with psycopg.connect(dsn) as connection:
        row = connection.execute(question).fetchone()
        return row and row[0]


def wait_until(dsn: str, question: str, wanted: Any, process: subprocess.Popen[str]) -> None:
    ends_at = time.monotonic() + 20
    while one(dsn, question) != wanted:
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < ends_at
        time.sleep(0.02)


def test_drain_answers_what_is_there_and_ends(asked: tuple[str, ...], dsn: str) -> None:
    with started("run-worker", "--drain", "--json", *asked, env=FAST) as worker:
        answer, told = worker.communicate(timeout=40)
    assert worker.returncode == 0, told
    summary = json.loads(answer)
    assert (summary["turns"], summary["replies_sent"]) == (1, 1)
    assert summary["turns_by_outcome"] == {"succeeded": 1}
    assert summary["worker"] in told
    assert "segredo" not in told
    assert one(dsn, "SELECT state FROM work_items") == "completed"
    assert one(dsn, "SELECT count(*) FROM workers") == 0


def test_for_ends_an_idle_worker(asked: tuple[str, ...], dsn: str) -> None:
    with started("run-worker", "--for", "0.5", "--no-scheduler", "--concurrency", "1", *asked, env=FAST) as worker:
        _, told = worker.communicate(timeout=40)
    assert worker.returncode == 0, told
    assert "up to 1 turns" in told


@pytest.mark.parametrize("is_alone", [False, True])
def test_without_the_scheduler_nobody_takes_an_expired_lease_back(
    asked: tuple[str, ...], dsn: str, is_alone: bool
) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute("UPDATE hot SET token = gen_random_uuid(), lease_until = now() - interval '1 hour'")
    options = ("--no-scheduler",) if is_alone else ()
    with started("run-worker", "--for", "1", *options, *asked, env=FAST) as worker:
        _, told = worker.communicate(timeout=40)
    assert worker.returncode == 0, told
    assert one(dsn, "SELECT count(*) FROM hot WHERE token IS NOT NULL") == int(is_alone)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_drains_an_idle_worker(asked: tuple[str, ...], dsn: str, number: signal.Signals) -> None:
    with started("run-worker", "--json", *asked, env=FAST) as worker:
        wait_until(dsn, "SELECT state FROM work_items", "completed", worker)
        worker.send_signal(number)
        answer, told = worker.communicate(timeout=20)
    assert worker.returncode == 0, told
    assert json.loads(answer)["turns"] == 1
    assert one(dsn, "SELECT count(*) FROM hot WHERE token IS NOT NULL") == 0


def test_sigterm_gives_back_what_is_between_two_steps(asked: tuple[str, ...], dsn: str, workspace: Path) -> None:
    script = """
[[rules]]
tool = "search_knowledge"
args = { query = "x" }
delay_s = 1.5
repeat = 3

[[rules]]
text = "Pronto."
"""
    (workspace / "fixtures" / "scripts" / "demo.toml").write_text(script, encoding="utf-8")
    with started("run-worker", "--json", *asked, env=FAST) as worker:
        wait_until(dsn, "SELECT state FROM work_items", "processing", worker)
        worker.terminate()
        answer, told = worker.communicate(timeout=20)
    assert worker.returncode == 0, told
    assert json.loads(answer)["turns_by_outcome"] == {"yielded": 1}
    assert one(dsn, "SELECT state FROM work_items") == "pending"
    assert one(dsn, "SELECT attempts FROM work_items") == 0
    assert one(dsn, "SELECT count(*) FROM hot WHERE token IS NOT NULL") == 0
    (workspace / "fixtures" / "scripts" / "demo.toml").write_text('[[rules]]\ntext = "Pronto."\n', encoding="utf-8")
    with started("run-worker", "--drain", *asked, env=FAST) as other:
        assert other.wait(timeout=40) == 0
    assert one(dsn, "SELECT state FROM work_items") == "completed"


def test_a_second_sigint_ends_at_once(asked: tuple[str, ...], dsn: str, workspace: Path) -> None:
    (workspace / "fixtures" / "scripts" / "demo.toml").write_text(SLOW, encoding="utf-8")
    with started("run-worker", *asked, env=FAST) as worker:
        wait_until(dsn, "SELECT state FROM work_items", "processing", worker)
        worker.send_signal(signal.SIGINT)
        assert worker.stderr is not None
        assert any("stopping" in line for line in worker.stderr)
        begun = time.monotonic()
        worker.send_signal(signal.SIGINT)
        worker.communicate(timeout=20)
    assert worker.returncode == 130
    assert time.monotonic() - begun < 8


def test_litellm_is_not_imported_for_scripted_models(asked: tuple[str, ...]) -> None:
    with started("run-worker", "--drain", "-v", *asked, env={**FAST, "PYTHONVERBOSE": "1"}) as worker:
        _, told = worker.communicate(timeout=50)
    assert worker.returncode == 0
    assert "import 'zaia_cli.models.litellm_model'" in told
    assert "import 'litellm'" not in told


@pytest.mark.parametrize(
    ("setup", "env", "told"),
    [
        ("UPDATE organizations SET name = name", {"WHATSAPP_TOKEN": ""}, "WHATSAPP_TOKEN is not set"),
        ("UPDATE assistants SET model = 'openai/gpt-4o-mini'", {"OPENAI_API_KEY": ""}, "OPENAI_API_KEY"),
        ("UPDATE assistants SET prompt_version = 'v99'", {}, "v99"),
    ],
)
def test_a_worker_that_cannot_serve_refuses_before_it_claims(
    asked: tuple[str, ...], dsn: str, setup: Any, env: dict[str, str], told: str
) -> None:
    with psycopg.connect(dsn) as connection:
        connection.execute(setup)
    with started("run-worker", "--drain", *asked, env={**FAST, **env}) as worker:
        _, errors = worker.communicate(timeout=30)
    assert worker.returncode == 2, errors
    assert told in errors
    assert one(dsn, "SELECT count(*) FROM attempts") == 0


def test_a_worker_may_start_without_tokens_when_asked(asked: tuple[str, ...]) -> None:
    with started("run-worker", "--drain", "--without-tokens", *asked, env={**FAST, "WHATSAPP_TOKEN": ""}) as worker:
        _, errors = worker.communicate(timeout=30)
    assert worker.returncode == 0, errors


def test_a_database_that_does_not_answer_is_exit_5(workspace: Path) -> None:
    away = "postgresql://zaia@127.0.0.1:1/zaia?connect_timeout=1"
    with started("run-worker", "--json", "--workspace", workspace, "--database-url", away, env=FAST) as worker:
        answer, told = worker.communicate(timeout=40)
    assert worker.returncode == 5, told
    assert json.loads(answer)["error"]["kind"] == "database_unavailable"


def test_pending_migrations_are_exit_6_and_name_the_command(workspace: Path, empty_dsn: str) -> None:
    with started("run-worker", "--json", "--workspace", workspace, "--database-url", empty_dsn, env=FAST) as worker:
        answer, told = worker.communicate(timeout=40)
    assert worker.returncode == 6, told
    assert json.loads(answer)["error"]["kind"] == "not_migrated"
    assert "zaia db upgrade" in told
    assert one(empty_dsn, "SELECT to_regclass('work_items')") is None
