"""What the model calls cost.

Idea: one ``GROUP BY`` over the ledger, with the columns that were asked for. Invariant: money stays decimal; a call
whose cost is unknown is counted as unpriced and never as zero; days are the organization's own. Tested in
``tests/store/test_reports.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any
from zoneinfo import available_timezones

from sqlalchemy import ColumnElement, Date, Select, Text, cast, func, literal, select
from sqlalchemy.engine import make_url

from zaia_cli.core.errors import ConfigError
from zaia_cli.reports.plain import money, plain
from zaia_cli.store.database import Database, Session
from zaia_cli.store.schema_work import model_calls, organizations

__all__ = ["DIMENSIONS", "cost_report"]

DIMENSIONS = ("organization", "assistant", "prompt_version", "model", "conversation", "purpose", "day")

_DIALECT = make_url("postgresql+psycopg://").get_dialect()()
_COUNTS = ("calls", "input_tokens", "cache_read_tokens", "cache_write_tokens", "output_tokens")


async def cost_report(
    db: Database,
    *,
    by: Sequence[str] = ("organization",),
    since: date | None = None,
    until: date | None = None,
    timezone: str | None = None,
    organization: str | None = None,
    top: int | None = None,
) -> dict[str, Any]:
    """Add up the ledger in the shape of ``zaia cost-report --json`` (``CLI.md``).

    Args:
        db: Read only.
        by: Any of ``DIMENSIONS``, in the order of the columns.
        since: First day, included; None: from the first call.
        until: Last day, included; None: to the last call.
        timezone: Where days begin; None: in each organization's own time zone.
        organization: Only this one.
        top: Keep the most expensive rows; the total is that of all rows all the same.

    Returns:
        ``rows`` dearest first (by day when ``day`` is asked for and ``top`` is not), ``total``, and ``omitted_rows``.
        ``cost_usd`` is decimal text over the calls of known cost, null when there is none; ``unmetered_calls`` are
        those whose provider did not tell the tokens.

    Raises:
        ConfigError: Unknown dimension or time zone, or ``until`` before ``since``.
    """
    _check(by, since, until, timezone)
    day = _day(timezone)
    chosen = _filtered(day, since, until, organization)
    async with db.transaction() as session:
        total = (await _rows(session, _total(chosen, day)))[0]
        rows = await _rows(session, _grouped(chosen, by, day, top))
    return {
        "schema_version": 1,
        "currency": "USD",
        "timezone": timezone or _one_zone(total["zones"]),
        "since": plain(since or total["first_day"]),
        "until": plain(until or total["last_day"]),
        "by": list(by),
        "rows": [{name: plain(row[name]) for name in by} | _sums(row) for row in rows],
        "omitted_rows": (rows[0]["row_count"] if rows else 0) - len(rows),
        "total": _sums(total),
    }


async def _rows(session: Session, statement: Select[Any]) -> list[dict[str, Any]]:
    compiled = statement.compile(dialect=_DIALECT)
    return list(await session.execute(str(compiled), compiled.params))


def _check(by: Sequence[str], since: date | None, until: date | None, timezone: str | None) -> None:
    unknown = [name for name in by if name not in DIMENSIONS]
    if unknown or not by:
        raise ConfigError(
            f"cannot group by {', '.join(map(repr, unknown)) or 'nothing'}",
            hint=f"any of: {', '.join(DIMENSIONS)}",
            code="usage",
        )
    if timezone is not None and timezone not in available_timezones():
        raise ConfigError(f"no time zone named {timezone!r}", hint="example: America/Sao_Paulo", code="usage")
    if since is not None and until is not None and until < since:
        raise ConfigError(f"--until {until} is before --since {since}", hint="both days are included", code="usage")


def _day(timezone: str | None) -> ColumnElement[date]:
    zone = organizations.c.timezone if timezone is None else literal(timezone)
    return cast(func.timezone(zone, model_calls.c.at), Date)


def _filtered(
    day: ColumnElement[date], since: date | None, until: date | None, organization: str | None
) -> list[ColumnElement[bool]]:
    conditions: list[ColumnElement[bool]] = [organizations.c.id == model_calls.c.organization_id]
    if since is not None:
        conditions.append(day >= since)
    if until is not None:
        conditions.append(day <= until)
    if organization is not None:
        conditions.append(model_calls.c.organization_id == organization)
    return conditions


def _measures() -> list[ColumnElement[Any]]:
    ledger = model_calls.c
    return [
        func.count().label("calls"),
        *(func.coalesce(func.sum(ledger[name]), 0).label(name) for name in _COUNTS[1:]),
        func.sum(ledger.cost_usd).label("cost_usd"),
        func.count().filter(ledger.cost_usd.is_(None)).label("unpriced_calls"),
        func.count().filter(ledger.outcome != "ok").label("failed_calls"),
        func.count().filter(ledger.input_tokens.is_(None)).label("unmetered_calls"),
    ]


def _total(conditions: list[ColumnElement[bool]], day: ColumnElement[date]) -> Select[Any]:
    zones = func.array_agg(organizations.c.timezone.distinct())
    ends = (func.min(day).label("first_day"), func.max(day).label("last_day"), zones.label("zones"))
    return select(*_measures(), *ends).where(*conditions)


def _grouped(
    conditions: list[ColumnElement[bool]], by: Sequence[str], day: ColumnElement[date], top: int | None
) -> Select[Any]:
    ledger = model_calls.c
    columns: dict[str, ColumnElement[Any]] = {
        "organization": ledger.organization_id,
        "assistant": ledger.assistant,
        "prompt_version": ledger.prompt_version,
        "model": ledger.model,
        "conversation": cast(ledger.conversation_id, Text),
        "purpose": ledger.purpose,
        "day": day,
    }
    keys = [columns[name].label(name) for name in by]
    groups = select(*keys, *_measures()).where(*conditions).group_by(*(columns[name] for name in by)).subquery("groups")
    dearest = (groups.c.cost_usd.desc().nulls_last(), groups.c.calls.desc())
    order = dearest if top is not None or "day" not in by else ()
    statement = select(groups, func.count().over().label("row_count"))
    statement = statement.order_by(*order, *(groups.c[name] for name in by))
    return statement if top is None else statement.limit(top)


def _sums(row: dict[str, Any]) -> dict[str, Any]:
    sums: dict[str, Any] = {name: int(row[name]) for name in _COUNTS}
    read = sums["input_tokens"] + sums["cache_read_tokens"] + sums["cache_write_tokens"]
    return sums | {
        "cost_usd": money(row["cost_usd"]),
        "unpriced_calls": row["unpriced_calls"],
        "failed_calls": row["failed_calls"],
        "unmetered_calls": row["unmetered_calls"],
        "cache_hit_ratio": round(sums["cache_read_tokens"] / read, 4) if read else None,
    }


def _one_zone(zones: list[str] | None) -> str | None:
    if not zones:
        return None
    return zones[0] if len(zones) == 1 else "each organization's own"
