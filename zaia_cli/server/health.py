"""Whether the process is up, whether it can work, and a few numbers.

Idea: ``/healthz`` says that the process answers, ``/readyz`` that the database answers with the schema this version
needs, ``/metrics`` counts rows. Invariant: a number is read from the database when it is asked for; nothing is counted
in this process. Tested in ``tests/server/test_health.py``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response

from zaia_cli.core.errors import RefusedError, UnavailableError
from zaia_cli.core.states import ITEM_STATES, PART_STATES
from zaia_cli.server.site import Site, refusal
from zaia_cli.store import migrate

__all__ = ["Health"]

_ASK_TIMEOUT_S = 5.0


class Health:
    """The routes that operators and load balancers ask.

    Args:
        site: The server's parts.
    """

    def __init__(self, site: Site) -> None:
        self._site = site

    async def live(self, _: Request) -> Response:
        """``GET /healthz``."""
        return PlainTextResponse("ok\n")

    async def ready(self, _: Request) -> Response:
        """``GET /readyz``: 503 while the database is away or its schema is another version's."""
        try:
            async with asyncio.timeout(_ASK_TIMEOUT_S):
                await asyncio.to_thread(migrate.require_current, self._site.db.dsn)
        except UnavailableError as error:
            return refusal(503, error.code, "the database does not answer")  # its address is nobody's business here
        except RefusedError as error:
            return refusal(503, error.code, error.message)
        except TimeoutError:
            return refusal(503, "database_unavailable", f"no answer within {_ASK_TIMEOUT_S:g} s")
        return JSONResponse({"ready": True})

    async def metrics(self, _: Request) -> Response:
        """``GET /metrics``: gauges in the Prometheus text format."""
        db = self._site.db
        items = {row["state"]: row for row in await db.run("reports_queue.states", organization=None)}
        parts = {row["state"]: row["parts"] for row in await db.run("server.part_states")}
        counters: Mapping[str, Any] = (await db.run("reports_queue.counters", organization=None))[0]
        lines = [
            *_gauge(
                "zaia_work_items",
                "Work items by state.",
                ((state, items[state]["items"] if state in items else 0) for state in ITEM_STATES),
            ),
            *_gauge("zaia_reply_parts", "Parts of replies by state.", ((s, parts.get(s, 0)) for s in PART_STATES)),
            *_number("zaia_overdue_items", "Open items past their promise.", sum(i["overdue"] for i in items.values())),
            *_number("zaia_expired_leases_24h", "Leases that expired in 24 hours.", counters["expired_leases_24h"]),
            *_number("zaia_human_open", "Conversations that wait for a person.", counters["human_open"]),
            *_number("zaia_rejected_inputs", "Inputs that could not be read.", counters["rejected_inputs"]),
        ]
        return PlainTextResponse("\n".join(lines) + "\n", media_type="text/plain; version=0.0.4")


def _gauge(name: str, told: str, values: Iterable[tuple[str, int]]) -> list[str]:
    head = [f"# HELP {name} {told}", f"# TYPE {name} gauge"]
    return head + [f'{name}{{state="{state}"}} {value}' for state, value in values]


def _number(name: str, told: str, value: int) -> list[str]:
    return [f"# HELP {name} {told}", f"# TYPE {name} gauge", f"{name} {value}"]
