"""The organization file: types and the checks inside one file.

Idea: one TOML file describes one company; applying it twice changes nothing. Invariant: names that refer to each other
(a channel's assistant) exist in the same file, so the database never refuses half of it. Tested in
``tests/unit/test_organization.py``.
"""

from __future__ import annotations

from decimal import Decimal
from typing import Annotated, Any, Literal
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from zaia_cli.core.text import fold

__all__ = [
    "AssistantFile",
    "ChannelFile",
    "DepartmentFile",
    "OrganizationFile",
    "OrganizationSection",
    "PriorityRule",
    "RuleWhen",
]

Slug = Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]{0,62}$")]
Budget = Decimal | Literal[""]
ItemClass = Literal["urgent", "standard", "background"]


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class OrganizationSection(_Section):
    slug: Slug
    name: str
    timezone: str = "America/Sao_Paulo"
    handoff_message: str = Field(min_length=1)
    ack_message: str = ""
    ack_after_s: float = Field(default=0, ge=0)
    duplicate_message: str = ""
    unsupported_message: str = ""
    human_assignee: str = Field(min_length=1)
    daily_budget_usd: Budget = ""
    monthly_budget_usd: Budget = ""

    @field_validator("timezone")
    @classmethod
    def _zone_exists(cls, value: str) -> str:
        try:
            ZoneInfo(value)
        except (ZoneInfoNotFoundError, ValueError) as error:
            raise ValueError(f"no time zone named {value!r} (example: America/Sao_Paulo)") from error
        return value


class DepartmentFile(_Section):
    name: str = Field(min_length=1)
    assignee: str = ""


class AssistantFile(_Section):
    slug: Slug
    prompt: str
    prompt_version: str
    model: str
    fallback_models: tuple[str, ...] = ()
    tools: tuple[str, ...] = ("transfer_to_department", "close_conversation")
    daily_budget_usd: Budget = ""
    monthly_budget_usd: Budget = ""


_GRAPH_URLS = {"whatsapp": "https://graph.facebook.com/v23.0", "instagram": "https://graph.instagram.com/v23.0"}


class ChannelFile(_Section):
    """One account of a channel. ``base_url`` empty: Meta's own for its channels; for ``http``, replies stay in the
    database. ``*_env`` are names of environment variables; a variable may hold several secrets separated by spaces.
    """

    kind: Literal["whatsapp", "instagram", "http", "console"]
    account: str = Field(min_length=1)
    assistant: Slug
    base_url: str = ""
    token_env: str = ""
    app_secret_env: str = ""
    verify_token_env: str = ""

    @model_validator(mode="before")
    @classmethod
    def _default_base_url(cls, given: Any) -> Any:
        if isinstance(given, dict) and not given.get("base_url") and given.get("kind") in _GRAPH_URLS:
            return {**given, "base_url": _GRAPH_URLS[given["kind"]]}
        return given


class RuleWhen(_Section):
    """All given conditions must hold. ``keywords`` match folded whole words of the text, any of them."""

    channel: str | None = None
    account_type: str | None = None
    field: dict[str, str] = {}
    keywords: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _has_condition(self) -> RuleWhen:
        if self.channel is None and self.account_type is None and not self.field and not self.keywords:
            raise ValueError("a priority rule needs at least one condition: channel, account_type, field or keywords")
        return self


class PriorityRule(_Section):
    when: RuleWhen
    item_class: ItemClass = Field(alias="class")
    owner: str = Field(min_length=1)
    description: str = Field(min_length=1)
    alert: str = ""


class OrganizationFile(_Section):
    organization: OrganizationSection
    departments: tuple[DepartmentFile, ...] = ()
    assistants: tuple[AssistantFile, ...] = Field(min_length=1)
    channels: tuple[ChannelFile, ...] = ()
    priority_rules: tuple[PriorityRule, ...] = ()

    @model_validator(mode="after")
    def _names_fit(self) -> OrganizationFile:
        assistants = [assistant.slug for assistant in self.assistants]
        for names, what in (
            (assistants, "assistant"),
            ([fold(department.name) for department in self.departments], "department"),
            ([f"{channel.kind}:{channel.account}" for channel in self.channels], "channel"),
        ):
            twice = sorted({name for name in names if names.count(name) > 1})
            if twice:
                raise ValueError(f"{what} named twice: {', '.join(twice)}")
        for channel in self.channels:
            if channel.assistant not in assistants:
                raise ValueError(
                    f"channel {channel.kind}:{channel.account} names assistant {channel.assistant!r}, which this file "
                    f"does not have (it has: {', '.join(assistants)})"
                )
        return self
