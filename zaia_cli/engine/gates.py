"""Gates of channel accounts: closed when the channel refuses the account, opened by time or by a person.

Idea: a closed gate keeps replies pending and spends no attempt. Invariant: opening is an event with the person's name.
Tested in ``tests/engine/test_gates.py``.
"""

from __future__ import annotations

from typing import Any

from zaia_cli.core.errors import NotFoundError
from zaia_cli.store.database import Database, Session

__all__ = ["gate_name", "open_gate"]


def gate_name(channel: str, account: str) -> str:
    """The gate of one channel account."""
    return f"channel:{channel}:{account}"


async def open_gate(db: Database, org: str, name: str, *, by: str) -> dict[str, Any]:
    """Open a closed gate after the account was repaired; what waits goes out at once.

    Raises:
        NotFoundError: The gate is not closed.
    """

    async def work(session: Session) -> dict[str, Any]:
        if not await session.run("gates.open", organization_id=org, name=name):
            raise NotFoundError(f"{name} of {org} is not closed", hint="zaia status")
        row = {
            "organization_id": org,
            "entity": "gate",
            "entity_id": name,
            "from_state": "closed",
            "to_state": "open",
            "actor": "person",
            "by": by,
            "why": "opened after repair",
        }
        await session.run("events.insert", [row])
        return {"organization": org, "gate": name, "state": "open"}

    done = await db.with_retries(work)
    await db.notify()
    return done
