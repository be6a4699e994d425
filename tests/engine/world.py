"""A small world for engine tests: one company or more, a served webhook, a Graph stand-in, workers, and time to travel.

Idea: everything between the tests and the engine is real: HTTP in and out, Postgres, the worker. Only time is moved, by
shifting every stored timestamp into the past. Invariant: what the simulator counted is the truth about what was sent.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp

from zaia_cli.agent.tools import BUILT_IN, Tool
from zaia_cli.channels.sending import open_channels
from zaia_cli.core.config import Config
from zaia_cli.core.organization import OrganizationFile
from zaia_cli.engine.parts import EngineParts
from zaia_cli.engine.scheduler import Scheduler
from zaia_cli.engine.worker import Worker
from zaia_cli.models.prices import load_prices
from zaia_cli.models.router import ModelRouter
from zaia_cli.server.app import create_app
from zaia_cli.sims.serving import serve_app
from zaia_cli.sims.whatsapp_server import GraphSim
from zaia_cli.store.database import Database
from zaia_cli.store.organizations import apply

ROOT = Path(__file__).parents[2]
SECRET = "segredo-de-teste"
ACCOUNT = "100000000000001"
CUSTOMER = "5511900010000"
ECHO_SCRIPT = '[[rules]]\ntext = "Recebi: {burst}"\n'

_FAST: dict[str, Any] = {
    "turn": {"coalesce_s": 0.05, "coalesce_max_s": 0.2},
    "queue": {"poll_s": 0.1},
    "delivery": {"connect_timeout_s": 1, "read_timeout_s": 1},
}


class World:
    """See the module. Built by :func:`open_world`."""

    def __init__(self, db: Database, folder: Path, graph: GraphSim, graph_url: str) -> None:
        self.db = db
        self.folder = folder
        self.graph = graph
        self.graph_url = graph_url
        self.url = ""
        self.tools: dict[str, Tool] = dict(BUILT_IN)
        self.config = Config()
        self.channels: Any = None
        self.http: Any = None
        self.model: Any = None
        self.app: Any = None
        self._next = 0

    def configure(self, **sections: Any) -> None:
        """Set configuration keys over the fast defaults of tests."""
        merged = {name: {**_FAST.get(name, {}), **sections.get(name, {})} for name in {*_FAST, *sections}}
        self.config = Config.model_validate(merged)
        if self.channels is not None:
            self.app = create_app(self.db, self.config, self.channels)

    def script(self, text: str, name: str = "test") -> None:
        """Write the script of ``scripted/<name>``."""
        (self.folder / f"{name}.toml").write_text(text, encoding="utf-8")
        self.model = ModelRouter({}, self.folder)

    async def organization(self, slug: str = "loja-a", account: str = ACCOUNT, **settings: Any) -> None:
        """Apply a company with WhatsApp, Instagram, http and console accounts named after ``account``."""
        extra = {
            name: settings.pop(name) for name in ("departments", "priority_rules", "assistants") if name in settings
        }
        tools = sorted(self.tools)
        document = {
            "organization": {
                "slug": slug,
                "name": slug,
                "handoff_message": "Vou te passar para um atendente.",
                "human_assignee": "plantao",
                **settings,
            },
            "departments": [{"name": "Financeiro", "assignee": "ana"}, {"name": "Atendimento humano"}],
            "assistants": [
                {
                    "slug": "atendimento",
                    "prompt": "atendimento",
                    "prompt_version": "v1",
                    "model": "scripted/test",
                    "tools": tools,
                }
            ],
            "channels": [
                self._channel("whatsapp", account),
                self._channel("instagram", "178" + account),
                {
                    **self._channel("http", f"site-{slug}"),
                    "base_url": f"{self.graph_url}/callback",
                    "app_secret_env": "",
                },
                {"kind": "console", "account": f"terminal-{slug}", "assistant": "atendimento"},
            ],
            **extra,
        }
        await apply(self.db, OrganizationFile.model_validate(document))

    def _channel(self, kind: str, account: str) -> dict[str, str]:
        return {
            "kind": kind,
            "account": account,
            "assistant": "atendimento",
            "base_url": f"{self.graph_url}/v23.0",
            "token_env": "ZAIA_TEST_TOKEN",
            "app_secret_env": "ZAIA_TEST_SECRET",
            "verify_token_env": "ZAIA_TEST_VERIFY",
        }

    async def post(self, body: Any, channel: str = "whatsapp") -> int:
        """Deliver a webhook, signed; returns the HTTP status."""
        raw = json.dumps(body).encode()
        signature = "sha256=" + hmac.new(SECRET.encode(), raw, hashlib.sha256).hexdigest()
        headers = {"X-Hub-Signature-256": signature, "Content-Type": "application/json"}
        async with self.http.post(f"{self.url}/webhooks/{channel}", data=raw, headers=headers) as answer:
            await answer.read()
            return int(answer.status)

    async def intake(self, body: Mapping[str, Any], account: str = "site-loja-a") -> tuple[int, dict[str, Any]]:
        """Post a request to the generic intake; returns status and JSON."""
        headers = {"Authorization": "Bearer token-de-teste"}
        async with self.http.post(f"{self.url}/intake/{account}", json=dict(body), headers=headers) as answer:
            return int(answer.status), await answer.json()

    async def say(self, *texts: str, customer: str = CUSTOMER, account: str = ACCOUNT) -> list[str]:
        """Deliver WhatsApp texts, one webhook each; returns the message ids."""
        ids = []
        for text in texts:
            self._next += 1
            ids.append(f"wamid.TEST{self._next:05}")
            status = await self.post(whatsapp([message(text, ids[-1], customer)], account))
            assert status == 200
        return ids

    def parts(self, worker: str = "worker-1") -> EngineParts:
        """The engine's parts for one worker."""
        return EngineParts(
            self.db,
            self.config,
            self.channels,
            self.model,
            load_prices(self.config.prices),
            ROOT / "prompts",
            worker,
            self.tools,
        )

    async def work(self, worker: str = "worker-1", limit_s: float = 20.0) -> None:
        """Run one worker until nothing is left to do."""
        async with asyncio.timeout(limit_s):
            await Worker(self.parts(worker)).run(until_idle=True)

    @asynccontextmanager
    async def running(self, worker: Worker) -> AsyncIterator[Worker]:
        """Run a worker beside the block and drain it after."""
        task = asyncio.create_task(worker.run())
        try:
            yield worker
        finally:
            worker.stop()
            await asyncio.wait_for(task, 20)

    async def work_until(self, sql: Any, wanted: Any) -> None:
        """Run a worker until a query of one value gives ``wanted``."""
        async with self.running(Worker(self.parts())):
            await self.until(sql, wanted)

    async def tick(self) -> None:
        """Run the scheduler once."""
        await Scheduler(self.parts("scheduler")).run_once()

    async def travel(self, seconds: float) -> None:
        """Let ``seconds`` pass: every stored time moves into the past."""
        async with self.db.transaction() as session:
            rows = await session.execute(
                """SELECT format('UPDATE %%I SET %%s', table_name, string_agg(format('%%1$I = %%1$I - %%2$L::interval',
                     column_name, %(passed)s::text), ', ')) AS statement
                   FROM information_schema.columns
                   WHERE table_schema = 'public' AND data_type = 'timestamp with time zone' GROUP BY table_name""",
                {"passed": f"{seconds} seconds"},
            )
            for row in rows:
                await session.execute(row["statement"])

    async def rows(self, sql: Any, **params: Any) -> list[dict[str, Any]]:
        """Read the database."""
        async with self.db.transaction() as session:
            return list(await session.execute(sql, params))

    async def one(self, sql: Any, **params: Any) -> Any:
        """Read one value."""
        rows = await self.rows(sql, **params)
        assert len(rows) == 1, rows
        return next(iter(rows[0].values()))

    async def until(self, sql: Any, wanted: Any, limit_s: float = 10.0) -> None:
        """Wait until a query of one value gives ``wanted``."""
        async with asyncio.timeout(limit_s):
            while [value for row in await self.rows(sql) for value in row.values()] != [wanted]:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    def sent(self, to: str = CUSTOMER) -> list[str]:
        """Texts that the simulator accepted for one customer, in order."""
        return [send["text"] for send in self.graph.sends if send["to"] == to and send["outcome"] == "accepted"]

    async def is_quiet(self) -> None:
        """Assert that nothing is left over: no lease, no running attempt, nothing being sent."""
        assert await self.one("SELECT count(*) FROM hot WHERE token IS NOT NULL") == 0
        assert await self.one("SELECT count(*) FROM attempts WHERE state = 'running'") == 0
        assert await self.one("SELECT count(*) FROM parts WHERE state = 'sending'") == 0


def message(
    text: str, message_id: str, customer: str = CUSTOMER, at: float | None = None, **extra: Any
) -> dict[str, Any]:
    """A WhatsApp text message."""
    stamp = str(int(time.time() if at is None else at))
    return {"from": customer, "id": message_id, "timestamp": stamp, "type": "text", "text": {"body": text}, **extra}


def whatsapp(messages: Sequence[Any] = (), account: str = ACCOUNT, **value: Any) -> dict[str, Any]:
    """A WhatsApp webhook with one change."""
    contacts = [{"profile": {"name": "Cliente Teste"}, "wa_id": m["from"]} for m in messages if "from" in m][:1]
    body: dict[str, Any] = {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": "551140000000", "phone_number_id": account},
        **value,
    }
    if messages:
        body |= {"contacts": contacts, "messages": list(messages)}
    return {
        "object": "whatsapp_business_account",
        "entry": [{"id": "200000000000001", "changes": [{"field": "messages", "value": body}]}],
    }


@asynccontextmanager
async def open_world(db: Database, folder: Path) -> AsyncIterator[World]:
    """Serve the simulator and the webhooks on loopback for one test."""
    async with AsyncExitStack() as stack:
        graph = GraphSim(app_secret=SECRET, statuses=())
        stack.push_async_callback(graph.close)
        graph_url = await stack.enter_async_context(serve_app(graph.app))
        world = World(db, folder, graph, graph_url)
        world.configure()
        world.script(ECHO_SCRIPT)
        world.channels = await stack.enter_async_context(open_channels(world.config.delivery))
        world.http = await stack.enter_async_context(aiohttp.ClientSession())
        world.configure()

        async def todays_app(scope: Any, receive: Any, send: Any) -> None:
            await world.app(scope, receive, send)

        world.url = await stack.enter_async_context(serve_app(todays_app))
        graph.webhook_urls = {kind: f"{world.url}/webhooks/{kind}" for kind in ("whatsapp", "instagram")}
        yield world
