"""The configuration of a workspace: types, defaults and the checks between keys.

Idea: ``zaia.toml`` is one pydantic model; unknown keys are errors. Invariant: a configuration that loads is one that
the engine can keep its promises with (the lease outlives the longest turn). Tested in ``tests/unit/test_config.py``.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, PositiveFloat, PositiveInt, model_validator

__all__ = [
    "AgingConfig",
    "AlertSink",
    "AlertsConfig",
    "Config",
    "DatabaseConfig",
    "DeliveryConfig",
    "EndpointConfig",
    "GuardConfig",
    "IntakeConfig",
    "LeaseConfig",
    "ModelsConfig",
    "PriceConfig",
    "QueueConfig",
    "RecoveryConfig",
    "ReplyWithinConfig",
    "TurnConfig",
]

NonNegative = Annotated[float, Field(ge=0)]

_LEASE_MARGIN_S = 5.0


class _Section(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class DatabaseConfig(_Section):
    url: str = ""
    distributed: bool = False
    pool_size: PositiveInt = 8


class GuardConfig(_Section):
    max_identical: PositiveInt = 3
    max_calls: PositiveInt = 20
    max_tokens: PositiveInt = 200_000


class TurnConfig(_Section):
    deadline_s: PositiveFloat = 90.0
    model_timeout_s: PositiveFloat = 20.0
    tool_timeout_s: PositiveFloat = 10.0
    max_steps: PositiveInt = 25
    max_output_tokens: PositiveInt = 1024
    history_messages: PositiveInt = 200
    coalesce_s: NonNegative = 1.5
    coalesce_max_s: NonNegative = 6.0
    guard: GuardConfig = GuardConfig()


class LeaseConfig(_Section):
    backend: Literal["postgres", "redis"] = "postgres"
    ttl_s: PositiveFloat = 120.0
    redis_url: str = ""


class RecoveryConfig(_Section):
    max_attempts: PositiveInt = 2
    retry_delay_s: NonNegative = 30.0
    reclaim_after_s: PositiveFloat = 1800.0


class DeliveryConfig(_Section):
    max_attempts: PositiveInt = 5
    connect_timeout_s: PositiveFloat = 5.0
    read_timeout_s: PositiveFloat = 30.0
    unknown_after_s: PositiveFloat = 120.0
    settle_s: PositiveFloat = 60.0
    resend_unknown: bool = False


class AgingConfig(_Section):
    background_s: PositiveFloat = 900.0


class ReplyWithinConfig(_Section):
    urgent: NonNegative = 0.0
    standard: NonNegative = 0.0


class QueueConfig(_Section):
    concurrency: PositiveInt = 50
    per_organization: PositiveInt = 20
    poll_s: PositiveFloat = 1.0
    aging: AgingConfig = AgingConfig()
    reply_within_s: ReplyWithinConfig = ReplyWithinConfig()


class IntakeConfig(_Section):
    dedupe_window_s: PositiveFloat = 600.0
    stale_after_s: PositiveFloat = 86_400.0
    max_body_bytes: PositiveInt = 3_145_728
    max_items: PositiveInt = 1000


class AlertSink(_Section):
    kind: Literal["webhook", "command"]
    url: str = ""
    command: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _has_target(self) -> AlertSink:
        if self.kind == "webhook" and not self.url:
            raise ValueError('a webhook sink needs "url"')
        if self.kind == "command" and not self.command:
            raise ValueError('a command sink needs "command", a list of words')
        return self


class AlertsConfig(_Section):
    sinks: tuple[AlertSink, ...] = ()


class EndpointConfig(_Section):
    api_base: str = ""
    api_key_env: str = ""
    max_concurrency: PositiveInt = 50


class ModelsConfig(_Section):
    endpoints: dict[str, EndpointConfig] = {}


class PriceConfig(_Section):
    """USD per million tokens, as decimal text."""

    input: Decimal
    output: Decimal
    cached_input: Decimal | None = None
    cache_write: Decimal | None = None
    cache_write_1h: Decimal | None = None
    valid_from: date = date(2000, 1, 1)


class Config(_Section):
    """Everything of ``zaia.toml``.

    Raises:
        pydantic.ValidationError: A value has the wrong type or range, a key is unknown, or the lease is shorter than
            the longest turn plus one model call, so that two workers could hold one conversation.
    """

    database: DatabaseConfig = DatabaseConfig()
    turn: TurnConfig = TurnConfig()
    lease: LeaseConfig = LeaseConfig()
    recovery: RecoveryConfig = RecoveryConfig()
    delivery: DeliveryConfig = DeliveryConfig()
    queue: QueueConfig = QueueConfig()
    intake: IntakeConfig = IntakeConfig()
    alerts: AlertsConfig = AlertsConfig()
    models: ModelsConfig = ModelsConfig()
    prices: dict[str, PriceConfig] = {}

    @model_validator(mode="after")
    def _lease_outlives_turn(self) -> Config:
        needed = self.turn.deadline_s + max(self.turn.model_timeout_s, self.turn.tool_timeout_s) + _LEASE_MARGIN_S
        if self.lease.ttl_s < needed:
            raise ValueError(
                f"lease.ttl_s is {self.lease.ttl_s:g} s, but a turn may take {needed:g} s (turn.deadline_s "
                f"{self.turn.deadline_s:g} + longest step {max(self.turn.model_timeout_s, self.turn.tool_timeout_s):g} "
                f"+ margin {_LEASE_MARGIN_S:g}); raise lease.ttl_s or lower turn.deadline_s"
            )
        if self.lease.backend == "redis":
            raise ValueError('lease.backend = "redis" is not in this version yet; use "postgres"')
        if self.database.distributed:
            raise ValueError("database.distributed is not in this version yet; leave it false")
        if self.turn.coalesce_max_s < self.turn.coalesce_s:
            raise ValueError("turn.coalesce_max_s is shorter than turn.coalesce_s")
        return self
