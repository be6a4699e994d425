"""The scripted model: a deterministic stand-in for a provider, selectable as ``scripted/<name>``.

Idea: the turn loop cannot tell it from a real model, failures included. Invariant: it needs no key, no network and no
library. Tested in ``tests/models/test_scripted.py``; the script format is described in ``zaia_cli.models.script``.
"""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from zaia_cli.core.chat import ModelReply, ModelRequest
from zaia_cli.core.errors import ConfigError, ModelError
from zaia_cli.models.provider_errors import http_error
from zaia_cli.models.script import load_script
from zaia_cli.models.script_player import ScriptedAnswer, ScriptPlayer
from zaia_cli.models.tool_calls import normalised_calls

__all__ = ["PREFIX", "ScriptedModel", "failure_body"]

PREFIX = "scripted/"
_NAME = re.compile(r"[\w-]+(?:\.[\w-]+)*")


class ScriptedModel:
    """Implements ``ChatModel`` by script files.

    Args:
        scripts_dir: Folder of ``<name>.toml`` files; each is read once, when it is first asked for.
    """

    def __init__(self, scripts_dir: Path) -> None:
        self._scripts_dir = scripts_dir
        self._players: dict[str, ScriptPlayer] = {}

    def check(self, model: str) -> None:
        """Make sure that the script exists and is valid.

        Raises:
            ConfigError: It does not, or is not.
        """
        self._player(model)

    async def complete(self, request: ModelRequest, *, timeout_s: float) -> ModelReply:
        """Answer by the script; see ``ChatModel.complete``.

        Raises:
            ConfigError: The script is missing or wrong, or no rule holds.
            ModelError: The rule says so, or it takes longer than ``timeout_s``.
        """
        player = self._player(request.model)
        started = time.monotonic()
        answer = player.play(request)
        rule = answer.rule
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.sleep(timeout_s + 1 if rule.hang else rule.delay_s + rule.drip_s)
        except TimeoutError:
            raise ModelError("timeout", f"No answer within {timeout_s:g} s.") from None
        if rule.reset:
            raise ModelError("transient", "The connection to the provider broke.")
        if rule.status is not None:
            headers = {name.lower(): value for name, value in rule.headers.items()}
            raise http_error(rule.status, headers, failure_body(rule.status, rule.body))
        return _reply(answer, request, round((time.monotonic() - started) * 1000))

    def _player(self, model: str) -> ScriptPlayer:
        name = model.removeprefix(PREFIX)
        if name not in self._players:
            if not _NAME.fullmatch(name):
                raise ConfigError(f'"{name}" is not the name of a script.')
            self._players[name] = ScriptPlayer(load_script(self._scripts_dir / f"{name}.toml"))
        return self._players[name]


def _reply(answer: ScriptedAnswer, request: ModelRequest, latency_ms: int) -> ModelReply:
    taken = {call.id for message in request.messages for call in message.tool_calls}
    return ModelReply(
        text=answer.text,
        tool_calls=tuple(normalised_calls(answer.calls, is_cut=answer.finish == "length", taken_ids=taken)),
        finish=answer.finish,
        usage=answer.usage,
        provider_model=request.model,
        latency_ms=latency_ms,
    )


def failure_body(status: int, body: Mapping[str, Any] | str | None) -> str:
    """Write the body of a scripted HTTP error; without one, an error object in the OpenAI shape."""
    if isinstance(body, str):
        return body
    default = {"error": {"message": f"scripted failure {status}", "type": "scripted", "code": None}}
    return json.dumps(body if body is not None else default)
