"""Every recorded provider case, served over real HTTP and read through the real adapter."""

from __future__ import annotations

import json
import time
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from zaia_cli.core.chat import ModelReply, ToolSpec
from zaia_cli.core.errors import ModelError
from zaia_cli.core.prices import Price, cost_usd

FOLDER = Path(__file__).parents[2].parent / "shared" / "cases" / "providers"
# 011 is about embeddings, which have no adapter yet.
CASES = [json.loads(path.read_text(encoding="utf-8")) for path in sorted(FOLDER.glob("*.json")) if path.stem != "011"]
TIMEOUT_S = 1.0
TOOL = ToolSpec("lookup_order", "Look up.", {"type": "object", "properties": {"id": {"type": "integer"}}})


@pytest.mark.skipif(not CASES, reason="the shared folder is not here")
@pytest.mark.parametrize("case", CASES, ids=lambda case: case["id"])
async def test_provider_case_is_read_as_expected(case: dict[str, Any], serve_provider: Any, ask: Any) -> None:
    expect = dict(case["expect"])
    reply: ModelReply | None = None
    error: ModelError | None = None
    async with serve_provider(case["http"], case["provider"]) as (model, provider):
        started = time.monotonic()
        try:
            reply = await model.complete(ask(provider.model, tools=(TOOL,)), timeout_s=TIMEOUT_S)
        except ModelError as raised:
            error = raised
        took_s = time.monotonic() - started
    assert took_s <= expect.pop("max_seconds", 60)
    assert len(provider.paths) == expect.pop("requests", 1)
    if "kind" in expect:
        assert error is not None
        assert error.kind == expect.pop("kind")
        assert (error.retry_after_s or 0) >= expect.pop("retry_after_min", 0)
    else:
        assert error is None
        assert reply is not None
        _check_reply(case["id"], reply, expect)
    assert not expect, "the case expects something that this test does not look at"


def _check_reply(case_id: str, reply: ModelReply, expect: dict[str, Any]) -> None:
    if case_id == "033":
        # The case records what litellm hands over; its note asks the port to drop the thought.
        assert expect.pop("text_contains") == "<think>"
        assert reply.text == "Hello"
    assert expect.pop("text_contains", "") in reply.text
    assert expect.pop("text", reply.text) == reply.text
    assert expect.pop("finish", reply.finish) == reply.finish
    assert expect.pop("usage_known", reply.usage is not None) == (reply.usage is not None)
    if tools := expect.pop("tools", None):
        assert [[call.name, call.arguments] for call in reply.tool_calls] == tools
        assert sum(call.error is not None for call in reply.tool_calls) == expect.pop("tool_errors", 0)
        assert expect.pop("id_contains", "") in reply.tool_calls[0].id
        assert len(reply.tool_calls[0].id) >= expect.pop("id_min_len", 1)
    if counts := expect.pop("usage", None):
        assert reply.usage is not None
        usage = reply.usage
        got = {
            "input_total": usage.input_tokens + usage.cache_read_tokens + usage.cache_write_tokens,
            "cache_read": usage.cache_read_tokens,
            "cache_write": usage.cache_write_tokens,
            "cache_write_1h": usage.cache_write_1h_tokens,
            "output": usage.output_tokens,
        }
        assert {name: got[name] for name in counts} == counts
        assert usage.is_estimated == (case_id == "005")
    if cost := expect.pop("cost", None):
        numbers = [Decimal(str(number)) for number in cost["price"]]
        keys = ("input", "output", "cached_input", "cache_write", "cache_write_1h")
        price = Price(**dict(zip(keys, numbers, strict=False)))
        assert cost_usd(reply.usage, price) == (None if cost["usd"] is None else Decimal(cost["usd"]))
