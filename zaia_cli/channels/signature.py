"""Who sent a webhook: Meta's signature and its subscription challenge.

Idea: the signature is over the bytes that arrived, before any JSON is read, because re-serialising changes them.
Invariant: no header, secret or token makes these raise, an empty secret proves nothing, and comparisons take constant
time. Tested in ``tests/unit/test_signature.py``.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence

__all__ = ["challenge", "verify_signature"]

_PREFIX = b"sha256="


def verify_signature(body: bytes, header: str | None, secrets: Sequence[str]) -> str | None:
    """Find the app secret with which ``body`` was signed.

    Args:
        body: The bytes received, untouched.
        header: ``X-Hub-Signature-256``: ``sha256=`` and the lower-case hex HMAC-SHA256, or None when absent.
        secrets: Candidates; empty ones are skipped.

    Returns:
        The first secret that verifies, so that the caller can tell whose it is; None when none does.

    Source:
        ``shared/facts/channels.md`` sections 1 (item 10) and 2.
    """
    offered = _bytes(header or "")
    found = None
    for secret in secrets:
        expected = _PREFIX + hmac.new(_bytes(secret), body, hashlib.sha256).hexdigest().encode()
        is_equal = hmac.compare_digest(expected, offered)
        if is_equal and secret and found is None:
            found = secret
    return found


def challenge(params: Mapping[str, str], verify_tokens: Sequence[str]) -> str | None:
    """Answer a subscription challenge.

    Args:
        params: Query parameters ``hub.mode``, ``hub.verify_token`` and ``hub.challenge``.
        verify_tokens: The tokens that are accepted; empty ones are skipped.

    Returns:
        The text to answer with (as ``text/plain``: it is the caller's own), or None for 403.
    """
    offered = _bytes(params.get("hub.verify_token", ""))
    is_known = any(hmac.compare_digest(_bytes(token), offered) for token in verify_tokens if token)
    return params.get("hub.challenge") if is_known and params.get("hub.mode") == "subscribe" else None


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogatepass")
