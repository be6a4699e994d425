"""Webhooks over real HTTP and a real database."""

from __future__ import annotations

import asyncio
import base64
import json
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from tests.engine.world import message, whatsapp
from tests.server.conftest import Client, Serve, company, sign
from zaia_cli.core.config import Config
from zaia_cli.server import accounts
from zaia_cli.store.database import Database
from zaia_cli.store.organizations import apply

CASES = Path(__file__).parents[2].parent / "shared" / "cases" / "channels"
STORED = ("receipts", "messages", "rejected_inputs", "work_items")


def case(name: str) -> dict[str, Any]:
    path = CASES / name
    if not path.is_file():
        pytest.skip("the shared cases are not here")
    return dict(json.loads(path.read_text("utf-8")))


async def stored(client: Client) -> list[int]:
    return [await client.count(table) for table in STORED]


def text(message_id: str, account: str = "100000000000001") -> dict[str, Any]:
    return whatsapp([message("Oi", message_id)], account)


async def test_without_a_database_the_channel_is_asked_to_deliver_again(serve: Serve) -> None:
    dead = "postgresql://zaia@127.0.0.1:1/zaia?connect_timeout=1"
    pool: Any = AsyncConnectionPool(
        dead,
        kwargs={"autocommit": True, "row_factory": dict_row},
        min_size=0,
        max_size=2,
        timeout=0.3,
        reconnect_timeout=0.1,
        open=False,
    )
    await pool.open()
    import time; t0=time.monotonic()
    async with Database(dead, pool) as away, serve(database=away) as client:
        status, answer, headers = await client.post(b"{}", "sha256=00")
        print('T', time.monotonic()-t0)
        assert (status, headers["retry-after"]) == (503, "5")
        print('T', time.monotonic()-t0)
        assert json.loads(answer)["error"]["kind"] == "database_unavailable"
        print('T', time.monotonic()-t0)
        assert (await client.get("/webhooks/whatsapp?hub.mode=subscribe"))[0] == 503
        print('T', time.monotonic()-t0)
        assert (await client.get("/healthz"))[0] == 200
        print('T', time.monotonic()-t0)
        assert (await client.get("/readyz"))[0] == 503
        print('T', time.monotonic()-t0)


    print('end', time.monotonic()-t0)
