"""Taking in a payload when one of its items breaks the whole.

Idea: intake takes a payload in one transaction per company; when the database refuses a value, the items are taken one
by one. Invariant: an item that cannot be stored is kept as rejected, and its neighbours go on. Tested in
``tests/server/test_receiving.py``.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import psycopg

from zaia_cli.core.inbound import Event, Rejected
from zaia_cli.engine.intake import Intake, IntakeReport

__all__ = ["receive"]

_log = logging.getLogger(__name__)


async def receive(intake: Intake, events: Sequence[Event]) -> IntakeReport:
    """Take in ``events``; see ``Intake.accept``. ``index`` of a rejected item is its place in ``events``, from 0.

    Raises:
        UnavailableError: The database is away; nothing or a part was committed, and a repeat is deduped.
    """
    try:
        report = await intake.accept(events)
    except (psycopg.DataError, psycopg.IntegrityError, ValueError) as error:
        _log.warning("a payload of %d items breaks (%s); taking them one by one", len(events), type(error).__name__)
    else:
        report.rejected = sorted(_placed(events, report.rejected), key=lambda row: row["index"])
        return report
    total = IntakeReport()
    for index, event in enumerate(events):
        part = await _receive_one(intake, event)
        total.received += part.received
        total.accepted += part.accepted
        total.duplicates += part.duplicates
        total.statuses += part.statuses
        total.ignored += part.ignored
        total.rejected += [{**row, "index": index} for row in part.rejected]
        total.items += part.items
    return total


async def _receive_one(intake: Intake, event: Event) -> IntakeReport:
    try:
        return await intake.accept([event])
    except (psycopg.DataError, psycopg.IntegrityError, ValueError) as error:
        account = getattr(event, "account", None)
        path = f"{event.channel}:{account}"
        reason = f"cannot be stored: {type(error).__name__}"
        # As text: what the database refused once may be in there.
        raw = json.dumps(getattr(event, "raw", None), default=str)
        return await intake.accept([Rejected(event.channel, path, reason, raw, account)])


def _placed(events: Sequence[Event], rejected: Sequence[Mapping[str, Any]]) -> Iterator[dict[str, Any]]:
    """Number what was rejected: intake lists first what the parser rejected, then what no company's account took."""
    places = [index for index, event in enumerate(events) if isinstance(event, Rejected)]
    homeless = {row["path"] for row in rejected[len(places) :]}
    for index, event in enumerate(events):
        if not isinstance(event, Rejected) and f"{event.channel}:{getattr(event, 'account', None)}" in homeless:
            places.append(index)
    for index, row in zip(places, rejected, strict=False):
        yield {**row, "index": index}
    yield from (dict(row) for row in rejected[len(places) :])
