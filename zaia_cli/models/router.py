"""Which adapter answers for a model id.

Idea: ``scripted/<name>`` is answered by a script, everything else by litellm. Invariant: importing this module does not
import litellm; the first real request, or ``warm_up``, does. Tested in ``tests/models/test_router.py``.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from zaia_cli.core.chat import ModelReply, ModelRequest
from zaia_cli.core.config import EndpointConfig
from zaia_cli.models.litellm_model import LiteLLMModel
from zaia_cli.models.scripted import PREFIX, ScriptedModel

__all__ = ["ModelRouter"]


class ModelRouter:
    """Implements ``ChatModel`` for every configured model.

    Args:
        endpoints: The ``models.endpoints`` section: glob over model ids to endpoint, first match wins.
        scripts_dir: Folder of scripted models.
    """

    def __init__(self, endpoints: Mapping[str, EndpointConfig], scripts_dir: Path) -> None:
        self._scripted = ScriptedModel(scripts_dir)
        self._litellm = LiteLLMModel(endpoints)

    def check(self, model: str) -> None:
        """Make sure that ``model`` could be asked: its script is valid, or its key is in the environment.

        Raises:
            ConfigError: What is missing, by name.
        """
        self._adapter(model).check(model)

    async def warm_up(self) -> None:
        """Import litellm in a background thread, so that the first customer does not wait for it."""
        await self._litellm.warm_up()

    async def complete(self, request: ModelRequest, *, timeout_s: float) -> ModelReply:
        """Ask the model that ``request`` names, once; see ``ChatModel.complete``."""
        return await self._adapter(request.model).complete(request, timeout_s=timeout_s)

    async def close(self) -> None:
        """Close the connections of this event loop; calling twice is safe."""
        await self._litellm.close()

    def _adapter(self, model: str) -> ScriptedModel | LiteLLMModel:
        return self._scripted if model.startswith(PREFIX) else self._litellm
