"""``zaia serve``: the web server that channels deliver to. Tested in ``tests/server/test_serve.py``."""

from __future__ import annotations

import logging
from typing import Annotated

import typer

from zaia_cli.cli.command import Options, command
from zaia_cli.cli.runtime import open_runtime
from zaia_cli.cli.signals import stop_requested

__all__ = ["serve"]


@command(
    examples=("zaia serve", "zaia serve --host 0.0.0.0 --port 8080", "zaia serve --insecure"),
    exit_codes=(0, 1, 2, 4, 5, 6),
)
async def serve(
    options: Options,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Address to listen on.")] = "127.0.0.1",
    port: Annotated[
        int, typer.Option("--port", metavar="N", help="Port; 0 takes a free one.", min=0, max=65535)
    ] = 8080,
    insecure: Annotated[
        bool, typer.Option("--insecure", help="Accept accounts that have no secret configured. Only to try things out.")
    ] = False,
) -> None:
    """Receive webhooks of WhatsApp and Instagram, and generic requests.

    GET and POST /webhooks/whatsapp and /webhooks/instagram, POST /intake/{account}, /healthz, /readyz and /metrics.
    What is received is worked on by zaia run-worker. TLS belongs to the proxy in front.

    An account without app_secret_env (webhooks) or token_env (generic requests) is refused: anybody could write in a
    customer's name. SIGTERM and SIGINT end it after the requests that are being answered.
    """
    from zaia_cli.channels.sending import open_channels
    from zaia_cli.server.app import create_app
    from zaia_cli.sims.serving import serve_app

    if not options.verbose:
        logging.getLogger("zaia_cli").setLevel(logging.INFO)
    async with open_runtime(options) as runtime, open_channels(runtime.config.delivery) as channels:
        app = create_app(runtime.database, runtime.config, channels, is_insecure=insecure)
        with stop_requested() as stop:
            async with serve_app(app, host, port) as url:
                if insecure:
                    options.output.note("insecure: accounts without a secret are accepted from anybody")
                options.output.json({"url": url})
                options.output.line(url)
                options.output.note("stop with Ctrl+C; answers come from: zaia run-worker")
                await stop.wait()
        options.output.note("stopped")
