"""The simulated provider over real HTTP, asked through the real adapter."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import httpx
import pytest

from zaia_cli.core.chat import ChatMessage, ModelRequest
from zaia_cli.core.config import EndpointConfig
from zaia_cli.core.errors import ModelError, UnavailableError
from zaia_cli.models.litellm_model import LiteLLMModel
from zaia_cli.models.script import Script
from zaia_cli.sims.model_server import model_server
from zaia_cli.sims.serving import serve_app

pytestmark = pytest.mark.usefixtures("_litellm")


@asynccontextmanager
async def serving(*rules: dict[str, Any]) -> AsyncIterator[tuple[LiteLLMModel, str]]:
    async with serve_app(model_server(Script.model_validate({"rules": rules}))) as url:
        model = LiteLLMModel({"*": EndpointConfig(api_base=f"{url}/v1")})
        await model.warm_up()
        try:
            yield model, url
        finally:
            await model.close()


def request(*texts: str, model: str = "openai/sim") -> ModelRequest:
    return ModelRequest(model, "Be kind. " * 20, tuple(ChatMessage("user", text) for text in texts), "terça")


async def received(url: str) -> dict[str, Any]:
    async with httpx.AsyncClient() as client:
        answer = await client.get(f"{url}/requests")
    return dict(answer.json())


async def test_the_model_sees_the_whole_burst_and_the_server_says_so() -> None:
    async with serving({"text": "Você escreveu: {burst}"}) as (model, url):
        reply = await model.complete(request("um", "dois"), timeout_s=5)
        log = await received(url)
    assert reply.text == "Você escreveu: um | dois"
    assert (log["count"], log["answered"]) == (1, {"200": 1})
    assert [m["content"] for m in log["requests"][0]["messages"] if m["role"] == "user"] == ["um", "dois"]


async def test_second_call_reports_cached_tokens() -> None:
    async with serving({"text": "ok"}) as (model, _):
        replies = [await model.complete(request(text), timeout_s=5) for text in ("um", "dois")]
    first, second = (reply.usage for reply in replies)
    assert first is not None
    assert second is not None
    assert first.cache_read_tokens == 0
    assert second.cache_read_tokens > 40


async def test_tool_call_round_trips() -> None:
    rules = ({"after_tool": "lookup", "text": "{result}"}, {"tool": "lookup", "args": {"id": "{last}"}})
    async with serving(*rules) as (model, _):
        asked = request("77")
        reply = await model.complete(asked, timeout_s=5)
        result = ChatMessage("tool", "pago", tool_call_id=reply.tool_calls[0].id)
        messages = (*asked.messages, ChatMessage("assistant", "", reply.tool_calls), result)
        done = await model.complete(ModelRequest(asked.model, asked.stable, messages), timeout_s=5)
    assert (reply.finish, reply.tool_calls[0].arguments) == ("tool_calls", {"id": "77"})
    assert done.text == "pago"


async def test_usage_can_be_missing_and_told() -> None:
    told = {"nth": 1, "text": "a", "usage": {"input": 5, "cached": 3, "cache_write": 2, "output": 4, "reasoning": 1}}
    async with serving(told, {"text": "b", "usage": "missing"}) as (model, _):
        first = await model.complete(request("oi"), timeout_s=5)
        second = await model.complete(request("oi"), timeout_s=5)
    assert first.usage is not None
    assert (first.usage.input_tokens, first.usage.cache_read_tokens, first.usage.cache_write_tokens) == (5, 3, 2)
    assert (first.usage.output_tokens, first.usage.reasoning_tokens) == (4, 1)
    assert second.usage is None


@pytest.mark.parametrize(
    ("rule", "kind", "counted"),
    [
        ({"status": 429, "headers": {"Retry-After": "7"}}, "rate_limit", "429"),
        ({"status": 500, "body": "<html>"}, "transient", "500"),
        ({"reset": True}, "transient", "reset"),
        ({"hang": True}, "timeout", "hang"),
        ({"text": "slow", "drip_s": 30}, "timeout", "200"),
        ({"text": "late", "delay_s": 30}, "timeout", "200"),
    ],
)
async def test_failures_are_real_http(rule: dict[str, Any], kind: str, counted: str) -> None:
    async with serving(rule) as (model, url):
        with pytest.raises(ModelError) as caught:
            await model.complete(request("oi"), timeout_s=0.7)
        log = await received(url)
    assert caught.value.kind == kind
    assert log["answered"] == {counted: 1}
    if rule.get("headers"):
        assert caught.value.retry_after_s == 7.0


async def test_slow_drip_within_the_deadline_arrives_whole() -> None:
    async with serving({"text": "olá", "drip_s": 0.2}) as (model, _):
        started = time.monotonic()
        reply = await model.complete(request("oi"), timeout_s=5)
    assert reply.text == "olá"
    assert time.monotonic() - started > 0.15


@pytest.mark.parametrize("body", ["{", "[]", '{"messages": []}', '{"model": "m", "messages": [7]}'])
async def test_request_that_is_none_is_refused(body: str) -> None:
    async with serving({"text": "ok"}) as (_, url), httpx.AsyncClient() as client:
        answer = await client.post(f"{url}/chat/completions", content=body)
    assert answer.status_code == 400


async def test_remembered_requests_are_bounded() -> None:
    body = {"model": "m", "messages": [{"role": "user", "content": "oi"}]}
    async with serving({"text": "ok"}) as (_, url), httpx.AsyncClient() as client:
        for _ in range(1005):
            await client.post(f"{url}/chat/completions", json=body)
        log = await received(url)
    assert (log["count"], len(log["requests"])) == (1005, 1000)


async def test_small_answers_are_not_held_back_by_the_socket() -> None:
    async with serving({"text": "ok"}) as (_, url), httpx.AsyncClient() as client:
        started = time.monotonic()
        for _ in range(50):
            await client.get(f"{url}/requests")
        assert time.monotonic() - started < 1.5


async def test_taken_port_is_unavailable() -> None:
    app = model_server(Script.model_validate({"rules": [{"text": "ok"}]}))
    async with serve_app(app) as url:
        with pytest.raises(UnavailableError, match="Cannot listen"):
            async with serve_app(app, port=int(url.rpartition(":")[2])):
                pass


async def test_nothing_is_left_after_serving() -> None:
    before = asyncio.all_tasks()
    async with serving({"hang": True}) as (model, _):
        with pytest.raises(ModelError):
            await model.complete(request("oi"), timeout_s=0.2)
    assert asyncio.all_tasks() == before
