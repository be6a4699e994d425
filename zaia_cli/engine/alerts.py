"""Alerts on their way to people: durable rows, webhook and command sinks.

Idea: an alert is raised in the transaction of what it tells; this sends it later, to every sink. Invariant: an alert is
marked sent only when all sinks took it; a sink that fails is tried again, at most ten times. Tested in
``tests/engine/test_alerts.py``.
"""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Mapping
from typing import Any

import aiohttp

from zaia_cli.core.config import AlertSink
from zaia_cli.store.database import Database, encode_json

__all__ = ["send_due_alerts"]

_log = logging.getLogger(__name__)

_TRIES = 10
_TIMEOUT_S = 10.0


async def send_due_alerts(db: Database, sinks: tuple[AlertSink, ...]) -> int:
    """Send what is due. Without sinks, alerts are logged and stay readable in ``zaia status``.

    Returns:
        How many alerts were sent.
    """
    rows = await db.run("events.due_alerts")
    finished = []
    for row in rows:
        problem = await _send(row, sinks)
        if problem is None:
            finished.append(
                {"organization_id": row["organization_id"], "id": row["id"], "state": "sent", "error": None}
            )
        elif row["attempts"] >= _TRIES:
            finished.append(
                {"organization_id": row["organization_id"], "id": row["id"], "state": "failed", "error": problem}
            )
    if finished:
        await db.run("events.finish_alerts", finished)
    return sum(row["state"] == "sent" for row in finished)


async def _send(alert: Mapping[str, Any], sinks: tuple[AlertSink, ...]) -> str | None:
    document = json.loads(encode_json(dict(alert)))
    _log.warning("alert %s: %s", alert["kind"], alert["message"])
    problem = None
    for sink in sinks:
        try:
            async with asyncio.timeout(_TIMEOUT_S):
                await (_post(sink, document) if sink.kind == "webhook" else _run(sink, document))
        except (aiohttp.ClientError, OSError, TimeoutError, RuntimeError) as error:
            problem = f"{sink.kind}: {type(error).__name__}: {error}"
            _log.error("alert sink failed: %s", problem)
    return problem


async def _post(sink: AlertSink, document: Mapping[str, Any]) -> None:
    async with (
        aiohttp.ClientSession() as session,
        session.post(sink.url, json=document, allow_redirects=False) as answer,
    ):
        if answer.status >= 300:
            raise RuntimeError(f"HTTP {answer.status}")


async def _run(sink: AlertSink, document: Mapping[str, Any]) -> None:
    process = await asyncio.create_subprocess_exec(*sink.command, stdin=asyncio.subprocess.PIPE)
    try:
        await process.communicate(json.dumps(document).encode())
    except BaseException:
        process.kill()
        raise
    if process.returncode != 0:
        raise RuntimeError(f"exit {process.returncode}")
