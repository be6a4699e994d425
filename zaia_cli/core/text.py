"""Text: clean-up, folding, emptiness.

Idea: stored text equals received text; only comparisons and emptiness use a cleaned form. Invariant: a joiner inside an
emoji sequence survives. Tested in ``tests/unit/test_text.py``.
"""

from __future__ import annotations

import re
import unicodedata

__all__ = ["fold", "is_effectively_empty", "is_thanks", "normalised", "shorten", "without_nul"]

_INVISIBLE = dict.fromkeys(map(ord, "\u200b\u200c\u200d\u2060\ufeff\u00ad\u200e\u200f"), None)
_SPACES = re.compile(r"\s+")


def is_effectively_empty(text: str) -> bool:
    """Whether nothing is left of ``text`` for a reader: only spaces, control and zero-width characters."""
    visible = text.translate(_INVISIBLE)
    return not any(unicodedata.category(character)[0] not in "ZC" for character in visible)


def fold(text: str) -> str:
    """Fold case and accents and collapse spaces, for comparing names and words (``Devolução`` → ``devolucao``)."""
    decomposed = unicodedata.normalize("NFKD", text.casefold())
    plain = "".join(character for character in decomposed if not unicodedata.combining(character))
    return _SPACES.sub(" ", plain).strip()


def normalised(text: str) -> str:
    """Fold ``text`` and drop punctuation, for the key of requests that carry no id."""
    return _SPACES.sub(" ", re.sub(r"[^\w\s]", " ", fold(text.translate(_INVISIBLE)))).strip()


_THANKS = frozenset(
    "obrigado obrigada obg brigado brigada valeu vlw agradeco agradecida agradecido muito mt tudo ok certo perfeito "
    "show beleza blz isso sim por voce vc voces gente pela ajuda thanks thank you tchau abraco bom boa dia tarde "
    "noite".split()
)
_THANKS_CORE = re.compile(r"obrigad|^obg$|brigad|valeu|^vlw$|agrade|^thank|^tchau$|^abraco$")


def is_thanks(text: str) -> bool:
    """Whether ``text`` is only thanks or a goodbye, which does not reopen a resolved conversation."""
    words = normalised(text).split()
    if not words:
        return not is_effectively_empty(text)
    return all(word in _THANKS for word in words) and any(_THANKS_CORE.search(word) for word in words)


def without_nul(text: str) -> str:
    """Drop NUL characters, which PostgreSQL cannot store."""
    return text.replace("\x00", "")


def shorten(text: str, limit: int) -> str:
    """Cut ``text`` to at most ``limit`` characters, with an ellipsis when something is lost."""
    text = _SPACES.sub(" ", text).strip()
    return text if len(text) <= limit else text[: limit - 1] + "…"
