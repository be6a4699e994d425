"""The stage of ``zaia demo``: an example company, served webhooks, a Graph stand-in and the customers who write.

Idea: nothing here is special: the same server, engine and simulator that everything else uses, over real HTTP.
Invariant: a run uses its own customers and message ids, so it can be repeated. Tested in ``tests/cli/test_demo.py``.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import secrets
import time
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from zaia_cli.core.errors import UnavailableError
from zaia_cli.core.organization import OrganizationFile

if TYPE_CHECKING:
    from zaia_cli.engine.parts import EngineParts
    from zaia_cli.sims.whatsapp_server import GraphSim

__all__ = ["SLUG", "Stage", "open_stage"]

SLUG = "demo"
_ACCOUNT = "109000000000001"
_INSTAGRAM = "178900000000001"


@dataclass(slots=True)
class Stage:
    """One run of the demonstration.

    ``customers`` maps a role to the customer's address, new for each run.
    """

    parts: EngineParts
    graph: GraphSim
    url: str
    secret: str
    http: Any
    customers: dict[str, str] = field(default_factory=dict)
    delivered: list[dict[str, Any]] = field(default_factory=list)

    async def whatsapp(self, role: str, text: str) -> dict[str, Any]:
        """Deliver one WhatsApp text of a customer as a signed webhook; returns its payload."""
        address = self.customers[role]
        message = {
            "from": address,
            "id": f"wamid.DEMO{secrets.token_hex(8)}",
            "timestamp": str(int(time.time())),
            "type": "text",
            "text": {"body": text},
        }
        contact = {"profile": {"name": role.capitalize()}, "wa_id": address}
        payload = _change({"contacts": [contact], "messages": [message]})
        await self.deliver("whatsapp", payload)
        return payload

    async def status(self, role: str, status: str, message_id: str, opaque_id: str) -> None:
        """Deliver the status webhook of one of our sends."""
        row = {
            "id": message_id,
            "status": status,
            "timestamp": str(int(time.time())),
            "recipient_id": self.customers[role],
            "biz_opaque_callback_data": opaque_id,
        }
        await self.deliver("whatsapp", _change({"statuses": [row]}))

    async def instagram(self, role: str, text: str) -> None:
        """Deliver one Instagram text of a customer."""
        now_ms = int(time.time() * 1000)
        event = {
            "sender": {"id": self.customers[role]},
            "recipient": {"id": _INSTAGRAM},
            "timestamp": now_ms,
            "message": {"mid": f"mid.DEMO{secrets.token_hex(8)}", "text": text},
        }
        entry = {"id": _INSTAGRAM, "time": now_ms, "messaging": [event]}
        await self.deliver("instagram", {"object": "instagram", "entry": [entry]})

    async def deliver(self, channel: str, payload: Mapping[str, Any]) -> None:
        """Post a webhook as Meta would.

        Raises:
            UnavailableError: It was not answered with 200.
        """
        raw = json.dumps(payload).encode()
        signature = hmac.new(self.secret.encode(), raw, hashlib.sha256).hexdigest()
        headers = {"X-Hub-Signature-256": f"sha256={signature}", "Content-Type": "application/json"}
        async with self.http.post(f"{self.url}/webhooks/{channel}", data=raw, headers=headers) as answer:
            if answer.status != 200:
                raise UnavailableError(f"the webhook was answered with HTTP {answer.status}")

    def sends(self, role: str) -> list[dict[str, Any]]:
        """What the stand-in accepted for a customer, in order: the truth about what left."""
        return [s for s in self.graph.sends if s["to"] == self.customers[role] and s["outcome"] == "accepted"]

    async def until(self, statement: str, is_done: Any, limit_s: float = 10.0, **params: Any) -> list[dict[str, Any]]:
        """Ask the database until ``is_done(rows)``.

        Raises:
            UnavailableError: It did not come to that within ``limit_s`` seconds.
        """
        ends_at = time.monotonic() + limit_s
        while True:
            rows = await self.parts.db.run(statement, organization_id=SLUG, **params)
            if is_done(rows):
                return rows
            if time.monotonic() > ends_at:
                raise UnavailableError(f"{statement} did not settle in {limit_s:g} s", hint="zaia status")
            await asyncio.sleep(0.05)


def _change(value: Mapping[str, Any]) -> dict[str, Any]:
    metadata = {"display_phone_number": "551140000000", "phone_number_id": _ACCOUNT}
    body = {"messaging_product": "whatsapp", "metadata": metadata, **value}
    change = {"field": "messages", "value": body}
    return {"object": "whatsapp_business_account", "entry": [{"id": "209000000000001", "changes": [change]}]}


@contextmanager
def _secrets_in_environment(secret: str) -> Iterator[None]:
    """Give the demonstration its secrets for as long as it runs."""
    names = {"ZAIA_DEMO_TOKEN": secrets.token_hex(8), "ZAIA_DEMO_SECRET": secret, "ZAIA_DEMO_VERIFY": "demo"}
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(names)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


@asynccontextmanager
async def open_stage(parts: EngineParts) -> AsyncIterator[Stage]:
    """Serve everything on loopback and apply the example company."""
    import aiohttp

    from zaia_cli.server.app import create_app
    from zaia_cli.sims.serving import serve_app
    from zaia_cli.sims.whatsapp_server import GraphSim
    from zaia_cli.store.organizations import apply

    secret = secrets.token_hex(16)
    async with AsyncExitStack() as stack:
        stack.enter_context(_secrets_in_environment(secret))
        graph = GraphSim(app_secret=secret)
        stack.push_async_callback(graph.close)
        graph_url = await stack.enter_async_context(serve_app(graph.app))
        await apply(parts.db, _company(f"{graph_url}/v23.0"))
        url = await stack.enter_async_context(serve_app(create_app(parts.db, parts.config, parts.channels)))
        graph.webhook_urls = {kind: f"{url}/webhooks/{kind}" for kind in ("whatsapp", "instagram")}
        http = await stack.enter_async_context(aiohttp.ClientSession())
        roles = ("ana", "bruno", "carla", "davi")
        customers = {role: f"55119{secrets.randbelow(10**8):08}" for role in roles}
        customers["elisa"] = str(9 * 10**14 + secrets.randbelow(10**14))
        yield Stage(parts, graph, url, secret, http, customers)


def _company(base_url: str) -> OrganizationFile:
    secrets_env = {
        "token_env": "ZAIA_DEMO_TOKEN",
        "app_secret_env": "ZAIA_DEMO_SECRET",
        "verify_token_env": "ZAIA_DEMO_VERIFY",
    }
    account = {"assistant": "atendimento", "base_url": base_url, **secrets_env}
    return OrganizationFile.model_validate(
        {
            "organization": {
                "slug": SLUG,
                "name": "Loja Demonstração",
                "handoff_message": "Vou te passar para uma pessoa do nosso time. Só um instante!",
                "human_assignee": "plantao",
            },
            "departments": [
                {"name": "Financeiro", "assignee": "plantao-financeiro"},
                {"name": "Atendimento humano"},
            ],
            "assistants": [
                {
                    "slug": "atendimento",
                    "prompt": "atendimento",
                    "prompt_version": "v1",
                    "model": "scripted/demo",
                }
            ],
            "channels": [
                {"kind": "whatsapp", "account": _ACCOUNT, **account},
                {"kind": "instagram", "account": _INSTAGRAM, **account},
            ],
        }
    )
