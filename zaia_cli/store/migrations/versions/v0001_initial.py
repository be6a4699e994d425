"""The first schema, as plain SQL beside this file."""

from __future__ import annotations

from pathlib import Path

from alembic import op

__all__ = ["down_revision", "downgrade", "revision", "upgrade"]

revision = "0001"
down_revision = None


def upgrade() -> None:
    op.get_bind().exec_driver_sql(Path(__file__).with_suffix(".sql").read_text(encoding="utf-8"))


def downgrade() -> None:
    raise NotImplementedError("there is nothing before the first schema; restore a backup instead")
