"""Cutting a reply into parts that a channel takes.

Idea: cut where a reader would, and count in the channel's own unit. Invariant: no part is over the limit, no visible
character is lost or added, and no character made of several code points (an emoji sequence) is torn. Tested in
``tests/unit/test_split.py``.
"""

from __future__ import annotations

from typing import Literal

import regex  # type: ignore[import-untyped]

__all__ = ["split"]

_PARAGRAPH, _LINE, _SPACE = r"\n[^\S\n]*\n", r"\n", r"\s"
_SENTENCE = r"""(?<=[.!?…:;]["'”»)\]]*)\s"""
_BREAKS = tuple(regex.compile(pattern) for pattern in (_PARAGRAPH, _LINE, _SENTENCE, _SPACE))
_CLUSTER = regex.compile(r"\X")
_LOOK_AHEAD = 16


def split(text: str, limit: int, unit: Literal["utf16", "utf8"]) -> list[str]:
    """Cut ``text`` at a paragraph, else a line, a sentence, a space, or between two visible characters.

    A cut in the second half of what fits is preferred, so that parts are few.

    Args:
        text: Any text.
        limit: Most units of a part; at least 4.
        unit: ``utf16`` counts UTF-16 code units (WhatsApp), ``utf8`` counts bytes (Instagram).

    Returns:
        The parts in order. Joined they are ``text`` without the white space at the cuts; a text that fits is one part,
        unchanged.
    """
    parts = []
    rest = text
    while _size(rest, unit) > limit:
        cut = _cut(rest, _fitting(rest, limit, unit))
        parts.append(rest[:cut].rstrip())
        rest = rest[cut:].lstrip()
    if rest or not parts:
        parts.append(rest)
    return [part for part in parts if part] or [text[:0]]


def _size(text: str, unit: Literal["utf16", "utf8"]) -> int:
    if unit == "utf8":
        return len(text.encode("utf-8", "surrogatepass"))
    return len(text) + sum(character > "\uffff" for character in text)


def _fitting(text: str, limit: int, unit: Literal["utf16", "utf8"]) -> int:
    """Count the characters of the longest start that fits and ends between two clusters."""
    end = used = 0
    for cluster in _CLUSTER.finditer(text, 0, limit + _LOOK_AHEAD):
        used += _size(cluster[0], unit)
        if used > limit:
            break
        end = cluster.end()
    if end:
        return end
    used = 0
    for end, character in enumerate(text):
        used += _size(character, unit)
        if used > limit:
            return end
    return len(text)


def _cut(text: str, fits: int) -> int:
    for earliest in (fits // 2, 1):
        for pattern in _BREAKS:
            starts: list[int] = [m.start() for m in pattern.finditer(text, 0, fits + _LOOK_AHEAD)]
            if reached := [start for start in starts if earliest <= start <= fits]:
                return max(reached)
    return fits
