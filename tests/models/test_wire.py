"""History repair and wire messages."""

from __future__ import annotations

import json
from pathlib import Path

from zaia_cli.core.chat import ChatMessage, ModelRequest, ToolCall, ToolSpec
from zaia_cli.models.wire import MISSING_RESULT, repaired_history, wire_messages, wire_tools


def call(call_id: str, name: str = "order") -> ToolCall:
    return ToolCall(call_id, name, {"id": 10})


def calls(*ids: str) -> ChatMessage:
    return ChatMessage("assistant", "", tuple(call(call_id) for call_id in ids))


def result(call_id: str, content: str = "pago") -> ChatMessage:
    return ChatMessage("tool", content, tool_call_id=call_id)


def user(content: str) -> ChatMessage:
    return ChatMessage("user", content)


def outline(messages: list[ChatMessage]) -> list[tuple[str, str | None, str]]:
    return [(message.role, message.tool_call_id, message.content) for message in messages]


def test_recorded_case_of_a_call_without_result(shared: Path) -> None:
    case = json.loads((shared / "cases/channels/072_tool_call_without_result.json").read_text(encoding="utf-8"))
    history = tuple(
        ChatMessage(
            raw["role"],
            raw["content"],
            tuple(ToolCall(c["id"], c["name"], json.loads(c["arguments"])) for c in raw.get("tool_calls", ())),
            raw.get("tool_call_id"),
        )
        for raw in case["input"]["history"]
    )
    sent = wire_messages(ModelRequest("m", "", history), with_cache_control=False)
    expected = case["expected"]["request_sent"]
    assert [message["role"] for message in sent] == [message["role"] for message in expected]
    assert [c["id"] for c in sent[1]["tool_calls"]] == expected[1]["tool_calls"]
    assert sent[1]["content"] is None
    assert [message.get("tool_call_id") for message in sent] == [m.get("tool_call_id") for m in expected]
    assert sent[3]["content"] == expected[3]["content"] == MISSING_RESULT


def test_results_move_next_to_their_calls_in_call_order() -> None:
    history = [user("oi"), calls("a", "b"), user("e aí?"), result("b", "B"), result("a", "A")]
    assert outline(repaired_history(history))[1:] == [
        ("assistant", None, ""),
        ("tool", "a", "A"),
        ("tool", "b", "B"),
        ("user", None, "e aí?"),
    ]


def test_orphan_and_second_results_are_dropped() -> None:
    history = [user("oi"), result("x"), calls("a"), result("a", "1"), result("a", "2")]
    assert outline(repaired_history(history))[1:] == [("assistant", None, ""), ("tool", "a", "1")]


def test_reused_id_answers_its_own_call() -> None:
    history = [calls("a"), result("a", "first"), calls("a"), result("a", "second")]
    assert [message.content for message in repaired_history(history) if message.role == "tool"] == ["first", "second"]


def test_result_of_a_reused_id_goes_to_the_newest_call() -> None:
    history = [calls("a"), user("e aí?"), calls("a"), result("a", "second")]
    results = [message.content for message in repaired_history(history) if message.role == "tool"]
    assert results == [MISSING_RESULT, "second"]


def test_nothing_empty_is_sent() -> None:
    history = (user("oi"), ChatMessage("assistant", " \u200b"), user(""), calls("a"), result("a", ""))
    sent = wire_messages(ModelRequest("m", "\n", history), with_cache_control=False)
    assert [message["role"] for message in sent] == ["user", "assistant", "tool"]
    assert sent[2]["content"]


def test_repair_of_a_valid_history_changes_nothing() -> None:
    history = [user("oi"), calls("a", "b"), result("a"), result("b"), ChatMessage("assistant", "pronto")]
    assert repaired_history(history) == history
    assert repaired_history(repaired_history(history)) == history


def test_unusable_arguments_are_replayed_as_an_empty_object() -> None:
    history = (user("oi"), ChatMessage("assistant", "", (ToolCall("a", "order", None, "cut"),)), result("a", "error"))
    sent = wire_messages(ModelRequest("m", "", history), with_cache_control=False)
    assert sent[1]["tool_calls"][0]["function"]["arguments"] == "{}"


def test_stable_prefix_is_the_same_bytes_whatever_the_context() -> None:
    first = wire_messages(ModelRequest("m", "Be kind.", (user("oi"),), "a"), with_cache_control=True)[0]["content"]
    second = wire_messages(ModelRequest("m", "Be kind.\n", (user("oi"),), "b"), with_cache_control=True)[0]["content"]
    assert first[0] == second[0] == {"type": "text", "text": "Be kind.\n", "cache_control": {"type": "ephemeral"}}
    assert (first[1], second[1]) == ({"type": "text", "text": "a\n"}, {"type": "text", "text": "b\n"})


def test_tools_keep_their_order() -> None:
    tools = [ToolSpec(name, "d", {"type": "object"}) for name in ("b", "a")]
    assert [tool["function"]["name"] for tool in wire_tools(tools)] == ["b", "a"]
