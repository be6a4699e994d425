"""``zaia sim``: the stand-ins as real processes, and the engine against them."""

from __future__ import annotations

import hashlib
import hmac
import json
import signal
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from queue import Queue
from threading import Thread
from typing import Any

import psycopg
import pytest

from tests.cli.conftest import Zaia
from tests.cli.processes import started
from tests.engine.world import message, whatsapp


def fetch(url: str, body: Any = None) -> Any:
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(url, data, {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=10) as answer:
        return json.load(answer)


def test_the_model_stand_in_plays_a_script_of_the_workspace_until_it_is_stopped(workspace: Path) -> None:
    with started("sim", "model", "--script", "echo", "--workspace", workspace) as sim:
        assert sim.stdout is not None
        url = sim.stdout.readline().strip()
        question = {"model": "any", "messages": [{"role": "user", "content": "Oi"}]}
        answer = fetch(f"{url}/v1/chat/completions", question)
        assert "Oi" in answer["choices"][0]["message"]["content"]
        sim.send_signal(signal.SIGTERM)
        assert sim.wait(timeout=20) == 0


def test_the_model_stand_in_plays_a_file(tmp_path: Path) -> None:
    script = tmp_path / "own.toml"
    script.write_text('[[rules]]\ntext = "de um arquivo"\n', encoding="utf-8")
    with started("sim", "model", "--script", script, "--json") as sim:
        assert sim.stdout is not None
        url = json.loads(sim.stdout.readline())["url"]
        answer = fetch(f"{url}/chat/completions", {"model": "any", "messages": [{"role": "user", "content": "Oi"}]})
        assert answer["choices"][0]["message"]["content"] == "de um arquivo"


def test_a_script_that_is_not_there_is_a_configuration_error(zaia: Zaia, workspace: Path) -> None:
    done = zaia("sim", "model", "--script", "nothing", "--workspace", workspace)
    assert done.exit_code == 2
    assert "echo" in done.stderr


def test_a_secret_that_is_not_set_is_a_configuration_error(zaia: Zaia) -> None:
    done = zaia("sim", "whatsapp", "--app-secret-env", "NOT_SET_ANYWHERE")
    assert done.exit_code == 2
    assert "NOT_SET_ANYWHERE" in done.stderr


@contextmanager
def receiver() -> Iterator[tuple[str, Queue[tuple[str, str, bytes]]]]:
    """A webhook that keeps path, signature and body of what it is told."""
    told: Queue[tuple[str, str, bytes]] = Queue()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            told.put((self.path, self.headers.get("X-Hub-Signature-256", ""), body))
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, format: str, *args: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        serving = Thread(target=server.serve_forever)
        serving.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}", told
        finally:
            server.shutdown()
            serving.join()


def test_the_graph_stand_in_posts_signed_statuses_of_what_it_accepted_until_it_is_stopped() -> None:
    secret = {"SIM_SECRET": "segredo"}
    with (
        receiver() as (webhook, told),
        started("sim", "whatsapp", "--webhook-url", webhook, "--app-secret-env", "SIM_SECRET", env=secret) as sim,
    ):
        assert sim.stdout is not None
        graph = sim.stdout.readline().strip()
        fetch(f"{graph}/_sim/plan", {"nth": 1, "statuses": ["sent", "failed"]})
        send = {"messaging_product": "whatsapp", "to": "5511900010000", "text": {"body": "Oi"}}
        accepted = fetch(f"{graph}/v23.0/100000000000001/messages", send | {"biz_opaque_callback_data": "ours"})
        statuses = []
        for path, signature, body in (told.get(timeout=10), told.get(timeout=10)):
            assert path == "/webhooks/whatsapp"
            assert signature == "sha256=" + hmac.new(b"segredo", body, hashlib.sha256).hexdigest()
            [status] = json.loads(body)["entry"][0]["changes"][0]["value"]["statuses"]
            assert status["id"] == accepted["messages"][0]["id"]
            assert status["biz_opaque_callback_data"] == "ours"
            statuses.append(status["status"])
        assert statuses == ["sent", "failed"]
        sim.send_signal(signal.SIGTERM)
        assert sim.wait(timeout=20) == 0


def test_what_the_worker_sends_arrives_at_the_graph_stand_in_and_its_status_comes_back(
    zaia: Zaia, workspace: Path, dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    common = ("--workspace", str(workspace), "--database-url", dsn)
    for name in ("WHATSAPP_TOKEN", "WHATSAPP_APP_SECRET", "WHATSAPP_VERIFY_TOKEN"):
        monkeypatch.setenv(name, "segredo")
    with started("serve", "--port", "0", *common) as server:
        assert server.stdout is not None
        served = server.stdout.readline().strip()
        with started("sim", "whatsapp", "--webhook-url", served, "--app-secret-env", "WHATSAPP_APP_SECRET") as sim:
            assert sim.stdout is not None
            graph = sim.stdout.readline().strip()
            file = workspace / "fixtures" / "organizations" / "loja-exemplo.toml"
            file.write_text(file.read_text("utf-8").replace("https://graph.facebook.com", graph), encoding="utf-8")
            assert zaia("org", "apply", file, *common).exit_code == 0
            payload = json.dumps(whatsapp([message("Oi", "wamid.1")]))
            assert zaia("ingest", "-", "--channel", "whatsapp", *common, input=payload).exit_code == 0
            assert (
                zaia(
                    "run-worker",
                    "--drain",
                    *common,
                    env={"ZAIA_TURN__COALESCE_S": "0", "WHATSAPP_TOKEN": "t", "INSTAGRAM_TOKEN": "t"},
                ).exit_code
                == 0
            )
            [send] = fetch(f"{graph}/_sim/sends")["sends"]
            assert (send["to"], send["outcome"]) == ("5511900010000", "accepted")
            with psycopg.connect(dsn, autocommit=True) as connection:
                for _ in range(500):
                    row = connection.execute("SELECT state FROM parts").fetchone()
                    if row in (("delivered",), ("read",)):
                        break
                    connection.execute("SELECT pg_sleep(0.02)")
                assert row in (("delivered",), ("read",))
