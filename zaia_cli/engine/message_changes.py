"""Edits, revokes and reactions: what customers change in what they already said.

Idea: before the answer, the message itself changes; after it, the change is kept and noted for the next turn.
Invariant: a turn that runs while its messages change cannot commit (``hot.revised``). Tested in
``tests/engine/test_cases.py``.
"""

from __future__ import annotations

from typing import Any

from zaia_cli.core.ids import new_id
from zaia_cli.core.inbound import MessageEdit, MessageRevoke, Reaction
from zaia_cli.engine.conversation_plan import Changes, ConversationPlan

__all__ = ["edit", "reaction", "revoke"]

Row = dict[str, Any]


def edit(plan: ConversationPlan, edit: MessageEdit, out: Changes) -> None:
    """Replace the text of an unanswered message; keep an answered one and note what changed."""
    target = plan.texts.get(edit.original_id)
    if target is None:
        _remember_early(plan, edit, "edit", edit.kind, edit.text, out)
        return
    revisions = list(target["revisions"]) or [{"text": target["text"], "at": None}]
    revisions.append({"text": edit.text, "at": edit.sent_at.isoformat(), "provider_id": edit.provider_id})
    target["revisions"] = revisions
    is_unanswered = target["seq"] > plan.head["done_until"]
    if is_unanswered:
        target["text"] = edit.text
        _mark_changed(plan, out)
    else:
        _note(plan, f"[o cliente editou uma mensagem anterior para: {edit.text}]", "edit", edit, out)
    _save_text(plan, target, out)


def revoke(plan: ConversationPlan, revoke: MessageRevoke, out: Changes) -> None:
    """Drop a message before it is answered; cancel the item when nothing else is asked."""
    target = plan.texts.get(revoke.original_id)
    if target is None:
        _remember_early(plan, revoke, "revoke", "revoke", None, out)
        return
    if target["deleted_at"] is not None:
        return
    target["deleted_at"] = revoke.sent_at
    plan.live.pop(target["id"], None)
    _save_text(plan, target, out)
    if target["seq"] > plan.head["done_until"]:
        _mark_changed(plan, out)
        if not plan.live and not plan.is_leased:
            plan.head["done_until"] = plan.head["last_in"]
            _cancel_pending(plan, "every message was deleted by the customer", out)


def reaction(plan: ConversationPlan, reaction: Reaction, out: Changes) -> None:
    """Keep a reaction as a note; it asks for nothing."""
    shown = f"[reação {reaction.emoji}]" if reaction.emoji else "[reação removida]"
    _note(plan, shown, "reaction", reaction, out, reply_to=reaction.target_id)


def _mark_changed(plan: ConversationPlan, out: Changes) -> None:
    if plan.is_leased:
        plan.head["revised"] = True
    elif plan.pending is not None:
        out.stale_steps.append({"organization_id": plan.organization_id, "item_id": plan.pending["id"]})
        plan.pending["touched"] = True
        plan.postpone()


def _cancel_pending(plan: ConversationPlan, why: str, out: Changes) -> None:
    if plan.pending is None:
        return
    out.stale.pop(plan.id, None)
    if plan.is_new_item:
        plan.is_new_item = False
    else:
        out.cancelled_items.append({"organization_id": plan.organization_id, "id": plan.pending["id"], "why": why})
    plan.pending = None


def _save_text(plan: ConversationPlan, target: Row, out: Changes) -> None:
    if any(row is target for row in out.messages):
        return
    out.revised = [row for row in out.revised if row["id"] != target["id"]]
    keys = ("id", "text", "revisions", "deleted_at")
    out.revised.append({"organization_id": plan.organization_id, **{key: target[key] for key in keys}})


def _note(
    plan: ConversationPlan,
    text: str,
    kind: str,
    event: MessageEdit | Reaction,
    out: Changes,
    *,
    reply_to: str | None = None,
) -> None:
    out.messages.append(
        {
            "organization_id": plan.organization_id,
            "id": new_id(),
            "conversation_id": plan.id,
            "seq": None,
            "after_seq": plan.head["seq"],
            "role": "note",
            "kind": kind,
            "text": text,
            "provider_id": event.provider_id,
            "reply_to": reply_to,
            "raw": event.raw,
            "sent_at": event.sent_at,
        }
    )


def _remember_early(
    plan: ConversationPlan, event: MessageEdit | MessageRevoke, change: str, kind: str, text: str | None, out: Changes
) -> None:
    out.changes.append(
        {
            "organization_id": plan.organization_id,
            "channel": event.channel,
            "account": event.account,
            "original_id": event.original_id,
            "change": change,
            "provider_id": event.provider_id,
            "kind": kind,
            "text": text,
            "sent_at": event.sent_at,
            "raw": event.raw,
        }
    )
