"""Serving an ASGI application on loopback for the length of a block.

Idea: simulators, demo and tests run a real HTTP server inside the event loop they are already in. Invariant: signal
handlers of the process are untouched, and after the block no task, socket or connection is left. Tested in
``tests/models/test_model_server.py``.
"""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import uvicorn

from zaia_cli.core.errors import UnavailableError

__all__ = ["serve_app"]

_GRACE_S = 1


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config) -> None:
        super().__init__(config)
        self.is_up = asyncio.Event()

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self.is_up.set()

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


@asynccontextmanager
async def serve_app(app: Any, host: str = "127.0.0.1", port: int = 0) -> AsyncIterator[str]:
    """Serve ``app`` until the block ends.

    Args:
        app: An ASGI application.
        host: Address to listen on.
        port: Port to listen on; 0 takes a free one.

    Yields:
        The base URL, without a slash at the end.

    Raises:
        UnavailableError: The address is taken, or the application did not start.
    """
    # asyncio switches Nagle's delay off (40 ms an answer) only on sockets that name their protocol.
    listener = socket.socket(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
    except OSError as error:
        listener.close()
        text = f"Cannot listen on {host}:{port}: {error.strerror}."
        raise UnavailableError(text, hint="Choose another port.") from error
    config = uvicorn.Config(
        app, log_config=None, access_log=False, ws="none", lifespan="auto", timeout_graceful_shutdown=_GRACE_S
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    up = asyncio.create_task(server.is_up.wait())
    try:
        await asyncio.wait({serving, up}, return_when=asyncio.FIRST_COMPLETED)
        if not server.is_up.is_set():
            raise UnavailableError("The application did not start.")
        yield f"http://{host}:{listener.getsockname()[1]}"
    finally:
        up.cancel()
        server.should_exit = True
        await asyncio.gather(serving, return_exceptions=True)
        listener.close()
