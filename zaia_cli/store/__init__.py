"""Floor 2: PostgreSQL: embedded server, schema, migrations and named statements."""
