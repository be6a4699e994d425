"""The real channels against servers that do what a test says: what is written, and how each ending is named."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio

from zaia_cli.channels.graph import retry_after_s
from zaia_cli.channels.sending import open_channels
from zaia_cli.core.config import DeliveryConfig
from zaia_cli.core.outbound import OutboundChannel, OutboundPart, SendAccount, SendResult

CASES = Path(__file__).parents[2].parent / "shared" / "cases" / "channels"
FAST = DeliveryConfig(connect_timeout_s=0.3, read_timeout_s=0.3)
PART = OutboundPart("5511900010000", "Pedido confirmado.", "z1:ob:1")
ID = {"messages": [{"id": "wamid.OUT1"}]}
Channels = Mapping[str, OutboundChannel]


class Wire:
    """A TCP server that records raw requests and writes ``answer`` (None: never; b"": closes)."""

    def __init__(self) -> None:
        self.answer: bytes | None = b""
        self.heads: list[str] = []
        self.bodies: list[dict[str, Any]] = []
        self.connections = 0
        self.bytes_received = 0
        self.gone = asyncio.Event()
        self.url = ""

    def answers(self, status: int, body: Any = "", **headers: str) -> None:
        content = (body if isinstance(body, str) else json.dumps(body)).encode()
        lines = [f"HTTP/1.1 {status} X", f"content-length: {len(content)}"]
        lines += [f"{name.replace('_', '-')}: {value}" for name, value in headers.items()]
        self.answer = "\r\n".join([*lines, "", ""]).encode() + content

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                text = head.decode()
                length = next(int(x.split(":")[1]) for x in text.splitlines() if x.lower().startswith("content-length"))
                body = await reader.readexactly(length)
                self.bytes_received += len(head) + length
                self.heads.append(text)
                self.bodies.append(json.loads(body))
                if self.answer is None:
                    await reader.read(1)
                    break
                writer.write(self.answer)
                if not self.answer:
                    break
        except asyncio.IncompleteReadError as error:
            self.bytes_received += len(error.partial)
        finally:
            writer.close()
            self.gone.set()


@asynccontextmanager
async def wire_server() -> AsyncIterator[Wire]:
    wire = Wire()
    server = await asyncio.start_server(wire.serve, "127.0.0.1", 0)
    async with server:
        wire.url = f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"
        yield wire


@pytest_asyncio.fixture
async def wire() -> AsyncIterator[Wire]:
    async with wire_server() as served:
        yield served


@pytest_asyncio.fixture
async def channels() -> AsyncIterator[Channels]:
    async with open_channels(FAST) as opened:
        yield opened


def account(url: str, channel: str = "whatsapp", token: str = "secret-token") -> SendAccount:
    return SendAccount(channel, "100000000000001", url, token)


async def send(
    channels: Channels,
    url: str,
    channel: str = "whatsapp",
    part: OutboundPart = PART,
    may: Callable[[], bool] | None = None,
) -> SendResult:
    return await channels[channel].send(account(url, channel), part, may_send=may or (lambda: True))


async def test_whatsapp_text_is_sent_as_recorded_and_its_id_kept(channels: Channels, wire: Wire) -> None:
    wire.answers(200, ID)
    part = OutboundPart("5511900010000", "Olá", "z1:ob:1", "wamid.IN1")
    result = await send(channels, f"{wire.url}/v23.0/", part=part)
    assert result == SendResult("accepted", provider_message_id="wamid.OUT1")
    assert wire.heads[0].startswith("POST /v23.0/100000000000001/messages HTTP/1.1\r\n")
    assert "Authorization: Bearer secret-token\r\n" in wire.heads[0]
    assert wire.bodies == [
        {
            "messaging_product": "whatsapp",
            "recipient_type": "individual",
            "to": "5511900010000",
            "type": "text",
            "text": {"preview_url": False, "body": "Olá"},
            "context": {"message_id": "wamid.IN1"},
            "biz_opaque_callback_data": "z1:ob:1",
        }
    ]


async def test_a_user_id_goes_into_recipient_and_no_context_without_reply_to(channels: Channels, wire: Wire) -> None:
    wire.answers(200, ID)
    await send(channels, wire.url, part=OutboundPart("BR.1A2b3C", "Olá", "z1:ob:1"))
    assert wire.bodies[0]["recipient"] == "BR.1A2b3C"
    assert not {"to", "context"} & set(wire.bodies[0])


async def test_instagram_text_is_sent_as_recorded(channels: Channels, wire: Wire) -> None:
    wire.answers(200, {"recipient_id": "9", "message_id": "mid.OUT1"})
    result = await send(channels, wire.url, "instagram", OutboundPart("9", "Oi", "z1:ob:1"))
    assert result == SendResult("accepted", provider_message_id="mid.OUT1")
    assert wire.bodies == [{"recipient": {"id": "9"}, "message": {"text": "Oi"}}]


async def test_too_long_body_of_the_record_is_terminal(channels: Channels, wire: Wire) -> None:
    found = sorted(CASES.glob("062*.json"))
    if not found:
        pytest.skip("the shared folder is not here")
    answer = json.loads(found[0].read_text("utf-8"))["input"]["provider"][0]
    wire.answers(answer["http"], answer["json"])
    result = await send(channels, wire.url)
    assert (result.outcome, result.error_class, result.error_code) == ("refused", "terminal", "100")


async def test_graph_error_keeps_code_and_wait_but_no_customer_text(channels: Channels, wire: Wire) -> None:
    message = f"Cannot send {PART.text} to +{PART.address}: " + "x" * 500
    error = {"message": message, "code": 10, "error_subcode": 2534022}
    wire.answers(400, {"error": error}, retry_after="7")
    result = await send(channels, wire.url, "instagram")
    assert (result.outcome, result.error_class, result.error_code) == ("refused", "terminal_window", "10/2534022")
    assert result.retry_after_s == 7
    assert result.error is not None
    assert PART.text not in result.error
    assert PART.address not in result.error
    assert len(result.error) <= 200


async def test_unknown_graph_code_with_a_5xx_waits_for_evidence(channels: Channels, wire: Wire) -> None:
    wire.answers(500, {"error": {"message": "?", "code": 424242}})
    assert (await send(channels, wire.url)).error_class == "retry_after_reconcile"


@pytest.mark.parametrize(
    ("status", "body"),
    [
        *((200, body) for body in ({}, "<html>", {"messages": [{"id": ""}]}, {"messages": [3]}, "[" * 100_000)),
        *((502, "bad gateway"), (500, {"error": "x"}), (404, "none"), (307, ""), (400, {"error": {"code": True}})),
    ],
)
async def test_an_answer_without_id_or_error_body_is_unknown(
    channels: Channels, wire: Wire, status: int, body: Any
) -> None:
    wire.answers(status, body, location="/elsewhere")
    assert (await send(channels, wire.url)).outcome == "unknown"
    assert len(wire.heads) == 1


async def test_an_endless_answer_is_unknown(channels: Channels, wire: Wire) -> None:
    wire.answers(200, "x" * 300_000)
    assert (await send(channels, wire.url)).outcome == "unknown"


@pytest.mark.parametrize("answer", [None, b"", b"HTTP/1.1 200 X\r\ncontent-length: 90\r\n\r\n{", b"garbage\r\n\r\n"])
async def test_silence_or_a_break_after_the_request_is_unknown_and_sent_once(
    channels: Channels, wire: Wire, answer: bytes | None
) -> None:
    wire.answer = answer
    assert (await send(channels, wire.url)).outcome == "unknown"
    assert (len(wire.bodies), wire.connections) == (1, 1)


async def test_a_refused_connection_is_not_sent(channels: Channels) -> None:
    async with wire_server() as gone:
        url = gone.url
    assert (await send(channels, url)).outcome == "not_sent"


async def test_an_unknown_host_is_not_sent(channels: Channels) -> None:
    assert (await send(channels, "http://nowhere.invalid")).outcome == "not_sent"


@pytest.mark.parametrize("url", ["graph.example/v1", "ftp://127.0.0.1/x", "http://a..b/x", "http://[::1", "http://"])
async def test_an_address_that_is_none_is_not_sent(channels: Channels, url: str) -> None:
    assert (await send(channels, url)).outcome == "not_sent"


async def test_a_token_that_fits_no_header_is_not_sent(channels: Channels, wire: Wire) -> None:
    wire.answers(200, ID)
    result = await channels["whatsapp"].send(account(wire.url, token="secret\n"), PART, may_send=lambda: True)
    async with asyncio.timeout(5):
        await wire.gone.wait()
    assert (result.outcome, wire.connections, wire.bytes_received) == ("not_sent", 1, 0)


async def test_failed_tls_is_not_sent(channels: Channels, wire: Wire) -> None:
    result = await send(channels, wire.url.replace("http:", "https:"))
    assert result.outcome == "not_sent"
    assert wire.bodies == []


async def test_a_slow_connect_past_the_deadline_writes_nothing(wire: Wire, monkeypatch: pytest.MonkeyPatch) -> None:
    wire.answers(200, ID)
    is_late = asyncio.Event()
    loop = asyncio.get_running_loop()
    connect = loop.create_connection

    async def slow_connect(*args: Any, **options: Any) -> Any:
        connected = await connect(*args, **options)
        is_late.set()
        return connected

    monkeypatch.setattr(loop, "create_connection", slow_connect)
    async with open_channels(FAST) as channels:
        result = await send(channels, wire.url, may=lambda: not is_late.is_set())
        assert is_late.is_set()
        async with asyncio.timeout(5):
            await wire.gone.wait()
    assert result.outcome == "not_sent"
    assert (wire.connections, wire.bytes_received) == (1, 0)


async def test_a_kept_connection_is_asked_too(channels: Channels, wire: Wire) -> None:
    wire.answers(200, ID)
    assert (await send(channels, wire.url)).outcome == "accepted"
    assert (await send(channels, wire.url, may=lambda: False)).outcome == "not_sent"
    async with asyncio.timeout(5):
        await wire.gone.wait()
    assert (wire.connections, len(wire.bodies)) == (1, 1)


async def test_may_send_is_asked_once_and_after_the_connection(channels: Channels, wire: Wire) -> None:
    wire.answers(200, ID)
    seen: list[tuple[int, int]] = []

    def ask() -> bool:
        seen.append((1, wire.bytes_received))
        return True

    await send(channels, wire.url, may=ask)
    assert seen == [(1, 0)]


async def test_typing_marks_read_and_swallows_every_failure(channels: Channels, wire: Wire) -> None:
    wire.answers(200, {"success": True})
    await channels["whatsapp"].typing(account(wire.url), "wamid.IN1")
    assert wire.bodies == [
        {
            "messaging_product": "whatsapp",
            "status": "read",
            "message_id": "wamid.IN1",
            "typing_indicator": {"type": "text"},
        }
    ]
    wire.answer = b""
    await channels["whatsapp"].typing(account(wire.url), "wamid.IN1")
    for name in channels:
        await channels[name].typing(account("http://nowhere.invalid", name), "wamid.IN1")


@pytest.mark.parametrize(
    ("status", "body", "headers", "wanted"),
    [
        (200, {"id": "cb.1"}, {}, SendResult("accepted", "cb.1")),
        (204, "", {}, SendResult("accepted", "z1:ob:1")),
        (422, "", {}, ("refused", "terminal", None)),
        (429, "", {"retry_after": "3"}, ("refused", "retry", 3.0)),
        (503, "", {"retry_after": "3"}, ("refused", "retry", 3.0)),
        (503, "", {}, ("unknown", None, None)),
        (500, "", {}, ("unknown", None, None)),
        (302, "", {"location": "/x"}, ("unknown", None, None)),
    ],
)
async def test_each_answer_of_a_callback_has_its_outcome(
    channels: Channels, wire: Wire, status: int, body: Any, headers: dict[str, str], wanted: Any
) -> None:
    wire.answers(status, body, **headers)
    result = await send(channels, f"{wire.url}/hook", "http")
    got: Any = (result.outcome, result.error_class, result.retry_after_s)
    assert (result if isinstance(wanted, SendResult) else got) == wanted
    assert wire.heads[0].startswith("POST /hook ")
    assert wire.bodies == [{"to": PART.address, "text": PART.text, "opaque_id": "z1:ob:1", "reply_to": None}]


@pytest.mark.parametrize("name", ["http", "console"])
async def test_without_an_address_the_outbox_is_the_delivery(channels: Channels, name: str) -> None:
    assert await send(channels, "", name) == SendResult("accepted", provider_message_id="z1:ob:1")
    assert (await send(channels, "", name, may=lambda: False)).outcome == "not_sent"


async def test_no_authorization_without_a_token(channels: Channels, wire: Wire) -> None:
    wire.answers(200, {"id": "x"})
    await channels["http"].send(account(wire.url, "http", ""), PART, may_send=lambda: True)
    assert "authorization" not in wire.heads[0].lower()


async def test_each_channel_has_its_own_limit_and_window(channels: Channels) -> None:
    text = "ç" * 5000
    counts = {name: len(channel.split(text)) for name, channel in channels.items()}
    assert counts == {"whatsapp": 2, "instagram": 10, "http": 1, "console": 1}
    windows = {name: channel.window_s for name, channel in channels.items()}
    assert windows == {"whatsapp": 86_400, "instagram": 86_400, "http": None, "console": None}


def test_retry_after_reads_seconds_and_dates() -> None:
    assert retry_after_s({"Retry-After": "12"}) == 12
    assert retry_after_s({"Retry-After": "Mon, 01 Jan 2001 00:00:00 GMT"}) == 0
    assert [retry_after_s({"Retry-After": value}) for value in ("", "soon", "-1", "1.5", "²")] == [None] * 5
    assert retry_after_s({}) is None
