"""Prompts: a file with a stable part, which providers can cache, and a part that changes with every request.

Idea: ``prompts/<name>/<version>.md`` has a front matter in TOML between two lines ``---``, then the stable part, then a
line ``<!-- context -->``, then the context part; both are Jinja templates. Invariant: the stable part sees only the
organization and the assistant, so its bytes are the same for every customer; what a customer wrote is a value, never a
template. Tested in ``tests/unit/test_prompt.py``.

    ---
    description = "what this version is for"
    ---
    You answer for {{ organization.name }}.
    <!-- context -->
    Today is {{ now }}; you talk to {{ contact.name }}.

Variables: ``organization`` (slug, name, timezone, departments: names), ``assistant`` (slug), ``contact`` (name),
``now`` (local date and time as text), ``channel`` (its kind).
"""

from __future__ import annotations

import hashlib
import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from traceback import extract_tb
from typing import Any

from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, UndefinedError, nodes
from jinja2.meta import find_undeclared_variables
from jinja2.sandbox import ImmutableSandboxedEnvironment

from zaia_cli.core.errors import ConfigError, NotFoundError
from zaia_cli.core.text import shorten

__all__ = ["CONTEXT_VARIABLES", "STABLE_VARIABLES", "Prompt", "RenderedPrompt", "load_prompt", "parse_prompt"]

STABLE_VARIABLES = frozenset({"organization", "assistant"})
CONTEXT_VARIABLES = frozenset({"organization", "assistant", "contact", "now", "channel"})

_MARKER = "<!-- context -->"
_FENCE = "---"
_CONTACT_CHARACTERS = 80
_PLAIN_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")

_ENVIRONMENT = ImmutableSandboxedEnvironment(
    undefined=StrictUndefined, autoescape=False, trim_blocks=True, lstrip_blocks=True, keep_trailing_newline=False
)


@dataclass(frozen=True, slots=True)
class RenderedPrompt:
    """Text for one request. ``stable_sha256`` is the hash, in hex, of ``stable`` in UTF-8."""

    stable: str
    context: str
    stable_sha256: str


@dataclass(frozen=True, slots=True)
class Prompt:
    """One version of a prompt, parsed. ``sha256`` is the hash of the whole file's text."""

    name: str
    version: str
    source: str
    sha256: str
    description: str
    _stable: Template
    _context: Template

    def render(self, context: Mapping[str, Any]) -> RenderedPrompt:
        """Fill in both parts.

        Args:
            context: ``organization`` and ``assistant`` for both parts; ``contact``, ``now`` and ``channel`` for the
                context part alone. Texts of ``contact`` lose line breaks and everything after 80 characters, because
                customers choose their names.

        Raises:
            ConfigError: A variable is not defined, or the template cannot run; names file, line and variable.
        """
        known = {name: value for name, value in context.items() if name in CONTEXT_VARIABLES}
        if isinstance(known.get("contact"), Mapping):
            known["contact"] = {
                name: shorten(value, _CONTACT_CHARACTERS) if isinstance(value, str) else value
                for name, value in known["contact"].items()
            }
        stable = self._fill(self._stable, {name: known[name] for name in STABLE_VARIABLES if name in known})
        return RenderedPrompt(stable, self._fill(self._context, known), _sha256(stable))

    def _fill(self, template: Template, values: Mapping[str, Any]) -> str:
        try:
            return template.render(values).strip()
        except UndefinedError as error:
            quoted = re.findall(r"'([^']+)'", error.message or "")
            variable = quoted[-1] if quoted else "?"
            raise ConfigError(
                f"{self.source}, line {_line_of(error, self.source)}: variable {variable!r} is not defined "
                f"({error.message})",
                hint=f"defined here: {', '.join(sorted(values))}",
                code="prompt",
            ) from error
        except (TemplateError, TypeError, ValueError, ArithmeticError) as error:
            raise ConfigError(
                f"{self.source}, line {_line_of(error, self.source)}: cannot be rendered: {error}", code="prompt"
            ) from error


def load_prompt(prompts_dir: Path, name: str, version: str) -> Prompt:
    """Read ``<prompts_dir>/<name>/<version>.md``.

    Raises:
        NotFoundError: There is no such prompt or version; the hint lists the versions that exist.
        ConfigError: The file cannot be used; names file and line.
    """
    for part in (name, version):
        if not _PLAIN_NAME.fullmatch(part):
            raise ConfigError(f"{part!r} cannot name a prompt: letters, digits, '.', '_' and '-' only", code="prompt")
    path = prompts_dir / name / f"{version}.md"
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        versions = sorted(file.stem for file in path.parent.glob("*.md"))
        hint = f"versions of {name}: {', '.join(versions)}" if versions else f"{prompts_dir} has no folder {name!r}"
        raise NotFoundError(f"there is no prompt {name}/{version}", hint=hint, code="prompt_not_found") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path}: cannot be read: {error}", code="prompt") from None
    return parse_prompt(text, name=name, version=version, source=str(path))


@lru_cache(maxsize=64)  # compiling takes longer than the rest of a turn; a changed file is another text
def parse_prompt(text: str, *, name: str, version: str, source: str) -> Prompt:
    """Parse the text of a prompt; ``source`` names it in errors. See ``load_prompt``."""
    lines = text.splitlines()
    body_at, description = _front_matter(lines, source)
    marks = [number for number, line in enumerate(lines) if number >= body_at and line.strip() == _MARKER]
    if len(marks) != 1:
        raise ConfigError(
            f"{source}: has {len(marks)} lines {_MARKER!r}; exactly one separates the stable part from the context",
            code="prompt",
        )
    return Prompt(
        name=name,
        version=version,
        source=source,
        sha256=_sha256(text),
        description=description,
        _stable=_template(lines[body_at : marks[0]], body_at, source, STABLE_VARIABLES, "the stable part"),
        _context=_template(lines[marks[0] + 1 :], marks[0] + 1, source, CONTEXT_VARIABLES, "the context part"),
    )


def _front_matter(lines: list[str], source: str) -> tuple[int, str]:
    """Return where the body begins, counted from 0, and the description."""
    if not lines or lines[0].strip() != _FENCE:
        raise ConfigError(f"{source}, line 1: must be {_FENCE!r}, then front matter in TOML", code="prompt")
    end = next((number for number, line in enumerate(lines[1:], 1) if line.strip() == _FENCE), None)
    if end is None:
        raise ConfigError(f"{source}: the front matter has no closing {_FENCE!r}", code="prompt")
    try:
        front = tomllib.loads("\n" + "\n".join(lines[1:end]) + "\n")
    except tomllib.TOMLDecodeError as error:
        raise ConfigError(f"{source}: front matter is not valid TOML: {error}", code="prompt") from None
    unknown = sorted(front.keys() - {"description"})
    if unknown:
        raise ConfigError(
            f"{source}: unknown key {unknown[0]!r} in the front matter (known: description)", code="prompt"
        )
    return end + 1, str(front.get("description", ""))


def _template(lines: list[str], offset: int, source: str, allowed: frozenset[str], part: str) -> Template:
    # Empty lines in front keep Jinja's line numbers equal to those of the file.
    text = "\n" * offset + "\n".join(lines)
    try:
        tree = _ENVIRONMENT.parse(text, filename=source)
        forbidden = find_undeclared_variables(tree) - allowed
        for node in tree.find_all(nodes.Name):
            if node.name in forbidden:
                raise ConfigError(
                    f"{source}, line {node.lineno}: variable {node.name!r} is not defined in {part}",
                    hint=f"defined there: {', '.join(sorted(allowed))}",
                    code="prompt",
                )
        code = _ENVIRONMENT.compile(text, name=source, filename=source)
    except TemplateSyntaxError as error:
        raise ConfigError(f"{source}, line {error.lineno}: {error.message}", code="prompt") from None
    return Template.from_code(_ENVIRONMENT, code, _ENVIRONMENT.make_globals(None))


def _line_of(error: BaseException, source: str) -> int | str:
    lines = [frame.lineno for frame in extract_tb(error.__traceback__) if frame.filename == source and frame.lineno]
    return lines[-1] if lines else "?"


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()
