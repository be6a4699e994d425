"""Which adapter answers, and what an import costs."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from zaia_cli.core.chat import ChatMessage, ModelRequest
from zaia_cli.core.config import EndpointConfig
from zaia_cli.core.errors import ConfigError, ModelError
from zaia_cli.models.router import ModelRouter

SHIPPED = Path(__file__).parents[2] / "fixtures" / "scripts"


def test_importing_the_router_does_not_import_litellm() -> None:
    code = "import sys, zaia_cli.models.router; print(sorted({'litellm', 'openai', 'sqlalchemy'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


async def test_scripted_ids_are_answered_by_scripts_without_litellm() -> None:
    router = ModelRouter({"*": EndpointConfig(api_key_env="NOT_SET")}, SHIPPED)
    request = ModelRequest("scripted/echo", "", (ChatMessage("user", "oi"),))
    assert (await router.complete(request, timeout_s=5)).text == "Você escreveu: oi"
    await router.close()


@pytest.mark.usefixtures("_litellm")
async def test_other_ids_are_answered_by_litellm() -> None:
    router = ModelRouter({"openai/*": EndpointConfig(api_base="http://127.0.0.1:9")}, SHIPPED)
    await router.warm_up()
    with pytest.raises(ModelError) as caught:
        await router.complete(ModelRequest("openai/x", "", (ChatMessage("user", "oi"),)), timeout_s=5)
    await router.close()
    await router.close()
    assert (caught.value.kind, caught.value.status) == ("transient", None)


def test_check_names_what_is_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    router = ModelRouter({}, SHIPPED)
    router.check("scripted/demo")
    with pytest.raises(ConfigError, match="nowhere"):
        router.check("scripted/nowhere")
    with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY"):
        router.check("anthropic/claude-haiku-4-5")
