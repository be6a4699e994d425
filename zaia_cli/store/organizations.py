"""Organizations in the database: applying a file, reading it back, writing it out again.

Idea: the file is compared with what is stored, differences are written in one transaction and told one by one.
Invariant: applying twice changes nothing; a channel account belongs to one organization; what history refers to is
kept; no secret is stored, only names of environment variables. Tested in ``tests/store/test_organizations.py``.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import psycopg

from zaia_cli.core.errors import NotFoundError, RefusedError
from zaia_cli.core.ids import new_id
from zaia_cli.core.organization import AssistantFile, ChannelFile, DepartmentFile, OrganizationFile
from zaia_cli.core.text import fold
from zaia_cli.store.database import Database, Session

__all__ = ["Applied", "Change", "apply", "export", "list_organizations", "read", "require", "to_toml"]

Row = Mapping[str, Any]

_SETTINGS = (
    "handoff_message",
    "ack_message",
    "ack_after_s",
    "duplicate_message",
    "unsupported_message",
    "human_assignee",
)
_BUDGETS = ("daily_budget_usd", "monthly_budget_usd")
_ACCOUNT = ("assistant", "base_url", "token_env", "app_secret_env", "verify_token_env")


@dataclass(frozen=True, slots=True)
class Change:
    """What became of one thing of the file, or of one that the file no longer has. ``why`` explains ``kept``."""

    what: str
    change: Literal["created", "updated", "unchanged", "removed", "kept"]
    why: str = ""


@dataclass(frozen=True, slots=True)
class Applied:
    """What ``apply`` did to the organization ``slug``, in the order of the file."""

    slug: str
    changes: tuple[Change, ...]

    @property
    def outcome(self) -> Literal["created", "updated", "unchanged"]:
        """The whole in one word."""
        if self.changes[0].change == "created":
            return "created"
        touched = any(change.change in ("created", "updated", "removed") for change in self.changes)
        return "updated" if touched else "unchanged"


async def apply(db: Database, file: OrganizationFile) -> Applied:
    """Make the database say what the file says, in one transaction; applying the same file again changes nothing.

    Channels, assistants and departments that the file no longer
    has are removed when nothing refers to them, else kept.

    Raises:
        RefusedError: A channel account belongs to another organization; nothing was changed.
    """
    slug = file.organization.slug
    async with db.transaction() as session:
        await session.run("reports_organizations.lock", slug=slug)
        changes = [await _put_organization(session, file)]
        await _claim_routes(session, file)
        changes += await _put_departments(session, slug, file.departments)
        changes += await _put_assistants(session, slug, file.assistants)
        changes += await _put_accounts(session, slug, file.channels)
        changes += await _remove_rest(session, file)
    return Applied(slug, tuple(changes))


async def list_organizations(db: Database) -> list[dict[str, Any]]:
    """List organizations by slug with how many assistants, departments and channels each has."""
    return list(await db.run("reports_organizations.list"))


async def require(db: Database, slug: str | None) -> None:
    """Do nothing when ``slug`` is None or there, so that a report never counts a misspelt organization as empty.

    Raises:
        NotFoundError: No such organization.
    """
    if slug is not None and not await db.run("reports_organizations.organization", slug=slug):
        raise NotFoundError(f"no organization {slug!r}", hint="zaia org list")


async def read(db: Database, slug: str) -> dict[str, Any]:
    """Read one organization as the file would say it, with times of creation and of each channel's last event.

    Raises:
        NotFoundError: No such organization.
    """
    async with db.transaction() as session:
        found = await session.run("reports_organizations.organization", slug=slug)
        if not found:
            raise NotFoundError(f"no organization {slug!r}", hint="zaia org list")
        departments = await session.run("reports_organizations.departments", slug=slug)
        assistants = await session.run("reports_organizations.assistants", slug=slug)
        accounts = await session.run("reports_organizations.accounts", slug=slug)
    stored = found[0]
    settings = stored["settings"]
    section = {"slug": slug, "name": stored["name"], "timezone": stored["timezone"]}
    section |= {name: settings[name] for name in _SETTINGS if name in settings}
    return {
        "organization": section | settings.get("budgets", {}),
        "departments": [{"name": row["name"], "assignee": row["assignee"]} for row in departments],
        "assistants": [
            {name: value for name, value in row.items() if name != "budgets"} | row["budgets"] for row in assistants
        ],
        "channels": [
            {"kind": row["channel"], "account": row["account"], **{name: row[name] for name in _ACCOUNT}}
            | {"last_event_at": row["last_event_at"]}
            for row in accounts
        ],
        "priority_rules": settings.get("priority_rules", []),
        "created_at": stored["created_at"],
    }


async def export(db: Database, slug: str) -> str:
    """Write the organization file of what is stored: applying it changes nothing.

    Raises:
        NotFoundError: No such organization.
    """
    return to_toml(await read(db, slug))


def to_toml(document: Row) -> str:
    """Write what ``read`` returned as the TOML of an organization file; what a file does not hold is left out."""
    blocks = ["\n".join(["[organization]", *_pairs(document["organization"])])]
    for section in ("departments", "assistants", "channels", "priority_rules"):
        for row in document[section]:
            kept = {name: value for name, value in row.items() if name != "last_event_at"}
            blocks.append("\n".join([f"[[{section}]]", *_pairs(kept)]))
    return "\n\n".join(blocks) + "\n"


def _pairs(table: Row) -> list[str]:
    return [f"{name} = {_toml_value(value)}" for name, value in table.items()]


def _toml_value(value: Any) -> str:
    if isinstance(value, str):
        # A JSON string is a TOML basic string, but for DEL, which TOML wants escaped.
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if isinstance(value, list):
        return f"[{', '.join(map(_toml_value, value))}]"
    if isinstance(value, Mapping):
        inner = (
            f"{_toml_value(name)} = {_toml_value(held)}" for name, held in value.items() if held not in (None, {}, [])
        )
        return f"{{ {', '.join(inner)} }}"
    return repr(value)


async def _put_organization(session: Session, file: OrganizationFile) -> Change:
    section = file.organization
    budgets = _budgets(section)
    rules = [rule.model_dump(mode="json", by_alias=True) for rule in file.priority_rules]
    settings = {name: getattr(section, name) for name in _SETTINGS} | {"budgets": budgets, "priority_rules": rules}
    wanted = {"id": section.slug, "name": section.name, "timezone": section.timezone, "settings": settings}
    found = await session.run("reports_organizations.organization", slug=section.slug)
    if found:
        known = {name: found[0]["settings"].get(name) for name in settings}
        if {
            "name": found[0]["name"],
            "timezone": found[0]["timezone"],
            "settings": known,
            "id": section.slug,
        } == wanted:
            return Change(f"organization {section.slug}", "unchanged")
    await session.run("reports_organizations.put_organization", [wanted])
    return Change(f"organization {section.slug}", "updated" if found else "created")


async def _claim_routes(session: Session, file: OrganizationFile) -> None:
    slug = file.organization.slug
    rows = [{"channel": channel.kind, "account": channel.account} for channel in file.channels]
    await session.run("reports_organizations.claim_routes", rows, slug=slug)
    taken = await session.run("reports_organizations.foreign_routes", rows, slug=slug)
    if taken:
        named = ", ".join(f"{row['channel']} account {row['account']}" for row in taken)
        raise RefusedError(
            f"{named} already belongs to another organization; nothing was changed",
            hint="remove the channel from that organization first, or correct the account",
            code="channel_taken",
        )


async def _put_departments(session: Session, slug: str, files: tuple[DepartmentFile, ...]) -> list[Change]:
    wanted = {
        fold(file.name): {"name": file.name, "name_key": fold(file.name), "assignee": file.assignee} for file in files
    }
    stored = {row["name_key"]: row for row in await session.run("reports_organizations.departments", slug=slug)}
    differing, changes = _compared(wanted, stored, lambda row: f"department {row['name']}")
    await session.run(
        "reports_organizations.put_departments", [{"id": new_id(), **row} for row in differing], slug=slug
    )
    return changes


async def _put_assistants(session: Session, slug: str, files: tuple[AssistantFile, ...]) -> list[Change]:
    stored = {row["slug"]: row for row in await session.run("reports_organizations.assistants", slug=slug)}
    wanted = {
        file.slug: {
            "slug": file.slug,
            "prompt": file.prompt,
            "prompt_version": file.prompt_version,
            "model": file.model,
            "fallback_models": list(file.fallback_models),
            "tools": list(file.tools),
            "budgets": _budgets(file),
        }
        for file in files
    }
    differing, changes = _compared(wanted, stored, lambda row: f"assistant {row['slug']}")
    await session.run("reports_organizations.put_assistants", differing, slug=slug)
    return changes


async def _put_accounts(session: Session, slug: str, files: tuple[ChannelFile, ...]) -> list[Change]:
    wanted = {
        (file.kind, file.account): {
            "channel": file.kind,
            "account": file.account,
            **{name: getattr(file, name) for name in _ACCOUNT},
        }
        for file in files
    }
    rows = await session.run("reports_organizations.accounts", slug=slug)
    stored = {(row["channel"], row["account"]): row for row in rows}
    differing, changes = _compared(wanted, stored, lambda row: f"channel {row['channel']}:{row['account']}")
    await session.run("reports_organizations.put_accounts", differing, slug=slug)
    return changes


async def _remove_rest(session: Session, file: OrganizationFile) -> list[Change]:
    slug = file.organization.slug
    changes = []
    channels = {(channel.kind, channel.account) for channel in file.channels}
    for row in await session.run("reports_organizations.accounts", slug=slug):
        if (row["channel"], row["account"]) not in channels:
            key = {"channel": row["channel"], "account": row["account"]}
            changes.append(
                await _remove(
                    session,
                    "reports_organizations.drop_account",
                    f"channel {row['channel']}:{row['account']}",
                    slug,
                    **key,
                )
            )
    assistants = {assistant.slug for assistant in file.assistants}
    for row in await session.run("reports_organizations.assistants", slug=slug):
        if row["slug"] not in assistants:
            changes.append(
                await _remove(
                    session,
                    "reports_organizations.drop_assistant",
                    f"assistant {row['slug']}",
                    slug,
                    assistant=row["slug"],
                )
            )
    departments = {fold(department.name) for department in file.departments}
    for row in await session.run("reports_organizations.departments", slug=slug):
        if row["name_key"] not in departments:
            key = {"name_key": row["name_key"]}
            changes.append(
                await _remove(
                    session, "reports_organizations.drop_department", f"department {row['name']}", slug, **key
                )
            )
    return changes


async def _remove(session: Session, statement: str, what: str, slug: str, **key: str) -> Change:
    await session.execute("SAVEPOINT removal")
    try:
        gone = await session.run(statement, None, slug=slug, **key)
    except psycopg.errors.ForeignKeyViolation:
        await session.execute("ROLLBACK TO SAVEPOINT removal")
        gone = []
    if gone:
        return Change(what, "removed")
    return Change(what, "kept", "not in the file, but its history refers to it")


def _compared(
    wanted: Mapping[Any, dict[str, Any]], stored: Mapping[Any, Row], name: Callable[[Row], str]
) -> tuple[list[dict[str, Any]], list[Change]]:
    differing, changes = [], []
    for key, row in wanted.items():
        before = stored.get(key)
        if before is not None and all(before[column] == value for column, value in row.items()):
            changes.append(Change(name(row), "unchanged"))
            continue
        differing.append(row)
        changes.append(Change(name(row), "created" if before is None else "updated"))
    return differing, changes


def _budgets(section: Any) -> dict[str, str]:
    return {name: format(value, "f") for name in _BUDGETS if (value := getattr(section, name)) != ""}
