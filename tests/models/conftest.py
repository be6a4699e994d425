"""A provider that sends what a test tells it to, and the real adapter in front of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from starlette.types import Receive, Scope, Send

from zaia_cli.core.chat import ChatMessage, ModelRequest
from zaia_cli.core.config import EndpointConfig
from zaia_cli.models.litellm_model import LiteLLMModel, load_litellm
from zaia_cli.sims.serving import serve_app

SHARED = Path(__file__).parents[2].parent / "shared"
MODELS = {
    "openai": "openai/gpt-x",
    "anthropic": "anthropic/claude-x",
    "gemini": "gemini/gemini-x",
    "hosted_vllm": "hosted_vllm/qwen",
    "ollama_chat": "ollama_chat/m",
}


@dataclass
class Provider:
    """A running provider: its address, the model to ask, and what it received."""

    url: str = ""
    model: str = ""
    paths: list[str] = field(default_factory=list)
    bodies: list[dict[str, Any]] = field(default_factory=list)
    authorizations: list[str] = field(default_factory=list)


class _Wire:
    """Answers every POST with one recorded ``http`` object: status, headers, body, behaviour."""

    def __init__(self, http: dict[str, Any], provider: Provider) -> None:
        self._http = http
        self._provider = provider

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        body = b""
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        self._provider.paths.append(scope["path"])
        self._provider.authorizations += [v.decode() for k, v in scope["headers"] if k == b"authorization"]
        self._provider.bodies.append(json.loads(body) if body else {})
        sending = asyncio.create_task(self._send(send))
        leaving = asyncio.create_task(receive())
        await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
        for task in (sending, leaving):
            task.cancel()
        await asyncio.gather(sending, leaving, return_exceptions=True)

    async def _send(self, send: Send) -> None:
        behaviour = self._http.get("behaviour")
        if behaviour == "hang":
            await asyncio.Event().wait()
        raw = self._http["body"]
        content = (raw if isinstance(raw, str) else json.dumps(raw)).encode()
        headers = {"content-type": "application/json"} | {k.lower(): v for k, v in self._http["headers"].items()}
        encoded = [(k.encode(), v.encode()) for k, v in headers.items()]
        await send({"type": "http.response.start", "status": self._http["status"], "headers": encoded})
        for index in range(len(content)) if behaviour == "drip" else ():
            await send({"type": "http.response.body", "body": content[index : index + 1], "more_body": True})
            await asyncio.sleep(0.2)
        await send({"type": "http.response.body", "body": b"" if behaviour == "drip" else content})


Serve = Callable[..., AbstractAsyncContextManager[tuple[LiteLLMModel, Provider]]]


@pytest.fixture(scope="session")
def _litellm() -> None:
    load_litellm()


@pytest.fixture
def serve_provider(_litellm: None, monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Serve one ``http`` object as ``provider`` and yield the adapter with what the provider received."""
    monkeypatch.setenv("SOME_PROVIDER_KEY", "test-key")

    @asynccontextmanager
    async def serve(http: dict[str, Any], provider: str = "openai") -> AsyncIterator[tuple[LiteLLMModel, Provider]]:
        received = Provider(model=MODELS[provider])
        async with serve_app(_Wire(http, received)) as url:
            received.url = url
            base = url + ("/v1" if provider in ("openai", "hosted_vllm") else "")
            model = LiteLLMModel({"*": EndpointConfig(api_base=base, api_key_env="SOME_PROVIDER_KEY")})
            try:
                yield model, received
            finally:
                await model.close()

    return serve


@pytest.fixture
def ask() -> Callable[..., ModelRequest]:
    """Make a small request; keyword arguments replace its fields."""

    def make(model: str = "openai/gpt-x", *texts: str, **fields: Any) -> ModelRequest:
        messages = tuple(ChatMessage("user", text) for text in texts or ("oi",))
        return ModelRequest(**({"model": model, "stable": "Be kind.", "messages": messages} | fields))

    return make


@pytest.fixture(scope="session")
def shared() -> Path:
    """The folder of recorded cases; skips where it is absent."""
    if not SHARED.is_dir():
        pytest.skip("the shared folder is not here")
    return SHARED
