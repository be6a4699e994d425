"""The Graph API stand-in, asked through the real channels."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
from pydantic import ValidationError
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from zaia_cli.channels.sending import open_channels
from zaia_cli.core.config import DeliveryConfig
from zaia_cli.core.outbound import OutboundPart, SendAccount, SendResult
from zaia_cli.sims.serving import serve_app
from zaia_cli.sims.whatsapp_server import GraphSim

FAST = DeliveryConfig(connect_timeout_s=2, read_timeout_s=0.3)
SECRET = "app-secret"
CUSTOMER = "5511900010000"


class World:
    def __init__(self) -> None:
        self.sim = GraphSim(app_secret=SECRET)
        self.url = ""
        self.events: list[dict[str, Any]] = []
        self.channels: Any = None

    async def receive(self, request: Request) -> Response:
        body = await request.body()
        digest = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
        assert request.headers["x-hub-signature-256"] == f"sha256={digest}"
        self.events.append(json.loads(body))
        return Response()

    async def send(self, text: str = "Olá", channel: str = "whatsapp", to: str = CUSTOMER) -> SendResult:
        base = f"{self.url}/callback" if channel == "http" else f"{self.url}/v23.0"
        part = OutboundPart(to, text, f"z1:{text}")
        result: SendResult = await self.channels[channel].send(
            SendAccount(channel, "1000", base, "t"), part, may_send=lambda: True
        )
        return result

    async def statuses(self) -> list[dict[str, Any]]:
        await self.sim.settled()
        return [event["entry"][0]["changes"][0]["value"]["statuses"][0] for event in self.events]

    def outcomes(self) -> list[str]:
        return [send["outcome"] for send in self.sim.sends]


@asynccontextmanager
async def open_world() -> AsyncIterator[World]:
    world = World()
    hooks = Starlette(routes=[Route("/{kind}", world.receive, methods=["POST"])])
    async with serve_app(hooks) as hooks_url, serve_app(world.sim.app) as world.url, open_channels(FAST) as channels:
        world.channels = channels
        world.sim.webhook_urls = {kind: f"{hooks_url}/{kind}" for kind in ("whatsapp", "instagram")}
        yield world
        await world.sim.close()


async def test_whatsapp_send_is_listed_and_its_statuses_come_signed_in_order() -> None:
    async with open_world() as world:
        result = await world.send()
        told = await world.statuses()
    assert [status["status"] for status in told] == ["sent", "delivered", "read"]
    assert {(s["id"], s["recipient_id"], s["biz_opaque_callback_data"]) for s in told} == {
        (result.provider_message_id, CUSTOMER, "z1:Olá")
    }
    (send,) = world.sim.sends
    assert {
        name: send[name] for name in ("channel", "account", "to", "text", "opaque_id", "message_id", "outcome")
    } == {
        "channel": "whatsapp",
        "account": "1000",
        "to": CUSTOMER,
        "text": "Olá",
        "opaque_id": "z1:Olá",
        "message_id": result.provider_message_id,
        "outcome": "accepted",
    }


async def test_instagram_send_is_echoed_once() -> None:
    async with open_world() as world:
        result = await world.send(channel="instagram", to="9001")
        await world.sim.settled()
    (event,) = world.events
    (messaging,) = event["entry"][0]["messaging"]
    assert messaging["message"] == {"mid": result.provider_message_id, "text": "Olá", "is_echo": True}
    assert (messaging["sender"]["id"], messaging["recipient"]["id"]) == ("1000", "9001")


async def test_callback_send_is_listed_and_tells_no_status() -> None:
    async with open_world() as world:
        result = await world.send(channel="http", to="cliente-1")
        await world.sim.settled()
    assert (result.outcome, world.events) == ("accepted", [])
    assert [(s["channel"], s["to"], s["message_id"]) for s in world.sim.sends] == [
        ("http", "cliente-1", result.provider_message_id)
    ]


async def test_typing_is_counted_apart_and_is_no_send() -> None:
    async with open_world() as world:
        account = SendAccount("whatsapp", "1000", world.url, "t")
        await world.channels["whatsapp"].typing(account, "wamid.IN1")
    assert (world.sim.counts["typing"], world.sim.sends) == (1, [])


async def test_plans_match_the_nth_send_or_the_recipient_and_are_used_up() -> None:
    refusal = {"error": {"message": "no", "code": 131056}}
    async with open_world() as world:
        world.sim.plan(nth=2, http=400, json=refusal)
        world.sim.plan(to="5511900020000", times=2, http=503, json="away")
        first = [await world.send(str(n)) for n in range(3)]
        second = [await world.send(str(n), to="5511900020000") for n in range(3)]
    assert [result.outcome for result in first] == ["accepted", "refused", "accepted"]
    assert first[1].error_class == "slow_pair"
    assert [result.outcome for result in second] == ["unknown", "unknown", "accepted"]
    assert world.outcomes() == ["accepted", "refused", "accepted", "refused", "refused", "accepted"]


async def test_timeout_after_accept_counts_and_tells_statuses() -> None:
    async with open_world() as world:
        world.sim.plan(timeout_after_accept=True, message_id="wamid.OUT180")
        result = await world.send()
        told = await world.statuses()
    assert (result.outcome, world.outcomes()) == ("unknown", ["accepted"])
    assert {status["id"] for status in told} == {"wamid.OUT180"}


async def test_timeout_without_accept_is_lost_and_silent() -> None:
    async with open_world() as world:
        world.sim.plan(timeout_without_accept=True)
        result = await world.send()
        assert await world.statuses() == []
    assert (result.outcome, world.outcomes()) == ("unknown", ["lost"])


async def test_reset_breaks_the_answer_of_an_accepted_send() -> None:
    async with open_world() as world:
        world.sim.plan(reset=True)
        result = await world.send()
    assert (result.outcome, world.outcomes()) == ("unknown", ["accepted"])


async def test_an_error_may_hide_an_accepted_send() -> None:
    async with open_world() as world:
        world.sim.plan(http=500, json={"error": {"message": "?", "code": 131000}}, accepted=True, statuses=["sent"])
        result = await world.send()
        told = await world.statuses()
    assert (result.error_class, world.outcomes(), len(told)) == ("retry_after_reconcile", ["accepted"], 1)


@pytest.mark.parametrize("planned", [[], ["read", "delivered", "sent"], ["sent", "sent"], ["failed"]])
async def test_statuses_may_be_lost_reordered_or_doubled(planned: list[str]) -> None:
    async with open_world() as world:
        world.sim.plan(statuses=planned)
        await world.send()
        told = await world.statuses()
    assert [status["status"] for status in told] == planned


async def test_statuses_may_come_before_the_answer() -> None:
    async with open_world() as world:
        world.sim.plan(statuses_before_answer=True)
        await world.send()
        assert len(world.events) == 3


async def test_a_text_over_the_limit_is_refused_as_the_real_one_does() -> None:
    async with open_world() as world:
        results = [await world.send("a" * 4097), await world.send("ç" * 501, "instagram", "9001")]
    assert [result.error_code for result in results] == ["100", "100"]


async def test_plans_and_list_work_over_http() -> None:
    async with open_world() as world, aiohttp.ClientSession() as http:
        async with http.post(f"{world.url}/_sim/plan", json={"nth": 1, "http": 429, "json": {}}) as answer:
            assert answer.status == 200
        async with http.post(f"{world.url}/_sim/plan", json={"nht": 1}) as answer:
            assert answer.status == 400
        await world.send()
        async with http.get(f"{world.url}/_sim/sends") as answer:
            listed = await answer.json()
        async with http.post(f"{world.url}/1000/messages", data=b"[") as answer:
            assert answer.status == 400
    assert listed["counts"]["refused"] == 1
    assert [send["outcome"] for send in listed["sends"]] == ["refused"]


async def test_closing_drops_what_is_still_to_be_told() -> None:
    async with open_world() as world:
        await world.send()
        await world.sim.close()
        assert len(world.events) < 3


def test_a_plan_with_an_unknown_word_is_an_error() -> None:
    with pytest.raises(ValidationError):
        GraphSim().plan(staus=["sent"])
