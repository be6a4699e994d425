"""The generic HTTP intake: one request in, its reference number out.

Idea: who sends a form or calls from another system always learns the number under which the request is known, and a
repeat learns what became of it. Invariant: 200 only after the commit. Tested in ``tests/server/test_generic.py``.
"""

from __future__ import annotations

import hmac
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from zaia_cli.channels import http
from zaia_cli.core.inbound import Message
from zaia_cli.server.accounts import ServedAccount, secrets_of
from zaia_cli.server.body import parse_json, read_body
from zaia_cli.server.receiving import receive
from zaia_cli.server.site import Site, refusal

__all__ = ["GenericIntake"]

_CHANNEL = "http"


class GenericIntake:
    """``POST /intake/{account}``.

    Args:
        site: The server's parts.
    """

    def __init__(self, site: Site) -> None:
        self._site = site

    async def deliver(self, request: Request) -> Response:
        """Take in one request.

        Answers 200 with ``reference, state, class, conversation, duplicate, result``; 401 wrong token; 404 no such
        account; 400 no JSON; 422 JSON that is no request (kept as rejected).
        """
        account = await self._account(request.path_params["account"])
        if account is None:
            return refusal(404, "not_found", "no organization has this http account")
        if not account.token_env and not self._site.is_insecure:
            return refusal(401, "unauthorized", "this account has no token_env; set it, or start with --insecure")
        if account.token_env and not _has_token(request, secrets_of([account.token_env])):
            return refusal(401, "unauthorized", "missing or wrong bearer token")
        payload = parse_json(await read_body(request, self._site.config.intake.max_body_bytes))
        events = list(http.parse(payload, account.account))
        report = await receive(self._site.intake, events)
        if report.rejected:
            return refusal(422, "rejected", str(report.rejected[0]["reason"]))
        message = next((event for event in events if isinstance(event, Message)), None)
        row = report.items[0] if report.items else {}
        # Only an item found by its content comes without a class.
        is_repeat = report.duplicates > 0 or (row.get("reference") is not None and row.get("class") is None)
        if row.get("reference") is None:
            row = row | await self._known(account, message, row)
        return JSONResponse(
            {
                "schema_version": 1,
                "reference": row.get("reference"),
                "state": row.get("state"),
                "class": row.get("class"),
                "conversation": row.get("conversation") and str(row["conversation"]),
                "duplicate": is_repeat,
                "result": row.get("result"),
            }
        )

    async def _account(self, name: str) -> ServedAccount | None:
        accounts = await self._site.accounts.of_kind(_CHANNEL)
        return next((account for account in accounts if account.account == name), None)

    async def _known(self, account: ServedAccount, message: Message | None, row: dict[str, Any]) -> dict[str, Any]:
        """What the database knows of a request that opened no item now: a repeat, or one that a person answers."""
        company = account.organization_id
        if row.get("conversation") is not None:
            found = await self._site.db.run(
                "server.latest_request", organization_id=company, conversation_id=row["conversation"]
            )
        elif message is not None and message.provider_id is not None:
            found = await self._site.db.run(
                "server.request_of_message",
                organization_id=company,
                channel=_CHANNEL,
                account=account.account,
                provider_id=message.provider_id,
            )
        else:
            found = []
        if not found:
            return {}
        known = dict(found[0])
        return known | {"conversation": known.pop("conversation_id")}


def _has_token(request: Request, tokens: list[str]) -> bool:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    # Compared as bytes: compare_digest refuses text outside ASCII.
    offered = given.strip().encode("utf-8", "replace")
    return scheme.lower() == "bearer" and any(hmac.compare_digest(offered, token.encode()) for token in tokens)
