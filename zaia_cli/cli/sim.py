"""``zaia sim``: local stand-ins over real HTTP. Tested in ``tests/cli/test_sim.py``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated, Any

import typer

from zaia_cli.cli.command import Options, command, group
from zaia_cli.cli.runtime import load_setup
from zaia_cli.cli.signals import stop_requested
from zaia_cli.core.errors import ConfigError

__all__ = ["app", "model", "whatsapp"]

Port = Annotated[int, typer.Option("--port", metavar="N", help="Port; 0 takes a free one.", min=0, max=65535)]

app = group("Local stand-ins over real HTTP: a model provider and a Graph API.")


@app.command()
@command(
    examples=(
        "zaia sim model",
        "zaia sim model --script my-script.toml --port 9100",
        'ZAIA_MODELS__ENDPOINTS=\'{"openai/*" = {api_base = "http://127.0.0.1:9100/v1"}}\' zaia run-worker',
    ),
    exit_codes=(0, 1, 2, 4, 5),
)
async def model(
    options: Options,
    script: Annotated[
        str, typer.Option("--script", metavar="NAME|PATH", help="A script of fixtures/scripts, or a file.")
    ] = "demo",
    port: Port = 0,
) -> None:
    """Serve an OpenAI-compatible model provider that plays a script, until stopped.

    The first line on stdout is its address. Point an organization at it with an endpoint in zaia.toml:
    [models.endpoints."openai/*"] api_base = "http://127.0.0.1:9100/v1". GET /requests lists what was asked.
    """
    from zaia_cli.models.script import load_script
    from zaia_cli.sims.model_server import model_server

    is_file = script.endswith(".toml") or os.sep in script
    path = Path(script) if is_file else load_setup(options).workspace.fixtures_dir / "scripts" / f"{script}.toml"
    await _serve(options, model_server(load_script(path)), port, {"script": str(path)})


@app.command()
@command(
    examples=(
        "zaia sim whatsapp",
        "zaia sim whatsapp --port 9200 --webhook-url http://127.0.0.1:8080 --app-secret-env WHATSAPP_APP_SECRET",
        "curl -s http://127.0.0.1:9200/_sim/sends",
    ),
    exit_codes=(0, 1, 2, 4, 5),
)
async def whatsapp(
    options: Options,
    webhook_url: Annotated[
        str, typer.Option("--webhook-url", metavar="URL", help="Where zaia serve is; statuses and echoes go there.")
    ] = "",
    app_secret_env: Annotated[
        str, typer.Option("--app-secret-env", metavar="NAME", help="Variable with the secret that signs webhooks.")
    ] = "",
    port: Port = 0,
) -> None:
    """Serve a Graph API for WhatsApp and Instagram that sends nothing anywhere, until stopped.

    The first line on stdout is its address. Point a channel of the organization file at it: base_url =
    "http://127.0.0.1:9200/v23.0". POST /_sim/plan plans refusals, timeouts, late answers and lost or reordered
    statuses; GET /_sim/sends lists everything that arrived.
    """
    from zaia_cli.sims.whatsapp_server import GraphSim

    secret = os.environ.get(app_secret_env, "") if app_secret_env else ""
    if app_secret_env and not secret:
        raise ConfigError(f"the variable {app_secret_env} is not set", hint=f"export {app_secret_env}=…")
    base = webhook_url.rstrip("/").removesuffix("/webhooks/whatsapp")
    urls = {kind: f"{base}/webhooks/{kind}" for kind in ("whatsapp", "instagram")} if base else {}
    graph = GraphSim(urls, secret)
    try:
        await _serve(options, graph.app, port, {"webhook_urls": urls})
    finally:
        await graph.close()


async def _serve(options: Options, application: Any, port: int, told: dict[str, Any]) -> None:
    from zaia_cli.sims.serving import serve_app

    with stop_requested() as stop:
        async with serve_app(application, port=port) as url:
            options.output.json({"url": url, **told})
            options.output.line(url)
            options.output.note("stop with Ctrl+C")
            await stop.wait()
