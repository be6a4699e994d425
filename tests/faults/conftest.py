"""The world of fault tests: real worker processes against the test's database."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from tests.engine.workspace import WorkerWorkspace
from tests.engine.world import SECRET, World, open_world
from zaia_cli.store.database import Database


@pytest.fixture(autouse=True)
def _secrets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZAIA_TEST_TOKEN", "token-de-teste")
    monkeypatch.setenv("ZAIA_TEST_SECRET", SECRET)
    monkeypatch.setenv("ZAIA_TEST_VERIFY", "vt-123")


@pytest_asyncio.fixture
async def world(db: Database, tmp_path: Path) -> AsyncIterator[World]:
    async with open_world(db, tmp_path) as opened:
        await opened.organization()
        yield opened


@pytest.fixture
def workspace(tmp_path: Path, dsn: str) -> WorkerWorkspace:
    return WorkerWorkspace(tmp_path / "workspace", dsn)
