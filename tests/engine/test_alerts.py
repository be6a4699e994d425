"""Alerts reach their sinks, once, and are tried again."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.engine.world import World
from zaia_cli.core.config import AlertSink
from zaia_cli.engine.alerts import send_due_alerts
from zaia_cli.sims.serving import serve_app


class Receiver:
    """A webhook sink that refuses the first ``failures`` deliveries."""

    def __init__(self, failures: int = 0) -> None:
        self.failures = failures
        self.got: list[dict[str, Any]] = []
        self.app = Starlette(routes=[Route("/alerts", self.take, methods=["POST"])])

    async def take(self, request: Request) -> Response:
        self.got.append(await request.json())
        return Response(status_code=500 if len(self.got) <= self.failures else 204)


async def raise_one(world: World, key: str = "k") -> None:
    row = {"organization_id": "loja-a", "kind": "urgent", "dedupe_key": key, "message": "m", "recipient": "ana"}
    await world.db.run("events.raise_alerts", [row])


async def test_a_webhook_sink_gets_each_alert_once_and_repetitions_are_counted(world: World) -> None:
    receiver = Receiver()
    async with serve_app(receiver.app) as url:
        sinks = (AlertSink(kind="webhook", url=f"{url}/alerts"),)
        await raise_one(world)
        await raise_one(world)
        assert await send_due_alerts(world.db, sinks) == 1
        assert await send_due_alerts(world.db, sinks) == 0
    (alert,) = receiver.got
    assert (alert["kind"], alert["recipient"], alert["occurrences"]) == ("urgent", "ana", 2)
    assert await world.one("SELECT state FROM alerts") == "sent"


async def test_a_sink_that_fails_is_tried_again_and_given_up_after_ten_tries(world: World) -> None:
    receiver = Receiver(failures=1)
    async with serve_app(receiver.app) as url:
        sinks = (AlertSink(kind="webhook", url=f"{url}/alerts"),)
        await raise_one(world)
        assert await send_due_alerts(world.db, sinks) == 0
        assert await send_due_alerts(world.db, sinks) == 0
        await world.travel(61)
        assert await send_due_alerts(world.db, sinks) == 1
        assert len(receiver.got) == 2
        receiver.failures = 100
        await raise_one(world, "other")
        for _ in range(10):
            await send_due_alerts(world.db, sinks)
            await world.travel(400)
    assert await world.one("SELECT state FROM alerts WHERE dedupe_key = 'other'") == "failed"
    assert "HTTP 500" in await world.one("SELECT error FROM alerts WHERE dedupe_key = 'other'")


async def test_a_command_sink_reads_the_alert_from_its_input(world: World, tmp_path: Path) -> None:
    target = tmp_path / "alert.json"
    program = f"import sys, pathlib; pathlib.Path({str(target)!r}).write_text(sys.stdin.read())"
    sinks = (AlertSink(kind="command", command=(sys.executable, "-c", program)),)
    await raise_one(world)
    assert await send_due_alerts(world.db, sinks) == 1
    assert json.loads(target.read_text())["message"] == "m"
    await raise_one(world, "second")
    failing = (AlertSink(kind="command", command=(sys.executable, "-c", "raise SystemExit(3)")),)
    assert await send_due_alerts(world.db, failing) == 0


async def test_without_sinks_alerts_are_logged_and_kept(world: World) -> None:
    await raise_one(world)
    assert await send_due_alerts(world.db, ()) == 1
    assert await world.one("SELECT count(*) FROM alerts WHERE state = 'sent'") == 1
