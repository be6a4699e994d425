"""The moves that the SQL makes are those of ``core.states``; the check that every engine test ends with can fail."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.engine.moves import wrong_moves
from tests.engine.world import SECRET, open_world
from zaia_cli.core.priority import BANDS
from zaia_cli.core.states import ITEM_TRANSITIONS, PART_TRANSITIONS
from zaia_cli.store import statements
from zaia_cli.store.database import Database

SQL = Path(statements.__file__).parent / "sql"
TABLES = {"item": ITEM_TRANSITIONS, "part": PART_TRANSITIONS}
MOVE = re.compile(
    r"'(?P<entity>item|part)',\s+[\w.:]+(?: \|\| ':' \|\| [\w.]+)?,\s+'(?P<source>\w+)',\s+'(?P<target>\w+)',"
    r"\s+(?:'(?P<actor>\w+)'|%\(actor\)s)"
)


def written_moves() -> list[tuple[str, str, str, str | None]]:
    """Moves that stand literally in a statement: entity, from, to, and the actor where it is literal too."""
    text = "\n".join(path.read_text("utf-8") for path in sorted(SQL.glob("*.sql")))
    found = [match.group("entity", "source", "target", "actor") for match in MOVE.finditer(text)]
    return [move for move in found if move[1] not in BANDS]


@pytest.mark.parametrize(("entity", "source", "target", "actor"), written_moves())
def test_a_move_of_a_statement_is_in_the_tables(entity: str, source: str, target: str, actor: str | None) -> None:
    allowed = {(move.source, move.target): move.by for move in TABLES[entity]}
    assert (source, target) in allowed
    assert actor is None or actor in allowed[source, target]


def test_the_moves_of_both_tables_are_found_in_the_statements() -> None:
    found = {(entity, source, target) for entity, source, target, _ in written_moves()}
    assert {("item", "pending", "processing"), ("part", "sending", "unknown"), ("part", "pending", "failed")} <= found
    assert len(found) >= 10


@pytest.mark.parametrize(
    ("tamper", "problem"),
    [
        ("UPDATE events SET actor = 'scheduler' WHERE to_state = 'completed'", "processing -> completed by scheduler"),
        ("UPDATE events SET to_state = 'failed' WHERE to_state = 'accepted'", "its last event says failed"),
        ("UPDATE events SET by = '' WHERE entity = 'part'", "nobody is named"),
        ("UPDATE work_items SET state = 'cancelled'", "is cancelled, its last event says completed"),
        ("DELETE FROM events WHERE to_state = 'processing'", "after pending comes a move from processing"),
        ("DELETE FROM events WHERE from_state IS NULL", "its opening is not recorded"),
        ("UPDATE parts SET state = 'cancelled'", "is cancelled, its last event says accepted"),
    ],
)
async def test_a_story_with_an_unknown_move_or_a_gap_is_found(
    db: Database, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tamper: str, problem: str
) -> None:
    monkeypatch.setenv("ZAIA_TEST_TOKEN", "t")
    monkeypatch.setenv("ZAIA_TEST_SECRET", SECRET)
    async with open_world(db, tmp_path) as world:
        await world.organization()
        await world.say("oi")
        await world.work()
        assert await wrong_moves(db) == []
        await world.rows(tamper + " RETURNING 1")
        assert any(problem in line for line in await wrong_moves(db))
