"""Health now, in one look.

Idea: what an operator asks first: is it up, does it move, who waits. Invariant: ``problems`` names everything that
needs a person, and is empty when nothing does. Tested in ``tests/store/test_reports.py``.
"""

from __future__ import annotations

from typing import Any

from zaia_cli.reports.plain import plain, seconds
from zaia_cli.store.database import Database

__all__ = ["health"]

ALIVE_WITHIN_S = 30.0


async def health(db: Database, *, organization: str | None = None) -> dict[str, Any]:
    """Collect the health of the engine.

    Args:
        db: Read only.
        organization: Count only its work; database and workers are everybody's.

    Returns:
        ``database``, ``workers``, ``queue`` (open items by state and class with the oldest age in seconds), ``leases``,
        ``waiting`` (unknown replies, handoffs, approvals, unsent alerts), ``gates``, ``last_24h``, ``problems``.
    """
    server = (await db.run("reports_status.server"))[0]
    workers = await db.run("reports_status.workers")
    queue = await db.run("reports_status.queue", organization=organization)
    counters = (await db.run("reports_status.counters", organization=organization))[0]
    gates = await db.run("reports_status.gates", organization=organization)
    last_day = (await db.run("reports_status.last_day", organization=organization))[0]
    alive = [worker for worker in workers if worker["seen_s"] <= ALIVE_WITHIN_S]
    document = {
        "schema_version": 1,
        "database": server,
        "workers": {
            "alive": len(alive),
            "silent": len(workers) - len(alive),
            "in_flight": sum(worker["in_flight"] for worker in alive),
            "processes": [
                worker | {"seen_s": seconds(worker["seen_s"]), "is_alive": worker["seen_s"] <= ALIVE_WITHIN_S}
                for worker in workers
            ],
        },
        "queue": [row | {"oldest_s": seconds(row["oldest_s"])} for row in queue],
        "leases": {"live": counters["leases_live"], "expired": counters["leases_expired"]},
        "waiting": {
            name: counters[name]
            for name in ("replies_unknown", "handoffs_open", "approvals_waiting", "alerts_pending", "alerts_failed")
        },
        "gates": [row | {"opens_in_s": seconds(row["opens_in_s"])} for row in gates],
        "last_24h": last_day,
        "problems": _problems(len(alive), queue, counters, gates),
    }
    return plain(document)  # type: ignore[no-any-return]


def _problems(
    alive: int, queue: list[dict[str, Any]], counters: dict[str, Any], gates: list[dict[str, Any]]
) -> list[str]:
    waiting = sum(row["items"] for row in queue if row["state"] in ("pending", "processing"))
    found = []
    if waiting and not alive:
        found.append(f"{waiting} work items wait and no worker is alive: zaia run-worker")
    if counters["leases_expired"]:
        found.append(f"{counters['leases_expired']} leases have expired and nobody has taken the work over")
    if counters["replies_unknown"]:
        found.append(f"{counters['replies_unknown']} replies have an unknown outcome: zaia reconcile")
    if counters["handoffs_open"]:
        found.append(f"{counters['handoffs_open']} conversations wait in the human lane: zaia human list")
    if counters["approvals_waiting"]:
        found.append(f"{counters['approvals_waiting']} approvals wait for a decision: zaia approvals list")
    if counters["alerts_failed"]:
        found.append(f"{counters['alerts_failed']} alerts could not be sent")
    found += [f"gate {gate['name']} of {gate['organization']} is closed: {gate['reason']}" for gate in gates]
    return found
