"""Two companies with the same customers, messages and names never meet: the database itself refuses it."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import psycopg
import pytest
from sqlalchemy import (
    CheckConstraint,
    Column,
    Connection,
    ForeignKeyConstraint,
    NullPool,
    Table,
    create_engine,
    insert,
    text,
)
from sqlalchemy.exc import IntegrityError

from zaia_cli.core.ids import new_id
from zaia_cli.store.columns import ORG
from zaia_cli.store.schema import metadata

GLOBAL = {"organizations", "channel_routes", "rejected_inputs", "workers"}
TENANT = [table for table in metadata.sorted_tables if table.name not in GLOBAL]
SAME_ID = UUID("01890a5d-ac96-774b-bcce-b302099a8057")
ONE_OF = re.compile(r"^(\w+) IN \('([^']*)'")


def pointers() -> list[ForeignKeyConstraint]:
    found = [
        constraint
        for table in TENANT
        for constraint in table.foreign_key_constraints
        if constraint.referred_table.name != "organizations"
    ]
    return sorted(found, key=pointer_name)


def pointer_name(pointer: ForeignKeyConstraint) -> str:
    assert isinstance(pointer.parent, Table)
    return f"{pointer.parent.name}({','.join(pointer.column_keys)})"


def own_columns(pointer: ForeignKeyConstraint) -> list[tuple[str, str]]:
    pairs = zip(pointer.column_keys, (element.column.name for element in pointer.elements), strict=True)
    return [(here, there) for here, there in pairs if here != ORG]


class World:
    """Makes valid rows of any table, parents first; ``is_same`` gives both companies equal ids and words."""

    def __init__(self, connection: Connection, *, is_same: bool = False) -> None:
        self.connection = connection
        self.is_same = is_same
        self.made: dict[tuple[str, str], dict[str, Any]] = {}
        for slug in ("one", "two"):
            connection.execute(insert(metadata.tables["organizations"]).values(id=slug, name="Loja", timezone="UTC"))

    def row(self, table: Table, organization: str, given: dict[str, Any] | None = None) -> dict[str, Any]:
        """Insert a row, or return the one that this company already has; ``given`` columns are taken as they are."""
        if given is None and (table.name, organization) in self.made:
            return self.made[table.name, organization]
        values = {ORG: organization, **(given or {})}
        for pointer in sorted(table.foreign_key_constraints, key=pointer_name):
            if pointer.referred_table.name == "organizations" or all(
                name in values for name, _ in own_columns(pointer)
            ):
                continue
            parent = self.row(pointer.referred_table, organization)
            values |= {here: parent[there] for here, there in own_columns(pointer)}
        for column in table.columns:
            if column.name not in values and not column.nullable and not column.identity and not column.server_default:
                values[column.name] = self.value(table, column)
        done = self.connection.execute(insert(table).values(values).returning(*table.columns)).mappings().one()
        self.made.setdefault((table.name, organization), dict(done))
        return dict(done)

    def value(self, table: Table, column: Column[Any]) -> Any:
        for constraint in table.constraints:
            match = ONE_OF.match(str(constraint.sqltext)) if isinstance(constraint, CheckConstraint) else None
            if match is not None and match[1] == column.name:
                return match[2]
        kind = column.type.python_type
        if kind is UUID:
            return SAME_ID if self.is_same else new_id()
        samples: dict[type, Any] = {
            str: "5511900010000",
            int: 1,
            bool: True,
            datetime: datetime(2026, 10, 6, tzinfo=UTC),
        }
        return samples[kind] if self.is_same or kind is not str else str(new_id())


@pytest.fixture
def connection(dsn: str) -> Iterator[Connection]:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn), poolclass=NullPool)
    with engine.connect() as opened, opened.begin() as transaction:
        yield opened
        transaction.rollback()


@pytest.mark.parametrize("table", TENANT, ids=lambda table: table.name)
def test_two_companies_may_have_rows_that_are_equal_but_for_the_company(table: Table, connection: Connection) -> None:
    world = World(connection, is_same=True)
    first, second = world.row(table, "one"), world.row(table, "two")
    identities = {column.name for column in table.columns if column.identity}
    differing = {name for name in first if first[name] != second[name]}
    assert differing - identities == {ORG}


@pytest.mark.parametrize("pointer", pointers(), ids=pointer_name)
def test_no_row_points_into_another_company(pointer: ForeignKeyConstraint, connection: Connection) -> None:
    world = World(connection)
    table = pointer.parent
    assert isinstance(table, Table)
    parent = world.row(pointer.referred_table, "two")
    crossing = {here: parent[there] for here, there in own_columns(pointer)}
    connection.execute(text("SET CONSTRAINTS ALL IMMEDIATE"))
    with pytest.raises(IntegrityError) as refused, connection.begin_nested():
        world.row(table, "one", crossing)
    assert isinstance(refused.value.orig, psycopg.errors.ForeignKeyViolation)
    assert refused.value.orig.diag.table_name == table.name
    refused_columns = re.match(r"Key \(([^)]*)\)", refused.value.orig.diag.message_detail or "")
    assert refused_columns is not None
    assert refused_columns[1].split(", ") == [ORG, *(here for here, _ in own_columns(pointer))]


@pytest.mark.parametrize("pointer", pointers(), ids=pointer_name)
def test_the_same_row_is_accepted_inside_its_own_company(pointer: ForeignKeyConstraint, connection: Connection) -> None:
    world = World(connection)
    table = pointer.parent
    assert isinstance(table, Table)
    parent = world.row(pointer.referred_table, "two")
    world.row(table, "two", {here: parent[there] for here, there in own_columns(pointer)})


def test_every_key_of_a_company_begins_with_the_company(dsn: str) -> None:
    with psycopg.connect(dsn) as opened:
        keys = opened.execute(
            "SELECT c.relname, i.relname, a.attname FROM pg_index x"
            " JOIN pg_class c ON c.oid = x.indrelid JOIN pg_class i ON i.oid = x.indexrelid"
            " JOIN pg_namespace n ON n.oid = c.relnamespace"
            " JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum = x.indkey[0]"
            " WHERE n.nspname = 'public' AND x.indisunique"
        ).fetchall()
    tenants = {table.name for table in TENANT}
    assert {table for table, _, _ in keys} >= tenants
    assert [key for key in keys if key[0] in tenants and key[2] != ORG] == []


def test_every_foreign_key_of_a_company_begins_with_the_company(dsn: str) -> None:
    with psycopg.connect(dsn) as opened:
        found = opened.execute(
            "SELECT c.relname, f.conname, here.attname, t.relname, there.attname FROM pg_constraint f"
            " JOIN pg_class c ON c.oid = f.conrelid JOIN pg_class t ON t.oid = f.confrelid"
            " JOIN pg_attribute here ON here.attrelid = c.oid AND here.attnum = f.conkey[1]"
            " JOIN pg_attribute there ON there.attrelid = t.oid AND there.attnum = f.confkey[1]"
            " WHERE f.contype = 'f'"
        ).fetchall()
    assert len(found) >= len(pointers()) + len(TENANT)
    wrong = [row for row in found if row[2] != ORG or row[4] != ("id" if row[3] == "organizations" else ORG)]
    assert wrong == []


def test_every_table_is_a_companys_or_known_to_be_everybodys(dsn: str) -> None:
    with psycopg.connect(dsn) as opened:
        found = opened.execute(
            "SELECT t.table_name FROM information_schema.tables t WHERE t.table_schema = 'public'"
            " AND t.table_name <> 'alembic_version' AND NOT EXISTS (SELECT FROM information_schema.columns c"
            " WHERE c.table_schema = 'public' AND c.table_name = t.table_name"
            " AND c.column_name = 'organization_id' AND c.is_nullable = 'NO')"
        ).fetchall()
    assert {name for (name,) in found} <= GLOBAL
    assert set(metadata.tables) >= {name for (name,) in found}


def test_one_account_of_a_channel_has_one_company(connection: Connection) -> None:
    World(connection)
    route = {"channel": "whatsapp", "account": "100000000000001"}
    connection.execute(insert(metadata.tables["channel_routes"]).values(**route, organization_id="one"))
    with pytest.raises(IntegrityError) as refused, connection.begin_nested():
        connection.execute(insert(metadata.tables["channel_routes"]).values(**route, organization_id="two"))
    assert isinstance(refused.value.orig, psycopg.errors.UniqueViolation)
