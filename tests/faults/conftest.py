"""The world of engine tests, and a workspace for real worker processes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.engine.conftest import _secrets, world  # noqa: F401 - fixtures
from tests.engine.workspace import WorkerWorkspace


@pytest.fixture
def workspace(tmp_path: Path, dsn: str) -> WorkerWorkspace:
    return WorkerWorkspace(tmp_path / "workspace", dsn)
