"""The database that the migrations build is the one that ``store/schema.py`` describes."""

from __future__ import annotations

import re

import psycopg
from alembic.autogenerate import compare_metadata
from alembic.migration import MigrationContext
from sqlalchemy import CheckConstraint, create_engine

from zaia_cli.core.states import ITEM_STATES, PART_STATES
from zaia_cli.store.schema import metadata

_OWN_KEYS = {"organizations", "channel_routes", "rejected_inputs", "workers"}


def test_migrations_build_the_described_schema(dsn: str) -> None:
    engine = create_engine("postgresql+psycopg://", creator=lambda: psycopg.connect(dsn))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"compare_server_default": True})
        assert compare_metadata(context, metadata) == []
    engine.dispose()


def test_migrations_build_every_check_constraint(dsn: str) -> None:
    described = {
        str(constraint.name)
        for table in metadata.tables.values()
        for constraint in table.constraints
        if isinstance(constraint, CheckConstraint)
    }
    with psycopg.connect(dsn) as connection:
        built = {row[0] for row in connection.execute("SELECT conname FROM pg_constraint WHERE contype = 'c'")}
    assert {name for name in built if name.startswith("ck_")} == described


def test_states_are_checked_by_the_database(dsn: str) -> None:
    with psycopg.connect(dsn) as connection:
        for name, states in (("ck_work_items_state", ITEM_STATES), ("ck_parts_state", PART_STATES)):
            row = connection.execute("SELECT pg_get_constraintdef(oid) FROM pg_constraint WHERE conname = %s", [name])
            found = row.fetchone()
            assert found is not None
            assert set(re.findall(r"'(\w+)'", found[0])) == set(states)


def test_every_table_of_a_company_begins_its_keys_with_the_company() -> None:
    for name, table in metadata.tables.items():
        if name not in _OWN_KEYS:
            assert next(iter(table.primary_key.columns)).name == "organization_id", name
