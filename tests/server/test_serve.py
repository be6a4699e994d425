"""``zaia serve`` as a real process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@contextmanager
def served(dsn: str, tmp_path: Path, *arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [
        sys.executable,
        "-m",
        "zaia_cli",
        "serve",
        "--port",
        "0",
        "--database-url",
        dsn,
        "--workspace",
        str(ROOT),
    ]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=tmp_path, env=environment
    ) as process:
        try:
            assert process.stdout is not None
            yield process, process.stdout.readline()
        finally:
            process.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_serve_answers_until_it_is_told_to_stop(dsn: str, tmp_path: Path, number: signal.Signals) -> None:
    with served(dsn, tmp_path) as (process, first):
        url = first.strip()
        with urllib.request.urlopen(f"{url}/readyz", timeout=10) as answer:
            assert json.load(answer) == {"ready": True}
        process.send_signal(number)
        _, told = process.communicate(timeout=20)
    assert process.returncode == 0, told
    assert told.rstrip().endswith("stopped")


def test_json_names_the_address_and_insecure_is_said_aloud(dsn: str, tmp_path: Path) -> None:
    with served(dsn, tmp_path, "--json", "--insecure") as (process, first):
        assert json.loads(first)["url"].startswith("http://127.0.0.1:")
        process.terminate()
        _, told = process.communicate(timeout=20)
    assert process.returncode == 0
    assert "insecure: accounts without a secret are accepted from anybody" in told
