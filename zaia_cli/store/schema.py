"""The whole schema: importing this module fills ``metadata`` with every table.

Idea: migrations and tests ask one place what the database should look like. Invariant: the migrations build exactly
this. Tested in ``tests/store/test_schema.py``.
"""

from __future__ import annotations

from zaia_cli.store import schema_outbox, schema_work
from zaia_cli.store.columns import metadata

__all__ = ["metadata", "schema_outbox", "schema_work"]
