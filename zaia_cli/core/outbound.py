"""What a channel is asked to send and how a send can end.

Idea: the engine decides on ``SendResult`` alone. Invariant: ``not_sent`` is reported only when it is certain that
nothing left; anything ambiguous is ``unknown``. Tested in ``tests/engine/test_delivery_cases.py``.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal, Protocol

__all__ = ["ErrorClass", "OutboundChannel", "OutboundPart", "SendAccount", "SendResult"]

ErrorClass = Literal[
    "retry",
    "retry_after_reconcile",
    "unknown_outcome_do_not_resend",
    "slow_pair",
    "slow_number",
    "slow_number_and_alert",
    "slow_app",
    "slow_waba",
    "terminal",
    "terminal_window",
    "human",
    "unknown_code_terminal_and_alert",
]
"""How a channel's own error code is handled; ``shared/facts/channels.md`` section 6."""


@dataclass(frozen=True, slots=True)
class SendAccount:
    """Where and as whom to send. ``token`` is a secret: never logged, never stored."""

    channel: str
    account: str
    base_url: str
    token: str


@dataclass(frozen=True, slots=True)
class OutboundPart:
    """One part of one reply. ``opaque_id`` is new for each delivery; ``reply_to`` only on the first part."""

    address: str
    text: str
    opaque_id: str
    reply_to: str | None = None


@dataclass(frozen=True, slots=True)
class SendResult:
    """How one send ended.

    ``accepted``: a 2xx with ``provider_message_id``. ``refused``: the channel's own error, with ``error_class``.
    ``not_sent``: certain that nothing left (before the connection was up, or our deadline passed first).
    ``unknown``: anything else; never repeated without evidence.
    """

    outcome: Literal["accepted", "refused", "not_sent", "unknown"]
    provider_message_id: str | None = None
    error_class: ErrorClass | None = None
    error_code: str | None = None
    error: str | None = None
    retry_after_s: float | None = None


class OutboundChannel(Protocol):
    """One channel's way to cut and send a reply."""

    window_s: int | None
    """Seconds after the customer's last message in which free text may be sent; None: no window."""

    def split(self, text: str) -> list[str]:
        """Cut ``text`` by the channel's own limit and unit; joined, the parts hold all of the text."""
        ...

    async def send(self, account: SendAccount, part: OutboundPart, *, may_send: Callable[[], bool]) -> SendResult:
        """Send one part with at most one HTTP request.

        Args:
            account: Where to.
            part: What.
            may_send: Asked as the last act before the first byte is written; False ends it as ``not_sent``.
        """
        ...

    async def typing(self, account: SendAccount, message_id: str) -> None:
        """Show that an answer is being written; best effort, never raises."""
        ...
