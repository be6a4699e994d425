"""The adapter in front of litellm, on real HTTP: one exchange, one deadline, the true status, nothing leaked."""

from __future__ import annotations

import asyncio
import time
from typing import Any

import httpx
import pytest

from zaia_cli.core.chat import ChatMessage, ToolCall, ToolSpec
from zaia_cli.core.config import EndpointConfig
from zaia_cli.core.errors import ConfigError, ModelError
from zaia_cli.models.litellm_model import LiteLLMModel
from zaia_cli.models.litellm_reply import model_error, without_thinking

ALL = ["openai", "anthropic", "gemini", "hosted_vllm", "ollama_chat"]
KINDS = {
    401: "unauthorized",
    402: "payment",
    403: "forbidden",
    404: "bad_request",
    408: "transient",
    409: "transient",
    422: "bad_request",
    429: "rate_limit",
    502: "transient",
    503: "transient",
    504: "transient",
    529: "transient",
}
OK = {
    "choices": [{"index": 0, "message": {"role": "assistant", "content": "olá"}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 10, "completion_tokens": 2, "total_tokens": 12},
} | {"id": "1", "object": "chat.completion", "created": 1, "model": "m"}
ANTHROPIC_OK = {
    "id": "msg_1",
    "type": "message",
    "role": "assistant",
    "model": "claude-x",
    "content": [{"type": "text", "text": "olá"}],
    "stop_reason": "end_turn",
    "stop_sequence": None,
    "usage": {"input_tokens": 10, "output_tokens": 2},
}


def answer(status: int, body: Any, **headers: str) -> dict[str, Any]:
    return {"status": status, "headers": headers, "body": body}


async def failure(model: LiteLLMModel, request: Any, timeout_s: float = 5.0) -> ModelError:
    with pytest.raises(ModelError) as caught:
        await model.complete(request, timeout_s=timeout_s)
    return caught.value


@pytest.mark.parametrize("provider", ALL)
async def test_http_500_is_exactly_one_request(provider: str, serve_provider: Any, ask: Any) -> None:
    http = answer(500, {"error": {"message": "boom", "type": "server_error"}})
    async with serve_provider(http, provider) as (model, received):
        error = await failure(model, ask(received.model))
    assert (error.kind, error.status, len(received.paths)) == ("transient", 500, 1)


@pytest.mark.parametrize("behaviour", ["drip", "hang"])
@pytest.mark.parametrize("provider", ["openai", "gemini"])
async def test_total_deadline_holds(behaviour: str, provider: str, serve_provider: Any, ask: Any) -> None:
    http = answer(200, OK) | {"behaviour": behaviour}
    async with serve_provider(http, provider) as (model, received):
        await model.warm_up()
        started = time.monotonic()
        error = await failure(model, ask(received.model), timeout_s=0.5)
        took_s = time.monotonic() - started
    assert error.kind == "timeout"
    assert took_s < 1.0
    assert len(received.paths) == 1


@pytest.mark.parametrize("provider", ALL)
async def test_true_status_survives_rewriting(provider: str, serve_provider: Any, ask: Any) -> None:
    http = answer(500, {"error": {"message": "no", "type": "some_type"}}, **{"retry-after": "2"})
    async with serve_provider(http, provider) as (model, received):
        for status, kind in KINDS.items():
            http["status"] = status
            error = await failure(model, ask(received.model))
            assert (error.kind, error.status, error.retry_after_s) == (kind, status, 2.0)
            assert (error.message, error.provider_code) == ("no", "some_type")
    assert len(received.paths) == len(KINDS)


@pytest.mark.parametrize(
    "body", ["<html>entrar</html>", "{", "", "null", {"error": {"message": "x"}}, {"choices": None}]
)
async def test_unreadable_answer_is_transient_and_says_nothing_of_ours(
    body: Any, serve_provider: Any, ask: Any
) -> None:
    secret = "meu CPF é 123.456.789-00"
    for provider in ("openai", "anthropic", "gemini", "hosted_vllm"):
        async with serve_provider(answer(200, body), provider) as (model, received):
            error = await failure(model, ask(received.model, secret))
        assert error.kind == "transient"
        assert "CPF" not in error.message
        assert "Traceback" not in error.message
        assert "site-packages" not in error.message
        assert error.__context__ is None


async def test_billed_usage_of_an_unusable_answer_is_kept(serve_provider: Any, ask: Any) -> None:
    async with serve_provider(answer(200, OK | {"choices": []})) as (model, received):
        error = await failure(model, ask(received.model))
    assert error.usage is not None
    assert (error.usage.input_tokens, error.usage.output_tokens) == (10, 2)


async def test_refused_connection_is_transient(serve_provider: Any, ask: Any) -> None:
    async with serve_provider(answer(200, OK)) as (_, received):
        base = received.url
    model = LiteLLMModel({"*": EndpointConfig(api_base=base)})
    error = await failure(model, ask())
    await model.close()
    assert (error.kind, error.status) == ("transient", None)


def test_error_of_an_earlier_request_is_not_blamed_on_this_one() -> None:
    request = httpx.Request("POST", "http://provider")
    earlier = ModelError("unauthorized", "bad key")
    earlier.__context__ = httpx.HTTPStatusError("x", request=request, response=httpx.Response(401, request=request))
    later = RuntimeError("unreadable")
    later.__context__ = earlier
    assert (model_error(later).kind, model_error(later).status) == ("transient", None)
    assert model_error(earlier.__context__).status == 401


async def test_only_anthropic_gets_a_cache_mark_and_it_ends_the_stable_prefix(serve_provider: Any, ask: Any) -> None:
    async with serve_provider(answer(200, ANTHROPIC_OK), "anthropic") as (model, anthropic):
        await model.complete(ask(anthropic.model, context="Hoje é terça."), timeout_s=5)
    async with serve_provider(answer(200, OK)) as (model, openai):
        await model.complete(ask(openai.model, context="Hoje é terça."), timeout_s=5)
    assert anthropic.bodies[0]["system"] == [
        {"type": "text", "text": "Be kind.\n", "cache_control": {"type": "ephemeral"}},
        {"type": "text", "text": "Hoje é terça.\n"},
    ]
    assert openai.bodies[0]["messages"][0] == {"role": "system", "content": "Be kind.\nHoje é terça.\n"}
    assert "cache_control" not in str(openai.bodies[0])


async def test_request_carries_what_was_asked_and_nothing_else(serve_provider: Any, ask: Any) -> None:
    tool = ToolSpec("book", "Book a day.", {"type": "object", "properties": {"day": {"type": "string"}}})
    history = (
        ChatMessage("user", "marca terça"),
        ChatMessage("assistant", "", (ToolCall("c1", "book", {"day": "terça"}),)),
        ChatMessage("tool", "ok", tool_call_id="c1"),
    )
    async with serve_provider(answer(200, OK), "hosted_vllm") as (model, received):
        request = ask(received.model, messages=history, tools=(tool,), max_tokens=77, temperature=0.0)
        reply = await model.complete(request, timeout_s=5)
    body = received.bodies[0]
    assert set(body) == {"model", "messages", "max_tokens", "temperature", "tools"}
    assert (body["model"], body["max_tokens"], body["temperature"]) == ("qwen", 77, 0.0)
    assert [message["role"] for message in body["messages"]] == ["system", "user", "assistant", "tool"]
    assert body["tools"][0]["function"]["name"] == "book"
    assert (reply.text, reply.finish, reply.provider_model) == ("olá", "stop", "m")
    assert reply.raw_usage["prompt_tokens"] == 10


async def test_endpoint_caps_concurrency(serve_provider: Any, ask: Any) -> None:
    async with serve_provider(answer(200, OK) | {"behaviour": "hang"}) as (_, received):
        model = LiteLLMModel({"openai/*": EndpointConfig(api_base=received.url, max_concurrency=2)})
        await model.warm_up()
        running = [asyncio.create_task(failure(model, ask(), timeout_s=1.0)) for _ in range(2)]
        third = await failure(model, ask(), timeout_s=0.3)
        asked = len(received.paths)
        await asyncio.gather(*running)
        await model.close()
    assert (third.kind, asked) == ("timeout", 2)


async def test_missing_key_names_its_variable(monkeypatch: pytest.MonkeyPatch, ask: Any) -> None:
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    model = LiteLLMModel({"openai/special-*": EndpointConfig(api_key_env="SPECIAL_KEY_THAT_IS_NOT_SET")})
    with pytest.raises(ConfigError, match="SPECIAL_KEY_THAT_IS_NOT_SET"):
        model.check("openai/special-one")
    with pytest.raises(ConfigError, match="OPENAI_API_KEY"):
        await model.complete(ask("openai/gpt-4o-mini"), timeout_s=1)


@pytest.mark.usefixtures("_litellm")
async def test_unknown_provider_is_a_bad_request_without_any_exchange(ask: Any) -> None:
    model = LiteLLMModel({})
    error = await failure(model, ask("nonsense/gpt"))
    await model.close()
    assert (error.kind, error.status) == ("bad_request", None)


async def test_own_server_never_gets_a_key_meant_for_a_provider(
    monkeypatch: pytest.MonkeyPatch, serve_provider: Any, ask: Any
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", "sk-real")
    async with serve_provider(answer(401, {"error": {"message": "no"}})) as (_, received):
        model = LiteLLMModel({"openai/*": EndpointConfig(api_base=received.url)})
        await failure(model, ask())
        await model.close()
    assert received.authorizations == ["Bearer no-key"]


def test_unknown_exception_is_transient_and_shows_its_class_only() -> None:
    error = model_error(RuntimeError("/home/someone/secret.py said: meu nome é Ana"))
    assert (error.kind, error.message) == ("transient", "The provider's answer could not be read (RuntimeError).")


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("<think>hm</think>Oi", "Oi"),
        ("hm, the client lies</think>\nOi", "Oi"),
        ("Oi <think>and then", "Oi"),
        ("<thinking>a</thinking>Oi<think>b</think>", "Oi"),
        ("a < b and b > c", "a < b and b > c"),
    ],
)
def test_thoughts_are_not_part_of_the_text(text: str, left: str) -> None:
    assert without_thinking(text) == left
