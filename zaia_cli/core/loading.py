"""Read ``zaia.toml`` and organization files, with errors that a person can act on.

Idea: TOML and environment become one dictionary, pydantic checks it, and every complaint is reworded with file, key,
value and what to do. Invariant: nothing is loaded by half, and a value that may be a secret is never repeated in an
error. Tested in ``tests/unit/test_config.py`` and ``tests/unit/test_organization.py``.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, Union, get_args, get_origin

from pydantic import BaseModel, ValidationError

from zaia_cli.core.config import Config
from zaia_cli.core.errors import ConfigError, NotFoundError
from zaia_cli.core.organization import OrganizationFile

__all__ = ["load_config", "load_organization", "parse_config", "parse_organization"]

_PREFIX = "ZAIA_"
_PRIVATE = re.compile(r"url|token|secret|password|key", re.IGNORECASE)
_SHOWN = (str, int, float, bool)
_SHOWN_CHARACTERS = 60


def load_config(path: Path, environment: Mapping[str, str]) -> Config:
    """Read a workspace's configuration.

    Args:
        path: The ``zaia.toml``.
        environment: Usually ``os.environ``; ``ZAIA_<SECTION>__<KEY>`` wins over the file, ``ZAIA_DATABASE_URL`` over
            both.

    Raises:
        NotFoundError: There is no such file.
        ConfigError: It cannot be used; the message names each key, its value and what to do.
    """
    return parse_config(_read(path), str(path), environment)


def parse_config(text: str, source: str, environment: Mapping[str, str]) -> Config:
    """Check configuration text; ``source`` names it in errors. See ``load_config``."""
    document = _toml(text, source)
    origin = _override(document, environment)
    if environment.get("ZAIA_DATABASE_URL"):
        _put(document, ("database", "url"), environment["ZAIA_DATABASE_URL"])
    try:
        return Config.model_validate(document)
    except ValidationError as error:
        raise _reworded(error, Config, source, origin) from None


def load_organization(path: Path) -> OrganizationFile:
    """Read one organization file.

    Raises:
        NotFoundError: There is no such file.
        ConfigError: It cannot be used; the message names each key, its value and what to do.
    """
    return parse_organization(_read(path), str(path))


def parse_organization(text: str, source: str) -> OrganizationFile:
    """Check the text of an organization file; ``source`` names it in errors."""
    try:
        return OrganizationFile.model_validate(_toml(text, source))
    except ValidationError as error:
        raise _reworded(error, OrganizationFile, source, {}) from None


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFoundError(f"there is no file {path}", hint="check the name, or make a workspace: zaia init") from None
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: not UTF-8 text (byte {error.start})", hint="save the file as UTF-8") from None
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None


def _toml(text: str, source: str) -> dict[str, Any]:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: not valid TOML: {error}", hint='text needs quotes: name = "value"') from None


def _override(document: dict[str, Any], environment: Mapping[str, str]) -> dict[tuple[str, ...], str]:
    """Put ``ZAIA_<SECTION>__<KEY>`` variables into ``document``; return which variable set which key."""
    origin: dict[tuple[str, ...], str] = {}
    for name in sorted(environment):
        if not name.startswith(_PREFIX) or "__" not in name:
            continue
        keys = tuple(part.lower() for part in name.removeprefix(_PREFIX).split("__"))
        _put(document, keys, _value(environment[name], name))
        origin[keys] = name
    return origin


def _value(text: str, name: str) -> object:
    """Read a list or table as TOML; pydantic reads numbers and booleans from text."""
    return _toml(f"value = {text}", name)["value"] if text.startswith(("[", "{")) else text


def _put(document: dict[str, Any], keys: Sequence[str], value: object) -> None:
    for key in keys[:-1]:
        inner = document.setdefault(key, {})
        if not isinstance(inner, dict):
            return
        document = inner
    document[keys[-1]] = value


def _reworded(
    error: ValidationError, model: type[BaseModel], source: str, origin: Mapping[tuple[str, ...], str]
) -> ConfigError:
    lines = []
    for detail in error.errors(include_url=False):
        location = detail["loc"]
        variable = origin.get(tuple(str(part) for part in location))
        where = f"environment variable {variable}" if variable else source
        lines.append(f"{where}: {_dotted(location)}{_problem(detail, model)}")
    return ConfigError("\n".join(dict.fromkeys(lines)), hint="correct this, then run: zaia doctor")


def _dotted(location: Iterable[int | str]) -> str:
    text = ""
    for part in location:
        if isinstance(part, int):
            text += f"[{part + 1}]"
        else:
            name = part if re.fullmatch(r"[\w-]+", part) else f'"{part}"'
            text += f".{name}" if text else name
    return f"{text}: " if text else ""


def _problem(detail: Any, model: type[BaseModel]) -> str:
    location: tuple[int | str, ...] = detail["loc"]
    if detail["type"] == "extra_forbidden":
        known = _known_keys(model, location[:-1])
        near = difflib.get_close_matches(str(location[-1]), known, n=1, cutoff=0.0)
        return f"unknown key; the nearest known one is {near[0]!r}" if near else "unknown key; remove it"
    if detail["type"] == "missing":
        return "is missing; add it"
    message: str = detail["msg"].removeprefix("Value error, ")
    message = message[:1].lower() + message[1:] if message.startswith(("Input ", "String ")) else message
    value = detail["input"]
    if isinstance(value, _SHOWN) and location and not _PRIVATE.search(str(location[-1])):
        shown = repr(value) if len(repr(value)) <= _SHOWN_CHARACTERS else repr(value)[:_SHOWN_CHARACTERS] + "…"
        return f"{shown} cannot be used: {message}"
    return message


def _known_keys(model: type[BaseModel], location: Sequence[int | str]) -> list[str]:
    """List the keys that ``model`` knows at ``location``, following sections, lists and tables of names."""
    annotation: Any = model
    for part in location:
        origin = get_origin(annotation)
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            fields = {field.alias or name: field.annotation for name, field in annotation.model_fields.items()}
            annotation = fields.get(str(part))
        elif origin is Union:
            annotation = None
        elif origin is not None and get_args(annotation):
            annotation = get_args(annotation)[0] if isinstance(part, int) else get_args(annotation)[-1]
        else:
            annotation = None
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [field.alias or name for name, field in annotation.model_fields.items()]
    return []
