"""A Graph API on loopback: takes sends for WhatsApp and Instagram and posts statuses and echoes back.

Idea: everything that can go wrong on Meta's side is planned for the nth send or for a recipient, and happens over real
HTTP. Invariant: ``sends`` holds every send that arrived with what became of it, so it alone says whether something was
sent twice. Tested in ``tests/channels/test_whatsapp_sim.py``.

``POST /{version}/{account}/messages`` (also without version) and ``POST /callback`` take sends, ``POST /_sim/plan``
plans, ``GET /_sim/sends`` lists.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import secrets
import time
from collections import Counter, deque
from collections.abc import Mapping, Sequence
from typing import Any

import aiohttp
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from starlette.applications import Starlette
from starlette.requests import ClientDisconnect, Request
from starlette.responses import JSONResponse, Response
from starlette.routing import Route
from starlette.types import Receive, Scope
from starlette.types import Send as AsgiSend

__all__ = ["GraphSim", "Plan"]

_SENDS_KEPT = 100_000
_POSTS_AT_ONCE = 20
_POST_TIMEOUT_S = 10.0
_STATUS_DELAY_S = 0.01
_TEXT_LIMITS = {"whatsapp": ("utf-16-le", 8192, "4096 characters"), "instagram": ("utf-8", 1000, "1000 bytes")}


class Plan(BaseModel):
    """What happens to a send: to the ``nth`` that arrives (from 1), or to the next to one recipient, or to the next.

    ``http`` and ``json`` replace the answer; ``accepted`` says whether the message goes out all the same (by default
    it does unless ``http`` is 400 or more). A timeout holds the request until the client leaves, at most ``hold_s``.
    """

    model_config = ConfigDict(extra="forbid", populate_by_name=True)

    nth: int | None = Field(None, ge=1)
    to: str | None = None
    times: int = Field(1, ge=1)
    http: int = Field(200, ge=200, le=599)
    body: Any = Field(None, alias="json")
    headers: dict[str, str] = {}
    accepted: bool | None = None
    message_id: str | None = None
    timeout_after_accept: bool = False
    timeout_without_accept: bool = False
    hold_s: float = Field(60.0, gt=0, le=600)
    answer_delay_s: float = Field(0.0, ge=0, le=600)
    reset: bool = False
    statuses: list[str] | None = None
    statuses_before_answer: bool = False

    @property
    def is_accepting(self) -> bool:
        """Whether the message goes out."""
        if self.accepted is not None:
            return self.accepted
        return self.http < 400 and not self.timeout_without_accept


class GraphSim:
    """State of the simulator and its application.

    Args:
        webhook_urls: Where ``whatsapp`` statuses and ``instagram`` echoes go; may be changed at any time.
        app_secret: Signs them; empty: unsigned.
        statuses: Told for each accepted WhatsApp message, in order. Instagram gets an echo for each ``sent`` in it.
    """

    def __init__(
        self,
        webhook_urls: Mapping[str, str] | None = None,
        app_secret: str = "",
        statuses: Sequence[str] = ("sent", "delivered", "read"),
    ) -> None:
        self.webhook_urls = dict(webhook_urls or {})
        self.app_secret = app_secret
        self.statuses = list(statuses)
        self.counts: Counter[str] = Counter()
        """Sends by outcome, ``typing`` calls, and ``webhook_<status>`` or ``webhook_failed`` posts."""
        self._sends: deque[dict[str, Any]] = deque(maxlen=_SENDS_KEPT)
        self._plans: list[Plan] = []
        self._arrived = 0
        self._run = secrets.token_hex(4)
        self._telling: set[asyncio.Task[None]] = set()
        self._session: aiohttp.ClientSession | None = None
        self._slots = asyncio.Semaphore(_POSTS_AT_ONCE)
        self.app = Starlette(
            routes=[
                Route("/callback", self._callback, methods=["POST"]),
                Route("/_sim/plan", self._plan, methods=["POST"]),
                Route("/_sim/sends", self._list, methods=["GET"]),
                Route("/{account}/messages", self._messages, methods=["POST"]),
                Route("/{version}/{account}/messages", self._messages, methods=["POST"]),
            ]
        )

    @property
    def sends(self) -> list[dict[str, Any]]:
        """Every send in order of arrival, the newest 100,000: channel, account, to, text, opaque_id, reply_to,
        message_id, at (Unix seconds) and outcome (``accepted``, ``refused`` or ``lost``: never answered, never sent).
        """
        return list(self._sends)

    def plan(self, **fields: Any) -> Plan:
        """Plan a behaviour; the fields are those of ``Plan``. Earlier plans go first.

        Raises:
            pydantic.ValidationError: A field is unknown or out of range.
        """
        planned = Plan.model_validate(fields)
        self._plans.append(planned)
        return planned

    async def settled(self) -> None:
        """Wait until every status and echo that is due has been posted."""
        while self._telling:
            await asyncio.gather(*self._telling, return_exceptions=True)

    async def close(self) -> None:
        """Cancel what is still to be posted and close connections."""
        for task in self._telling:
            task.cancel()
        await asyncio.gather(*self._telling, return_exceptions=True)
        if self._session is not None:
            await self._session.close()

    async def _messages(self, request: Request) -> Response:
        body = await _read(request)
        account = request.path_params["account"]
        if body is None:
            return _graph_error(100, "the body is not JSON")
        if body.get("status") == "read":
            self.counts["typing"] += 1
            return JSONResponse({"success": True})
        is_whatsapp = body.get("messaging_product") == "whatsapp"
        try:
            to = (body.get("to") or body["recipient"]) if is_whatsapp else body["recipient"]["id"]
            text = body["text"]["body"] if is_whatsapp else body["message"]["text"]
            if not (isinstance(to, str) and isinstance(text, str)):
                raise TypeError
        except (KeyError, TypeError):
            return _graph_error(100, "(#100) The parameter to, recipient or text is required.")
        context = body.get("context")
        return await self._take(
            {
                "channel": "whatsapp" if is_whatsapp else "instagram",
                "account": account,
                "to": to,
                "text": text,
                "opaque_id": body.get("biz_opaque_callback_data"),
                "reply_to": context.get("message_id") if isinstance(context, dict) else None,
            }
        )

    async def _callback(self, request: Request) -> Response:
        body = await _read(request) or {}
        fields = {name: body.get(name) for name in ("to", "text", "opaque_id", "reply_to")}
        return await self._take({"channel": "http", "account": "", **fields})

    async def _take(self, send: dict[str, Any]) -> Response:
        self._arrived += 1
        plan = self._next_plan(send["to"])
        message_id = (plan and plan.message_id) or f"{_PREFIXES[send['channel']]}.{self._run}{self._arrived:06d}"
        if plan is None:
            plan = _too_long(send) or Plan.model_validate({})
        outcome = "accepted" if plan.is_accepting else "lost" if plan.timeout_without_accept else "refused"
        self.counts[outcome] += 1
        send |= {"message_id": message_id, "at": time.time(), "outcome": outcome}
        self._sends.append(send)
        if outcome == "accepted":
            telling = asyncio.create_task(self._tell(dict(send), plan))
            self._telling.add(telling)
            telling.add_done_callback(self._telling.discard)
            if plan.statuses_before_answer:
                await asyncio.wait({telling})
        return _PlannedResponse(plan, _answer(send) if plan.body is None else plan.body)

    def _next_plan(self, to: str) -> Plan | None:
        for plan in self._plans:
            if plan.nth not in (None, self._arrived) or plan.to not in (None, to):
                continue
            plan.times -= 1
            if plan.times < 1 or plan.nth is not None:
                self._plans.remove(plan)
            return plan
        return None

    async def _tell(self, send: dict[str, Any], plan: Plan) -> None:
        url = self.webhook_urls.get(send["channel"], "")
        if not url:
            return
        for status in self.statuses if plan.statuses is None else plan.statuses:
            if send["channel"] == "whatsapp":
                await self._post(url, _status_event(send, status))
            elif status == "sent":
                await self._post(url, _echo_event(send))

    async def _post(self, url: str, event: dict[str, Any]) -> None:
        raw = json.dumps(event).encode()
        headers = {"content-type": "application/json"}
        if self.app_secret:
            digest = hmac.new(self.app_secret.encode(), raw, hashlib.sha256).hexdigest()
            headers["x-hub-signature-256"] = f"sha256={digest}"
        if self._session is None:
            self._session = aiohttp.ClientSession(timeout=aiohttp.ClientTimeout(total=_POST_TIMEOUT_S))
        await asyncio.sleep(_STATUS_DELAY_S)
        try:
            async with self._slots, self._session.post(url, data=raw, headers=headers) as response:
                await response.read()
                self.counts[f"webhook_{response.status}"] += 1
        except (aiohttp.ClientError, TimeoutError, OSError):
            self.counts["webhook_failed"] += 1

    async def _plan(self, request: Request) -> Response:
        try:
            self.plan(**(await _read(request) or {}))
        except ValidationError as error:
            return JSONResponse({"error": str(error)}, 400)
        return JSONResponse({"planned": len(self._plans)})

    async def _list(self, _: Request) -> Response:
        return JSONResponse({"counts": dict(self.counts), "sends": self.sends})


class _PlannedResponse(Response):
    """Answers as planned; ends as soon as the client is gone."""

    def __init__(self, plan: Plan, document: Any) -> None:
        content = document if isinstance(document, str) else json.dumps(document)
        headers = {"content-type": "application/json"} | {k.lower(): v for k, v in plan.headers.items()}
        super().__init__(content, plan.http, headers)
        self._plan = plan

    async def __call__(self, scope: Scope, receive: Receive, send: AsgiSend) -> None:
        plan = self._plan
        is_held = plan.timeout_after_accept or plan.timeout_without_accept
        wait_s = plan.hold_s if is_held else plan.answer_delay_s
        if wait_s and await _is_gone(receive, wait_s):
            return
        if plan.reset or is_held:
            # A body that ends before its announced length makes the server close the connection.
            await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
            await send({"type": "http.response.body", "body": b"", "more_body": True})
            return
        await super().__call__(scope, receive, send)


_PREFIXES = {"whatsapp": "wamid", "instagram": "mid", "http": "cb"}


async def _is_gone(receive: Receive, limit_s: float) -> bool:
    try:
        async with asyncio.timeout(limit_s):
            while (await receive())["type"] != "http.disconnect":
                pass
    except TimeoutError:
        return False
    return True


async def _read(request: Request) -> dict[str, Any] | None:
    try:
        body = json.loads(await request.body())
    except (ValueError, ClientDisconnect):
        return None
    return body if isinstance(body, dict) else None


def _too_long(send: Mapping[str, Any]) -> Plan | None:
    encoding, limit, words = _TEXT_LIMITS.get(send["channel"], ("utf-8", 1 << 24, ""))
    if len(str(send["text"]).encode(encoding, "surrogatepass")) <= limit:
        return None
    message = f"(#100) Param text['body'] must be at most {words} long."
    return Plan.model_validate({"http": 400, "json": _error_body(100, message)})


def _error_body(code: int, message: str) -> dict[str, Any]:
    return {"error": {"message": message, "type": "OAuthException", "code": code, "fbtrace_id": "SIM"}}


def _graph_error(code: int, message: str) -> JSONResponse:
    return JSONResponse(_error_body(code, message), 400)


def _answer(send: Mapping[str, Any]) -> dict[str, Any]:
    if send["channel"] == "whatsapp":
        return {
            "messaging_product": "whatsapp",
            "contacts": [{"input": send["to"], "wa_id": send["to"]}],
            "messages": [{"id": send["message_id"]}],
        }
    if send["channel"] == "instagram":
        return {"recipient_id": send["to"], "message_id": send["message_id"]}
    return {"id": send["message_id"]}


def _status_event(send: Mapping[str, Any], status: str) -> dict[str, Any]:
    told: dict[str, Any] = {
        "id": send["message_id"],
        "status": status,
        "timestamp": str(int(time.time())),
        "recipient_id": send["to"],
    }
    if send["opaque_id"] is not None:
        told["biz_opaque_callback_data"] = send["opaque_id"]
    if status == "failed":
        told["errors"] = [{"code": 131026, "title": "Message undeliverable", "message": "Message undeliverable"}]
    value = {
        "messaging_product": "whatsapp",
        "metadata": {"display_phone_number": "551140000000", "phone_number_id": send["account"]},
        "statuses": [told],
    }
    entry = {"id": "200000000000001", "changes": [{"field": "messages", "value": value}]}
    return {"object": "whatsapp_business_account", "entry": [entry]}


def _echo_event(send: Mapping[str, Any]) -> dict[str, Any]:
    now_ms = int(time.time() * 1000)
    echo = {
        "sender": {"id": send["account"]},
        "recipient": {"id": send["to"]},
        "timestamp": now_ms,
        "message": {"mid": send["message_id"], "text": send["text"], "is_echo": True},
    }
    return {"object": "instagram", "entry": [{"id": send["account"], "time": now_ms, "messaging": [echo]}]}
