"""A served application over a real database, with two companies that have secrets of their own."""

from __future__ import annotations

import hashlib
import hmac
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from zaia_cli.channels.sending import open_channels
from zaia_cli.core.config import Config
from zaia_cli.core.organization import OrganizationFile
from zaia_cli.server.app import create_app
from zaia_cli.sims.serving import serve_app
from zaia_cli.store.database import Database
from zaia_cli.store.organizations import apply

Serve = Callable[..., AbstractAsyncContextManager["Client"]]


class Client:
    """Speaks to a served application as Meta and other systems do."""

    def __init__(self, url: str, session: aiohttp.ClientSession, db: Database) -> None:
        self.url = url
        self.session = session
        self.db = db

    async def post(self, body: bytes, signature: str | None, channel: str = "whatsapp") -> tuple[int, str, Any]:
        """Deliver raw bytes; returns status, text and headers."""
        headers = {} if signature is None else {"X-Hub-Signature-256": signature}
        async with self.session.post(f"{self.url}/webhooks/{channel}", data=body, headers=headers) as answer:
            return answer.status, await answer.text(), answer.headers

    async def deliver(self, payload: Any, secret: str = "secret-a", channel: str = "whatsapp") -> int:
        """Deliver a signed payload; returns the status."""
        body = payload if isinstance(payload, bytes) else json.dumps(payload).encode()
        return (await self.post(body, sign(body, secret), channel))[0]

    async def get(self, path: str) -> tuple[int, str, Any]:
        async with self.session.get(self.url + path) as answer:
            return answer.status, await answer.text(), answer.headers

    async def count(self, table: str) -> int:
        """How many rows a table has."""
        async with self.db.transaction() as session:
            rows = await session.execute(f"SELECT count(*) AS n FROM {table}")
        return int(rows[0]["n"])


def sign(body: bytes, secret: str) -> str:
    return "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()


def company(slug: str, account: str, secret_env: str) -> OrganizationFile:
    secrets = {"token_env": "TOKEN_A", "app_secret_env": secret_env, "verify_token_env": "VERIFY_A"}
    return OrganizationFile.model_validate(
        {
            "organization": {
                "slug": slug,
                "name": slug,
                "handoff_message": "Um instante.",
                "human_assignee": "plantao",
            },
            "assistants": [{"slug": "a", "prompt": "atendimento", "prompt_version": "v1", "model": "scripted/echo"}],
            "channels": [
                {"kind": "whatsapp", "account": account, "assistant": "a", **secrets},
                {"kind": "instagram", "account": f"178{account}", "assistant": "a", **secrets},
                {"kind": "http", "account": f"site-{slug}", "assistant": "a", "token_env": "TOKEN_A"},
                {"kind": "http", "account": f"open-{slug}", "assistant": "a"},
            ],
        }
    )


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {
        "SECRET_A": "secret-a",
        "SECRET_B": "secret-b-old secret-b",
        "TOKEN_A": "token-a",
        "VERIFY_A": "vt-123",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def serve(db: Database) -> Serve:
    """Serve an application: ``async with serve(config=…, is_insecure=…, database=…) as client``."""

    @asynccontextmanager
    async def opened(
        config: Config | None = None, *, is_insecure: bool = False, database: Database | None = None
    ) -> AsyncIterator[Client]:
        chosen = config or Config()
        async with open_channels(chosen.delivery) as channels, aiohttp.ClientSession() as session:
            app = create_app(database or db, chosen, channels, is_insecure=is_insecure)
            async with serve_app(app) as url:
                yield Client(url, session, db)

    return opened


@pytest_asyncio.fixture
async def client(db: Database, serve: Serve) -> AsyncIterator[Client]:
    """A served application with companies ``loja-a`` (100000000000001) and ``loja-b`` (100000000000002)."""
    await apply(db, company("loja-a", "100000000000001", "SECRET_A"))
    await apply(db, company("loja-b", "100000000000002", "SECRET_B"))
    async with serve() as opened:
        yield opened
