"""Recorded traffic of real providers, replayed through the adapter with the request body matched.

The recordings keep bodies as ``parsed_body``; they are turned into plain vcrpy bodies here. Where another client
recorded them, the request body is replaced by the one that the adapter must send, so that matching it stays a real
check.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import vcr
import yaml

from zaia_cli.core.config import EndpointConfig
from zaia_cli.core.errors import ModelError
from zaia_cli.models.litellm_model import LiteLLMModel

MATCH_ON = ["method", "scheme", "host", "path", "body"]


def converted(recording: Path, folder: Path, sent: dict[str, Any] | None = None) -> Path:
    """Write the first interaction of ``recording`` in vcrpy's own format."""
    interaction = yaml.safe_load(recording.read_text(encoding="utf-8"))["interactions"][0]
    request, response = interaction["request"], interaction["response"]
    if sent is not None:
        request.pop("parsed_body")
        request["body"] = json.dumps(sent)
        response["body"] = {"string": json.dumps(response.pop("parsed_body"))}
    for name in ("content-length", "transfer-encoding", "Content-Length"):
        response["headers"].pop(name, None)
    path = folder / recording.name
    path.write_text(yaml.safe_dump({"version": 1, "interactions": [interaction]}), encoding="utf-8")
    return path


def played(path: Path) -> Any:
    return vcr.VCR(record_mode="none", match_on=MATCH_ON).use_cassette(str(path))


@pytest.fixture
async def model(_litellm: None, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setenv("SOME_PROVIDER_KEY", "test-key")
    endpoint = EndpointConfig(api_key_env="SOME_PROVIDER_KEY")
    router = EndpointConfig(api_key_env="SOME_PROVIDER_KEY", api_base="https://openrouter.ai/api/v1")
    adapter = LiteLLMModel({"openai/google/*": router, "*": endpoint})
    yield adapter
    await adapter.close()


async def test_anthropic_answer(model: LiteLLMModel, ask: Any, shared: Path, tmp_path: Path) -> None:
    path = converted(shared / "data/cassettes/21_anthropic_native_vcr_format.yaml", tmp_path)
    request = ask("anthropic/claude-sonnet-4-5-20250929", "Hello!", stable="", max_tokens=64000)
    with played(path) as cassette:
        reply = await model.complete(request, timeout_s=10)
    assert cassette.all_played
    assert reply.text == "Hello! How can I help you today?"
    assert reply.usage is not None
    assert (reply.usage.input_tokens, reply.usage.output_tokens) == (12, 11)


async def test_openai_unknown_model(model: LiteLLMModel, ask: Any, shared: Path, tmp_path: Path) -> None:
    sent = {
        "model": "gpt-5.2-proo",
        "messages": [{"role": "user", "content": "hello"}],
        "max_completion_tokens": 1024,
    }
    path = converted(shared / "data/cassettes/03_openai_chat_404_model.yaml", tmp_path, sent)
    with played(path) as cassette, pytest.raises(ModelError) as caught:
        await model.complete(ask("openai/gpt-5.2-proo", "hello", stable=""), timeout_s=10)
    assert cassette.all_played
    assert (caught.value.kind, caught.value.status) == ("bad_request", 404)
    assert caught.value.provider_code == "model_not_found"
    assert "gpt-5.2-proo" in caught.value.message


async def test_gateway_429_shows_the_reason_it_wraps(
    model: LiteLLMModel, ask: Any, shared: Path, tmp_path: Path
) -> None:
    sent = {
        "model": "google/gemini-2.0-flash-exp:free",
        "messages": [{"role": "system", "content": "Be kind.\n"}, {"role": "user", "content": "Tell me a joke."}],
        "max_tokens": 1024,
    }
    path = converted(shared / "data/cassettes/16_openrouter_429_wrapped.yaml", tmp_path, sent)
    with played(path) as cassette, pytest.raises(ModelError) as caught:
        await model.complete(ask("openai/google/gemini-2.0-flash-exp:free", "Tell me a joke."), timeout_s=10)
    assert cassette.all_played
    assert (caught.value.kind, caught.value.status) == ("rate_limit", 429)
    assert "temporarily rate-limited upstream" in caught.value.message


async def test_a_changed_prompt_does_not_replay_a_stale_answer(
    model: LiteLLMModel, ask: Any, shared: Path, tmp_path: Path
) -> None:
    path = converted(shared / "data/cassettes/21_anthropic_native_vcr_format.yaml", tmp_path)
    request = ask("anthropic/claude-sonnet-4-5-20250929", "Bye!", stable="", max_tokens=64000)
    with played(path) as cassette, pytest.raises(ModelError):
        await model.complete(request, timeout_s=10)
    assert not cassette.all_played
