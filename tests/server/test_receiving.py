"""One item that breaks the whole."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from tests.server.conftest import Client
from zaia_cli.channels.sending import open_channels
from zaia_cli.core.config import Config
from zaia_cli.core.inbound import Event, Ignored, Message, Party, Rejected
from zaia_cli.engine.intake import Intake
from zaia_cli.server.receiving import receive


def text(provider_id: str, account: str = "100000000000001", **raw: Any) -> Message:
    party = Party("5511900010000", ("phone:5511900010000",))
    return Message("whatsapp", account, provider_id, party, "text", "Oi", datetime.now(UTC), raw=raw)


async def test_an_item_that_cannot_be_stored_is_kept_as_rejected_and_its_neighbours_go_on(client: Client) -> None:
    events: list[Event] = [
        text("wamid.1"),
        text("wamid.2", odd=float("nan")),
        text("wamid.3"),
        Ignored("whatsapp", "history"),
    ]
    async with open_channels(Config().delivery) as channels:
        report = await receive(Intake(client.db, Config(), channels), events)
    assert (report.received, report.accepted, report.ignored) == (4, 2, 1)
    assert [row["index"] for row in report.rejected] == [1]
    async with client.db.transaction() as session:
        kept = await session.execute("SELECT raw FROM rejected_inputs")
    assert [row["raw"] for row in kept] == ['{"odd": NaN}']


async def test_rejected_items_are_numbered_by_their_place(client: Client) -> None:
    events: list[Event] = [
        text("wamid.1", "999"),
        text("wamid.2"),
        Rejected("whatsapp", "entry[0]", "odd"),
        text("wamid.3", "998"),
    ]
    async with open_channels(Config().delivery) as channels:
        report = await receive(Intake(client.db, Config(), channels), events)
    assert [(row["index"], row["path"]) for row in report.rejected] == [
        (0, "whatsapp:999"),
        (2, "entry[0]"),
        (3, "whatsapp:998"),
    ]
