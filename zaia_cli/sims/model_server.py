"""A model provider on loopback: the chat completions protocol of OpenAI over real HTTP, driven by a script.

Idea: what a scripted model does in the process, this does on the wire, where timeouts, broken connections and status
codes are real. Invariant: it remembers a bounded number of requests, so that tests and people can see what the model
really read. Tested in ``tests/models/test_model_server.py``; the script format is described in
``zaia_cli.models.script``.

``POST /v1/chat/completions`` (also without ``/v1``) answers; ``GET /requests`` lists what came, oldest first.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter, deque
from collections.abc import Mapping
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from zaia_cli.core.chat import ChatMessage, ModelRequest, Role, ToolCall, Usage
from zaia_cli.core.errors import ConfigError
from zaia_cli.models.script import Script
from zaia_cli.models.script_player import ScriptedAnswer, ScriptPlayer
from zaia_cli.models.scripted import failure_body
from zaia_cli.models.tool_calls import parse_arguments

__all__ = ["model_server"]

_REQUESTS_KEPT = 1000
_HANG_S = 600.0
_ROLES: dict[str, Role] = {"user": "user", "assistant": "assistant", "tool": "tool"}


def model_server(script: Script) -> Starlette:
    """Make the application that plays ``script``."""
    state = _State(ScriptPlayer(script))
    return Starlette(
        routes=[
            Route("/v1/chat/completions", state.complete, methods=["POST"]),
            Route("/chat/completions", state.complete, methods=["POST"]),
            Route("/requests", state.requests, methods=["GET"]),
        ]
    )


class _State:
    def __init__(self, player: ScriptPlayer) -> None:
        self._player = player
        self._kept: deque[dict[str, Any]] = deque(maxlen=_REQUESTS_KEPT)
        self._answered: Counter[str] = Counter()

    async def complete(self, request: Request) -> Response:
        try:
            body = json.loads(await request.body())
            asked = _read_request(body)
        except (ValueError, KeyError, TypeError, AttributeError):
            return _failure(400, "the body is not a chat completion request")
        self._kept.append(body)
        try:
            answer = self._player.play(asked)
        except ConfigError as error:
            return _failure(500, error.message)
        rule = answer.rule
        self._answered["hang" if rule.hang else "reset" if rule.reset else str(rule.status or 200)] += 1
        return _ScriptedResponse(answer, asked.model)

    async def requests(self, _: Request) -> Response:
        return JSONResponse(
            {"count": self._answered.total(), "answered": dict(self._answered), "requests": list(self._kept)}
        )


class _ScriptedResponse(Response):
    """Sends the answer of a rule with its timing; stops as soon as the client is gone."""

    def __init__(self, answer: ScriptedAnswer, model: str) -> None:
        rule = answer.rule
        content = failure_body(rule.status, rule.body) if rule.status else json.dumps(_completion(answer, model))
        headers = {"content-type": "application/json"} | {k.lower(): v for k, v in rule.headers.items()}
        super().__init__(content, status_code=rule.status or 200, headers=headers)
        self._rule = rule

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            sending.cancel()
            leaving.cancel()
            await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        body = bytes(self.body)
        await asyncio.sleep(_HANG_S if self._rule.hang else self._rule.delay_s)
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        if self._rule.reset:
            # A body that ends before its announced length makes the server close the connection.
            await send({"type": "http.response.body", "body": body[:1], "more_body": True})
            return
        if self._rule.drip_s:
            for index in range(len(body)):
                await send({"type": "http.response.body", "body": body[index : index + 1], "more_body": True})
                await asyncio.sleep(self._rule.drip_s / len(body))
            body = b""
        await send({"type": "http.response.body", "body": body, "more_body": False})


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


def _failure(status: int, message: str) -> JSONResponse:
    return JSONResponse({"error": {"message": message, "type": "invalid_request_error", "code": None}}, status)


def _read_request(body: Mapping[str, Any]) -> ModelRequest:
    messages = body["messages"]
    system = [_content(m) for m in messages if m["role"] in ("system", "developer")]
    return ModelRequest(
        model=str(body["model"]),
        stable="".join(system),
        messages=tuple(_read_message(m) for m in messages if m["role"] in _ROLES),
    )


def _read_message(raw: Mapping[str, Any]) -> ChatMessage:
    calls = tuple(
        ToolCall(call["id"], call["function"]["name"], *parse_arguments(call["function"].get("arguments")))
        for call in raw.get("tool_calls") or ()
    )
    return ChatMessage(_ROLES[raw["role"]], _content(raw), calls, raw.get("tool_call_id"))


def _content(raw: Mapping[str, Any]) -> str:
    content = raw.get("content")
    if isinstance(content, list):
        return "".join(part.get("text", "") for part in content)
    return content or ""


def _completion(answer: ScriptedAnswer, model: str) -> dict[str, Any]:
    message: dict[str, Any] = {"role": "assistant", "content": answer.text or (None if answer.calls else "")}
    if answer.calls:
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": call.arguments if isinstance(call.arguments, str) else json.dumps(call.arguments),
                },
            }
            for call in answer.calls
        ]
    document: dict[str, Any] = {
        "id": "chatcmpl-scripted",
        "object": "chat.completion",
        "created": 0,
        "model": model,
        "choices": [{"index": 0, "message": message, "finish_reason": answer.finish}],
    }
    return document if answer.usage is None else document | {"usage": _usage(answer.usage)}


def _usage(usage: Usage) -> dict[str, Any]:
    prompt = usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens
    details = {"cached_tokens": usage.cache_read_tokens, "cache_write_tokens": usage.cache_write_tokens}
    return {
        "prompt_tokens": prompt,
        "completion_tokens": usage.output_tokens,
        "total_tokens": prompt + usage.output_tokens,
        "prompt_tokens_details": details,
        "completion_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
    }
