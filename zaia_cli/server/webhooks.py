"""Meta's webhooks: the challenge and the deliveries of one channel kind.

Idea: the signature decides before anything is parsed, and after parsing every account of the payload must belong to a
company whose secret signed it. Invariant: 200 only after the commit; what is refused leaves no row. Tested in
``tests/server/test_webhooks.py``.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from zaia_cli.channels.signature import challenge, verify_signature
from zaia_cli.core.inbound import Event
from zaia_cli.server.accounts import ServedAccount, secrets_of
from zaia_cli.server.body import parse_json, read_body
from zaia_cli.server.receiving import receive
from zaia_cli.server.site import Site, refusal

__all__ = ["Webhook"]

_log = logging.getLogger(__name__)


class Webhook:
    """The two routes of one channel kind.

    Args:
        site: The server's parts.
        kind: ``whatsapp`` or ``instagram``.
        parse: From a payload to events; never raises.
    """

    def __init__(self, site: Site, kind: str, parse: Callable[[Any], Iterable[Event]]) -> None:
        self._site = site
        self._kind = kind
        self._parse = parse

    async def challenge(self, request: Request) -> Response:
        """``GET``: answer the subscription challenge of a sender who knows a verify token, else 403."""
        accounts = await self._site.accounts.of_kind(self._kind)
        tokens = secrets_of([account.verify_token_env for account in accounts])
        answer = challenge(request.query_params, tokens)
        if answer is None:
            return refusal(403, "forbidden", "wrong mode or verify token")
        # Not text/html, and not to be guessed as such: the text is the caller's own.
        return Response(answer, headers={"content-type": "text/plain", "x-content-type-options": "nosniff"})

    async def deliver(self, request: Request) -> Response:
        """``POST``: verify, parse, store, answer."""
        limits = self._site.config.intake
        body = await read_body(request, limits.max_body_bytes)
        accounts = await self._site.accounts.of_kind(self._kind)
        signers = _signers(accounts, body, request.headers.get("x-hub-signature-256"))
        unsigned = {account.account for account in accounts if not account.app_secret_env}
        if not signers and not (self._site.is_insecure and (unsigned or not accounts)):
            return self._refuse(accounts, unsigned)
        events = list(self._parse(parse_json(body)))
        if len(events) > limits.max_items:
            return refusal(413, "too_many_items", f"more than {limits.max_items} items in one payload")
        if not self._may_deliver(events, accounts, signers, unsigned):
            _log.warning("a %s payload names an account of a company whose secret did not sign it", self._kind)
            return refusal(401, "unauthorized", "the signature is not that of the payload's account")
        report = await receive(self._site.intake, events)
        _log.info(
            "%s: %d items, %d accepted, %d repeated, %d statuses, %d ignored, %d rejected",
            self._kind,
            *(report.received, report.accepted, report.duplicates, report.statuses, report.ignored),
            len(report.rejected),
        )
        return JSONResponse({"received": report.received, "accepted": report.accepted})

    def _refuse(self, accounts: Sequence[ServedAccount], unsigned: set[str]) -> Response:
        if accounts and len(unsigned) == len(accounts):
            _log.warning(
                "refused: no %s account has app_secret_env, so nobody can be told apart from Meta; set it in the "
                "organization file, or start with --insecure to try things out",
                self._kind,
            )
        else:
            _log.warning("refused: a %s payload without a valid signature", self._kind)
        return refusal(401, "unauthorized", "missing or wrong signature")

    def _may_deliver(
        self, events: Sequence[Event], accounts: Sequence[ServedAccount], signers: set[str], unsigned: set[str]
    ) -> bool:
        """Whether every account that somebody owns is the signer's, or is open because nothing protects it."""
        owners = {account.account: account.organization_id for account in accounts}
        named = {account for event in events if (account := getattr(event, "account", None)) is not None}
        return all(
            owners[account] in signers or (self._site.is_insecure and account in unsigned)
            for account in named
            if account in owners
        )


def _signers(accounts: Sequence[ServedAccount], body: bytes, header: str | None) -> set[str]:
    """The companies one of whose app secrets signed ``body``."""
    names: dict[str, list[str]] = defaultdict(list)
    for account in accounts:
        names[account.organization_id].append(account.app_secret_env)
    return {company for company, held in names.items() if verify_signature(body, header, secrets_of(held))}
