"""Playing the public bug reports of ``shared/cases/channels`` through the real engine.

Idea: a case says when webhooks come, what the model and the provider answer; time inside a case runs 20 times faster,
longer gaps are travelled, and what a case means to be one burst has a window that a busy machine keeps. Invariant:
nothing is called but the webhook, the worker and the simulator.
"""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest

from tests.engine.world import ROOT, World
from zaia_cli.engine import people
from zaia_cli.engine.worker import Worker

CASES = ROOT.parent / "shared" / "cases" / "channels"
SPEED = 20.0
_CASE_NOW = 1_790_000_000


def load(number: str) -> dict[str, Any]:
    """Read one case; skip the test where the folder is absent."""
    found = sorted(CASES.glob(f"{number}_*.json")) if CASES.is_dir() else []
    if not found:
        pytest.skip("shared/cases is not here")
    case: dict[str, Any] = json.loads(Path(found[0]).read_text("utf-8"))
    return case


def shifted(value: Any, seconds: int) -> Any:
    """Move every ``timestamp`` of a body from the case's clock to ours."""
    if isinstance(value, dict):
        return {
            key: _moved(item, seconds) if key in ("timestamp", "time") else shifted(item, seconds)
            for key, item in value.items()
        }
    return [shifted(item, seconds) for item in value] if isinstance(value, list) else value


def _moved(stamp: Any, seconds: int) -> Any:
    if isinstance(stamp, str):
        return str(int(stamp) + seconds)
    return stamp + seconds * (1000 if stamp > 10**11 else 1)


def script_of(answers: list[dict[str, Any]], speed: float = SPEED) -> str:
    """Write the model's answers of a case as a script; after them the model repeats the burst."""
    rules = []
    for answer in answers:
        lines = ["[[rules]]"]
        if "nth" in answer:
            lines.append(f"nth = {answer['nth']}")
        if answer.get("latency_s"):
            lines.append(f"delay_s = {min(answer['latency_s'], 30) / speed}")
        if answer.get("tool_calls"):
            calls = ", ".join(
                f"{{ tool = {json.dumps(c['name'])}, args = {_inline(c['arguments'])} }}" for c in answer["tool_calls"]
            )
            lines.append(f"tools = [{calls}]")
            if answer.get("any"):
                lines.append('repeat = "forever"')
        elif answer.get("text"):
            lines.append(f"text = {json.dumps(answer['text'], ensure_ascii=False)}")
        else:
            lines.append("empty = true")
        rules.append("\n".join(lines))
    return "\n".join([*rules, '[[rules]]\ntext = "Recebi: {burst}"\n'])


def _inline(table: dict[str, Any]) -> str:
    return "{ " + ", ".join(f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items()) + " }"


async def play(world: World, case: dict[str, Any], now: int) -> list[int]:
    """Run the steps of a case with a worker beside; returns the HTTP statuses of its webhooks.

    Args:
        world: With its organization applied.
        case: As loaded.
        now: Our seconds for the case's clock.
    """
    given = case["input"]
    world.script(script_of(given.get("llm", [])))
    window_s = given.get("coalesce_window_s", 1.0)
    is_burst = window_s >= 2
    window_s = max(window_s / SPEED, 1.5) if is_burst else window_s / SPEED
    world.configure(turn={"coalesce_s": window_s, "coalesce_max_s": max(window_s * 4, 0.2)})
    statuses: list[int] = []
    tasks: list[asyncio.Task[int]] = []
    worker = Worker(world.parts())
    running = asyncio.create_task(worker.run())
    clock = 0.0
    try:
        for step in given["steps"]:
            gap = step["at"] - clock
            clock = step["at"]
            if gap > 60:
                await _settle(world, worker)
                await world.travel(gap)
            elif gap > 0:
                if gap > 1 and not is_burst:
                    await world.until("SELECT count(*) FROM work_items WHERE state = 'pending'", 0)
                await asyncio.sleep(gap / SPEED)
            if step["event"] == "webhook":
                body = shifted(step["body"], now - _CASE_NOW)
                channel = "instagram" if body["object"] == "instagram" else "whatsapp"
                count = step.get("concurrency", 1)
                posts = [asyncio.create_task(world.post(body, channel)) for _ in range(count)]
                tasks.extend(posts)
                if not step.get("parallel"):
                    statuses.extend(await asyncio.gather(*tasks))
                    tasks = []
            elif step["event"] == "human_reply":
                await world.until("SELECT count(*) FROM work_items WHERE state = 'processing'", 1)
                row = (await world.rows("SELECT organization_id, conversation_id FROM hot"))[0]
                await people.reply(
                    world.db,
                    row["organization_id"],
                    row["conversation_id"],
                    text=step["body"],
                    by=step["agent"],
                    channels=world.channels,
                )
            else:
                raise AssertionError(f"unknown step {step['event']}")
        statuses.extend(await asyncio.gather(*tasks))
        await _settle(world, worker)
    finally:
        worker.stop()
        await asyncio.wait_for(running, 30)
    return statuses


async def _settle(world: World, worker: Worker) -> None:
    async with asyncio.timeout(20):
        while True:
            left = (await world.db.run("scheduler.unfinished"))[0]
            if not left["items"] and not left["parts"]:
                return
            worker.wake()
            await asyncio.sleep(0.05)
