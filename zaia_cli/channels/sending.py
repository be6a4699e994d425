"""Sending a part over HTTP, once.

Idea: the request's own body asks ``may_send`` when the connection takes its first byte, after name, connection and TLS.
Invariant: one call makes at most one request (no retries, no redirects), ``not_sent`` is said only for failures before
that byte, and every doubt is ``unknown``. Tested in ``tests/channels/test_sending.py``.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
from aiohttp.abc import AbstractStreamWriter

from zaia_cli.channels.graph import (
    instagram_payload,
    parsed,
    read_answer,
    retry_after_s,
    typing_payload,
    whatsapp_payload,
)
from zaia_cli.channels.split import split
from zaia_cli.core.config import DeliveryConfig
from zaia_cli.core.outbound import OutboundChannel, OutboundPart, SendAccount, SendResult

__all__ = ["ConsoleChannel", "HttpChannel", "InstagramChannel", "WhatsAppChannel", "open_channels"]

_WINDOW_S = 86_400
_WHATSAPP_UNITS = 4096
_INSTAGRAM_BYTES = 1000
_ANSWER_BYTES = 262_144
_TYPING_S = 5.0
_KEEP_ALIVE_S = 4.0
"""Shorter than common servers': a request on a connection that the server is closing would end as ``unknown``."""

Reader = Callable[[int, Mapping[str, str], bytes], SendResult]


@asynccontextmanager
async def open_channels(delivery: DeliveryConfig) -> AsyncIterator[Mapping[str, OutboundChannel]]:
    """Open all channels over one HTTP session.

    Args:
        delivery: Timeouts of connecting (name, TCP, TLS) and of waiting for the answer, in seconds.

    Yields:
        ``whatsapp``, ``instagram``, ``http`` and ``console``; closed when the block ends.
    """
    connect_s, read_s = delivery.connect_timeout_s, delivery.read_timeout_s
    timeout = aiohttp.ClientTimeout(total=connect_s + read_s, connect=connect_s, sock_read=read_s)
    connector = aiohttp.TCPConnector(limit=0, keepalive_timeout=_KEEP_ALIVE_S)
    async with aiohttp.ClientSession(
        connector=connector, timeout=timeout, cookie_jar=aiohttp.DummyCookieJar()
    ) as session:
        yield {
            "whatsapp": WhatsAppChannel(session),
            "instagram": InstagramChannel(session),
            "http": HttpChannel(session),
            "console": ConsoleChannel(),
        }


class WhatsAppChannel:
    """WhatsApp Cloud API.

    Args:
        session: Shared; brings the timeouts.
    """

    window_s: int | None = _WINDOW_S

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    def split(self, text: str) -> list[str]:
        """Cut at 4096 UTF-16 units."""
        return split(text, _WHATSAPP_UNITS, "utf16")

    async def send(self, account: SendAccount, part: OutboundPart, *, may_send: Callable[[], bool]) -> SendResult:
        """Send one text; see ``OutboundChannel``."""
        payload = whatsapp_payload(part)
        return await _post(
            self._session, _messages_url(account), account.token, payload, may_send, _graph_reader("whatsapp", part)
        )

    async def typing(self, account: SendAccount, message_id: str) -> None:
        """Mark ``message_id`` read and show typing, at most 25 s; best effort, never raises."""
        try:
            async with self._session.post(
                _messages_url(account),
                json=typing_payload(message_id),
                headers=_headers(account.token),
                allow_redirects=False,
                timeout=aiohttp.ClientTimeout(total=_TYPING_S),
            ):
                pass
        except (aiohttp.ClientError, TimeoutError, OSError, ValueError):
            return


class InstagramChannel:
    """Instagram messaging API.

    Args:
        session: Shared; brings the timeouts.
    """

    window_s: int | None = _WINDOW_S

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    def split(self, text: str) -> list[str]:
        """Cut at 1000 bytes of UTF-8."""
        return split(text, _INSTAGRAM_BYTES, "utf8")

    async def send(self, account: SendAccount, part: OutboundPart, *, may_send: Callable[[], bool]) -> SendResult:
        """Send one text; see ``OutboundChannel``."""
        payload = instagram_payload(part)
        return await _post(
            self._session, _messages_url(account), account.token, payload, may_send, _graph_reader("instagram", part)
        )

    async def typing(self, account: SendAccount, message_id: str) -> None:
        """Do nothing: Instagram shows typing to a person, not for a message."""


class HttpChannel:
    """A company's own client: its callback URL is called, or without one the client fetches the reply.

    Args:
        session: Shared; brings the timeouts.
    """

    window_s: int | None = None

    def __init__(self, session: aiohttp.ClientSession) -> None:
        self._session = session

    def split(self, text: str) -> list[str]:
        """Keep the text whole."""
        return [text]

    async def send(self, account: SendAccount, part: OutboundPart, *, may_send: Callable[[], bool]) -> SendResult:
        """Call the account's callback URL; see ``OutboundChannel``."""
        if not account.base_url:
            return _taken(part, may_send)
        payload = {"to": part.address, "text": part.text, "opaque_id": part.opaque_id, "reply_to": part.reply_to}

        def read(status: int, headers: Mapping[str, str], body: bytes) -> SendResult:
            return _callback_answer(part, status, headers, body)

        return await _post(self._session, account.base_url, account.token, payload, may_send, read)

    async def typing(self, account: SendAccount, message_id: str) -> None:
        """Do nothing."""


class ConsoleChannel:
    """A conversation at the terminal: the outbox itself is the delivery."""

    window_s: int | None = None

    def split(self, text: str) -> list[str]:
        """Keep the text whole."""
        return [text]

    async def send(self, account: SendAccount, part: OutboundPart, *, may_send: Callable[[], bool]) -> SendResult:
        """Accept at once; the provider's id is the opaque id."""
        return _taken(part, may_send)

    async def typing(self, account: SendAccount, message_id: str) -> None:
        """Do nothing."""


class _AskingPayload(aiohttp.BytesPayload):
    """A JSON body that asks before it goes; aiohttp holds the headers back until the body's first byte."""

    def __init__(self, document: Mapping[str, Any], may_send: Callable[[], bool]) -> None:
        super().__init__(json.dumps(document).encode(), content_type="application/json")
        self._may_send = may_send
        self.is_late = False
        self.has_begun = False

    async def write_with_length(self, writer: AbstractStreamWriter, content_length: int | None) -> None:
        if not self._may_send():
            self.is_late = True
            raise TimeoutError("too late to send")
        self.has_begun = True
        await super().write_with_length(writer, content_length)


async def _post(
    session: aiohttp.ClientSession,
    url: str,
    token: str,
    document: Mapping[str, Any],
    may_send: Callable[[], bool],
    read: Reader,
) -> SendResult:
    payload = _AskingPayload(document, may_send)
    try:
        async with session.post(url, data=payload, headers=_headers(token), allow_redirects=False) as response:
            body = await _bounded_body(response)
            return read(response.status, response.headers, body)
    except Exception as error:
        if payload.is_late:
            return SendResult("not_sent", error="the deadline passed before the connection was up")
        if not payload.has_begun:
            return SendResult("not_sent", error=f"no request could be made: {type(error).__name__}")
        return SendResult("unknown", error=f"no complete answer: {type(error).__name__}")


async def _bounded_body(response: aiohttp.ClientResponse) -> bytes:
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > _ANSWER_BYTES:
            raise aiohttp.ClientPayloadError("the answer is too long")
    return bytes(body)


def _graph_reader(channel: str, part: OutboundPart) -> Reader:
    return lambda status, headers, body: read_answer(channel, part, status, headers, body)


def _callback_answer(part: OutboundPart, status: int, headers: Mapping[str, str], body: bytes) -> SendResult:
    error, wait_s = f"HTTP {status} from the callback", retry_after_s(headers)
    if 200 <= status < 300:
        given = parsed(body).get("id")
        return SendResult("accepted", provider_message_id=str(given) if given else part.opaque_id)
    if status == 429 or (status == 503 and wait_s is not None):
        return SendResult("refused", None, "retry", str(status), error, wait_s)
    if 400 <= status < 500:
        return SendResult("refused", None, "terminal", str(status), error)
    return SendResult("unknown", error=error)


def _taken(part: OutboundPart, may_send: Callable[[], bool]) -> SendResult:
    if not may_send():
        return SendResult("not_sent", error="the deadline passed")
    return SendResult("accepted", provider_message_id=part.opaque_id)


def _messages_url(account: SendAccount) -> str:
    return f"{account.base_url.rstrip('/')}/{account.account}/messages"


def _headers(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"} if token else {}
