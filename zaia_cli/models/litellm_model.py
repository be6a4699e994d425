"""Real model providers through litellm, behind the port ``ChatModel``.

Idea: litellm translates between providers; everything it decides on its own (retries, timeouts, prices, classes of
error, repairs of history) is switched off or overruled here. Invariant: this is the only importer of litellm, the
environment is set before that import, one ``complete`` is at most one HTTP exchange, and nothing of litellm crosses
the port. Tested on real HTTP in ``tests/models/test_provider_cases.py`` and ``tests/models/test_litellm_model.py``.

Source: ``shared/facts/providers.md``, measured with litellm 1.110.2.
"""

from __future__ import annotations

import asyncio
import functools
import gc
import importlib
import logging
import os
import threading
import time
import warnings
from collections.abc import Mapping
from fnmatch import fnmatchcase
from typing import Any

from zaia_cli.core.chat import ModelReply, ModelRequest
from zaia_cli.core.config import EndpointConfig
from zaia_cli.core.errors import ConfigError, ModelError
from zaia_cli.models.litellm_reply import model_error, model_reply
from zaia_cli.models.wire import wire_messages, wire_tools

__all__ = ["LiteLLMModel", "load_litellm"]

_ENVIRONMENT = {
    "LITELLM_LOCAL_MODEL_COST_MAP": "True",
    "LITELLM_OFFLINE_MODE": "true",
    "LITELLM_MODE": "PRODUCTION",
    "DEFAULT_MAX_RETRIES": "0",
    "DISABLE_AIOHTTP_TRANSPORT": "True",
    "LITELLM_RUST": "0",
}
_FIRST_CALL_IMPORTS = (
    "anyio._backends._asyncio",
    "litellm._service_logger",
    "litellm.llms.anthropic.completion.transformation",
    "litellm.llms.edenai.chat.transformation",
    "litellm.llms.fal_ai.cost_calculator",
    "litellm.llms.gemini.chat.transformation",
    "litellm.llms.hosted_vllm.chat.transformation",
    "litellm.llms.vertex_ai.context_caching.vertex_ai_context_caching",
    "litellm.proxy.guardrails.exception_utils",
    "litellm.proxy.spend_tracking.savings",
)
"""Seen in the pinned version; half a second in which nothing else in the process would run."""

_USUAL_KEYS = {"openai": "OPENAI_API_KEY", "anthropic": "ANTHROPIC_API_KEY", "gemini": "GEMINI_API_KEY"}
_NO_KEY = "no-key"
_import_lock = threading.Lock()


@functools.cache
def load_litellm() -> Any:
    """Import litellm (seconds, about 200 MB), quiet and offline; later calls return at once.

    Sets environment variables that litellm reads at import: no price download, no ``.env`` file, no retries of its own.
    """
    with _import_lock:
        os.environ.update(_ENVIRONMENT)
        was_collecting = gc.isenabled()
        gc.disable()
        try:
            litellm = _import_quietly()
        finally:
            if was_collecting:
                gc.enable()
        litellm.suppress_debug_info = True
        litellm.telemetry = False
        for name in ("LiteLLM", "LiteLLM Router", "LiteLLM Proxy"):
            logger = logging.getLogger(name)
            logger.handlers = [logging.NullHandler()]
            logger.propagate = False
            logger.setLevel(logging.CRITICAL)
        return litellm


def _import_quietly() -> Any:
    """Import litellm and what first calls would import in the event loop, without the warnings of its own types."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        litellm: Any = importlib.import_module("litellm")
        for name in _FIRST_CALL_IMPORTS:
            importlib.import_module(name)
        litellm.encoding.encode("")
    return litellm


class LiteLLMModel:
    """Implements ``ChatModel`` for ids of the form ``provider/name``.

    Args:
        endpoints: Glob over model ids to endpoint; the first match wins. An id without a match uses the provider's
            public address and its usual environment variable. An endpoint with an address of its own and no
            ``api_key_env`` gets a placeholder, so that a key meant for a provider is never sent to another server.
    """

    def __init__(self, endpoints: Mapping[str, EndpointConfig]) -> None:
        self._endpoints = dict(endpoints)
        self._slots: dict[str, asyncio.Semaphore] = {}
        self._litellm: Any = None

    def check(self, model: str) -> None:
        """Make sure that the key of ``model`` is in the environment.

        Raises:
            ConfigError: It is not; names the variable.
        """
        _api_key(model, self._endpoint(model)[1])

    async def warm_up(self) -> None:
        """Import litellm in a background thread, then the parts that it imports at its first call; no network.

        Calling twice is safe.
        """
        litellm = await asyncio.to_thread(load_litellm)
        question = [{"role": "user", "content": "hello"}]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            await litellm.acompletion(model="openai/warm-up", messages=question, max_tokens=1, mock_response="hello")
        self._litellm = litellm

    async def complete(self, request: ModelRequest, *, timeout_s: float) -> ModelReply:
        """Ask the provider once; see ``ChatModel.complete``.

        The first call of a process imports litellm before the clock starts; ``warm_up`` avoids that. Waiting for a free
        slot of the endpoint counts as time.

        Raises:
            ConfigError: The endpoint's key is not in the environment.
            ModelError: Classified; carries no text of customers.
        """
        glob, endpoint = self._endpoint(request.model)
        arguments = _call_arguments(request, endpoint, timeout_s)
        if self._litellm is None:
            await self.warm_up()
        litellm = self._litellm
        _avoid_blocking_lookup(litellm, request.model)
        slots = self._slots.setdefault(glob, asyncio.Semaphore(endpoint.max_concurrency))
        started = time.monotonic()
        error: ModelError
        try:
            async with asyncio.timeout(timeout_s), slots:
                started = time.monotonic()
                response = await litellm.acompletion(**arguments)
            return model_reply(request, response, round((time.monotonic() - started) * 1000))
        except TimeoutError:
            error = ModelError("timeout", f"No answer within {timeout_s:g} s.")
        except ModelError as raised:
            error = raised
        except Exception as raised:
            error = model_error(raised)
        # Raised outside the handlers: a chained traceback would carry litellm's text, and with it the customer's.
        raise error

    async def close(self) -> None:
        """Close the connections that this event loop opened; calling twice, or without any call before, is safe."""
        litellm, self._litellm = self._litellm, None
        if litellm is None:
            return
        cleanup = importlib.import_module("litellm.llms.custom_httpx.async_client_cleanup")
        worker = importlib.import_module("litellm.litellm_core_utils.logging_worker").GLOBAL_LOGGING_WORKER
        if worker._bound_loop is asyncio.get_running_loop():
            await worker.stop(discard_pending=True)
        await cleanup.close_litellm_async_clients()
        litellm.in_memory_llm_clients_cache.flush_cache()

    def _endpoint(self, model: str) -> tuple[str, EndpointConfig]:
        for glob, endpoint in self._endpoints.items():
            if fnmatchcase(model, glob):
                return glob, endpoint
        provider = model.partition("/")[0]
        return f"{provider}/*", EndpointConfig(api_key_env=_USUAL_KEYS.get(provider, ""))


def _api_key(model: str, endpoint: EndpointConfig) -> str | None:
    if not endpoint.api_key_env:
        return _NO_KEY if endpoint.api_base else None
    key = os.environ.get(endpoint.api_key_env, "")
    if not key:
        raise ConfigError(
            f"The environment variable {endpoint.api_key_env} is not set; {model} needs it.",
            hint='Set it, or use a model without keys: model = "scripted/demo".',
        )
    return key


def _call_arguments(request: ModelRequest, endpoint: EndpointConfig, timeout_s: float) -> dict[str, Any]:
    arguments: dict[str, Any] = {
        "model": request.model,
        "messages": wire_messages(request, with_cache_control=request.model.startswith("anthropic/")),
        "max_tokens": request.max_tokens,
        "timeout": timeout_s,
        "num_retries": 0,
        "max_retries": 0,
        "drop_params": True,
        "api_key": _api_key(request.model, endpoint),
    }
    if endpoint.api_base:
        arguments["api_base"] = endpoint.api_base
    if request.tools:
        arguments["tools"] = wire_tools(request.tools)
    if request.temperature is not None:
        arguments["temperature"] = request.temperature
    return arguments


def _avoid_blocking_lookup(litellm: Any, model: str) -> None:
    """Register an ``ollama_chat/`` model: else litellm asks its server about it, blocking the event loop."""
    if model.startswith("ollama_chat/") and model not in litellm.model_cost:
        litellm.register_model({model: {"litellm_provider": "ollama_chat", "mode": "chat"}})
