"""A workspace for worker processes of engine tests, and how to start one."""

from __future__ import annotations

import subprocess
from contextlib import AbstractContextManager
from pathlib import Path
from shutil import copytree

from tests.cli.processes import started
from tests.engine.world import ECHO_SCRIPT, ROOT


class WorkerWorkspace:
    """A folder that ``zaia run-worker`` can run in; its scripted model is ``scripted/test``."""

    def __init__(self, folder: Path, dsn: str) -> None:
        self.folder = folder
        self.dsn = dsn
        (folder / "fixtures" / "scripts").mkdir(parents=True)
        copytree(ROOT / "prompts", folder / "prompts")
        (folder / "zaia.toml").write_text("", encoding="utf-8")
        self.script(ECHO_SCRIPT)

    @property
    def environment(self) -> dict[str, str]:
        return {
            "ZAIA_DATABASE_URL": self.dsn,
            "ZAIA_WORKSPACE": str(self.folder),
            "ZAIA_QUEUE__CONCURRENCY": "20",
            "ZAIA_QUEUE__POLL_S": "0.1",
        }

    def script(self, text: str) -> None:
        """Write the model's script; a process reads it when it first asks."""
        (self.folder / "fixtures" / "scripts" / "test.toml").write_text(text, encoding="utf-8")

    def worker(self, *arguments: str) -> AbstractContextManager[subprocess.Popen[str]]:
        """Run ``zaia run-worker`` beside the block."""
        return started("run-worker", "--json", *arguments, env=self.environment)
