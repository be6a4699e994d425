"""What the events table says of items and parts, held against the tables of moves.

Idea: the engine's tests leave real stories behind; each of them must be made of known moves, by known actors, without a
gap, and end where the row is. A claim of a part is recorded by its delivery, not by an event.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any

from zaia_cli.core.priority import BANDS
from zaia_cli.core.states import ITEM_STATES, ITEM_TRANSITIONS, PART_TRANSITIONS, Transition
from zaia_cli.store.database import Database

Row = Mapping[str, Any]


async def wrong_moves(db: Database) -> list[str]:
    """Say what is wrong with the recorded moves; empty when nothing is."""
    async with db.transaction() as session:
        items = await session.execute("SELECT id::text AS entity_id, state FROM work_items")
        parts = await session.execute("SELECT reply_id || ':' || n AS entity_id, state FROM parts")
        events = await session.execute(
            "SELECT entity, entity_id, from_state, to_state, actor, by FROM events"
            " WHERE entity IN ('item', 'part') ORDER BY id"
        )
    stories: dict[tuple[str, str], list[Row]] = defaultdict(list)
    wrong = []
    for event in events:
        if event["entity"] == "part" or event["to_state"] in ITEM_STATES:
            stories[event["entity"], event["entity_id"]].append(event)
        elif not {event["from_state"], event["to_state"]} <= {*BANDS, None}:
            wrong.append(f"item {event['entity_id']}: {event['from_state']} -> {event['to_state']} are no classes")
        if not event["by"]:
            wrong.append(f"{event['entity']} {event['entity_id']}: nobody is named")
    for row in items:
        wrong += _wrong_item(row, stories["item", row["entity_id"]])
    for row in parts:
        wrong += _wrong_part(row, stories["part", row["entity_id"]])
    return wrong


def _wrong_item(row: Row, story: Sequence[Row]) -> list[str]:
    if not story or (story[0]["from_state"], story[0]["to_state"]) != (None, "pending"):
        return [f"item {row['entity_id']} ({row['state']}): its opening is not recorded"]
    wrong = _unknown(story[1:], ITEM_TRANSITIONS)
    states = [event["to_state"] for event in story]
    wrong += [
        f"item {row['entity_id']}: after {before} comes a move from {event['from_state']}"
        for before, event in zip(states, story[1:], strict=False)
        if before != event["from_state"]
    ]
    if states[-1] != row["state"]:
        wrong.append(f"item {row['entity_id']} is {row['state']}, its last event says {states[-1]}")
    return wrong


def _wrong_part(row: Row, story: Sequence[Row]) -> list[str]:
    wrong = _unknown(story, PART_TRANSITIONS)
    state = "pending"
    for event in story:
        if event["from_state"] != state and (state, event["from_state"]) != ("pending", "sending"):
            wrong.append(f"part {row['entity_id']}: after {state} comes a move from {event['from_state']}")
        state = event["to_state"]
    if row["state"] != state and (state, row["state"]) != ("pending", "sending"):
        wrong.append(f"part {row['entity_id']} is {row['state']}, its last event says {state}")
    return wrong


def _unknown(story: Sequence[Row], table: Sequence[Transition]) -> list[str]:
    known = {(move.source, move.target): move.by for move in table}
    return [
        f"{event['entity']} {event['entity_id']}: {event['from_state']} -> {event['to_state']} by {event['actor']}"
        for event in story
        if event["actor"] not in known.get((event["from_state"], event["to_state"]), ())
    ]
