"""What channels deliver, in one vocabulary.

Idea: every channel's parser turns a payload into these events; intake knows no channel. Invariant: an item that cannot
be read becomes ``Rejected`` and never harms its neighbours. Tested in ``tests/unit/test_whatsapp.py`` and
``test_instagram.py``.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

__all__ = [
    "ChannelKind",
    "ContactMoved",
    "DeliveryStatus",
    "Echo",
    "Event",
    "Ignored",
    "Message",
    "MessageEdit",
    "MessageRevoke",
    "Party",
    "Reaction",
    "Rejected",
    "StatusUpdate",
]

ChannelKind = Literal["whatsapp", "instagram", "http", "console"]
DeliveryStatus = Literal["sent", "delivered", "read", "failed"]


@dataclass(frozen=True, slots=True)
class Party:
    """The customer of an event.

    ``address`` is where an answer goes, exactly as received. ``aliases`` are the keys under which the same person is
    found again, each ``namespace:value`` (``phone:5541998760000``, ``bsuid:BR.9…``, ``instagram:900…``, ``http:…``);
    the first is the strongest. At least one alias is always present.
    """

    address: str
    aliases: tuple[str, ...]
    name: str | None = None


@dataclass(frozen=True, slots=True)
class Message:
    """A new inbound message.

    ``provider_id`` is None only where the channel has no ids. ``text`` is canonical (what the model reads, after
    clean-up). ``starts_turn`` is False for what must be kept and not answered by itself (unsupported, group, empty).
    ``thread`` separates unrelated requests of one contact on channels that have subjects; empty elsewhere. ``fields``
    is what priority rules may look at.
    """

    channel: ChannelKind
    account: str
    provider_id: str | None
    party: Party
    kind: str
    text: str
    sent_at: datetime
    starts_turn: bool = True
    thread: str = ""
    reply_to: str | None = None
    fields: dict[str, Any] = field(default_factory=dict)
    raw: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MessageEdit:
    """The customer replaced the text of an earlier message; may arrive before it."""

    channel: ChannelKind
    account: str
    provider_id: str
    original_id: str
    party: Party
    kind: str
    text: str
    sent_at: datetime
    raw: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class MessageRevoke:
    """The customer deleted an earlier message; may arrive before it."""

    channel: ChannelKind
    account: str
    provider_id: str
    original_id: str
    party: Party
    sent_at: datetime
    raw: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Reaction:
    """An emoji on a message; ``emoji`` None means that it was taken back. Starts nothing."""

    channel: ChannelKind
    account: str
    provider_id: str
    target_id: str
    party: Party
    emoji: str | None
    sent_at: datetime
    raw: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class StatusUpdate:
    """What the channel says of a message that we sent. ``opaque_id`` is ours, when the channel echoes it."""

    channel: ChannelKind
    account: str
    provider_message_id: str
    status: DeliveryStatus
    at: datetime
    opaque_id: str | None = None
    error_code: int | None = None
    error: str | None = None
    raw: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Echo:
    """A message sent from the business's own account: ours, or a person writing on the phone or in the app."""

    channel: ChannelKind
    account: str
    provider_id: str
    party: Party
    text: str
    sent_at: datetime
    raw: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ContactMoved:
    """The same person has a new address (WhatsApp number change)."""

    channel: ChannelKind
    account: str
    provider_id: str
    old: Party
    new: Party
    sent_at: datetime
    raw: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Rejected:
    """An item that could not be read, with the path inside the payload and why."""

    channel: ChannelKind
    path: str
    reason: str
    raw: Any = None
    account: str | None = None


@dataclass(frozen=True, slots=True)
class Ignored:
    """A well-formed item that Zaia has no use for (``account_update``, ``history`` …)."""

    channel: ChannelKind
    what: str


Event = Message | MessageEdit | MessageRevoke | Reaction | StatusUpdate | Echo | ContactMoved | Rejected | Ignored
