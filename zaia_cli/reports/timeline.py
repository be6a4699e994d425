"""The story as lines that a person reads from top to bottom.

Idea: the JSON story holds everything; this orders it by time and says each thing once. Invariant: pure; every message,
attempt, tool call, delivery, status, handoff and person's decision of the story has a line. Tested in
``tests/cli/test_reports.py``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from zaia_cli.core.text import shorten

__all__ = ["Line", "error_text", "timeline"]

_TEXT_LIMIT = 400
_ARGUMENT_LIMIT = 160
_TOLD_ELSEWHERE = frozenset({"attempt", "part", "reply", "delivery", "handoff", "approval"})
_REPLY_WORDS = {
    "answer": "reply",
    "handoff": "handoff text",
    "acknowledgement": "acknowledgement",
    "duplicate": "duplicate notice",
    "notice": "notice",
    "human": "reply",
}

Part = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Line:
    """One moment: when (UTC), who or what, and what happened."""

    at: datetime
    who: str
    what: str


def timeline(story: dict[str, Any]) -> list[Line]:
    """Order everything in a story (``conversation_story``) by time; what shares a time keeps cause before effect."""
    lines = [
        *_messages(story),
        *_items(story["items"]),
        *_events(story["events"]),
        *_replies(story["replies"]),
        *_handoffs(story),
        *_approvals(story["approvals"]),
    ]
    return sorted(lines, key=lambda line: line.at)


def _line(at: str | None, who: str, what: str) -> Iterator[Line]:
    if at is not None:
        yield Line(datetime.fromisoformat(at), who, what)


def _messages(story: dict[str, Any]) -> Iterator[Line]:
    replied = {reply["text"] for reply in story["replies"]}
    for message in story["messages"]:
        role, revisions = message["role"], message["revisions"]
        said = shorten(revisions[0]["text"] if revisions else message["text"], _TEXT_LIMIT)
        if role in ("tool_call", "tool_result") or (role in ("agent", "human") and message["text"] in replied):
            continue
        mark = f"#{message['seq']} " if message["seq"] is not None else ""
        kind = "" if message["kind"] == "text" else f"[{message['kind']}] "
        who = message["author"] or role if role != "customer" else "customer"
        yield from _line(message["received_at"], who, f"{mark}{kind}{said}")
        for revision in revisions[1:]:
            yield from _line(revision["at"], "customer", f"{mark}edited: {shorten(revision['text'], _TEXT_LIMIT)}")
        yield from _line(message["deleted_at"], "customer", f"{mark}deleted")


def _items(items: list[Part]) -> Iterator[Line]:
    for item in items:
        reference = item["reference"]
        rule = f", rule: {item['class_rule']}" if item["class_rule"] else ""
        also = f", also {', '.join(item['aliases'])}" if item["aliases"] else ""
        yield from _line(item["opened_at"], reference, f"opened ({item['class']}{rule}){also}")
        for attempt in item["attempts"]:
            name = f"attempt {attempt['n']}"
            retry = " (retry)" if attempt["n"] > 1 else ""
            yield from _line(attempt["started_at"], reference, f"{name}{retry} started by {attempt['worker']}")
            for step in attempt["steps"]:
                yield from _step(reference, step)
            error = f": {error_text(attempt['error'])}" if attempt["error"] else ""
            yield from _line(attempt["ended_at"], reference, f"{name} {attempt['state']}{error}")
        for call in item["model_calls"]:
            if call["outcome"] != "ok":
                what = f"model call failed: {call['model']}, {call['outcome']}{_colon(call['error'])}"
                yield from _line(call["at"], reference, what)


def _step(reference: str, step: Part) -> Iterator[Line]:
    tokens = step["tokens"]
    cost = f"USD {step['cost_usd']}" if step["cost_usd"] is not None else "cost unknown"
    cached = f" ({tokens['cache_read']} cached)" if tokens["cache_read"] else ""
    total = sum(tokens.values())
    superseded = ", superseded" if step["superseded"] else ""
    what = f"step {step['n']}: {step['model']}, {total} tokens{cached}, {cost}, {step['latency_ms']} ms{superseded}"
    yield from _line(step["at"], reference, what)
    for call in step["tool_calls"]:
        arguments = shorten(
            ", ".join(f"{name}={value!r}" for name, value in (call["args"] or {}).items()), _ARGUMENT_LIMIT
        )
        outcome = call["result"] if call["result"] is not None else call["state"]
        what = f"step {step['n']}: {call['name']}({arguments}) -> {shorten(str(outcome), _TEXT_LIMIT)}"
        yield from _line(call.get("at") or step["at"], reference, what)


def _events(events: list[Part]) -> Iterator[Line]:
    for event in events:
        if (
            event["entity"] in _TOLD_ELSEWHERE
            and event["actor"] != "person"
            and event["to"]
            not in (
                "unknown",
                "cancelled",
            )
        ):
            continue
        what = event["item"] or event["entity"]
        move = f"{event['from']} -> {event['to']}" if event["from"] else f"{event['to'] or ''}"
        yield from _line(event["at"], event["by"], f"{what} {move}".rstrip() + _colon(event["why"]))


def _replies(replies: list[Part]) -> Iterator[Line]:
    for reply in replies:
        word = _REPLY_WORDS[reply["kind"]]
        parts = f" in {len(reply['parts'])} parts" if len(reply["parts"]) > 1 else ""
        read = f", read up to #{reply['read_until_seq']}" if reply["kind"] == "answer" else ""
        said = shorten(reply["text"], _TEXT_LIMIT)
        yield from _line(reply["at"], reply["author"], f"{word}{parts} ({reply['state']}{read}): {said}")
        for delivery in reply["deliveries"]:
            name = f"{word} part {delivery['part']}, delivery {delivery['n']}"
            error = f": {error_text(delivery['error'])}" if delivery["error"] else ""
            outcome = delivery["outcome"] or "not reported"
            yield from _line(
                delivery["ended_at"] or delivery["started_at"], delivery["worker"], f"{name}: {outcome}{error}"
            )
        for status in reply["statuses"]:
            late = " (late, changed nothing)" if status["is_late"] else ""
            error = f": {error_text(status['error'])}" if status["error"] else ""
            what = f"{word} part {status['part']}: {status['status']}{late}{error}"
            yield from _line(status["received_at"], "channel", what)


def _handoffs(story: dict[str, Any]) -> Iterator[Line]:
    for handoff in story["handoffs"]:
        to = f"{handoff['department']}, {handoff['assignee']}" if handoff["department"] else handoff["assignee"]
        note = _colon(shorten(handoff["note"], _TEXT_LIMIT))
        yield from _line(handoff["created_at"], "handoff", f"to {to} because of {handoff['reason']}{note}")
        yield from _line(handoff["resolved_at"], handoff["resolved_by"] or "handoff", "handoff resolved")


def _approvals(approvals: list[Part]) -> Iterator[Line]:
    for approval in approvals:
        what = f"asks {approval['assignee']} to approve {approval['tool']}"
        yield from _line(approval["created_at"], approval["item"] or "approval", what)
        decided = f"{approval['state']} {approval['tool']}{_colon(approval['why'])}"
        yield from _line(approval["decided_at"], approval["decided_by"] or "approval", decided)


def error_text(error: Any) -> str:
    """Say a stored error in one line: its code and its message."""
    if not isinstance(error, dict):
        return str(error)
    return ": ".join(str(error[name]) for name in ("code", "message") if error.get(name)) or str(error)


def _colon(text: str | None) -> str:
    return f": {text}" if text else ""
