"""Scripts of scripted models: ordered rules that look at a conversation and say what the model does.

Idea: a model without keys, for tests, demos and first steps; the same file drives ``scripted/<name>`` in the process
and ``zaia sim model`` over HTTP. Invariant: the same script and the same calls give the same answers; an unknown key
is an error. Tested in ``tests/models/test_scripted.py`` and ``tests/models/test_model_server.py``.

A script is TOML: ``description`` and ``[[rules]]``. The first rule whose conditions all hold answers; a rule without
conditions always holds, so it goes last.

Conditions
    ``burst``       regular expression, searched without case in the burst: what the customer wrote since the last
                    answer, one message a line. Calls to tools are not answers.
    ``after_tool``  the last message is the result of this tool.
    ``nth``         the n-th call for this conversation, failed ones included. A conversation is known by its stable
                    instructions and its first customer message.

Answers (one of them; ``text`` may stand beside tools)
    ``text``        a template, see below. ``json = {…}`` answers JSON, with ``prose = true`` fenced inside a sentence.
    ``tool``        a call, with ``args``: a table, or text for arguments that are not JSON. ``tools = [{tool, args}]``
                    makes several calls. The rule holds while its tool was called fewer than ``repeat`` times in this
                    turn (default 1; ``"forever"`` is a loop).
    ``empty``       ``true``: says nothing.
    ``status``      an HTTP error, with ``body`` (table or text) and ``headers``.
    ``hang``        ``true``: never answers. ``reset = true``: the connection breaks.

Around an answer
    ``delay_s``     seconds before it. ``drip_s``: seconds over which it trickles in.
    ``finish``      ``stop``, ``tool_calls``, ``length`` or ``content_filter`` in place of what follows from the answer.
    ``usage``       ``{input, cached, cache_write, output, reasoning}``, or ``"missing"``. By default four characters
                    are one token, and the longest prefix of the instructions seen before counts as cached.

Templates (in ``text`` and in texts inside ``args``) know ``{burst}`` (messages joined by " | "), ``{last}``,
``{count}`` (messages of the burst), ``{history_count}`` (messages of the history), ``{result}`` (the last tool result),
``{step}`` (tool results of this turn plus one) and the named groups of ``burst``.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    field_validator,
    model_validator,
)

from zaia_cli.core.chat import ChatMessage, Finish
from zaia_cli.core.errors import ConfigError

__all__ = ["Rule", "Script", "ScriptedCall", "ScriptedUsage", "Situation", "load_script"]

_PLACEHOLDER = re.compile(r"\{(\w+)\}")


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class ScriptedCall(_Strict):
    """One tool call of a rule; ``args`` as text is sent as it is, JSON or not."""

    tool: str
    args: dict[str, Any] | str = Field(default_factory=dict)


class ScriptedUsage(_Strict):
    """Tokens that a rule reports, in disjoint buckets; ``reasoning`` is a part of ``output``."""

    input: NonNegativeInt = 0
    cached: NonNegativeInt = 0
    cache_write: NonNegativeInt = 0
    output: NonNegativeInt = 0
    reasoning: NonNegativeInt = 0


class Rule(_Strict):
    """Conditions and an answer; the keys are described at the top of this module."""

    burst: re.Pattern[str] | None = None
    after_tool: str | None = None
    nth: PositiveInt | None = None
    text: str | None = None
    json_value: dict[str, Any] | list[Any] | None = Field(default=None, alias="json")
    prose: bool = False
    tool: str | None = None
    args: dict[str, Any] | str | None = None
    tools: tuple[ScriptedCall, ...] = ()
    repeat: PositiveInt | Literal["forever"] = 1
    empty: bool = False
    status: int | None = Field(default=None, ge=400, le=599)
    body: dict[str, Any] | str | None = None
    headers: dict[str, str] = Field(default_factory=dict)
    hang: bool = False
    reset: bool = False
    delay_s: NonNegativeFloat = 0.0
    drip_s: NonNegativeFloat = 0.0
    finish: Finish | None = None
    usage: ScriptedUsage | Literal["missing"] | None = None

    @field_validator("burst", mode="before")
    @classmethod
    def _ignoring_case(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        try:
            return re.compile(value, re.IGNORECASE)
        except re.error as error:
            raise ValueError(f"not a regular expression: {error}") from error

    @model_validator(mode="after")
    def _has_one_answer(self) -> Rule:
        kinds = {
            "text": self.text is not None and not self.calls,
            "json": self.json_value is not None,
            "tool": bool(self.calls),
            "empty": self.empty,
            "status": self.status is not None,
            "hang": self.hang,
            "reset": self.reset,
        }
        chosen = [name for name, is_chosen in kinds.items() if is_chosen]
        if len(chosen) != 1:
            raise ValueError(f"a rule needs exactly one answer of {', '.join(kinds)}; this one has {chosen or 'none'}")
        needed = {"args": ("tool", self.args), "prose": ("json", self.prose), "body": ("status", self.body)}
        for key, (answer, value) in needed.items():
            if value and answer not in chosen:
                raise ValueError(f'"{key}" needs "{answer}" in the same rule')
        if self.tool and self.tools:
            raise ValueError('a rule has "tool" or "tools", not both')
        return self

    @property
    def calls(self) -> tuple[ScriptedCall, ...]:
        """The tool calls of the answer."""
        return (ScriptedCall(tool=self.tool, args=self.args or {}),) if self.tool else self.tools

    def holds(self, situation: Situation) -> bool:
        """Whether all conditions hold."""
        if self.burst is not None and not self.burst.search("\n".join(situation.burst)):
            return False
        if self.after_tool is not None and self.after_tool != situation.after_tool:
            return False
        if self.nth is not None and self.nth != situation.nth:
            return False
        calls = self.calls
        return not calls or self.repeat == "forever" or situation.called.get(calls[0].tool, 0) < self.repeat

    def filled(self, template: Any, situation: Situation) -> Any:
        """Fill the placeholders of a text, or of every text inside a value; unknown braces stay as they are."""
        if isinstance(template, Mapping):
            return {key: self.filled(value, situation) for key, value in template.items()}
        if isinstance(template, list):
            return [self.filled(value, situation) for value in template]
        if not isinstance(template, str):
            return template
        words = situation.words()
        found = self.burst.search("\n".join(situation.burst)) if self.burst else None
        if found:
            words |= {name: value or "" for name, value in found.groupdict().items()}
        return _PLACEHOLDER.sub(lambda m: words.get(m.group(1), m.group(0)), template)


class Script(_Strict):
    """A whole script; ``description`` is for people."""

    description: str = ""
    rules: tuple[Rule, ...] = Field(min_length=1)


@dataclass(frozen=True, slots=True)
class Situation:
    """What the rules look at: the conversation up to now and how often the model was asked in it."""

    burst: tuple[str, ...]
    after_tool: str | None
    result: str
    history_count: int
    nth: int
    called: Mapping[str, int] = field(default_factory=dict)

    @classmethod
    def of(cls, messages: tuple[ChatMessage, ...], nth: int) -> Situation:
        """Read the situation off a history, oldest message first."""
        answers = [i for i, message in enumerate(messages) if message.role == "assistant" and not message.tool_calls]
        turn = messages[answers[-1] + 1 :] if answers else messages
        names = {call.id: call.name for message in messages for call in message.tool_calls}
        results = [message for message in turn if message.role == "tool"]
        called: dict[str, int] = {}
        for message in turn:
            for call in message.tool_calls:
                called[call.name] = called.get(call.name, 0) + 1
        last = messages[-1] if messages else None
        return cls(
            burst=tuple(message.content for message in turn if message.role == "user"),
            after_tool=names.get(last.tool_call_id or "") if last and last.role == "tool" else None,
            result=results[-1].content if results else "",
            history_count=len(messages),
            nth=nth,
            called=called,
        )

    def words(self) -> dict[str, str]:
        """Values of the placeholders."""
        return {
            "burst": " | ".join(self.burst),
            "last": self.burst[-1] if self.burst else "",
            "count": str(len(self.burst)),
            "history_count": str(self.history_count),
            "result": self.result,
            "step": str(sum(self.called.values()) + 1),
        }


def load_script(path: Path) -> Script:
    """Read a script file.

    Raises:
        ConfigError: There is no such file, or it is not a valid script; the message names rule and key.
    """
    try:
        return Script.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
    except FileNotFoundError:
        names = ", ".join(sorted(other.stem for other in path.parent.glob("*.toml"))) or "none"
        raise ConfigError(f'There is no script "{path.stem}".', hint=f"Scripts there: {names}.") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"Script {path.name} is not TOML: {error}.") from error
    except ValidationError as error:
        problems = "; ".join(f"{'.'.join(map(str, p['loc']))}: {p['msg']}" for p in error.errors()[:5])
        raise ConfigError(f"Script {path.name} is wrong: {problems}.") from error
