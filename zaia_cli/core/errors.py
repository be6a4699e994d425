"""The error tree of Zaia, on one page.

Idea: an error carries a stable ``code``, whether a later try may help, the exit code of the command line and a hint
with the next command. Invariant: nothing below ``cli`` prints or exits; it raises one of these. Tested in
``tests/unit/test_errors.py``.

    ZaiaError (1)
    ├── ConfigError (2)            configuration, prompt or organization file is wrong; nothing was changed
    ├── CheckFailedError (3)       a check ran and failed
    ├── NotFoundError (4)          no such thing
    ├── UnavailableError (5)       a dependency is away; safe to retry
    ├── RefusedError (6)           the state of things forbids it (conflict, wrong owner, wrong migration)
    ├── InconclusiveError (7)      an evaluation cannot decide
    └── TurnError                  a turn cannot go on
        ├── ModelError             the model provider answered with an error, or not at all
        ├── ToolLoopError          the guard stopped a model that repeats itself; never retried
        ├── EmptyAnswerError       the model said nothing twice
        ├── LeaseLostError         another owner has the conversation; write nothing, send nothing
        ├── GiveBackError          the worker drains; the item returns to pending between two steps
        ├── PreconditionError      something the turn needs is not there; never retried
        └── UncertainEffectError   a side effect started and never reported; a person must look
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, Literal

if TYPE_CHECKING:
    from zaia_cli.core.chat import Usage

__all__ = [
    "CheckFailedError",
    "ConfigError",
    "EmptyAnswerError",
    "GiveBackError",
    "InconclusiveError",
    "LeaseLostError",
    "ModelError",
    "ModelErrorKind",
    "NotFoundError",
    "PreconditionError",
    "RefusedError",
    "ToolLoopError",
    "TurnError",
    "UnavailableError",
    "UncertainEffectError",
    "ZaiaError",
]


class ZaiaError(Exception):
    """Base of all errors that Zaia raises on purpose.

    Args:
        message: What happened, one or two sentences, no customer text.
        hint: What to do next, ideally a command.
        code: Overrides the class's stable code where one class covers several causes.
    """

    code: str = "internal"
    exit_code: ClassVar[int] = 1
    retryable: bool = False

    def __init__(self, message: str, *, hint: str | None = None, code: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        if code is not None:
            self.code = code


class ConfigError(ZaiaError):
    code = "configuration"
    exit_code = 2


class CheckFailedError(ZaiaError):
    code = "check_failed"
    exit_code = 3


class NotFoundError(ZaiaError):
    code = "not_found"
    exit_code = 4


class UnavailableError(ZaiaError):
    code = "unavailable"
    exit_code = 5
    retryable = True


class RefusedError(ZaiaError):
    code = "refused"
    exit_code = 6


class InconclusiveError(ZaiaError):
    code = "inconclusive"
    exit_code = 7


class TurnError(ZaiaError):
    """A turn cannot go on. ``retryable`` decides between another attempt and the human lane."""

    code = "turn"


ModelErrorKind = Literal[
    "rate_limit",
    "transient",
    "timeout",
    "payment",
    "unauthorized",
    "forbidden",
    "content_policy",
    "context_length",
    "bad_request",
]

_PASSING: frozenset[str] = frozenset({"rate_limit", "transient", "timeout"})
_ALERTING: frozenset[str] = frozenset({"payment", "unauthorized", "forbidden"})


class ModelError(TurnError):
    """One model request failed.

    Args:
        kind: The class that the error policy decides on.
        message: The provider's own message, shortened; may be shown to operators, never to customers.
        status: True HTTP status, or None when there was no answer.
        provider_code: The provider's own code or type.
        retry_after_s: Seconds the provider asked to wait.
        usage: What the provider billed for an answer that could not be used; None when it did not say.

    Source:
        ``shared/facts/providers.md`` sections 1.1 to 1.3.
    """

    def __init__(
        self,
        kind: ModelErrorKind,
        message: str,
        *,
        status: int | None = None,
        provider_code: str | None = None,
        retry_after_s: float | None = None,
        usage: Usage | None = None,
    ) -> None:
        super().__init__(message, code=f"model_{kind}")
        self.kind = kind
        self.status = status
        self.provider_code = provider_code
        self.retry_after_s = retry_after_s
        self.usage = usage
        self.retryable = kind in _PASSING

    @property
    def alerts(self) -> bool:
        """Whether a person must hear of it: money, keys or permissions."""
        return self.kind in _ALERTING


class ToolLoopError(TurnError):
    code = "tool_loop"


class EmptyAnswerError(TurnError):
    code = "empty_answer"


class LeaseLostError(TurnError):
    code = "lease_lost"


class GiveBackError(TurnError):
    code = "give_back"


class PreconditionError(TurnError):
    code = "precondition"


class UncertainEffectError(TurnError):
    code = "uncertain_effect"
