"""What every route of the server shares, and how errors answer.

Idea: a route raises, one handler answers. Invariant: an absent database is 503 with ``Retry-After``, so that the
channel delivers again; no answer repeats a payload or a secret. Tested in ``tests/server``.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from zaia_cli.core.config import Config
from zaia_cli.core.errors import UnavailableError
from zaia_cli.engine.intake import Intake
from zaia_cli.server.accounts import AccountBook
from zaia_cli.server.body import BadBodyError
from zaia_cli.store.database import Database

__all__ = ["Site", "bad_body", "refusal", "unavailable"]

_RETRY_AFTER_S = 5

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Site:
    """The server's parts. ``is_insecure`` accepts accounts that have no secret configured."""

    db: Database
    config: Config
    intake: Intake
    accounts: AccountBook
    is_insecure: bool = False


def refusal(status: int, kind: str, message: str) -> JSONResponse:
    """Answer an error as ``{"error": {"kind", "message"}}``."""
    return JSONResponse({"error": {"kind": kind, "message": message}}, status)


async def unavailable(_: Request, error: Exception) -> Response:
    """Answer for a dependency that is away: nothing was confirmed, send it again."""
    assert isinstance(error, UnavailableError)
    _log.warning("answered 503: %s", error.message)
    headers = {"Retry-After": str(_RETRY_AFTER_S)}
    content = {"error": {"kind": error.code, "message": "not stored; deliver it again"}}
    return JSONResponse(content, 503, headers)


async def bad_body(_: Request, error: Exception) -> Response:
    """Answer for a body that is refused."""
    assert isinstance(error, BadBodyError)
    return refusal(error.status, error.code, error.message)
