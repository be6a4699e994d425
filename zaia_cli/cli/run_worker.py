"""``zaia run-worker``: turns, deliveries and the scheduler. Tested in ``tests/cli/test_run_worker.py``."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Annotated, Any

import typer

from zaia_cli.cli.command import Options, command
from zaia_cli.cli.engine_parts import open_engine
from zaia_cli.cli.runtime import open_runtime
from zaia_cli.cli.signals import told_to_stop

if TYPE_CHECKING:
    from zaia_cli.store.database import Database

__all__ = ["run_worker"]

_log = logging.getLogger(__name__)


@command(
    examples=("zaia run-worker", "zaia run-worker --drain --json", "zaia run-worker --concurrency 20 --for 600"),
    exit_codes=(0, 1, 2, 4, 5, 6),
)
async def run_worker(
    options: Options,
    concurrency: Annotated[
        int | None,
        typer.Option(
            "--concurrency",
            metavar="N",
            help="Turns in flight; queue.concurrency by default.",
            min=1,
            show_default=False,
        ),
    ] = None,
    drain: Annotated[
        bool,
        typer.Option(
            "--drain", help="End when nothing is pending, leased or waiting for a retry; people and approvals aside."
        ),
    ] = False,
    for_s: Annotated[
        float | None, typer.Option("--for", metavar="S", help="End after S seconds.", min=0, show_default=False)
    ] = None,
    without_tokens: Annotated[
        bool,
        typer.Option(
            "--without-tokens", help="Start although a channel token is missing; those replies wait for another worker."
        ),
    ] = False,
    no_scheduler: Annotated[
        bool, typer.Option("--no-scheduler", help="Leave recovery, aging and alerts to other workers.")
    ] = False,
) -> None:
    """Answer customers: run turns, send replies, keep time.

    Any number of these may run on any number of machines. SIGTERM and SIGINT drain: nothing new is taken, turns go back
    to the queue between two steps, sends are finished, exit 0. A second SIGINT ends at once; other workers take over
    when the lease expires.
    """
    from zaia_cli.engine.worker import Worker

    if not options.verbose:
        logging.getLogger("zaia_cli").setLevel(logging.INFO)
    async with open_runtime(options) as runtime:
        config = runtime.config
        if concurrency is not None:
            config = config.model_copy(update={"queue": config.queue.model_copy(update={"concurrency": concurrency})})
        async with open_engine(runtime, config, needs_tokens=not without_tokens) as parts:
            worker = Worker(parts, has_scheduler=not no_scheduler)

            def stop() -> None:
                _log.info("worker %s: stopping; a second Ctrl+C ends it at once", parts.worker)
                worker.stop()

            with told_to_stop(stop):
                _log.info("worker %s: up to %d turns at once", parts.worker, config.queue.concurrency)
                await worker.run(until_idle=drain, for_s=for_s)
            summary = await _summary(runtime.database, parts.worker)
    _log.info("worker %s stopped", summary["worker"])
    options.output.json(summary)
    options.output.table(tuple(summary), [[_flat(value) for value in summary.values()]])


async def _summary(db: Database, worker: str) -> dict[str, Any]:
    attempts: dict[str, int] = {}
    sends: dict[str, int] = {}
    for row in await db.run("server.worker_done", worker=worker):
        (attempts if row["kind"] == "attempt" else sends)[row["outcome"]] = row["n"]
    return {
        "worker": worker,
        "turns": sum(attempts.values()),
        "replies_sent": sends.get("accepted", 0),
        "turns_by_outcome": attempts,
        "sends_by_outcome": sends,
    }


def _flat(value: Any) -> Any:
    return ", ".join(f"{name} {n}" for name, n in value.items()) if isinstance(value, dict) else value
