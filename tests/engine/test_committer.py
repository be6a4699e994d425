"""Group commit: neighbours are not harmed, and an ambiguous commit is read back."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.engine.world import World
from zaia_cli.agent.loop import TurnOutcome
from zaia_cli.engine.committer import Committer
from zaia_cli.engine.ending import TurnEnding
from zaia_cli.store.database_errors import CommitUnknownError


async def claimed(world: World, count: int) -> list[dict[str, Any]]:
    for number in range(count):
        await world.say("oi", customer=f"55119{number:08}")
    await world.travel(5)
    return await world.db.run("turn.claim", worker="w", limit=count, ttl_s=120.0, full=[], channel=None)


def step(claim: dict[str, Any], **changes: Any) -> dict[str, Any]:
    keys = ("organization_id", "conversation_id", "token", "item_id")
    answer = {"text": "x", "tool_calls": []}
    row = {"n": 1, "model": "m", "answer": answer, "read_until": 1, "tokens": 1, "latency_ms": 1, "ttl_s": 120}
    return {key: claim[key] for key in keys} | row | changes


async def test_one_bad_row_does_not_harm_its_neighbours(world: World) -> None:
    claims = await claimed(world, 5)
    committer = Committer(world.db, worker="w")
    rows = [step(claim, model=None if n == 2 else "m") for n, claim in enumerate(claims)]
    done = await asyncio.gather(
        *(committer.run("turn.save_steps", row["token"], row) for row in rows), return_exceptions=True
    )
    assert [isinstance(result, psycopg.errors.NotNullViolation) for result in done] == [
        False,
        False,
        True,
        False,
        False,
    ]
    assert await world.one("SELECT count(*) FROM steps") == 4


async def test_a_row_without_the_token_gets_nothing_and_the_others_their_own(world: World) -> None:
    claims = await claimed(world, 3)
    committer = Committer(world.db, worker="w")
    rows = [step(claim) for claim in claims]
    rows[1]["token"] = uuid4()
    done = await asyncio.gather(*(committer.run("turn.save_steps", row["token"], row) for row in rows))
    assert [result is None for result in done] == [False, True, False]


async def test_the_same_key_twice_goes_in_two_groups(world: World) -> None:
    (claim,) = await claimed(world, 1)
    committer = Committer(world.db, worker="w")
    rows = [step(claim, n=n) for n in (1, 2, 3)]
    done = await asyncio.gather(*(committer.run("turn.save_steps", claim["token"], row) for row in rows))
    assert all(done)
    assert await world.one("SELECT count(*) FROM steps") == 3


@pytest.mark.parametrize("arrived", [True, False])
async def test_an_ambiguous_commit_is_read_back_and_not_repeated(
    world: World, monkeypatch: pytest.MonkeyPatch, arrived: bool
) -> None:
    (claim,) = await claimed(world, 1)
    really = world.db.run
    commits = 0

    async def lossy(name: str, rows: Any = None, /, **params: Any) -> Any:
        nonlocal commits
        if name == "turn.commit":
            commits += 1
            if commits == 1:
                if arrived:
                    await really(name, rows, **params)
                raise CommitUnknownError("the connection broke")
        return await really(name, rows, **params)

    monkeypatch.setattr(world.db, "run", lossy)
    ending = TurnEnding(world.parts("w"), Committer(world.db, worker="w"))
    await ending.commit(claim, 1, TurnOutcome("answer", "olá"))
    assert commits == (1 if arrived else 2)
    assert await world.one("SELECT count(*) FROM replies") == 1
    assert await world.one("SELECT state FROM work_items") == "completed"
