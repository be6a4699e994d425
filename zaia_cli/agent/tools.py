"""Tools of a turn: what they are, the two built-in ones, and how a call is checked.

Idea: a tool is built with its conversation and sees only that; the loop decides when it runs. Invariant: a tool's
passing failure is a short sentence for the model, never an exception text. Tested in ``tests/unit/test_loop.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any, Literal, Protocol
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from zaia_cli.core.chat import ToolSpec
from zaia_cli.core.errors import ConfigError
from zaia_cli.core.text import fold

__all__ = [
    "BUILT_IN",
    "LATER",
    "CloseConversation",
    "Department",
    "Tool",
    "ToolContext",
    "ToolResult",
    "TransferToDepartment",
    "TurnEnd",
    "choose_tools",
    "invalid_arguments",
]


@dataclass(frozen=True, slots=True)
class Department:
    """A department of the organization and who answers there; ``assignee`` empty: the organization's own."""

    id: UUID
    name: str
    assignee: str


@dataclass(frozen=True, slots=True)
class ToolContext:
    """What a tool knows: its own conversation and company, and a key that is the same for every repeat of this call."""

    organization_id: str
    conversation_id: UUID
    departments: tuple[Department, ...]
    idempotency_key: str


@dataclass(frozen=True, slots=True)
class TurnEnd:
    """The turn ends with this act; it takes effect in the turn's commit and nothing more is said."""

    kind: Literal["transfer", "close"]
    department: Department | None = None
    note: str = ""


@dataclass(frozen=True, slots=True)
class ToolResult:
    """What the model reads, and whether the turn ends here."""

    text: str
    end: TurnEnd | None = None


class Tool(Protocol):
    """One tool. ``side_effect``: it acts on the world; ``requires_approval``: a person decides before it runs."""

    name: str
    arguments: type[BaseModel]
    side_effect: bool
    requires_approval: bool

    @property
    def spec(self) -> ToolSpec: ...

    async def run(self, arguments: BaseModel, context: ToolContext) -> ToolResult:
        """Act. Raise ``TurnError`` to end the turn; any other exception becomes a sentence for the model."""
        ...


class _Arguments(BaseModel):
    model_config = ConfigDict(extra="ignore")


class _TransferArguments(_Arguments):
    department: str = Field(description="Nome do setor")
    reason: str = Field(default="", description="O que o cliente pediu e o que já foi tentado, para quem vai atender")


class _CloseArguments(_Arguments):
    summary: str = Field(default="", description="Resumo do que foi resolvido")


class TransferToDepartment:
    """Give the conversation to a department. Names match without case and accents; wildcards are literal."""

    name = "transfer_to_department"
    arguments: type[BaseModel] = _TransferArguments
    side_effect = False
    requires_approval = False

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(
            self.name,
            "Transfere a conversa para uma pessoa de um setor. Use quando o cliente pedir uma pessoa ou quando não "
            "puder resolver. Depois disso nada mais é dito.",
            _TransferArguments.model_json_schema(),
        )

    async def run(self, arguments: BaseModel, context: ToolContext) -> ToolResult:
        assert isinstance(arguments, _TransferArguments)
        wanted = fold(arguments.department)
        for department in context.departments:
            if fold(department.name) == wanted:
                return ToolResult(
                    f"transferido para {department.name}", TurnEnd("transfer", department, arguments.reason)
                )
        names = ", ".join(department.name for department in context.departments) or "nenhum cadastrado"
        return ToolResult(f"Não existe o setor {arguments.department!r}. Setores: {names}. Qual deles?")


class CloseConversation:
    """Mark the conversation as resolved. Text beside the call is dropped."""

    name = "close_conversation"
    arguments: type[BaseModel] = _CloseArguments
    side_effect = False
    requires_approval = False

    @property
    def spec(self) -> ToolSpec:
        return ToolSpec(
            self.name,
            "Encerra a conversa quando o cliente confirmou que não precisa de mais nada.",
            _CloseArguments.model_json_schema(),
        )

    async def run(self, arguments: BaseModel, context: ToolContext) -> ToolResult:
        assert isinstance(arguments, _CloseArguments)
        return ToolResult("conversa encerrada", TurnEnd("close", note=arguments.summary))


BUILT_IN: Mapping[str, Tool] = {tool.name: tool for tool in (TransferToDepartment(), CloseConversation())}

LATER = frozenset({"search_knowledge"})
"""Names that organization files may use already; left out until they exist."""


def choose_tools(names: Sequence[str], available: Mapping[str, Tool]) -> dict[str, Tool]:
    """Pick an assistant's tools in a fixed order (by name), so that the prompt's prefix is stable.

    Raises:
        ConfigError: A name is not a tool. ``search_knowledge`` is accepted and left out while there is no knowledge
        base.
    """
    chosen: dict[str, Tool] = {}
    for name in sorted(names):
        if name in available:
            chosen[name] = available[name]
        elif name not in LATER:
            near = get_close_matches(name, [*available, *LATER], n=1) or sorted(available)
            raise ConfigError(f"there is no tool {name!r}", hint=f"did you mean {', '.join(near)}?")
    return chosen


def invalid_arguments(tool: Tool, arguments: Mapping[str, Any]) -> tuple[BaseModel | None, str]:
    """Validate arguments strictly; what does not fit comes back as a sentence for the model, never as a guess."""
    try:
        return tool.arguments.model_validate(arguments, strict=True), ""
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"]) or "arguments"
        return None, f"Argumento inválido em {where}: {first['msg']}. Corrija e chame de novo."
