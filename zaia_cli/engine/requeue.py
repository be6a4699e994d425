"""The one way back to pending.

Idea: retry, give back, expired lease, approval decided and a person's retry all end here, under the hot row's lock.
Invariant: a conversation has one item that waits; a newer one is absorbed and its reference becomes an alias. Tested in
``tests/engine/test_recovery.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zaia_cli.core.priority import ClassDecision, higher
from zaia_cli.core.states import Actor
from zaia_cli.store.database import Session

__all__ = ["absorb", "requeue"]


async def requeue(
    session: Session,
    item: Mapping[str, Any],
    *,
    why: str,
    actor: Actor,
    by: str,
    error: Mapping[str, Any] | None = None,
    wait_s: float = 0.0,
    counts: bool = True,
    from_state: str = "processing",
) -> bool:
    """Return a held item to pending.

    Args:
        session: The transaction that holds the hot row's lock.
        item: ``organization_id, conversation_id, item_id, class``.
        why: For the event.
        actor: Who makes the move.
        by: Their name.
        error: Kept with the item.
        wait_s: Seconds until it is due.
        counts: Whether the attempt that ends was spent.
        from_state: For the event.

    Returns:
        False when the item was not in a state that can go back.
    """
    absorbed = await absorb(session, item, actor=actor, by=by)
    rows = await session.run(
        "turn.return_to_pending",
        organization_id=item["organization_id"],
        item_id=item["item_id"],
        why=why,
        actor=actor,
        by=by,
        error=dict(error) if error else None,
        wait_s=wait_s,
        counts=counts,
        from_state=from_state,
        **absorbed,
    )
    return bool(rows)


async def absorb(session: Session, item: Mapping[str, Any], *, actor: Actor, by: str) -> dict[str, Any]:
    """Take what was opened during a turn into the item that was before it.

    Args:
        session: The transaction that holds the hot row's lock.
        item: ``organization_id, conversation_id, item_id, class``.
        actor: Who makes the move.
        by: Their name.

    Returns:
        What the item takes over: ``item_class, class_rule`` (None: unchanged), ``last_seq``, ``source_message``.
    """
    keys = ("organization_id", "conversation_id", "item_id")
    rows = await session.run("turn.absorb_pending", **{key: item[key] for key in keys}, actor=actor, by=by)
    if not rows:
        return {"item_class": None, "class_rule": None, "last_seq": 0, "source_message": None}
    newer = rows[0]
    decision = higher(ClassDecision(item["class"]), ClassDecision(newer["class"], newer["class_rule"]))
    return {
        "item_class": decision.item_class if decision.rule else None,
        "class_rule": decision.rule or None,
        "last_seq": newer["last_seq"],
        "source_message": newer["source_message"],
    }
