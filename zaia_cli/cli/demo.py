"""``zaia demo``: a burst of real-shaped webhooks through the whole engine. Tested in ``tests/cli/test_demo.py``."""

from __future__ import annotations

import asyncio
import logging
import shutil
import sys
from typing import TYPE_CHECKING, Any

from zaia_cli.cli.command import Options, command
from zaia_cli.cli.demo_stage import SLUG, Stage, open_stage
from zaia_cli.cli.engine_parts import open_engine
from zaia_cli.cli.runtime import Runtime, open_runtime
from zaia_cli.core.config import Config
from zaia_cli.core.errors import CheckFailedError, RefusedError

if TYPE_CHECKING:
    from zaia_cli.engine.worker import Worker

__all__ = ["demo"]

_SCENES = {
    "ana": "three messages in a burst, one of them delivered three times",
    "bruno": "wants a person",
    "carla": "the model loops on a tool",
    "davi": "the send timed out after it was accepted; its status settled it",
    "elisa": "an Instagram message",
}


@command(examples=("zaia demo", "zaia demo --json", "zaia demo --workspace ."), exit_codes=(0, 1, 2, 3, 5, 6))
async def demo(options: Options) -> None:
    """Run the main job once, without keys and without services.

    An example organization, a served webhook, a scripted model and a Graph API stand-in, all on loopback: a burst of
    three messages and a redelivered webhook, a customer who wants a person, a model stuck in a loop, a send whose
    outcome is not known, an Instagram message. Then what happened, checked against the stand-in's own count of what was
    sent, and the commands to look further. Takes a few seconds and can be repeated.

    Its worker has short waits and no secrets but its own, so it is refused while other organizations of the database
    have open work.
    """
    from zaia_cli.engine.worker import Worker

    if not options.verbose:
        logging.getLogger("zaia_cli").setLevel(logging.ERROR)
    async with open_runtime(options) as runtime, open_engine(runtime, _brisk(runtime.config)) as parts:
        await _require_alone(runtime)
        async with open_stage(parts) as stage:
            options.output.note("running the engine with local stand-ins on loopback …")
            worker = Worker(parts)
            running = asyncio.create_task(worker.run())
            try:
                await _play(stage, worker)
            finally:
                worker.stop()
                await running
            rows = await _rows(stage)
            problems = _problems(rows)
        _tell(options, runtime, rows, problems)
    if problems:
        raise CheckFailedError("; ".join(problems), hint="zaia status, zaia queue list")


async def _require_alone(runtime: Runtime) -> None:
    rows = await runtime.database.run("server.open_elsewhere", organization_id=SLUG)
    if rows[0]["items"]:
        raise RefusedError(
            f"other organizations have {rows[0]['items']} open requests or replies here, and the demo's worker would "
            "take them along",
            hint="zaia init DIR, then zaia demo --workspace DIR",
        )


def _brisk(config: Config) -> Config:
    """The workspace's configuration with the waits of a demonstration."""
    return config.model_copy(
        update={
            "turn": config.turn.model_copy(update={"coalesce_s": 1.0, "coalesce_max_s": 5.0}),
            "delivery": config.delivery.model_copy(update={"connect_timeout_s": 1.0, "read_timeout_s": 1.0}),
            "queue": config.queue.model_copy(update={"poll_s": 0.2}),
        }
    )


async def _play(stage: Stage, worker: Worker) -> None:
    """Let the customers write, and wait until everything is settled."""
    await stage.whatsapp("ana", "Oi!")
    second = await stage.whatsapp("ana", "Vocês entregam no sábado?")
    await asyncio.gather(*(stage.deliver("whatsapp", second) for _ in range(2)))
    await stage.whatsapp("ana", "É para o CEP 01310-100.")
    await stage.whatsapp("bruno", "Quero falar com uma pessoa sobre o boleto.")
    await stage.whatsapp("carla", "O aplicativo trava quando eu pago.")
    stage.graph.plan(to=stage.customers["davi"], timeout_after_accept=True, statuses=[], hold_s=5)
    await stage.whatsapp("davi", "Meu pedido chegou?")
    await stage.instagram("elisa", "Tem na cor azul?")
    unknown = await stage.until("demo.unknown_send", bool, address=stage.customers["davi"])
    accepted = stage.sends("davi")[0]
    for status in ("sent", "delivered"):
        await stage.status("davi", status, accepted["message_id"], unknown[0]["opaque_id"])
    await stage.until(
        "demo.conversations",
        lambda rows: len(rows) == len(_SCENES) and all(row["replies"] for row in rows),
        addresses=list(stage.customers.values()),
    )
    worker.wake()
    await stage.until("demo.unsettled", lambda rows: rows[0]["n"] == 0, addresses=list(stage.customers.values()))


async def _rows(stage: Stage) -> list[dict[str, Any]]:
    found = {
        row["address"]: row
        for row in await stage.parts.db.run(
            "demo.conversations", organization_id=SLUG, addresses=list(stage.customers.values())
        )
    }
    return [
        {
            "customer": role,
            "scene": scene,
            "conversation": f"{found[address]['channel']}:{address}",
            "messages": found[address]["messages"],
            "replies": found[address]["replies"],
            "sent": len(stage.sends(role)),
            "delivery": found[address]["parts"],
            "item": found[address]["item"],
            "owner": found[address]["owner"],
            "said": found[address]["said"],
        }
        for role, scene in _SCENES.items()
        for address in [stage.customers[role]]
    ]


def _problems(rows: list[dict[str, Any]]) -> list[str]:
    """Where the database and the stand-in's own count disagree with one reply per burst."""
    problems = [
        f"{row['customer']}: {row['replies']} replies in the database, {row['sent']} sent"
        for row in rows
        if (row["replies"], row["sent"]) != (1, 1)
    ]
    ana = rows[0]
    if ana["messages"] != 3 or not all(text in ana["said"] for text in ("Oi!", "sábado", "01310-100")):
        problems.append(f"ana: the answer does not quote her three messages: {ana['said']}")
    owners = dict(zip(_SCENES, ("agent", "human", "human", "agent", "agent"), strict=True))
    problems += [
        f"{row['customer']}: the owner is {row['owner']}" for row in rows if row["owner"] != owners[row["customer"]]
    ]
    return problems


def _tell(options: Options, runtime: Runtime, rows: list[dict[str, Any]], problems: list[str]) -> None:
    output = options.output
    output.json(
        {"organization": SLUG, "workspace": runtime.workspace.root, "conversations": rows, "problems": problems}
    )
    output.table(
        ("customer", "what happened", "in", "out", "delivery", "request", "owner"),
        ((r["customer"], r["scene"], r["messages"], r["sent"], r["delivery"], r["item"], r["owner"]) for r in rows),
    )
    output.line("")
    for row in rows:
        output.line(f"{row['customer']}: {row['said']}")
    where = f" --workspace {options.workspace}" if options.workspace else ""
    is_module = sys.argv[0].endswith("__main__.py")
    program = "zaia" if shutil.which("zaia") else f"{sys.executable} -m zaia_cli" if is_module else sys.argv[0]
    output.line("")
    output.line("One reply per burst, counted by the stand-in. Look further:")
    for words in (
        f"replay {rows[0]['conversation']}",
        f"trace {rows[3]['item'].split()[0]}",
        "human list",
        "queue stats",
        "cost-report --by organization,model",
    ):
        output.line(f"  {program} {words}{where}")
