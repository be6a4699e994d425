"""How a table of one company is written down: columns, keys and composite foreign keys.

Idea: ``tenant`` is the only way to make a company's table, so no table can forget the company in its keys. Invariant:
every primary key begins with ``organization_id`` and every foreign key carries it. Tested in
``tests/store/test_schema.py``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from sqlalchemy import (
    BigInteger,
    Boolean,
    CheckConstraint,
    Column,
    DateTime,
    ForeignKeyConstraint,
    Integer,
    MetaData,
    PrimaryKeyConstraint,
    Table,
    Text,
    Uuid,
    func,
    text,
)
from sqlalchemy.dialects.postgresql import JSONB

__all__ = [
    "ORG",
    "document",
    "flag",
    "identifier",
    "metadata",
    "moment",
    "number",
    "one_of",
    "points",
    "tenant",
    "words",
]

metadata = MetaData(
    naming_convention={
        "ix": "ix_%(table_name)s_%(column_0_N_name)s",
        "uq": "uq_%(table_name)s_%(column_0_N_name)s",
        "ck": "ck_%(table_name)s_%(constraint_name)s",
        "fk": "fk_%(table_name)s_%(column_0_N_name)s",
        "pk": "pk_%(table_name)s",
    }
)

ORG = "organization_id"


def words(name: str, default: str | None = None, *, null: bool = False) -> Column[Any]:
    return Column(name, Text, nullable=null, server_default=None if default is None else text(f"'{default}'"))


def moment(name: str, *, null: bool = True, now: bool = False) -> Column[Any]:
    return Column(name, DateTime(timezone=True), nullable=null and not now, server_default=func.now() if now else None)


def number(name: str, default: int | None = None, *, null: bool = False, big: bool = False) -> Column[Any]:
    kind = BigInteger if big else Integer
    return Column(name, kind, nullable=null, server_default=None if default is None else text(str(default)))


def document(name: str, default: str | None = None) -> Column[Any]:
    return Column(
        name, JSONB, nullable=default is None, server_default=None if default is None else text(f"'{default}'::jsonb")
    )


def identifier(name: str = "id", *, null: bool = False) -> Column[Any]:
    return Column(name, Uuid, nullable=null)


def flag(name: str, default: str = "false") -> Column[Any]:
    return Column(name, Boolean, nullable=False, server_default=text(default))


def one_of(name: str, values: Sequence[str], column: str | None = None) -> CheckConstraint:
    listed = ", ".join(f"'{value}'" for value in values)
    return CheckConstraint(f"{column or name} IN ({listed})", name=name)


def tenant(name: str, *parts: Any, key: Sequence[str] = ("id",)) -> Table:
    """A table of one company: ``organization_id`` leads the primary key and points to the company."""
    return Table(
        name,
        metadata,
        words(ORG),
        *parts,
        PrimaryKeyConstraint(ORG, *key),
        ForeignKeyConstraint([ORG], ["organizations.id"], name=f"fk_{name}_organization"),
    )


def points(*columns: str, to: str, at: Sequence[str] = ("id",), **options: Any) -> ForeignKeyConstraint:
    return ForeignKeyConstraint([ORG, *columns], [f"{to}.{ORG}", *(f"{to}.{column}" for column in at)], **options)
