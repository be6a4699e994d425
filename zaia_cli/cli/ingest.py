"""``zaia ingest``: the same intake from a file. Tested in ``tests/cli/test_ingest.py``."""

from __future__ import annotations

import asyncio
import dataclasses
import sys
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zaia_cli.cli.command import Options, command
from zaia_cli.cli.runtime import Runtime, open_runtime
from zaia_cli.core.errors import ConfigError, NotFoundError
from zaia_cli.core.inbound import Event, Ignored, Message, Rejected, StatusUpdate
from zaia_cli.core.text import shorten

if TYPE_CHECKING:
    from zaia_cli.engine.intake import IntakeReport

__all__ = ["IngestChannel", "ingest"]

_RAW_LIMIT = 100_000


class IngestChannel(StrEnum):
    """The channels whose payloads a file may hold."""

    whatsapp = "whatsapp"
    instagram = "instagram"
    http = "http"


@command(
    examples=(
        "zaia ingest fixtures/webhooks/whatsapp_batch.json --channel whatsapp --fresh",
        "zaia ingest requests.jsonl --channel http --account formulario --json",
        "cat payload.json | zaia ingest - --channel instagram",
    ),
    exit_codes=(0, 1, 2, 3, 4, 5, 6),
)
async def ingest(
    options: Options,
    file: Annotated[str, typer.Argument(metavar="FILE|-", help="A file, or - for stdin.", show_default=False)],
    channel: Annotated[IngestChannel, typer.Option("--channel", help="Whose payloads these are.", show_default=False)],
    account: Annotated[
        str | None,
        typer.Option(
            "--account", metavar="NAME", help="With http: the account; the only one by default.", show_default=False
        ),
    ] = None,
    fresh: Annotated[bool, typer.Option("--fresh", help="Stamp messages with the present time.")] = False,
) -> None:
    """Take in payloads from a file through the intake that webhooks use.

    FILE holds one JSON payload, an array of payloads, or one payload a line. Taking the same file in twice changes
    nothing where messages have ids: repeats are counted. A line that is not JSON, or an item that cannot be read, is
    rejected and kept (zaia queue rejected); its neighbours go on. Exit 3 when there was nothing but rejected items.

    Recorded messages are old, and one older than 24 hours goes to a person as too late to be answered; --fresh stamps
    them with the present time.
    """
    text = await asyncio.to_thread(_read, file)
    async with open_runtime(options) as runtime:
        parse = await _parser(runtime, channel, account)
        events = list(_events(text, channel.value, parse))
        late_s = runtime.config.intake.stale_after_s
        now = datetime.now(UTC)
        if fresh:
            events = [_stamped(event, now + timedelta(microseconds=n)) for n, event in enumerate(events)]
        report = await _take(runtime, events)
    late = sum(isinstance(e, Message) and (now - e.sent_at).total_seconds() > late_s for e in events)
    _tell(options, report, late if report.accepted else 0)
    if report.rejected and len(report.rejected) == report.received:
        raise typer.Exit(3)


def _tell(options: Options, report: IntakeReport, late: int) -> None:
    document: dict[str, Any] = {
        "received": report.received,
        "accepted": report.accepted,
        "duplicates": report.duplicates,
        "statuses": report.statuses,
        "ignored": report.ignored,
        "rejected": report.rejected,
        "items": [
            {name: row.get(name) for name in ("reference", "conversation", "class", "message_id", "state")}
            for row in report.items
        ],
    }
    output = options.output
    output.json(document)
    counted = ("received", "accepted", "duplicates", "statuses", "ignored")
    output.table((*counted, "rejected"), [(*(document[name] for name in counted), len(report.rejected))])
    if document["items"]:
        output.table(tuple(document["items"][0]), [tuple(row.values()) for row in document["items"]])
    for row in report.rejected:
        output.note(f"rejected: item {row['index']} ({row['path']}): {row['reason']}")
    if late:
        output.note(f"{late} messages are too old to be answered and go to a person; --fresh stamps them with now")


def _read(file: str) -> str:
    try:
        data = sys.stdin.buffer.read() if file == "-" else Path(file).read_bytes()
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {file}") from None
    except OSError as error:
        raise ConfigError(f"{file} cannot be read: {error.strerror}") from None
    return data.decode("utf-8-sig", "replace")


async def _parser(runtime: Runtime, channel: IngestChannel, account: str | None) -> Callable[[Any], Sequence[Event]]:
    from zaia_cli.channels import http, instagram, whatsapp

    if channel is not IngestChannel.http:
        if account is not None:
            raise ConfigError(f"--account is for http; a {channel.value} payload names its account")
        return whatsapp.parse if channel is IngestChannel.whatsapp else instagram.parse
    rows = await runtime.database.run("server.accounts")
    known = [row["account"] for row in rows if row["channel"] == "http"]
    if account is None and len(known) != 1:
        listed = ", ".join(known) or "none"
        raise ConfigError(f"--channel http needs --account; there are: {listed}", hint="zaia org list")
    if account is not None and account not in known:
        raise NotFoundError(f"no organization has an http account {account!r}", hint="zaia org list")
    chosen = account or known[0]
    return lambda payload: http.parse(payload, chosen)


def _events(text: str, channel: Any, parse: Callable[[Any], Sequence[Event]]) -> Iterator[Event]:
    """Cut a file into payloads and each payload into events, in order.

    Raises:
        ConfigError: The file is empty.
    """
    from zaia_cli.server.body import BadBodyError, parse_json

    if not text.strip():
        raise ConfigError("there is nothing to take in: the input is empty")
    try:
        whole = parse_json(text)
    except BadBodyError as error:
        problem = error.message
    else:
        for payload in whole if isinstance(whole, list) else [whole]:
            yield from parse(payload)
        return
    lines = [(number, line) for number, line in enumerate(text.split("\n"), start=1) if line.strip()]
    payloads: list[tuple[int, str, Any]] = []
    for number, line in lines:
        try:
            payloads.append((number, line, parse_json(line)))
        except BadBodyError as error:
            payloads.append((number, line, error))
    if not any(isinstance(payload, dict) for _, _, payload in payloads):
        yield Rejected(channel, "file", problem, shorten(text, _RAW_LIMIT))
        return
    for number, line, payload in payloads:
        if isinstance(payload, BadBodyError):
            yield Rejected(channel, f"line {number}", f"line {number}: {payload.message}", line[:_RAW_LIMIT])
        else:
            yield from parse(payload)


def _stamped(event: Event, now: datetime) -> Event:
    if isinstance(event, StatusUpdate | Rejected | Ignored):
        return event
    return dataclasses.replace(event, sent_at=now)


async def _take(runtime: Runtime, events: Sequence[Event]) -> IntakeReport:
    """Take the events in, in pieces that intake holds; a rejected item's ``index`` counts over the whole input."""
    from zaia_cli.channels.sending import open_channels
    from zaia_cli.engine.intake import Intake, IntakeReport
    from zaia_cli.server.receiving import receive

    total = IntakeReport()
    async with open_channels(runtime.config.delivery) as channels:
        intake = Intake(runtime.database, runtime.config, channels)
        size = runtime.config.intake.max_items
        for start in range(0, len(events), size):
            piece = events[start : start + size]
            report = await receive(intake, piece)
            total.rejected += [{**row, "index": start + row["index"]} for row in report.rejected]
            total.items += report.items
            for name in ("received", "accepted", "duplicates", "statuses", "ignored"):
                setattr(total, name, getattr(total, name) + getattr(report, name))
    return total
