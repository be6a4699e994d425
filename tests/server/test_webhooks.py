"""Webhooks over real HTTP and a real database."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from pathlib import Path
from typing import Any

import aiohttp
import psycopg
import pytest
from psycopg.rows import dict_row
from psycopg_pool import AsyncConnectionPool

from tests.engine.cases import shifted
from tests.engine.world import message, whatsapp
from tests.server.conftest import Client, Serve, company, sign
from tests.server.odd import with_odd_values
from zaia_cli.core.config import Config
from zaia_cli.server import accounts
from zaia_cli.store.database import Database
from zaia_cli.store.organizations import apply

CASES = Path(__file__).parents[2].parent / "shared" / "cases" / "channels"
CASE_NOW = 1_790_000_000
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


async def test_signature_is_over_the_bytes_received(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    found = case("012_signature_raw_bytes_unicode.json")
    monkeypatch.setenv("SECRET_A", found["input"]["app_secret"])
    answers = [
        await client.post(base64.b64decode(each["body_b64"]), each.get("X-Hub-Signature-256"))
        for each in found["input"]["requests"]
    ]
    statuses = [status for status, _, _ in answers]
    assert [status == 200 for status in statuses] == found["expected"]["accepted"]
    assert {status for status in statuses if status != 200} == {found["expected"]["rejected_http"]}
    assert await client.count("receipts") == 2
    assert await client.count("rejected_inputs") == 0


async def test_a_refused_payload_leaves_no_row(client: Client) -> None:
    body = json.dumps(text("wamid.1")).encode()
    for signature in (None, "", "sha256=", "sha256=00", sign(body, "wrong"), sign(body + b" ", "secret-a")):
        assert (await client.post(body, signature))[0] == 401
    assert await stored(client) == [0, 0, 0, 0]


async def test_challenge_is_answered_as_plain_text(client: Client) -> None:
    found = case("013_hub_challenge.json")
    for request, wanted in zip(found["input"]["requests"], found["expected"]["responses"], strict=True):
        query = request.partition("?")[2]
        async with client.session.get(f"{client.url}/webhooks/whatsapp?{query}") as answer:
            assert answer.status == wanted["http"]
            if wanted["http"] == 200:
                assert await answer.text() == wanted["body"]
                assert answer.headers["content-type"] == wanted["content_type"]


@pytest.mark.parametrize(
    "query",
    [
        "",
        "hub.mode=subscribe",
        "hub.mode=subscribe&hub.verify_token=&hub.challenge=1",
        "hub.mode=subscribe&hub.verify_token=%00%ff%C3%A9&hub.challenge=1",
        "hub.mode=%ED%A0%80&hub.verify_token=vt-123",
    ],
)
async def test_challenge_without_token_is_refused(client: Client, query: str) -> None:
    assert (await client.get(f"/webhooks/instagram?{query}"))[0] == 403


async def test_a_body_that_is_too_large_is_refused_before_it_is_read(client: Client, serve: Serve) -> None:
    config = Config.model_validate({"intake": {"max_body_bytes": 1000}})

    async def endless() -> Any:
        for _ in range(100):
            yield b"x" * 500

    async with serve(config) as small:
        assert (await small.post(b"x" * 1001, None))[0] == 413
        try:
            async with small.session.post(f"{small.url}/webhooks/whatsapp", data=endless()) as answer:
                assert answer.status == 413
        except aiohttp.ClientError:
            pass  # the server closed the connection while the rest was still being sent
        body = json.dumps(text("wamid.1")).encode()
        assert await small.deliver(body) == 200


async def test_too_many_items_are_refused(client: Client, serve: Serve) -> None:
    async with serve(Config.model_validate({"intake": {"max_items": 2}})) as small:
        three = whatsapp([message("Oi", f"wamid.{n}") for n in range(3)])
        assert await small.deliver(three) == 413
    assert await stored(client) == [0, 0, 0, 0]


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"{",
        b"not json",
        b"\xff\xfe\xfa",
        b'{"a": NaN}',
        b'{"a": 1e999}',
        b"[" * 100_000,
        b"[" * 100 + b"]" * 100,
        b'{"a": ' + b"9" * 5000 + b"}",
    ],
    ids=["empty", "cut", "words", "bytes", "nan", "infinite", "very deep", "deep", "long number"],
)
async def test_what_is_not_json_is_refused_and_recorded_nowhere(client: Client, body: bytes) -> None:
    assert await client.deliver(body) == 400
    assert await stored(client) == [0, 0, 0, 0]


@pytest.mark.parametrize("body", [b"null", b"[]", b"{}", b'"x"', b"17", b'{"object": "page", "entry": 4}'])
async def test_json_of_another_shape_is_never_an_internal_error(client: Client, body: bytes) -> None:
    for channel in ("whatsapp", "instagram"):
        assert await client.deliver(body, channel=channel) == 200
    assert await client.count("messages") == 0


def whatsapp_payload(n: int) -> dict[str, Any]:
    status = {"id": f"wamid.OUT{n}", "status": "delivered", "timestamp": "1790000000", "recipient_id": "5511900010000"}
    payload = text(f"wamid.{n}")
    payload["entry"][0]["changes"][0]["value"]["statuses"] = [status]
    return payload


def instagram_payload(n: int) -> dict[str, Any]:
    event = {
        "sender": {"id": "900000000000001"},
        "recipient": {"id": "178100000000000001"},
        "timestamp": 1_790_000_000_000,
        "message": {"mid": f"mid.{n}", "text": "Oi"},
    }
    return {"object": "instagram", "entry": [{"id": "178100000000000001", "time": 1, "messaging": [event]}]}


@pytest.mark.parametrize(("channel", "make"), [("whatsapp", whatsapp_payload), ("instagram", instagram_payload)])
async def test_an_odd_value_at_any_place_is_never_an_internal_error(client: Client, channel: str, make: Any) -> None:
    answers = [(path, await client.deliver(payload, channel=channel)) for path, payload in with_odd_values(make)]
    assert [(path, status) for path, status in answers if status != 200] == []
    kept = await client.count("messages")
    assert await client.deliver(make(len(answers) + 1), channel=channel) == 200
    assert await client.count("messages") == kept + 1


async def test_text_that_postgres_cannot_hold_is_taken_in_all_the_same(client: Client) -> None:
    payload = whatsapp([message("nul \0 and half a pair \ud83d", "wamid.1")])
    assert await client.deliver(payload) == 200
    assert await client.count("messages") == 1


async def test_one_webhook_delivered_many_times_at_once_is_one_message(client: Client) -> None:
    answers = await asyncio.gather(*(client.deliver(text("wamid.1")) for _ in range(10)))
    assert answers == [200] * 10
    assert await client.count("messages") == 1
    assert await client.count("work_items") == 1
    async with client.db.transaction() as session:
        assert (await session.execute("SELECT repeats FROM receipts"))[0]["repeats"] == 9


async def test_a_company_cannot_deliver_for_another(client: Client) -> None:
    mixed = text("wamid.1")
    mixed["entry"] += text("wamid.2", "100000000000002")["entry"]
    assert await client.deliver(text("wamid.2", "100000000000002"), "secret-a") == 401
    assert await client.deliver(mixed, "secret-a") == 401
    assert await stored(client) == [0, 0, 0, 0]
    assert await client.deliver(text("wamid.2", "100000000000002"), "secret-b") == 200


async def test_a_variable_may_hold_an_old_and_a_new_secret(client: Client) -> None:
    assert await client.deliver(text("wamid.1", "100000000000002"), "secret-b-old") == 200
    assert await client.deliver(text("wamid.2", "100000000000002"), "secret-b") == 200


async def test_companies_that_share_an_app_may_share_a_payload(client: Client) -> None:
    await apply(client.db, company("loja-c", "100000000000003", "SECRET_A"))
    mixed = text("wamid.1")
    mixed["entry"] += text("wamid.2", "100000000000003")["entry"]
    assert await client.deliver(mixed) == 200
    assert await client.count("messages") == 2


async def test_an_account_that_nobody_has_is_kept_as_rejected(client: Client) -> None:
    assert await client.deliver(text("wamid.1", "999")) == 200
    assert await stored(client) == [0, 0, 1, 0]


async def test_a_change_of_the_organization_file_is_seen(
    client: Client, serve: Serve, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(accounts, "MAX_AGE_S", 0.0)
    async with serve() as fresh:
        assert await fresh.deliver(text("wamid.1"), "secret-b") == 401
        await apply(client.db, company("loja-a", "100000000000001", "SECRET_B"))
        assert await fresh.deliver(text("wamid.1"), "secret-b") == 200


async def test_an_account_without_a_secret_is_refused_unless_insecure(client: Client, serve: Serve) -> None:
    await apply(client.db, company("loja-d", "100000000000004", ""))
    open_body = json.dumps(text("wamid.1", "100000000000004")).encode()
    closed_body = json.dumps(text("wamid.2")).encode()
    async with serve() as strict:
        assert (await strict.post(open_body, None))[0] == 401
        assert (await strict.post(open_body, sign(open_body, "")))[0] == 401
    async with serve(is_insecure=True) as insecure:
        assert (await insecure.post(open_body, None))[0] == 200
        assert (await insecure.post(closed_body, None))[0] == 401
    assert await client.count("messages") == 1


async def test_an_account_whose_variable_is_not_set_is_refused(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("SECRET_A")
    body = json.dumps(text("wamid.1")).encode()
    assert (await client.post(body, sign(body, "")))[0] == 401


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
    async with Database(dead, pool) as away, serve(database=away) as client:
        (status, answer, headers), challenged = await asyncio.gather(
            client.post(b"{}", "sha256=00"), client.get("/webhooks/whatsapp?hub.mode=subscribe")
        )
        assert (status, headers["retry-after"]) == (503, "5")
        assert json.loads(answer)["error"]["kind"] == "database_unavailable"
        assert challenged[0] == 503
        assert (await client.get("/healthz"))[0] == 200
        assert (await client.get("/readyz"))[0] == 503


async def blocked_process(watcher: psycopg.AsyncConnection[Any]) -> int:
    question = "SELECT pid FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
    for _ in range(1000):
        if rows := await (await watcher.execute(question)).fetchall():
            return int(rows[0][0])
        await asyncio.sleep(0.01)
    raise AssertionError("nothing waits for the lock")


async def test_200_comes_only_after_the_commit(client: Client, dsn: str) -> None:
    steps = case("018_ack_only_after_commit.json")["input"]["steps"]
    first, again = (shifted(steps[n]["body"], int(time.time()) - CASE_NOW) for n in (0, 2))
    async with await psycopg.AsyncConnection.connect(dsn) as blocker:
        await blocker.execute("LOCK TABLE messages IN ACCESS EXCLUSIVE MODE")
        delivering = asyncio.create_task(client.deliver(first))
        async with await psycopg.AsyncConnection.connect(dsn, autocommit=True) as watcher:
            blocked = await blocked_process(watcher)
            assert not delivering.done()
            await watcher.execute("SELECT pg_terminate_backend(%s)", [blocked])
        assert await delivering == 503
        await blocker.rollback()
    assert await stored(client) == [0, 0, 0, 0]
    for repeats in range(2):
        assert await client.deliver(again) == 200
        assert await client.count("messages") == 1
        async with client.db.transaction() as session:
            assert (await session.execute("SELECT repeats FROM receipts"))[0]["repeats"] == repeats
    assert await client.count("work_items") == 1


async def test_instagram_is_delivered_alike(client: Client) -> None:
    payload = instagram_payload(1)
    assert await client.deliver(payload, "secret-b", channel="instagram") == 401
    assert await client.deliver(payload, channel="instagram") == 200
    assert await client.count("messages") == 1
