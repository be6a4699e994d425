"""Which accounts there are, and their secrets, for a few seconds.

Idea: rows name environment variables; the secret is read when it is needed. Invariant: what ``zaia org apply`` changes
is seen within ``MAX_AGE_S``; a secret never leaves this process. Tested in ``tests/server/test_webhooks.py``.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache

from zaia_cli.store.database import Database

__all__ = ["MAX_AGE_S", "AccountBook", "ServedAccount", "secrets_of"]

MAX_AGE_S = 5.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ServedAccount:
    """One channel account; ``*_env`` are names of variables, which may hold several secrets separated by spaces."""

    organization_id: str
    channel: str
    account: str
    token_env: str
    app_secret_env: str
    verify_token_env: str


class AccountBook:
    """The accounts of all organizations, read at most every ``MAX_AGE_S`` seconds.

    Args:
        db: Where they are.
    """

    def __init__(self, db: Database) -> None:
        self._db = db
        self._read_at = float("-inf")
        self._accounts: tuple[ServedAccount, ...] = ()

    async def of_kind(self, channel: str) -> tuple[ServedAccount, ...]:
        """List the accounts of one channel kind.

        Raises:
            UnavailableError: The database is away and what was read before is too old.
        """
        if time.monotonic() - self._read_at > MAX_AGE_S:
            rows = await self._db.run("server.accounts")
            self._accounts = tuple(ServedAccount(**row) for row in rows)
            self._read_at = time.monotonic()
        return tuple(account for account in self._accounts if account.channel == channel)


@cache
def _warn_once(name: str) -> None:
    _log.warning("the environment variable %s is not set; its accounts are refused", name)


def secrets_of(names: Sequence[str]) -> list[str]:
    """Read the secrets that some variables hold; one that is not set is logged by name and gives nothing."""
    found: list[str] = []
    for name in dict.fromkeys(name for name in names if name):
        value = os.environ.get(name, "")
        if not value:
            _warn_once(name)
        found.extend(value.split())
    return found
