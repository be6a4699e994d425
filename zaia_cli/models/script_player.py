"""Playing a script: which rule answers a request, with which text, calls and tokens.

Idea: one player for the scripted model in the process and for the simulated server. Invariant: memory is bounded
however long it plays. Tested in ``tests/models/test_scripted.py``.
"""

from __future__ import annotations

import hashlib
import json
from collections import OrderedDict
from dataclasses import dataclass

from zaia_cli.core.chat import Finish, ModelRequest, Usage
from zaia_cli.core.errors import ConfigError
from zaia_cli.models.script import Rule, Script, Situation
from zaia_cli.models.tool_calls import RawCall

__all__ = ["ScriptPlayer", "ScriptedAnswer"]

_CONVERSATIONS_KEPT = 10_000
_PREFIXES_KEPT = 64
_CHARACTERS_PER_TOKEN = 4


@dataclass(frozen=True, slots=True)
class ScriptedAnswer:
    """What the chosen rule says to one request; timing and failures are read from ``rule``."""

    rule: Rule
    text: str
    calls: tuple[RawCall, ...]
    finish: Finish
    usage: Usage | None


class ScriptPlayer:
    """Answers requests by a script; remembers only counts and prefixes."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._asked: OrderedDict[str, int] = OrderedDict()
        self._prefixes: OrderedDict[str, None] = OrderedDict()

    def play(self, request: ModelRequest) -> ScriptedAnswer:
        """Choose the rule for ``request`` and write its answer; counts as one call of the conversation.

        Raises:
            ConfigError: No rule holds; end the script with a rule without conditions.
        """
        situation = Situation.of(request.messages, self._count(request))
        rule = next((rule for rule in self._script.rules if rule.holds(situation)), None)
        if rule is None:
            raise ConfigError("No rule of the script holds.", hint="End it with a rule that has no conditions.")
        text = _text(rule, situation)
        digest = hashlib.sha256(repr(request.messages).encode()).hexdigest()[:12]
        calls = tuple(
            RawCall(f"call_{digest}_{ordinal}", call.tool, rule.filled(call.args, situation))
            for ordinal, call in enumerate(rule.calls)
        )
        finish: Finish = rule.finish or ("tool_calls" if calls else "stop")
        return ScriptedAnswer(rule, text, calls, finish, self._usage(rule, request, text, calls))

    def _count(self, request: ModelRequest) -> int:
        first = next((message.content for message in request.messages if message.role == "user"), "")
        key = hashlib.sha256(f"{request.stable}\0{first}".encode()).hexdigest()
        self._asked[key] = self._asked.pop(key, 0) + 1
        if len(self._asked) > _CONVERSATIONS_KEPT:
            self._asked.popitem(last=False)
        return self._asked[key]

    def _usage(self, rule: Rule, request: ModelRequest, text: str, calls: tuple[RawCall, ...]) -> Usage | None:
        cached_characters = self._seen_prefix(request.stable)
        if rule.usage == "missing":
            return None
        if rule.usage is not None:
            told = rule.usage
            return Usage(
                input_tokens=told.input,
                cache_read_tokens=told.cached,
                cache_write_tokens=told.cache_write,
                output_tokens=told.output,
                reasoning_tokens=min(told.reasoning, told.output),
            )
        asked = len(request.stable) + len(request.context)
        asked += sum(len(message.content) + len(repr(message.tool_calls)) for message in request.messages)
        said = len(text) + sum(len(str(call.name)) + len(_argument_text(call.arguments)) for call in calls)
        cached = cached_characters // _CHARACTERS_PER_TOKEN
        return Usage(
            input_tokens=max(asked // _CHARACTERS_PER_TOKEN - cached, 1),
            cache_read_tokens=cached,
            output_tokens=max(said // _CHARACTERS_PER_TOKEN, 1),
        )

    def _seen_prefix(self, stable: str) -> int:
        """Length of the longest prefix of ``stable`` that was seen before; remembers ``stable``."""
        longest = len(stable) if stable in self._prefixes else 0
        for seen in () if longest else self._prefixes:
            low, high = longest, min(len(seen), len(stable))
            while low < high:
                middle = (low + high + 1) // 2
                low, high = (middle, high) if stable.startswith(seen[:middle]) else (low, middle - 1)
            longest = max(longest, low)
        self._prefixes.pop(stable, None)
        self._prefixes[stable] = None
        if len(self._prefixes) > _PREFIXES_KEPT:
            self._prefixes.popitem(last=False)
        return longest


def _text(rule: Rule, situation: Situation) -> str:
    if rule.json_value is None:
        return str(rule.filled(rule.text or "", situation))
    document = json.dumps(rule.filled(rule.json_value, situation), ensure_ascii=False)
    return f"Claro! Aqui está:\n```json\n{document}\n```\nPosso ajudar em algo mais?" if rule.prose else document


def _argument_text(arguments: object) -> str:
    return arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
