"""Reading what strangers send: bounded in bytes, in time and in depth.

Idea: bytes first (a signature is over bytes), JSON later, both with limits. Invariant: what comes out can be stored as
jsonb, and odd input is a ``BadBodyError``, never a crash. Tested in ``tests/server/test_webhooks.py``.
"""

from __future__ import annotations

import asyncio
import json
import math
from typing import Any

from starlette.requests import ClientDisconnect, Request

from zaia_cli.core.errors import ZaiaError

__all__ = ["BadBodyError", "parse_json", "read_body"]

_READ_TIMEOUT_S = 15.0
_MAX_DEPTH = 64


class BadBodyError(ZaiaError):
    """The body is refused; ``status`` is the HTTP answer."""

    code = "bad_body"
    exit_code = 2

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Read the body as it is on the wire.

    Args:
        request: Not read before.
        max_bytes: More is refused as soon as it is known, without reading the rest.

    Raises:
        BadBodyError: 413 too large, 408 too slow, 400 the sender went away.
    """
    too_large = BadBodyError(f"the body is larger than {max_bytes} bytes", 413)
    announced = request.headers.get("content-length", "")
    if announced.isdecimal() and int(announced[:20]) > max_bytes:
        raise too_large
    body = bytearray()
    try:
        async with asyncio.timeout(_READ_TIMEOUT_S):
            async for chunk in request.stream():
                body += chunk
                if len(body) > max_bytes:
                    raise too_large
    except TimeoutError:
        raise BadBodyError(f"the body did not arrive within {_READ_TIMEOUT_S:g} s", 408) from None
    except ClientDisconnect:
        raise BadBodyError("the sender went away", 400) from None
    return bytes(body)


def parse_json(text: bytes | str) -> Any:
    """Parse JSON that the database can hold: no NaN or infinity, at most 64 levels deep.

    Raises:
        BadBodyError: 400, with the reason.
    """
    try:
        value = json.loads(text, parse_constant=_refuse, parse_float=_finite)
    except RecursionError:
        raise BadBodyError("the JSON is nested too deeply", 400) from None
    except ValueError as error:
        raise BadBodyError(f"not JSON: {error}", 400) from None
    level, depth = [value], 0
    while level:
        depth += 1
        if depth > _MAX_DEPTH:
            raise BadBodyError(f"the JSON is nested more than {_MAX_DEPTH} levels deep", 400)
        level = [
            inner
            for outer in level
            if isinstance(outer, dict | list)
            for inner in (outer.values() if isinstance(outer, dict) else outer)
            if isinstance(inner, dict | list)
        ]
    return value


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _finite(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"the number {text[:20]} is too large")
    return value
