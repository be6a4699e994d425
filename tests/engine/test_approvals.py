"""Calls that need a person's decision; an urgent class grants no permission."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import pytest_asyncio
from pydantic import BaseModel

from tests.engine.world import World
from zaia_cli.agent.tools import ToolContext, ToolResult
from zaia_cli.core.chat import ToolSpec
from zaia_cli.core.errors import RefusedError
from zaia_cli.engine import people
from zaia_cli.engine.approvals import decide
from zaia_cli.engine.worker import Worker

ORG = "loja-a"


class RefundArguments(BaseModel):
    order: str


class Refund:
    """Gives money back, after a person said yes."""

    name = "refund"
    arguments: type[BaseModel] = RefundArguments
    side_effect = True
    requires_approval = True

    def __init__(self) -> None:
        self.orders: list[str] = []

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(self.name, "reembolsa", self.arguments.model_json_schema())

    async def run(self, arguments: BaseModel, context: ToolContext) -> ToolResult:
        assert isinstance(arguments, RefundArguments)
        self.orders.append(arguments.order)
        return ToolResult("reembolso feito")


RULE: dict[str, Any] = {
    "when": {"keywords": ["reembolso"]},
    "class": "urgent",
    "owner": "financeiro",
    "description": "dinheiro do cliente",
    "alert": "supervisora",
}
SCRIPT = (
    '[[rules]]\nafter_tool = "refund"\ntext = "Resultado: {result}. Li: {burst}"\n'
    '[[rules]]\nburst = "reembolso"\ntool = "refund"\nargs = { order = "10" }\n[[rules]]\ntext = "Recebi: {burst}"\n'
)


@pytest_asyncio.fixture
async def refund(world: World) -> Refund:
    tool = Refund()
    world.tools[tool.name] = tool
    await world.organization(priority_rules=[RULE])
    world.script(SCRIPT)
    await world.say("URGENTE: quero meu reembolso")
    await world.work()
    return tool


async def test_an_urgent_refund_still_waits_for_its_approval(world: World, refund: Refund) -> None:
    row = (await world.rows("SELECT state, class, class_rule, attempts FROM work_items"))[0]
    assert (row["state"], row["class"], row["attempts"]) == ("waiting_approval", "urgent", 1)
    assert row["class_rule"] == "dinheiro do cliente (financeiro)"
    assert refund.orders == []
    assert world.graph.sends == []
    kinds = {r["kind"]: r["recipient"] for r in await world.rows("SELECT kind, recipient FROM alerts")}
    assert kinds == {"urgent": "supervisora", "approval": "plantao"}
    await world.is_quiet()


async def test_after_a_yes_it_happens_once_and_what_came_meanwhile_is_read(world: World, refund: Refund) -> None:
    await world.say("e rápido, por favor")
    await world.work()
    assert await world.one("SELECT count(*) FROM work_items") == 1
    approval = await world.one("SELECT id FROM approvals")
    done = await decide(world.db, ORG, approval, approved=True, by="ana", why="dentro da política")
    assert done["continues"] is True
    await world.work()
    assert refund.orders == ["10"]
    (answer,) = world.sent()
    assert answer == "Recebi: URGENTE: quero meu reembolso | e rápido, por favor"
    assert await world.one("SELECT attempts FROM work_items") == 1
    assert await world.one("SELECT result FROM tool_executions") == "reembolso feito"
    with pytest.raises(RefusedError):
        await decide(world.db, ORG, approval, approved=False, by="ana", why="")
    assert await world.one("SELECT by FROM events WHERE entity = 'approval'") == "ana"


async def test_after_a_no_the_model_is_told_and_nothing_happens(world: World, refund: Refund) -> None:
    approval = await world.one("SELECT id FROM approvals")
    await decide(world.db, ORG, approval, approved=False, by="ana", why="fora do prazo")
    await world.work()
    assert refund.orders == []
    assert "não aprovou. fora do prazo" in world.sent()[0]


async def test_a_person_who_takes_over_ends_the_wait(world: World, refund: Refund) -> None:
    await people.take(world.db, ORG, await world.one("SELECT conversation_id FROM hot"), by="ana")
    assert await world.one("SELECT state FROM approvals") == "rejected"
    assert await world.one("SELECT state FROM work_items") == "cancelled"
    with pytest.raises(RefusedError):
        await decide(world.db, ORG, await world.one("SELECT id FROM approvals"), approved=True, by="ana", why="")
    await world.work()
    assert refund.orders == []


async def test_an_urgent_message_during_the_wait_raises_the_class_and_alerts(world: World) -> None:
    tool = Refund()
    world.tools[tool.name] = tool
    await world.organization(priority_rules=[RULE | {"when": {"keywords": ["procon"]}}])
    world.script(SCRIPT)
    await world.say("quero meu reembolso")
    await world.work()
    assert await world.one("SELECT class FROM work_items") == "standard"
    await world.say("vou ao Procon!")
    row = (await world.rows("SELECT class, class_rule, state FROM work_items"))[0]
    assert row == {"class": "urgent", "class_rule": "dinheiro do cliente (financeiro)", "state": "waiting_approval"}
    assert await world.one("SELECT recipient FROM alerts WHERE kind = 'urgent'") == "supervisora"
    await decide(world.db, ORG, await world.one("SELECT id FROM approvals"), approved=True, by="ana", why="")
    assert await world.one("SELECT band FROM hot") == 0
    await world.work()
    assert tool.orders == ["10"]


async def test_what_came_during_the_turn_waits_with_the_approval_and_is_answered_after_it(world: World) -> None:
    tool = Refund()
    world.tools[tool.name] = tool
    await world.organization()
    world.script(SCRIPT.replace('args = { order = "10" }', 'args = { order = "10" }\ndelay_s = 0.4'))
    await world.say("quero meu reembolso")
    async with world.running(Worker(world.parts())):
        await world.until("SELECT state FROM work_items", "processing")
        await world.say("que horas abrem?")
        await world.until("SELECT count(*) FROM approvals", 1)
    await world.work()  # ends: nothing is left but the person's decision
    rows = await world.rows("SELECT state, last_seq, reference FROM work_items ORDER BY opened_at")
    assert [(row["state"], row["last_seq"]) for row in rows] == [("waiting_approval", 2), ("cancelled", 2)]
    assert await world.one("SELECT reference FROM item_aliases") == rows[1]["reference"]
    await decide(world.db, ORG, await world.one("SELECT id FROM approvals"), approved=True, by="ana", why="")
    await world.work()
    assert tool.orders == ["10"]
    assert world.sent() == ["Recebi: quero meu reembolso | que horas abrem?"]


async def test_cancelling_what_waits_names_the_person_and_rejects_the_call(world: World, refund: Refund) -> None:
    item_id = await world.one("SELECT id FROM work_items")
    await people.cancel(world.db, ORG, item_id, by="ana", why="engano")
    assert await world.rows("SELECT state, decided_by FROM approvals") == [{"state": "rejected", "decided_by": "ana"}]
    await world.say("que horas abrem?")
    world.script("[[rules]]\ntext = 'Abrimos às 9h.'\n")
    await world.work()
    assert world.sent() == ["Abrimos às 9h."]
    assert refund.orders == []
    await world.is_quiet()


async def test_two_people_who_decide_at_once_decide_once(world: World, refund: Refund) -> None:
    approval = await world.one("SELECT id FROM approvals")
    decisions = [
        decide(world.db, ORG, approval, approved=approved, by=by, why="")
        for approved, by in ((True, "ana"), (False, "bia"), (True, "caio"))
    ]
    done = await asyncio.gather(*decisions, return_exceptions=True)
    assert sum(isinstance(result, RefusedError) for result in done) == 2
    await world.work()
    assert len(refund.orders) <= 1
    assert len(world.sent()) == 1
