"""Meta's error codes, and what each means for a reply part.

Idea: the code decides, never the title or the HTTP status; one table per channel. Invariant: a code that may hide an
accepted send is never classed as safe to repeat at once. Tested in ``tests/unit/test_error_codes.py``.
"""

from __future__ import annotations

from zaia_cli.core.outbound import ErrorClass

__all__ = ["classify"]

_ACCOUNT_CODES: dict[ErrorClass, tuple[int, ...]] = {"human": (0, 3, 10, 33, 190, 368, *range(200, 300))}
_WHATSAPP: dict[ErrorClass, tuple[int, ...]] = {
    "retry": (131016, 131057, 133004),
    "retry_after_reconcile": (1, 2, 131000),
    "slow_pair": (131056,),
    "slow_number": (130429,),
    "slow_number_and_alert": (131048, 131064),
    "slow_app": (4,),
    "slow_waba": (80007,),
    "terminal": (
        *(100, 130403, 130472, 131008, 131009, 131021, 131026, 131030, 131049, 131050, 131051, 131052, 131053, 131062),
        *(132000, 132001, 132005, 132007, 132012, 132015, 132016, 132018, 132068, 132069, 135000),
    ),
    "terminal_window": (131047,),
    "human": (130497, 131005, 131031, 131037, 131042, 131045, 133010, 134011),
}
_INSTAGRAM: dict[ErrorClass, tuple[int, ...]] = {
    "retry_after_reconcile": (1, 2),
    "slow_number": (613,),
    "slow_app": (4, 17),
    "terminal": (100, 551),
}
_INSTAGRAM_SUBCODES: dict[tuple[int, int], ErrorClass] = {
    (1, 1357046): "unknown_outcome_do_not_resend",
    (10, 2534022): "terminal_window",
    (100, 2534029): "human",
}


def _by_code(*tables: dict[ErrorClass, tuple[int, ...]]) -> dict[int, ErrorClass]:
    return {code: name for table in tables for name, codes in table.items() for code in codes}


_CODES = {"whatsapp": _by_code(_ACCOUNT_CODES, _WHATSAPP), "instagram": _by_code(_ACCOUNT_CODES, _INSTAGRAM)}


def classify(channel: str, code: int, subcode: int | None = None, is_transient: bool = False) -> ErrorClass:
    """Say how an error of the Graph API is handled.

    Args:
        channel: ``whatsapp`` or ``instagram``.
        code: ``error.code``.
        subcode: ``error.error_subcode``; only Instagram's decide anything.
        is_transient: ``error.is_transient``, or an HTTP status of 500 and above; heard only for unknown codes.

    Raises:
        KeyError: The channel has no error codes.

    Source:
        ``shared/facts/channels.md`` section 6.
    """
    if channel == "instagram" and subcode is not None and (code, subcode) in _INSTAGRAM_SUBCODES:
        return _INSTAGRAM_SUBCODES[code, subcode]
    unknown: ErrorClass = "retry_after_reconcile" if is_transient else "unknown_code_terminal_and_alert"
    return _CODES[channel].get(code, unknown)
