"""From a stored channel account to what sending needs, with its secret from the environment.

Idea: rows hold names of variables, never secrets. Invariant: a missing secret blocks one account, not the worker.
Tested in ``tests/engine/test_gates.py``.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

from zaia_cli.core.outbound import SendAccount

__all__ = ["send_account"]


def send_account(row: Mapping[str, Any]) -> SendAccount | None:
    """Build the account of a row with ``channel, account, base_url, token_env``; None when its secret is missing."""
    token = os.environ.get(row["token_env"], "") if row["token_env"] else ""
    if row["token_env"] and not token:
        return None
    return SendAccount(row["channel"], row["account"], row["base_url"], token)
