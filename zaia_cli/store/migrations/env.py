"""Alembic's entry point: runs on the connection, and in the transaction, that ``store/migrate.py`` opened.

Idea: no ini file and no URL here. Invariant: nothing is committed by Alembic itself. Tested in
``tests/store/test_migrate.py``.
"""

from alembic import context

from zaia_cli.store.schema import metadata

context.configure(connection=context.config.attributes["connection"], target_metadata=metadata)

with context.begin_transaction():
    context.run_migrations()
