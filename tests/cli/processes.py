"""Running ``zaia`` as a real process."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).parents[2]

__all__ = ["ROOT", "started", "zaia_process"]


def zaia_process(
    *arguments: object, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> subprocess.Popen[str]:
    """Start ``python -m zaia_cli``; stdout and stderr are pipes."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), **(env or {})}
    command = [sys.executable, "-m", "zaia_cli", *map(str, arguments)]
    return subprocess.Popen(
        command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=cwd, env=environment
    )


@contextmanager
def started(
    *arguments: object, env: Mapping[str, str] | None = None, cwd: Path | None = None
) -> Iterator[subprocess.Popen[str]]:
    """The same for the length of a block; killed at its end if it still runs."""
    with zaia_process(*arguments, env=env, cwd=cwd) as process:
        try:
            yield process
        finally:
            process.kill()
