"""Health and metrics over real HTTP."""

from __future__ import annotations

import psycopg
import pytest

from tests.engine.world import message, whatsapp
from tests.server.conftest import Client, Serve
from zaia_cli.store import migrate
from zaia_cli.store.database import Database


async def test_a_served_and_migrated_database_is_ready(client: Client) -> None:
    assert (await client.get("/healthz"))[0] == 200
    assert (await client.get("/readyz"))[0] == 200


async def test_a_database_without_tables_is_not_ready(serve: Serve, empty_dsn: str) -> None:
    async with await Database.open(empty_dsn) as empty, serve(database=empty) as client:
        status, answer, _ = await client.get("/readyz")
        assert status == 503
        assert "no tables" in answer


async def test_a_database_that_waits_for_migrations_or_is_newer_is_not_ready(
    serve: Serve, empty_dsn: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    migrate.upgrade(empty_dsn)
    head = migrate.status(empty_dsn).head
    async with await Database.open(empty_dsn) as database, serve(database=database) as client:
        assert (await client.get("/readyz"))[0] == 200
        with monkeypatch.context() as later:
            later.setattr(migrate, "_read_chain", lambda: (head, "next"))
            status, answer, _ = await client.get("/readyz")
        assert (status, "not_migrated" in answer) == (503, True)
        with psycopg.connect(empty_dsn) as connection:
            connection.execute("UPDATE alembic_version SET version_num = 'from_the_future'")
        status, answer, _ = await client.get("/readyz")
        assert (status, "database_ahead" in answer) == (503, True)
        assert (await client.get("/healthz"))[0] == 200


async def test_metrics_count_what_is_in_the_database(client: Client) -> None:
    before = (await client.get("/metrics"))[1]
    assert 'zaia_work_items{state="pending"} 0\n' in before
    assert await client.deliver(whatsapp([message("Oi", "wamid.1"), message("Oi", "wamid.2", "5511900020000")])) == 200
    assert await client.deliver(whatsapp([message("Oi", "wamid.3")], "999")) == 200
    status, text, headers = await client.get("/metrics")
    assert status == 200
    assert headers["content-type"].startswith("text/plain; version=0.0.4")
    assert 'zaia_work_items{state="pending"} 2\n' in text
    assert 'zaia_reply_parts{state="unknown"} 0\n' in text
    assert "zaia_rejected_inputs 1\n" in text
    for line in text.splitlines():
        assert line.startswith("# ") or float(line.rpartition(" ")[2]) >= 0


async def test_other_methods_and_paths_are_refused(client: Client) -> None:
    assert (await client.get("/nothing"))[0] == 404
    async with client.session.delete(f"{client.url}/webhooks/whatsapp") as answer:
        assert answer.status == 405
