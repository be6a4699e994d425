"""Stored messages as the model reads them."""

from __future__ import annotations

from typing import Any

from zaia_cli.agent.history import build_history
from zaia_cli.agent.loop import StepRecord, ToolRecord
from zaia_cli.core.chat import ToolCall


def row(role: str, text: str, seq: int | None, after: int, **extra: Any) -> dict[str, Any]:
    base = {"kind": "text", "item_id": None, "starts_turn": role == "customer", "is_deleted": False}
    return {"role": role, "text": text, "seq": seq, "after_seq": after, **base, **extra}


def test_an_answer_stands_after_what_it_read_and_before_what_came_meanwhile() -> None:
    rows = [
        row("customer", "quanto custa?", 1, 1),
        row("agent", "R$ 49,90.", None, 1),
        row("customer", "desconto?", 2, 2),
    ]
    history = build_history(rows, done_until=1, stored_until=None, earlier_steps={})
    assert [(m.role, m.content) for m in history.messages] == [
        ("user", "quanto custa?"),
        ("assistant", "R$ 49,90."),
        ("user", "desconto?"),
    ]
    assert (history.read_until, history.unanswered_count) == (2, 1)


def test_a_deleted_message_is_not_shown_and_counts_as_read() -> None:
    rows = [row("customer", "errada", 1, 1, is_deleted=True)]
    history = build_history(rows, done_until=0, stored_until=None, earlier_steps={})
    assert history.messages == ()
    assert (history.read_until, history.unanswered_count) == (1, 0)


def test_what_came_after_the_stored_steps_stands_behind_them() -> None:
    rows = [row("customer", "um", 1, 1), row("customer", "dois", 2, 2)]
    history = build_history(rows, done_until=0, stored_until=1, earlier_steps={})
    assert [m.content for m in history.messages] == ["um"]
    assert [m.content for m in history.later] == ["dois"]


def test_tool_steps_of_an_earlier_item_stand_before_its_answer() -> None:
    rows = [
        row("customer", "pedido?", 1, 1),
        row("agent", "pago", None, 1, item_id="i1"),
        row("customer", "e aí?", 2, 2),
    ]
    call = ToolCall("c1", "order", {"id": 10})
    steps = {"i1": [StepRecord(1, "", (call,), {1: ToolRecord("succeeded", "paid")})]}
    history = build_history(rows, done_until=1, stored_until=None, earlier_steps=steps)
    assert [m.role for m in history.messages] == ["user", "assistant", "tool", "assistant", "user"]


def test_what_a_handoff_text_did_not_answer_stands_last() -> None:
    rows = [row("customer", "oi", 1, 1), row("agent", "Vou te passar.", None, 1), row("customer", "alguém?", 2, 2)]
    history = build_history(rows, done_until=0, stored_until=None, earlier_steps={})
    assert [m.content for m in history.messages] == ["Vou te passar.", "oi", "alguém?"]
    assert history.unanswered_count == 2
