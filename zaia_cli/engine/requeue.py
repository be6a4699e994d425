"""The one way back to pending.

Idea: retry, give back, expired lease, approval decided and a person's retry all end here, under the hot row's lock.
Invariant: a conversation has one pending item; a newer one is absorbed and its reference becomes an alias. Tested in
``tests/engine/test_recovery.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from zaia_cli.core.priority import ClassDecision, higher
from zaia_cli.core.states import Actor
from zaia_cli.store.database import Session

__all__ = ["requeue"]


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
    where = {"organization_id": item["organization_id"], "item_id": item["item_id"]}
    newer = await session.run(
        "turn.absorb_pending", **where, conversation_id=item["conversation_id"], actor=actor, by=by
    )
    absorbed = newer[0] if newer else None
    decision = None
    if absorbed is not None:
        decision = higher(ClassDecision(item["class"]), ClassDecision(absorbed["class"], absorbed["class_rule"]))
    rows = await session.run(
        "turn.return_to_pending",
        **where,
        why=why,
        actor=actor,
        by=by,
        error=dict(error) if error else None,
        wait_s=wait_s,
        counts=counts,
        from_state=from_state,
        item_class=decision.item_class if decision and decision.rule else None,
        class_rule=decision.rule if decision and decision.rule else None,
        last_seq=absorbed["last_seq"] if absorbed else 0,
        source_message=absorbed["source_message"] if absorbed else None,
    )
    return bool(rows)
