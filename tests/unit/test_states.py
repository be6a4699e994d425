"""The tables of moves are whole: no dead ends, no way back from the end, nothing unnamed."""

from __future__ import annotations

from typing import get_args

import pytest

from zaia_cli.core.states import (
    ITEM_STATES,
    ITEM_TRANSITIONS,
    PART_STATES,
    PART_TRANSITIONS,
    Actor,
    ItemState,
    PartState,
    Transition,
    recovery_state,
)

TABLES = [(ITEM_STATES, ITEM_TRANSITIONS), (PART_STATES, PART_TRANSITIONS)]


def pairs(table: tuple[Transition, ...]) -> list[tuple[str, str]]:
    return [(move.source, move.target) for move in table]


def test_the_lists_name_every_state_of_the_types() -> None:
    assert get_args(ItemState) == ITEM_STATES
    assert get_args(PartState) == PART_STATES


@pytest.mark.parametrize(("states", "table"), TABLES)
def test_moves_are_between_known_states_by_known_actors(states: tuple[str, ...], table: tuple[Transition, ...]) -> None:
    for move in table:
        assert {move.source, move.target} <= set(states)
        assert move.source != move.target
        assert move.by
        assert move.by <= set(get_args(Actor))
        assert move.when


@pytest.mark.parametrize(("states", "table"), TABLES)
def test_no_move_is_listed_twice(states: tuple[str, ...], table: tuple[Transition, ...]) -> None:
    assert len(set(pairs(table))) == len(table)


@pytest.mark.parametrize(("states", "table"), TABLES)
def test_every_state_is_reached_from_pending(states: tuple[str, ...], table: tuple[Transition, ...]) -> None:
    reached = {"pending"}
    while more := {target for source, target in pairs(table) if source in reached} - reached:
        reached |= more
    assert reached == set(states)


def test_what_is_over_stays_over() -> None:
    assert {source for source, _ in pairs(ITEM_TRANSITIONS)}.isdisjoint({"completed", "cancelled"})
    assert {source for source, _ in pairs(PART_TRANSITIONS)}.isdisjoint({"read", "cancelled"})


def test_an_uncertain_sending_is_never_repeated_by_a_worker() -> None:
    moves = {(move.source, move.target): move.by for move in PART_TRANSITIONS}
    assert "worker" not in moves["unknown", "pending"]
    assert moves["failed", "pending"] == {"person"}
    assert "scheduler" not in moves["sending", "pending"]


def test_a_channel_status_only_moves_forward() -> None:
    order = {"accepted": 0, "sent": 1, "delivered": 2, "read": 3}
    ranked = [(order[s], order[t]) for s, t in pairs(PART_TRANSITIONS) if s in order and t in order]
    assert len(ranked) == 6
    assert all(source < target for source, target in ranked)


def test_every_item_state_reduces_to_a_classical_one() -> None:
    assert {recovery_state(state) for state in ITEM_STATES} == {"pending", "processing", "completed", "failed"}
    assert recovery_state("needs_human") == "failed"
    assert recovery_state("waiting_approval") == "pending"
